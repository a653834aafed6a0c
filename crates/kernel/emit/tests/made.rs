//! A small kernel made by hand through lifter, emitter and checker; and damaged ones, for a second each.

mod common;

use std::time::{Duration, Instant};

use common::{Dice, kernel};
use fettle_kernel_check::{check, refusals};
use fettle_kernel_emit::counts::counts;
use fettle_kernel_emit::{Counting, Order, Promotions, emit, emit_promoted};
use fettle_kernel_image::made::Files;
use fettle_kernel_lift::{KernelFunction, Lifter, Reason};
use fettle_kernel_plan::{Target, Value};
use fettle_lift::{BlockId, Chunk, Placement};

const COUNTINGS: [Counting; 3] = [Counting::Off, Counting::Blocks, Counting::Edges];

#[test]
fn any_order_of_a_made_kernel_passes() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    assert!(lifter.noreturn().contains(image.symbols.address("gives_up").unwrap()));
    let (functions, skipped) = lifter.lift(&lifter.traceable());
    assert!(skipped.is_empty(), "{skipped:?}");
    for counting in COUNTINGS {
        for seed in 0..100 {
            let order = if seed == 0 { Order::Identity } else { Order::Shuffled(seed) };
            let emission = emit(&lifter, &functions, &order, counting);
            assert!(emission.skipped.is_empty(), "{:?}", emission.skipped);
            if let Err(refusal) = check(&image, &emission.plan) {
                panic!("{counting:?}, seed {seed}: {refusal}");
            }
        }
    }
}

/// A placement that has one function whole, with its blocks backwards, and another in part.
#[test]
fn a_placement_that_does_not_fit_is_not_taken() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    let of = |name: &str| functions.iter().find(|function| function.name == name).unwrap();
    let (whole, half) = (of("looping"), of("caller"));
    let mut blocks: Vec<BlockId> = (0..whole.code.blocks.len() as u32).map(BlockId).collect();
    blocks[1..].reverse();
    let chunk = |function: &KernelFunction, blocks| Chunk {
        function: function.code.entry,
        blocks,
        align: 48,
    };
    let chunks = vec![chunk(half, vec![half.code.entry_block()]), chunk(whole, blocks)];
    let order = Order::Placed(Placement::new(chunks));
    let plan = emit(&lifter, &functions, &order, Counting::Off).plan;
    check(&image, &plan).unwrap();
    assert_eq!(plan.functions.len(), functions.len());
    let name = |part: &fettle_kernel_plan::Part| &*plan.functions[part.function as usize].name;
    assert_eq!((name(&plan.parts[0]), plan.parts[0].align), ("looping", 64));
    let parts: Vec<&str> = plan.parts.iter().map(name).filter(|name| *name == "caller").collect();
    // Its own range, and the cold part.
    assert_eq!(parts.len(), 2);
}

/// Whatever ways are gone, counters of edges tell all of them, and what is called exact is.
#[test]
fn counters_tell_edges() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    for counting in [Counting::Edges, Counting::Blocks] {
        let counters = emit(&lifter, &functions, &Order::Identity, counting).counters;
        for (seed, function) in (1..20).flat_map(|seed| functions.iter().map(move |f| (seed, f))) {
            let walked = common::walked(function, &mut Dice(seed));
            let own = counters.iter().filter(|counter| counter.function == function.entry());
            let places: Vec<_> = own.filter_map(|counter| counter.meaning.place()).collect();
            let reported = counts(function, common::counted(&walked, &places));
            assert!(
                !reported.inconsistent && (reported.is_exact() || counting == Counting::Blocks)
            );
            for (one, (edge, count)) in reported.edges.iter().zip(&walked) {
                assert_eq!(one.edge, *edge);
                assert!(!one.exact || one.count == *count, "{}: {one:?} {count}", function.name);
            }
        }
    }
}

