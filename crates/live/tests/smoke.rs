mod common;
use common::*;
use fettle_live::*;

#[test]
fn true_is_true() {
    let counter = memfd(&[0; 4096]);
    let mut recorder = Recorder::new(move |stop| Some(counting_injection(stop, &counter)));
    let status = run(&Launch::new("/bin/true", []), &mut recorder, options(WaitFor::All)).unwrap();
    println!("{:#?}", recorder.events);
    assert_eq!(status, ExitStatus::Code(0));
    assert_eq!(recorder.errors(), Vec::<String>::new());
    recorder.assert_lives_are_whole();
}
