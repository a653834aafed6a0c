//! The checker agrees with everything that the planner makes of real binaries.

mod common;

use std::collections::HashMap;

use fettle_code::{ENTRY_PATCH_SIZE, Mode, Probing};
use fettle_image::LinkAddr;
use fettle_isa::Flow;
use fettle_lift::{Placement, SkipReason};
use fettle_rewrite::PlanOptions;

#[test]
fn real_binaries_with_every_kind_of_probes() {
    let mut binaries = 0;
    let mut functions = 0;
    let mut random = common::Random(common::seed());
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        binaries += 1;
        for (probes, pointers, what) in common::with_pointers(&lifted) {
            let what = format!("{}, {what}", common::describe(&probes));
            let shuffled = Placement::shuffled(&lifted.functions, random.below(1 << 30) as u64);
            let mut kept = Vec::new();
            // All of them would take long.
            let shuffles = probes.mode == Mode::Plain || random.below(3) == 0;
            for placement in [None, Some(&shuffled)].iter().take(1 + usize::from(shuffles)) {
                let placement = *placement;
                let probes = probes.clone();
                let options =
                    PlanOptions { placement, pointers, osr_map: true, ..PlanOptions::new(probes) };
                let (plan, rejected) = common::checked(&image, &lifted, options);
                kept.push(plan.functions.len());
                let placed = placement.is_some();
                assert!(rejected.is_empty(), "{path} {what} {placed}: {rejected:#?}");
            }
            // Any order will do for what can be copied at all.
            assert!(kept.iter().all(|n| *n == kept[0]), "{path} {what}: {kept:?}");
            functions += kept.iter().sum::<usize>();
        }
    }
    println!("{functions} functions of {binaries} binaries");
    assert!(binaries > 0, "none of the binaries is there");
}

/// Rewritten text for all functions.
fn everything(mode: Mode) -> PlanOptions<'static> {
    PlanOptions::new(Probing::new(mode))
}

#[test]
fn tables_in_one_place_have_one_copy() {
    let (mut copies, mut tables) = (0, 0);
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        let options = PlanOptions { osr_map: true, ..everything(Mode::Plain) };
        let plan = fettle_rewrite::plan(&image, &lifted, options);
        let mut places: Vec<_> = lifted
            .functions
            .iter()
            .flat_map(|f| f.tables.iter().filter(|t| t.movable).map(|t| (f.entry, t.start)))
            .collect();
        tables += places.len();
        places.sort_unstable();
        places.dedup();
        assert!(plan.tables.len() <= places.len(), "{path}: {} copies", plan.tables.len());
        copies += plan.tables.len();
    }
    assert!(copies < tables, "none of the binaries has two jumps through one table");
}

/// Functions whose ends are guessed, with traps behind a call and then other code, of which it is not
/// known whose it is; and one that traps while a register holds the address of its jump table.
const TRAPS: &str = r#"
    .macro function name, skip, call, traps
    .p2align 4, 0xcc
    .globl \name
    \name: test %edi, %edi
    js 1f
    lea 1(%rdi), %eax
    ret
    .p2align 4, 0x90
    .skip \skip, 0x90
    1: call \call
    .skip \traps, 0xcc
    mov $7, %eax
    ret
    .endm
    function filled, 10, work@PLT, 17
    function unclear, 10, work@PLT, 1
    function guarded, 10, __stack_chk_fail@PLT, 1
    function handled, 4, work@PLT, 1
    .globl switches
    switches: cmp $1, %edi
    ja 3f
    mov %edi, %ecx
    lea 9f(%rip), %rsi
    movslq (%rsi, %rcx, 4), %rcx
    add %rsi, %rcx
    jmp *%rcx
    2: int3
    mov $1, %eax
    3: ret
    .section .rodata
    .p2align 2
    9: .long 2b - 9b, 3b - 9b
"#;