#[test]
fn what_rewritten_text_of_a_made_kernel_has() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    let plan = emit(&lifter, &functions, &Order::Identity, Counting::Off).plan;
    let all = |of: fn(&fettle_kernel_plan::Part) -> usize| plan.parts.iter().map(of).sum::<usize>();
    assert_eq!(all(|part| part.exceptions.len()), 1);
    assert_eq!(all(|part| part.bugs.len()), 1);
    assert_eq!(all(|part| part.static_calls.len()), 2);
    // The second key is sealed: its label is gone.
    assert_eq!(all(|part| part.jump_labels.len()), 1);
    let by_name = |name: &str| plan.functions.iter().position(|f| f.name == name).unwrap();
    let caller = &plan.parts[plan.functions[by_name("caller")].entry as usize];
    let callee = Target::Part { part: plan.functions[by_name("looping")].entry, offset: 0 };
    let leads =
        |r: &fettle_kernel_plan::Reference| r.value == Value::Relative { target: callee, tail: 0 };
    assert!(caller.references.iter().any(leads), "a call in the group leads to rewritten text");
    // A label lies where the jump would.
    assert!(plan.functions[by_name("keyed")].patch.is_none());
    assert!(plan.functions[by_name("caller")].patch.is_some());
}

#[test]
fn what_is_not_certain_is_left_unmodified() {
    let mut made = kernel();
    made.function("probed", &[0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0xcc, 0x90, 0xc3]);
    made.function("returns_far", &[0x0f, 0x1f, 0x44, 0, 0, 0x48, 0xcf]);
    made.function("loops", &[0x0f, 0x1f, 0x44, 0, 0, 0xe2, 0xfe, 0xc3]);
    made.function("__x86_odd", &[0x31, 0xc0, 0xc3]);
    made.function("table", &[0x0f, 0x1f, 0x44, 0, 0, 0xff, 0x24, 0xc5, 0, 0, 0, 0x81]);
    made.function("runs_off", &[0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0]);
    let image = made.files().image().unwrap();
    let lifter = Lifter::new(&image);
    for (name, reason) in [
        ("probed", Reason::Probed),
        ("returns_far", Reason::StrangeFlow),
        ("loops", Reason::CounterJump),
        ("__x86_odd", Reason::NoFentry),
        ("table", Reason::JumpTable),
        ("runs_off", Reason::RunsOffEnd),
    ] {
        let (_, skipped) = lifter.lift(&[image.symbols.address(name).unwrap()]);
        assert_eq!(skipped.iter().map(|s| s.reason).collect::<Vec<_>>(), [reason], "{name}");
    }
}

/// A function that no tracer sees is rewritten for calls from the plan alone, and its counters put the flags
/// back: it may give something in them.
#[test]
fn without_a_place_for_tracers_no_jump_leads_there() {
    let mut made = kernel();
    made.function("assembly", &[0x31, 0xc0, 0xc3]);
    made.function("compares", &[0x39, 0xf7, 0xc3]);
    let image = made.files().image().unwrap();
    let lifter = Lifter::new(&image);
    let entries = ["assembly", "compares"].map(|name| image.symbols.address(name).unwrap());
    let (functions, skipped) = lifter.lift(&entries);
    assert_eq!((functions.len(), skipped.len()), (2, 0));
    let emission = emit(&lifter, &functions, &Order::Identity, Counting::Blocks);
    fettle_kernel_check::check(&image, &emission.plan).unwrap();
    assert!(emission.plan.functions.iter().all(|function| function.patch.is_none()));
    // The one sets the flags first; the other does not need them before it sets them either.
    let mut text = emission.plan.parts.iter().map(|part| part.text.contains(&0x9c));
    assert!(!text.any(|saves| saves));
    let emission = emit(&lifter, &functions, &Order::Identity, Counting::Times);
    assert_eq!(emission.plan.functions.len(), 0, "its calls do not all come by rewritten text");
}

