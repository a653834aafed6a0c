//! Jumps at entries do not reach into code behind the function that no symbol names.

mod common;

use fettle_code::{Mode, Probing};
use fettle_lift::SkipReason;
use fettle_rewrite::PlanOptions;

/// Functions of three bytes, with something behind: code without a symbol, which is jumped to and which
/// is only called through a pointer that no one sees; and what assemblers fill up with.
const SOURCE: &str = r#"
    .macro small name
    .p2align 4
    .globl \name
    .type \name, @function
    \name:
    xor %eax, %eax
    ret
    .size \name, . - \name
    .endm
    small before_jumped_to
    nop
    1: mov 0x38(%rdi), %rax
    ret
    small before_unseen
    nop
    mov 0x38(%rdi), %rax
    ret
    small alone
    .globl jumps
    .type jumps, @function
    .p2align 4
    jumps:
    add $16, %rdi
    jmp 1b
    .size jumps, . - jumps
"#;

#[test]
fn what_nobody_knows_of_is_not_written_over() {
    let image = common::assembled(SOURCE, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    let plan = fettle_rewrite::plan(&image, &lifted, PlanOptions::new(Probing::new(Mode::Count)));
    let planned: Vec<_> = plan.functions.iter().filter_map(|f| f.name.as_deref()).collect();
    assert_eq!(planned, ["alone", "jumps"], "{:?}", plan.skipped);
    let small = plan.skipped.iter().filter(|s| s.reason == SkipReason::TooSmall);
    let small: Vec<_> = small.filter_map(|s| s.name.as_deref()).collect();
    assert_eq!(small, ["before_jumped_to", "before_unseen"]);
    let unknown = image.symbols().iter().find(|s| s.name == "before_jumped_to").unwrap().addr.0 + 4;
    assert!(lifted.targets.iter().any(|target| target.0 == unknown));
}
