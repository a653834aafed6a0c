//! Threads that come and go, forks, scalars, histograms, storms of signals.

mod common;

use common::{Bench, Check, Language, Plan};
use fettle_sensor::{Policy, Sensor};

#[test]
fn rust_producer() {
    common::rust_producer();
}

fn run(bench: &Bench, args: &[&str]) -> std::process::Output {
    let output = bench.command(&common::compile("life")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

fn drain(sensor: Sensor) -> Vec<(u16, u64, u32)> {
    let mut events = Vec::new();
    let mut list = sensor.into_list().unwrap();
    let drained = list.drain(|event| events.push((event.number, event.words[0], event.thread)));
    assert_eq!(drained.unwrap().lost, 0);
    events
}

#[test]
fn sixty_four_threads() {
    for language in [Language::C, Language::Rust] {
        for slots in [65, 8, 1] {
            let bench = Bench::new();
            let (policy, events) = (Policy::Wait, 2000);
            let plan = Plan { policy, slots, ring_log2: 16, threads: 64, events };
            let mut producer = bench.produce(language, plan);
            let mut list = bench.wait_for("test.events").into_list().unwrap();
            let mut check = Check::default();
            println!("{language:?}, {slots} slots");
            while producer.child.try_wait().unwrap().is_none() {
                check.drain(&mut list);
            }
            check.finish(&mut list, &producer);
            assert_eq!(check.drained.read + check.drained.lost, 64 * events);
        }
    }
}

/// Whatever a consumer has only looked at when it ends, the next one sees.
#[test]
fn events_that_were_not_safe_are_seen_again() {
    for threads in [1, 3] {
        let bench = Bench::new();
        let plan = Plan { policy: Policy::Drop, slots: 4, ring_log2: 16, threads, events: 500 };
        let mut producer = bench.produce(Language::C, plan);
        producer.child.wait().unwrap();
        let words = |list: &mut fettle_sensor::List| {
            let mut found = Vec::new();
            list.look(|id, event| found.push((event.words[0], id))).unwrap();
            found
        };
        let mut list = bench.next_list("test.events");
        let all = words(&mut list);
        assert_eq!(all.len() as u64, 500 * threads);
        assert_eq!(words(&mut list), all);
        assert_eq!(list.sensor().account().unwrap().read, 0);
        // But for two in the middle, and of one ring nothing.
        let kept = |at: usize| at == 100 || at == 300 || at >= 1000;
        for (at, (_, id)) in all.iter().enumerate() {
            if !kept(at) {
                list.safe(*id);
            }
        }
        list.make_room();
        drop(list);
        let mut list = bench.next_list("test.events");
        let rest = words(&mut list);
        let wanted: Vec<u64> = all.iter().map(|(word, _)| *word).collect();
        let expected: Vec<u64> = match threads {
            1 => wanted[100..].to_vec(),
            // No event of the second ring waits for one of the first.
            _ => [&wanted[100..500], &wanted[1000..]].concat(),
        };
        assert_eq!(rest.iter().map(|(word, _)| *word).collect::<Vec<_>>(), expected);
        rest.iter().for_each(|(_, id)| list.safe(*id));
        assert_eq!(list.finish().unwrap().read, expected.len() as u64);
        let account = list.sensor().account().unwrap();
        assert_eq!((account.read, account.pending, account.lost), (500 * threads, 0, 0));
    }
}

#[test]
fn the_slots_of_ended_threads_are_used_again() {
    let bench = Bench::new();
    run(&bench, &["threads", "300"]);
    let sensor = bench.wait_for("test.life");
    // No thread had to use the shared ring: its first word, `reserved`, is 0.
    assert_eq!(std::fs::read(sensor.path()).unwrap()[4096..4104], [0; 8]);
    let events = drain(sensor);
    assert_eq!(events.len(), 300);
    let mut words: Vec<u64> = events.iter().map(|event| event.1).collect();
    words.sort();
    assert_eq!(words, (0..300).collect::<Vec<_>>());
}

#[test]
fn a_forked_child_has_sensors_of_its_own() {
    let bench = Bench::new();
    run(&bench, &["fork"]);
    let lists = bench.directory.find("test.life").unwrap().sensors;
    assert_eq!(lists.len(), 3);
    let mut pids = Vec::new();
    let mut counts = Vec::new();
    for list in lists {
        pids.push(list.description().producer.pid);
        let events = drain(list);
        assert!(events.iter().all(|e| e.0 == events[0].0 && e.2 == *pids.last().unwrap()));
        counts.push((events[0].0, events.len()));
    }
    counts.sort();
    assert_eq!(counts, [(1, 20), (2, 10), (3, 10)]);
    pids.dedup();
    assert_eq!(pids.len(), 3);
    let sums = bench.directory.find("test.sum").unwrap().sensors;
    let mut sums: Vec<i64> = sums.iter().map(|sum| sum.scalar().unwrap()).collect();
    sums.sort();
    assert_eq!(sums, [2, 20]);
}

#[test]
fn scalars_and_histograms_add_up() {
    let bench = Bench::new();
    run(&bench, &["numbers"]);
    assert_eq!(bench.wait_for("test.sum").scalar().unwrap(), 4 * 2 * 1000);
    assert_eq!(bench.wait_for("test.level").scalar().unwrap(), -5);
    let sizes = bench.wait_for("test.sizes").histogram().unwrap();
    assert_eq!((sizes.count(), sizes.sum()), (4000, Some(4 * 500_500)));
    let median = sizes.quantile(0.5).unwrap();
    assert!(median.low <= 500 && 500 <= median.high);
    assert!(bench.wait_for("test.sum").histogram().is_err());
    assert!(bench.wait_for("test.sum").into_list().is_err());
}

#[test]
fn a_storm_of_signals_tears_nothing() {
    let bench = Bench::new();
    let output = run(&bench, &["storm"]);
    let handled: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let mut list = bench.wait_for("test.storm").into_list().unwrap();
    let mut in_handler = 0;
    let drained = list.drain(|event| {
        assert_eq!(event.words[1], event.words[0].wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if event.number == 2 {
            assert!(event.words[0] >= in_handler);
            in_handler = event.words[0] + 1;
        }
    });
    let drained = drained.unwrap();
    let account = list.sensor().account().unwrap();
    assert_eq!(drained.read + drained.lost, account.produced);
    assert!(in_handler <= handled);
}

#[test]
fn nothing_is_made_when_nobody_asks() {
    let bench = Bench::new();
    for wish in ["", "0"] {
        let mut command = bench.command(&common::compile("life"));
        let status = command.args(["threads", "3"]).env("FETTLE_SENSORS", wish);
        let status = status.env("XDG_RUNTIME_DIR", bench.folder.path()).status().unwrap();
        assert!(status.success());
        assert!(!bench.folder.path().join("fettle").exists());
    }
    // A folder that others may enter is not used.
    let open = bench.folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = bench.command(&common::compile("life"));
    assert!(
        command.args(["threads", "3"]).env("FETTLE_SENSORS", &open).status().unwrap().success()
    );
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
    // One that is asked for by 1 is made, private.
    let mut command = bench.command(&common::compile("life"));
    command.args(["threads", "3"]).env("FETTLE_SENSORS", "1");
    assert!(command.env("XDG_RUNTIME_DIR", bench.folder.path()).status().unwrap().success());
    let directory = fettle_sensor::Directory::open(&bench.folder.path().join("fettle")).unwrap();
    assert_eq!(directory.sensors().unwrap().sensors.len(), 1);
}
