//! All functions of a real kernel through emitter and checker, where a snapshot of one is there
//! (`cargo xtask kernel --snapshot`).

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fettle_kernel_check::{Why, check, refusals};
use fettle_kernel_emit::counts::counts;
use fettle_kernel_emit::{Counting, Order, emit, plan};
use fettle_kernel_image::{Image, snapshot};
use fettle_kernel_lift::{KernelFunction, Lifter, Reason};
use fettle_kernel_plan::{Plan, Target, Value};

fn snapshots() -> Vec<PathBuf> {
    snapshot::kept(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
}

/// What the checker does not agree with, by reason, with examples.
fn tally(
    lifter: &Lifter<'_>,
    functions: &[KernelFunction],
    order: &Order,
    counting: Counting,
) -> usize {
    let image: &Image = lifter.image();
    let began = std::time::Instant::now();
    let emission = emit(lifter, functions, order, counting);
    let emitted = began.elapsed();
    let refused = refusals(image, &emission.plan);
    let mut skipped: BTreeMap<Reason, usize> = BTreeMap::new();
    emission.skipped.iter().for_each(|one| *skipped.entry(one.reason).or_default() += 1);
    let mut by: BTreeMap<Why, Vec<String>> = BTreeMap::new();
    refused.iter().for_each(|one| by.entry(one.why).or_default().push(one.to_string()));
    println!(
        "{counting:?}: {} of {} lifted emitted in {emitted:?}, {} bytes, {} counters, {} refused, all in {:?}; skipped {skipped:?}",
        emission.plan.functions.len(),
        functions.len(),
        emission.plan.parts.iter().map(|part| part.text.len()).sum::<usize>(),
        emission.counters.len(),
        refused.len(),
        began.elapsed(),
    );
    for (why, all) in &by {
        println!("{:6} {}: {:?}", all.len(), why.describe(), &all[..all.len().min(4)]);
    }
    assert!(refused.is_empty(), "{by:?}");
    emission.plan.functions.len()
}

#[test]
fn all_functions_pass_the_checker() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let lifter = Lifter::new(&image);
        let all = lifter.traceable().len();
        let (functions, _) = lifter.lift(&lifter.traceable());
        let passed = tally(&lifter, &functions, &Order::Shuffled(1), Counting::Blocks);
        println!("{}: {passed} of {all} functions pass", image.release);
        assert!(passed * 100 >= all * 98, "{passed} of {all}");
        // Each eighth of the functions in other ways.
        let some = |from: usize| &functions[from * functions.len() / 8..][..functions.len() / 8];
        tally(&lifter, some(2), &Order::Identity, Counting::Off);
        tally(&lifter, some(5), &Order::Shuffled(2), Counting::Edges);
    }
}

/// Functions with static keys, static calls, faults, warnings and cold parts.
const NAMES: [&str; 15] = [
    "vfs_read",
    "vfs_write",
    "pipe_read",
    "pipe_write",
    "tcp_v4_rcv",
    "tcp_rcv_established",
    "tcp_sendmsg_locked",
    "ksys_read",
    "ksys_write",
    "do_sys_openat2",
    "path_openat",
    "try_to_wake_up",
    "select_task_rq_fair",
    "schedule",
    "filldir64",
];

#[test]
fn a_plan_by_names_can_be_kept() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let emission = plan(&image, &NAMES, &Order::Shuffled(7), Counting::Blocks).unwrap();
        let bytes = postcard::to_stdvec(&emission.plan).unwrap();
        let read: Plan = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, emission.plan);
        check(&image, &read).unwrap();
        assert_eq!(read.counters as usize, emission.counters.len());
        assert!(read.functions.iter().all(|function| function.patch.is_some()));
        let missing = plan(&image, &["no_such_function"], &Order::Identity, Counting::Off);
        assert_eq!(missing.unwrap_err().reason, Reason::NoFunction);
    }
}

/// Something wrong that is done to a plan; `None` where there is nothing to do it to.
type Damage = fn(&mut Plan, usize) -> Option<()>;