/// Calls and their ends are counted together with the time, where the checker finds each register as it was.
#[test]
fn time_is_taken_at_begins_and_ends() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    let emission = emit(&lifter, &functions, &Order::Identity, Counting::Times);
    assert!(!emission.plan.functions.is_empty());
    fettle_kernel_check::check(&image, &emission.plan).unwrap();
    assert_eq!(emission.counters.len(), 5 * emission.plan.functions.len());
    let ways = |bytes: [u8; 5]| {
        let texts = emission.plan.parts.iter();
        texts.map(|part| part.text.windows(5).filter(|five| *five == bytes).count()).sum::<usize>()
    };
    let (begins, ends) = (ways([0x65, 0x48, 0x29, 4, 0x25]), ways([0x65, 0x48, 1, 4, 0x25]));
    // By the clock, and virtual.
    assert_eq!(begins, 2 * emission.plan.functions.len());
    assert!(ends >= begins, "each function has a way out");
    calls_are_open_from_begins_to_ends(&emission.plan);
    // Without one of the last pops a register is not as it was; nor where the base is not read again.
    for (damaged, nth) in
        [(&[0x5a, 0x59, 0x58][..], 0), (&[0x5a, 0x59, 0x58], 2), (&[0x75, 0xe3], 0)]
    {
        let mut plan = emission.plan.clone();
        let text = &mut plan.parts[0].text;
        let at = text.windows(damaged.len()).position(|some| some == damaged).unwrap();
        text[at + nth] = 0x90;
        assert!(fettle_kernel_check::check(&image, &plan).is_err());
    }
}

/// An increment of the count of begins lies before the first open span, and one of ends at each one's end.
fn calls_are_open_from_begins_to_ends(plan: &fettle_kernel_plan::Plan) {
    let increment = [0x65, 0x48, 0xff, 4, 0x25];
    for part in &plan.parts {
        let entry = &plan.functions[part.function as usize];
        let counts: Vec<usize> = (0..part.text.len().saturating_sub(5))
            .filter(|at| part.text[*at..*at + 5] == increment)
            .collect();
        let open =
            |at: usize| part.open.iter().any(|s| (s.from as usize..s.to as usize).contains(&at));
        for (n, at) in counts.iter().enumerate() {
            let begins = plan.parts[entry.entry as usize] == *part && n == 0;
            assert_eq!(open(*at), !begins, "{}: count at {at}", entry.name);
        }
        assert!(part.open.is_sorted_by_key(|span| span.from));
        assert!(part.open.iter().all(|span| span.from < span.to));
    }
    assert!(plan.parts.iter().any(|part| !part.open.is_empty()));
}

/// A call by a thunk of each kind is promoted to a function of the plan, to one outside of it, and to the caller itself;
/// the checker finds every damage to what is new in it.
#[test]
fn calls_of_thunks_are_promoted() {
    let mut made = kernel();
    let looping = made.function("other_looping", &fettle_kernel_image::made::FENTRY_EXAMPLE);
    let calls: Vec<(u64, u64)> = ["rax", "r11"]
        .into_iter()
        .map(|register| {
            let thunk = made.function(&format!("__x86_indirect_thunk_{register}"), &[0xcc; 8]);
            common::calls_by(&mut made, &format!("calls_by_{register}"), thunk)
        })
        .collect();
    let image = made.files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, skipped) = lifter.lift(&lifter.traceable());
    assert!(skipped.is_empty(), "{skipped:?}");
    let outside: Vec<KernelFunction> =
        functions.iter().filter(|function| function.name != "other_looping").cloned().collect();
    for (functions, own) in [(&functions, false), (&outside, false), (&functions, true)] {
        let to = |entry: u64| if own { entry } else { looping };
        let promotions = Promotions(calls.iter().map(|(entry, at)| (*at, to(*entry))).collect());
        for seed in 0..20 {
            let order = if seed == 0 { Order::Identity } else { Order::Shuffled(seed) };
            let emitted =
                |promotions| emit_promoted(&lifter, functions, &order, Counting::Off, promotions);
            let plan = emitted(&promotions).plan;
            check(&image, &plan).unwrap_or_else(|refusal| panic!("{refusal}"));
            let plain = emitted(&Promotions::default()).plan;
            let size = |plan: &fettle_kernel_plan::Plan| -> usize {
                plan.parts.iter().map(|part| part.text.len()).sum()
            };
            assert!(size(&plan) >= size(&plain) + 2 * (7 + 2 + 5), "both are promoted");
            damaged_promotions_are_refused(&image, &plan);
        }
    }
}

