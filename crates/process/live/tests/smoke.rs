//! One small program, all the way.

mod common;
use common::*;
use fettle_live::*;

#[test]
fn true_is_true() {
    let (mut recorder, counter) = counting_recorder();
    let status = run(&launch("/bin/true", &[]), &mut recorder, options(WaitFor::All)).unwrap();
    assert_eq!(status, ExitStatus::Code(0));
    assert_eq!(recorder.errors(), Vec::<String>::new());
    recorder.assert_lives_are_whole();
    assert_eq!(counts(&counter), (1, 1));
}