/// Kinds of damage.
const KINDS: [(&str, Damage); 16] = [
    ("a byte", |plan, n| {
        let part = &mut plan.parts[n % 15];
        let at = n * 7919 % part.text.len();
        let field = |r: &fettle_kernel_plan::Reference| (r.at..r.at + 4).contains(&(at as u32));
        let free = part.text[at] != 0xcc && !part.references.iter().any(field);
        free.then(|| part.text[at] ^= 1)
    }),
    ("a reference's target", |plan, n| {
        let references = &mut plan.parts[n % 15].references;
        let i = n % references.len().max(1);
        match &mut references.get_mut(i)?.value {
            Value::Relative { target: Target::Kernel(to), .. } => *to += 1,
            Value::Relative { target: Target::Part { offset, .. }, .. } => *offset += 1,
            Value::Counter(number) => *number ^= 1,
            _ => return None,
        }
        Some(())
    }),
    ("a reference less", |plan, n| {
        let references = &mut plan.parts[n % 15].references;
        (!references.is_empty()).then(|| _ = references.remove(n % references.len()))
    }),
    ("an origin", |plan, n| {
        let origins = &mut plan.parts[n % 15].origins;
        let i = n % origins.len();
        origins[i].original += 1;
        Some(())
    }),
    ("an origin less", |plan, n| {
        let origins = &mut plan.parts[n % 15].origins;
        origins.remove(n % origins.len());
        Some(())
    }),
    ("an unwind row", |plan, n| {
        let rows = &mut plan.parts[n % 15].orc;
        let i = n % rows.len();
        rows[i].entry[0] ^= 8;
        Some(())
    }),
    ("an unwind row less", |plan, n| {
        let rows = &mut plan.parts[n % 15].orc;
        (rows.len() > 1).then(|| _ = rows.remove(1 + n % (rows.len() - 1)))
    }),
    ("a static key", |plan, n| {
        let part = plan.parts.iter_mut().filter(|p| !p.jump_labels.is_empty()).nth(n % 3)?;
        part.jump_labels[0].key ^= 1;
        Some(())
    }),
    ("a static key's target", |plan, n| {
        let part = plan.parts.iter_mut().filter(|p| !p.jump_labels.is_empty()).nth(n % 3)?;
        part.jump_labels[0].target = Target::Part { part: 0, offset: 0 };
        Some(())
    }),
    ("a static call less", |plan, n| {
        let part = plan.parts.iter_mut().filter(|p| !p.static_calls.is_empty()).nth(n % 2)?;
        part.static_calls.pop().map(|_| ())
    }),
    ("a fixup", |plan, _| {
        let part = plan.parts.iter_mut().find(|p| !p.exceptions.is_empty())?;
        part.exceptions[0].fixup = Target::Part { part: 0, offset: 0 };
        Some(())
    }),
    ("a fixup less", |plan, _| plan.parts.iter_mut().find_map(|p| p.exceptions.pop()).map(|_| ())),
    ("a warning less", |plan, _| plan.parts.iter_mut().find_map(|p| p.bugs.pop()).map(|_| ())),
    ("a warning's line", |plan, _| {
        plan.parts.iter_mut().find_map(|p| p.bugs.first_mut()).map(|bug| bug.line += 1)
    }),
    ("the patch's place", |plan, n| {
        plan.functions[n % 15].patch.as_mut().map(|patch| patch.at += 1)
    }),
    ("where the patch leads", |plan, n| {
        plan.functions[n % 15].patch.as_mut().map(|patch| patch.to += 1)
    }),
];

/// Whatever is changed in a plan, the checker must see it.
#[test]
fn every_kind_of_damage_is_found() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let order = Order::Shuffled(3);
        let whole = plan(&image, &NAMES, &order, Counting::Blocks).unwrap().plan;
        check(&image, &whole).unwrap();
        for (kind, damage) in &KINDS {
            let mut done = 0;
            for n in 0..12 {
                let mut damaged = whole.clone();
                if damage(&mut damaged, n).is_none() || damaged == whole {
                    continue;
                }
                done += 1;
                assert!(check(&image, &damaged).is_err(), "{kind}, {n}: not found");
            }
            assert!(done > 0, "{kind}: there was nothing to damage");
        }
    }
}

/// How much of a function's edges follows from counters of its blocks, and that all do from counters of
/// edges: of every sixteenth function.
#[test]
fn most_edges_follow_from_blocks() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let lifter = Lifter::new(&image);
        let some: Vec<u64> = lifter.traceable().into_iter().step_by(16).collect();
        let (functions, _) = lifter.lift(&some);
        for counting in [Counting::Blocks, Counting::Edges] {
            let counters = emit(&lifter, &functions, &Order::Identity, counting).counters;
            let mut places: BTreeMap<u64, Vec<_>> = BTreeMap::new();
            counters
                .iter()
                .for_each(|c| places.entry(c.function).or_default().extend(c.meaning.place()));
            let (mut edges, mut exact, mut whole, mut all) = (0, 0, 0, 0);
            for function in functions.iter().filter(|f| f.code.blocks.len() < 500) {
                let Some(places) = places.get(&function.entry()) else { continue };
                let walked = common::walked(function, &mut common::Dice(function.entry()));
                let reported = counts(function, common::counted(&walked, places));
                assert!(!reported.inconsistent, "{}", function.name);
                for (one, (edge, count)) in reported.edges.iter().zip(&walked) {
                    assert!(!one.exact || one.count == *count, "{} {edge:?}", function.name);
                }
                edges += reported.edges.len();
                exact += reported.edges.iter().filter(|edge| edge.exact).count();
                (whole, all) = (whole + usize::from(reported.is_exact()), all + 1);
            }
            println!(
                "{} {counting:?}: {exact} of {edges} edges, {whole} of {all} functions",
                image.release
            );
            match counting {
                Counting::Edges => assert_eq!((exact, whole), (edges, all)),
                _ => assert!(exact * 100 >= edges * 90),
            }
        }
    }
}
