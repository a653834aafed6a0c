//! One build of the torture program, plain and recorded, with the binary that the tests were
//! built with. `cargo xtask torture` runs all builds in all modes.

use xtask::{fettle, repo, torture};

#[test]
fn torture_survives_recording() {
    let binary = repo::target().join("debug/fettle");
    if !binary.is_file() || !fettle::can_record(&binary) {
        eprintln!("skipped: 1 (the fettle binary is not built, or cannot record)");
        return;
    }
    let options = torture::Options { filter: "gcc-O2".into(), ..torture::Options::quick(&binary) };
    let tally = torture::run(&options).unwrap();
    assert_eq!(tally.failed(), 0);
}
