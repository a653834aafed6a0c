//! Functions that no compiler wrote go through the lifter, the emitter and the checker, in every mode and in
//! random orders: none is left unmodified, and none is refused. What they compute is compared by
//! `crates/app/cli/tests/random_functions.rs`, which records them. `FETTLE_SEED` repeats a run, and `FETTLE_KEEP` names
//! a file for the assembly.

mod common;
#[path = "common/functions.rs"]
mod functions;

use common::Random;
use fettle_lift::Placement;
use fettle_rewrite::PlanOptions;

/// Functions of a run.
const COUNT: usize = 400;

#[test]
fn every_one_is_rewritten_and_accepted() {
    let mut random = Random(common::seed());
    let source = functions::assembly(&mut random, COUNT);
    if let Some(file) = std::env::var_os("FETTLE_KEEP") {
        std::fs::write(file, &source).unwrap();
    }
    let image = common::assembled(&source, &["-shared", "-Wl,-Bsymbolic"]);
    let lifted = fettle_lift::lift(&image);
    let left: Vec<_> =
        lifted.skipped.iter().map(|s| (s.name.clone(), s.reason.describe())).collect();
    assert!(left.is_empty(), "left unmodified: {left:?}");
    assert_eq!(lifted.functions.len(), COUNT);
    for (probes, pointers, what) in common::with_pointers(&lifted) {
        let what = format!("{}, {what}", common::describe(&probes));
        let shuffled = Placement::shuffled(&lifted.functions, random.below(1 << 30) as u64);
        for placement in [None, Some(&shuffled)] {
            let probes = probes.clone();
            let options =
                PlanOptions { placement, pointers, osr_map: true, ..PlanOptions::new(probes) };
            let (plan, rejected) = common::checked(&image, &lifted, options);
            assert!(rejected.is_empty(), "{what}, {}: {rejected:#?}", placement.is_some());
            let left: Vec<_> =
                plan.skipped.iter().map(|s| (s.name.clone(), s.reason.describe())).collect();
            assert!(left.is_empty(), "{what}: {left:?}");
            assert_eq!(plan.functions.len(), COUNT, "{what}");
        }
    }
}
