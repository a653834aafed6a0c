//! Full rings under each policy; consumers that die.

mod common;

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use common::{Bench, Language, Plan};
use fettle_abi::sensor::WAIT_LIMIT_NS;
use fettle_sensor::{Directory, Policy};

#[test]
fn rust_producer() {
    common::rust_producer();
}

/// Drains until it is killed, if it was started by [`a_killed_collector_stops_nobody`].
#[test]
fn collector() {
    let Some(path) = std::env::var_os("FETTLE_TEST_COLLECTOR") else { return };
    let found = Directory::open(path.as_ref()).unwrap().find("test.events").unwrap();
    let mut list = found.sensors.into_iter().next().unwrap().into_list().unwrap();
    loop {
        list.drain(|_| ()).unwrap();
    }
}

#[test]
fn a_full_ring_without_a_consumer() {
    for language in [Language::C, Language::Rust] {
        for slots in [2, 1] {
            for policy in [Policy::Drop, Policy::Overwrite, Policy::Wait] {
                let bench = Bench::new();
                let plan = Plan { policy, slots, ring_log2: 12, threads: 1, events: 1000 };
                let mut producer = bench.produce(language, plan);
                assert!(producer.child.wait().unwrap().success());
                let mut list = bench.wait_for("test.events").into_list().unwrap();
                let mut first = None;
                let drained = list.drain(|event| _ = first.get_or_insert(event.words[0])).unwrap();
                assert_eq!((drained.read, drained.lost), (128, 872), "{language:?} {policy:?}");
                let oldest = if policy == Policy::Overwrite { 872 } else { 0 };
                assert_eq!(first, Some(oldest), "{language:?} {policy:?}");
                drop(list);
                // The next consumer finds nothing to read and is not told of losses again.
                let mut list = bench.next_list("test.events");
                assert_eq!(list.drain(|_| ()).unwrap(), Default::default());
            }
        }
    }
}

/// The last events are seen without being taken, read or not.
#[test]
fn the_last_events_are_seen_by_all() {
    for policy in [Policy::Drop, Policy::Overwrite] {
        let bench = Bench::new();
        let plan = Plan { policy, slots: 2, ring_log2: 12, threads: 1, events: 1000 };
        assert!(bench.produce(Language::C, plan).child.wait().unwrap().success());
        let sensor = bench.wait_for("test.events");
        let last = |most| {
            let mut seen = Vec::new();
            sensor.last_events(most, |event| seen.push(event.words[0])).unwrap();
            seen
        };
        let end = if policy == Policy::Overwrite { 1000 } else { 128 };
        let expected = |most: u64| (end - most..end).collect::<Vec<u64>>();
        assert_eq!((last(10), last(u64::MAX)), (expected(10), expected(128)), "{policy:?}");
        let before = sensor.account().unwrap();
        let mut list = bench.next_list("test.events");
        assert_eq!(list.drain(|_| ()).unwrap().read, 128);
        assert_eq!((before.read, last(10)), (0, expected(10)), "{policy:?}");
    }
}

#[test]
fn two_consumers_do_not_take_each_others_events() {
    let bench = Bench::new();
    let plan = Plan { policy: Policy::Drop, slots: 2, ring_log2: 12, threads: 1, events: 10 };
    assert!(bench.produce(Language::C, plan).child.wait().unwrap().success());
    let first = bench.wait_for("test.events").into_list().unwrap();
    let second = bench.wait_for("test.events").into_list();
    assert!(matches!(second, Err(fettle_sensor::Error::Busy { .. })));
    drop(first);
    bench.next_list("test.events");
}

#[test]
fn a_killed_collector_stops_nobody() {
    for language in [Language::C, Language::Rust] {
        let bench = Bench::new();
        let plan = Plan { policy: Policy::Wait, slots: 3, ring_log2: 12, threads: 2, events: 0 };
        let mut producer = bench.produce(language, plan);
        bench.wait_for("test.events");
        let mut collector = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "collector"])
            .env("FETTLE_TEST_COLLECTOR", bench.directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Let it take part, then kill it.
        let sensor =
            bench.wait_for_where("test.events", |sensor| sensor.account().unwrap().read > 1000);
        collector.kill().unwrap();
        collector.wait().unwrap();
        let done = || producer.truth.done(0).load(SeqCst) + producer.truth.done(1).load(SeqCst);
        let (before, start) = (done(), Instant::now());
        while done() < before + 100_000 {
            assert!(start.elapsed() < Duration::from_secs(60), "{language:?} hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sensor.account().unwrap().lost > 0);
        // The next collector takes over, and producers wait for it again.
        let mut list = sensor.into_list().unwrap();
        // On a busy machine we may be late now and then: look for a while without losses.
        let waits = (0..100).any(|_| {
            let before = list.sensor().account().unwrap();
            for _ in 0..1000 {
                list.drain(|_| ()).unwrap();
            }
            let after = list.sensor().account().unwrap();
            after.lost == before.lost && after.read > before.read
        });
        assert!(waits, "{language:?}");
        producer.kill();
        list.drain(|_| ()).unwrap();
        let account = list.sensor().account().unwrap();
        assert_eq!((account.read + account.lost, account.pending), (account.produced, 0));
    }
}

/// A consumer that is busy with what it has read, or blocked by its own output, is waited for.
#[test]
fn a_busy_consumer_loses_nothing() {
    for language in [Language::C, Language::Rust] {
        let bench = Bench::new();
        let plan = Plan { policy: Policy::Wait, slots: 2, ring_log2: 12, threads: 1, events: 0 };
        let mut producer = bench.produce(language, plan);
        let mut list = bench.wait_for("test.events").into_list().unwrap();
        // Records that were lost before there was a consumer are reported here.
        list.drain(|_| ()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let before = list.sensor().account().unwrap();
        std::thread::sleep(Duration::from_nanos(WAIT_LIMIT_NS * 5 / 4));
        list.drain(|_| ()).unwrap();
        let after = list.sensor().account().unwrap();
        assert_eq!(after.lost, before.lost, "{language:?}");
        assert!(after.read > before.read, "{language:?}");
        producer.kill();
    }
}
