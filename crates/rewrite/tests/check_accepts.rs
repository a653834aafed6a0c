//! The checker agrees with everything that the planner makes of real binaries.

mod common;

use fettle_cfg::SkipReason;
use fettle_rewrite::{PlanOptions, plan};

#[test]
fn real_binaries_in_every_mode() {
    let mut binaries = 0;
    let mut functions = 0;
    for path in common::BINARIES {
        let Some((image, lifted)) = common::open(path) else { continue };
        binaries += 1;
        for mode in common::MODES {
            let plan = plan(&image, &lifted, PlanOptions { mode, select: &|_| true });
            functions += plan.functions.len();
            let rejected: Vec<_> =
                plan.skipped.iter().filter(|s| s.reason == SkipReason::CheckFailed).collect();
            assert!(rejected.is_empty(), "{path} {mode:?}: {rejected:#?}");
        }
    }
    println!("{functions} functions of {binaries} binaries");
    assert!(binaries > 0, "none of the binaries is there");
}