fn damaged_promotions_are_refused(
    image: &fettle_kernel_image::Image,
    plan: &fettle_kernel_plan::Plan,
) {
    let mut seen = 0;
    for (n, part) in plan.parts.iter().enumerate() {
        let compares = |at: &usize| part.text[*at + 1] == 0x81 && part.text[*at] & 0xfe == 0x48;
        let Some(at) = (0..part.text.len().saturating_sub(16)).find(compares) else { continue };
        seen += 1;
        // Another register, condition, instruction.
        for (byte, bits) in [(0, 1), (2, 1), (7, 1), (8, 4), (9, 1)] {
            let mut plan = plan.clone();
            plan.parts[n].text[at + byte] ^= bits;
            assert!(check(image, &plan).is_err(), "byte {byte}");
        }
        // Another function is compared with than is called.
        let mut plan = plan.clone();
        let references = &mut plan.parts[n].references;
        let field = references.iter_mut().find(|one| one.at == at as u32 + 3).unwrap();
        let Value::Absolute32(Target::Kernel(with)) = &mut field.value else { panic!("{field:?}") };
        *with += 16;
        assert!(check(image, &plan).is_err());
    }
    assert_eq!(seen, 2);
}

/// What is notified of breakpoints is left as it is, though the kernel allows probes there.
#[test]
fn handlers_of_breakpoints_stay() {
    let mut made = kernel();
    let name = "hw_breakpoint_exceptions_notify";
    let entry = made.function(name, &fettle_kernel_image::made::FENTRY_EXAMPLE);
    let image = made.files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, skipped) = lifter.lift(&[entry]);
    assert!(functions.is_empty());
    assert_eq!((&*skipped[0].name, skipped[0].reason), (name, Reason::Blacklisted));
}

/// Where returns are safe by the place that they lie in, copies would lie in others.
#[test]
fn returns_stay_where_their_place_matters() {
    let mut made = kernel();
    let thunk = made.function("its_return_thunk", &[0xc3]);
    made.variable("x86_return_thunk", thunk);
    let image = made.files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (_, skipped) = lifter.lift(&[image.symbols.address("looping").unwrap()]);
    assert_eq!(skipped[0].reason, Reason::SpeculationPlace);
}

/// All steps with what a damaged kernel shows of itself: whatever it is, they end.
fn go_through(files: &Files) {
    let Ok(image) = files.image() else { return };
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    for counting in COUNTINGS {
        let emission = emit(&lifter, &functions, &Order::Shuffled(5), counting);
        let _ = refusals(&image, &emission.plan);
    }
}

#[test]
fn damaged_kernels_for_a_second() {
    let whole = kernel().files();
    let mut dice = Dice(1);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        go_through(&common::damaged(&whole, &mut dice));
    }
}

#[test]
fn damaged_plans_for_a_second() {
    let image = kernel().files().image().unwrap();
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    let plan = emit(&lifter, &functions, &Order::Shuffled(9), Counting::Blocks).plan;
    let bytes = postcard::to_stdvec(&plan).unwrap();
    let mut dice = Dice(1);
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let mut bytes = bytes.clone();
        dice.damage(&mut bytes);
        if let Ok(plan) = postcard::from_bytes(&bytes) {
            read += 1;
            let _ = check(&image, &plan);
        }
    }
    assert!(read > 0);
}
