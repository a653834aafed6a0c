//! The checker agrees with everything that the planner makes of real binaries.

mod common;

use fettle_cfg::SkipReason;
use fettle_rewrite::{PlanOptions, plan};

#[test]
fn real_binaries_with_every_kind_of_probes() {
    let mut binaries = 0;
    let mut functions = 0;
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        binaries += 1;
        for probes in common::variants(&lifted) {
            let what = common::describe(&probes);
            let plan =
                plan(&image, &lifted, PlanOptions { probes, select: &|_| true, places: &[] });
            functions += plan.functions.len();
            let rejected: Vec<_> =
                plan.skipped.iter().filter(|s| s.reason == SkipReason::CheckFailed).collect();
            assert!(rejected.is_empty(), "{path} {what}: {rejected:#?}");
        }
    }
    println!("{functions} functions of {binaries} binaries");
    assert!(binaries > 0, "none of the binaries is there");
}
