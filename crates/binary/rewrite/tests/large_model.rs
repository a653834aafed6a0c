//! In the large code model calls go through registers, and the compiler knows where to.

mod common;

use fettle_isa::{Gpr, RegSet};
use fettle_lift::liveness::{self, Callees, ExitLiveness, Liveness};
use fettle_lift::summary::{self, Index};

/// What GCC makes of a loop that calls a function which keeps `r10` and `r9` (`-fipa-ra`), of a function
/// that ends with a jump to that one, and of an indirect call that may lead anywhere.
const SOURCE: &str = r#"
    .macro function name
    .globl \name
    .type \name, @function
    .p2align 4
    \name:
    .endm
    .hidden leaf
    .weak elsewhere
    function leaf
    lea 1(%rdi), %eax
    ret
    .size leaf, . - leaf
    function jumps
    add $1, %edi
    movabs LEAF, %rax
    jmp *%rax
    .size jumps, . - jumps
    function loops
    mov %rdi, %r10
    xor %r9d, %r9d
    1: mov %r9d, %edi
    movabs LEAF, %rax
    call *%rax
    add $1, %r9d
    cmp $9, %r9d
    jne 1b
    mov %r9d, (%r10)
    ret
    .size loops, . - loops
    function anywhere
    sub $8, %rsp
    mov elsewhere@GOTPCREL(%rip), %rax
    call *%rdi
    add $8, %rsp
    ret
    .size anywhere, . - anywhere
"#;

#[test]
fn callers_count_on_registers_that_callees_keep() {
    let (free, fixed) = (["-shared", "-Wl,-Bsymbolic"], ["-no-pie", "-Wl,-eloops"]);
    for (constant, flags) in [("$leaf@GOTOFF", free), ("$leaf", fixed)] {
        let image = common::assembled(&SOURCE.replace("LEAF", constant), &flags);
        let lifted = fettle_lift::lift(&image);
        let functions = &lifted.functions;
        let index: Index = functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
        let number = |name: &str| {
            let found = functions.iter().position(|f| f.name.as_deref() == Some(name));
            found.unwrap_or_else(|| panic!("{name}: {:?}", lifted.skipped))
        };
        let summaries = summary::summaries(&image, functions, &index);
        let callers = summary::callers(&summaries);
        let clobbers = fettle_lift::clobbers::solve(&summaries, &callers);
        let kept = RegSet::of(&[Gpr::R10, Gpr::R11, Gpr::R8]);
        assert!(clobbers[number("jumps")].intersection(kept).is_empty(), "{constant}");
        assert_eq!(clobbers[number("anywhere")], RegSet::CALLER_SAVED);
        let inputs = vec![RegSet::NONE; functions.len()];
        let pointed = RegSet::NONE;
        let callees = Callees { index: &index, clobbers: &clobbers, inputs: &inputs, pointed };
        let loops = number("loops");
        let exits = ExitLiveness::new(clobbers[loops]);
        let mut memory = liveness::Memory::default();
        let live = Liveness::solve(&summaries[loops], exits, callees, &mut memory);
        let block = functions[loops].blocks[1].clone();
        let id = functions[loops].block_at(block.start).expect("a block");
        let needed = RegSet::of(&[Gpr::R9, Gpr::R10]);
        assert!(live.at_start(id).is_superset(needed), "{constant}");
        let call = block.insns.clone().find(|i| functions[loops].facts[*i as usize].calls());
        let before = live.before_insn(&functions[loops], id, call.expect("a call"), callees);
        assert!(before.is_superset(needed), "{constant}");
    }
}
