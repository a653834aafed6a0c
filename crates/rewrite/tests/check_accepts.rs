//! The checker agrees with everything that the planner makes of real binaries.

mod common;

use std::sync::Mutex;

use fettle_cfg::Placement;
use fettle_rewrite::check::Checker;
use fettle_rewrite::plan::plan_checked_by;
use fettle_rewrite::{Mode, PlanOptions, Pointers, Probing};

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
                    PlanOptions { probes, select: &|_| true, places: &[], placement, pointers };
                let rejected = Mutex::new(Vec::new());
                let plan = plan_checked_by(&image, &lifted, options, || {
                    let mut checker = Checker::new(&image);
                    let rejected = &rejected;
                    move |claim, context| {
                        checker.check(claim, context).inspect_err(|error| {
                            let mut rejected = rejected.lock().expect("no panic before");
                            rejected.push(format!("{}: {error}", claim.function.entry));
                        })
                    }
                });
                kept.push(plan.functions.len());
                let rejected = rejected.into_inner().expect("no panic before");
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

#[test]
fn tables_in_one_place_have_one_copy() {
    let (mut copies, mut tables) = (0, 0);
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        let options = PlanOptions {
            probes: Probing::new(Mode::Plain),
            select: &|_| true,
            places: &[],
            placement: None,
            pointers: Pointers::Kept,
        };
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