/// Linkers fill the room between functions with traps, which are no part of the function before it.
#[test]
fn traps_that_fill_room_end_a_function() {
    let image = common::assembled(TRAPS, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    let last_of = |name: &str| {
        let function = lifted.functions.iter().find(|f| f.name.as_deref() == Some(name))?;
        function.facts.last().zip(function.insns.last()).map(|(facts, insn)| facts.flow(insn))
    };
    assert_eq!(last_of("filled"), Some(Flow::Trap));
    assert_eq!(last_of("guarded"), Some(Flow::Trap));
    assert_eq!(last_of("handled"), Some(Flow::Return));
    // A handler may see the address of a table, which does not keep that where it is.
    assert!(lifted.functions.iter().flat_map(|f| &f.tables).all(|table| table.movable));
    let skipped: Vec<_> = lifted.skipped.iter().map(|s| (s.name.as_deref(), s.reason)).collect();
    assert_eq!(skipped, [(Some("unclear"), SkipReason::StrangeFlow)]);
    let options = PlanOptions { osr_map: true, ..everything(Mode::Events) };
    assert_eq!(fettle_rewrite::plan(&image, &lifted, options).functions.len(), 4);
}

/// A register holds the address of a table behind a call that is known to leave it alone, and is pushed:
/// GCC makes room on the stack like that where code is to be small (Debian's Lua).
const ROOM: &str = r#"
    .hidden leaf
    .globl leaf
    .type leaf, @function
    leaf: xor %eax, %eax
    nop
    nop
    nop
    ret
    .size leaf, . - leaf
    .globl switches
    .type switches, @function
    switches: cmp $1, %edi
    ja 3f
    mov %edi, %ecx
    lea 9f(%rip), %rdx
    movslq (%rdx, %rcx, 4), %rcx
    add %rdx, %rcx
    jmp *%rcx
    2: call leaf
    push %rdx
    call leaf
    add $8, %rsp
    3: ret
    .size switches, . - switches
    .section .rodata
    .p2align 2
    9: .long 2b - 9b, 3b - 9b
"#;

#[test]
fn what_is_left_of_a_table_may_be_pushed() {
    let image = common::assembled(ROOM, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    assert!(lifted.functions.iter().flat_map(|f| &f.tables).any(|table| table.movable));
    let options = everything(Mode::Events);
    let plan = fettle_rewrite::plan(&image, &lifted, options);
    assert_eq!((plan.functions.len(), plan.skipped.len()), (2, 0), "{:?}", plan.skipped);
}

/// OSR entries and deopt points are found when they are asked for, and only then.
#[test]
fn osr_maps_are_made_when_they_are_wanted() {
    let image = common::assembled(ROOM, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    let osr_map = |wanted| {
        let options = PlanOptions { osr_map: wanted, ..everything(Mode::Events) };
        let plan = fettle_rewrite::plan(&image, &lifted, options);
        let each = plan.functions.iter().map(|f| &f.osr_map);
        each.map(|c| (c.deopt_points.len(), c.returns.len(), c.parts.len())).collect::<Vec<_>>()
    };
    assert_eq!(osr_map(false), [(0, 0, 0); 2]);
    let wanted = osr_map(true);
    assert!(
        wanted.iter().all(|(deopt_points, _, parts)| *deopt_points > 0 && *parts == 1),
        "{wanted:?}"
    );
    assert_eq!(wanted[1].1, 2);
}

/// The C library jumps past a `lock` prefix where there is one thread: nothing may be written over it.
const UNLOCKED: &str = r#"
    .globl counts
    .type counts, @function
    counts: mov %edi, %eax
    1: cmpl $0, %esi
    je 2f + 1
    2: lock incl (%rdx)
    sub $1, %eax
    jne 1b
    ret
    .size counts, . - counts
"#;

#[test]
fn what_jumps_past_a_prefix_lead_to_is_no_entrance() {
    let image = common::assembled(UNLOCKED, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    let options = PlanOptions { osr_map: true, ..everything(Mode::Plain) };
    let plan = fettle_rewrite::plan(&image, &lifted, options);
    let function = &lifted.functions[0];
    let locked = function.insns.iter().find(|insn| insn.has_lock_prefix()).unwrap().ip();
    assert!(lifted.targets.contains(&LinkAddr(locked + 1)));
    let osr_entries: Vec<u64> =
        plan.functions[0].osr_map.osr_entries.iter().map(|e| e.0.0 - function.entry.0).collect();
    assert_eq!(osr_entries, [2]);
}

/// A way back to the original takes the place of a block's first bytes, so nothing may come to what is
/// behind the first of them: a block may have been only padding, of which nothing is left.
#[test]
fn nothing_comes_into_the_middle_of_a_way_back() {
    let mut deopt_points = 0;
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        for mode in [Mode::Plain, Mode::Blocks, Mode::Events] {
            let options = PlanOptions { osr_map: true, ..everything(mode) };
            let plan = fettle_rewrite::plan(&image, &lifted, options);
            let mut ways: Vec<u32> =
                plan.functions.iter().flat_map(|f| &f.osr_map.deopt_points).map(|l| l.1).collect();
            ways.sort_unstable();
            deopt_points += ways.len();
            let returns = plan.functions.iter().flat_map(|f| &f.osr_map.returns);
            let returns = returns.map(|(from, to)| (from.0, *to));
            let jumps = jumps(&plan.text).into_iter().map(|(from, to)| (from.into(), to));
            for (from, to) in jumps.chain(returns) {
                let way = ways[..ways.partition_point(|way| *way < to)].last();
                let inside = way.is_some_and(|way| to < way + ENTRY_PATCH_SIZE as u32);
                assert!(!inside, "{path}, {mode:?}: {from:#x} leads to {to:#x}, in {way:#x?}");
            }
        }
    }
    assert!(deopt_points > 10_000, "{deopt_points}");
}

/// A thread whose PC is where a call returns to is led to the same place of the original. So nothing
/// else may come there if the original has nothing there, behind a noreturn call.
#[test]
fn what_calls_do_not_come_back_to_is_nothing_else() {
    let mut ends = 0;
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        let shuffled = Placement::shuffled(&lifted.functions, 7);
        for (mode, placement) in [(Mode::Edges, None), (Mode::Plain, Some(&shuffled))] {
            let options = PlanOptions { osr_map: true, placement, ..everything(mode) };
            let plan = fettle_rewrite::plan(&image, &lifted, options);
            let jumps = jumps(&plan.text).into_iter();
            let targets: HashMap<u32, u32> = jumps.map(|(from, to)| (to, from)).collect();
            for planned in &plan.functions {
                let function =
                    lifted.functions.binary_search_by_key(&planned.entry, |f| f.entry).unwrap();
                let insns = &lifted.functions[function].insns;
                for (original, new) in &planned.osr_map.returns {
                    if insns.binary_search_by_key(&original.0, fettle_isa::Insn::ip).is_ok() {
                        continue;
                    }
                    ends += 1;
                    let from = targets.get(new);
                    assert_eq!(from, None, "{path}, {mode:?}: {original} and {new:#x}");
                    assert_eq!(plan.text[*new as usize], 0xcc, "{path}, {mode:?}: {original}");
                }
            }
        }
    }
    assert!(ends > 1000, "{ends}");
}

/// Where jumps within rewritten text lead that are complete before it has its place: from and to. Others
/// still lead to what is behind them.
fn jumps(text: &[u8]) -> Vec<(u32, u32)> {
    let decoder = iced_x86::Decoder::new(64, text, iced_x86::DecoderOptions::NONE);
    let jumps = decoder.into_iter().filter(|insn| {
        let jumps = insn.is_jcc_short_or_near() || insn.is_jmp_short_or_near();
        jumps && insn.near_branch_target() != insn.next_ip()
    });
    jumps.map(|insn| (insn.ip() as u32, insn.near_branch_target() as u32)).collect()
}
