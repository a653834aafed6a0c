//! A producer that is killed at any instant leaves a sensor that can be read: all records whole,
//! all others counted.

mod common;

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use common::{Bench, Check, Language, Plan, Random};
use fettle_sensor::Policy;

#[test]
fn rust_producer() {
    common::rust_producer();
}

#[test]
fn killed_two_hundred_times() {
    let bench = Bench::new();
    let mut random = Random::new();
    let policies = [Policy::Drop, Policy::Overwrite, Policy::Wait];
    for turn in 0..200 {
        let language = if turn % 2 == 0 { Language::C } else { Language::Rust };
        let policy = policies[turn / 2 % 3];
        // One turn in five, all threads share one ring.
        let (slots, threads) = (if turn % 5 == 0 { 1 } else { 4 }, 1 + random.below(4));
        let plan = Plan { policy, slots, ring_log2: 12 + random.below(5), threads, events: 0 };
        let mut producer = bench.produce(language, plan);
        let mut list = bench.wait_for("test.events").into_list().unwrap();
        let mut check = Check::default();
        // Half the time there is a reader while it runs.
        for _ in 0..random.below(20) {
            if turn % 4 < 2 {
                check.drain(&mut list);
            }
            std::thread::sleep(Duration::from_micros(random.below(200)));
        }
        producer.kill();
        assert!(!list.sensor().is_alive());
        check.finish(&mut list, &producer);
        list.sensor().remove().unwrap();
    }
}

#[test]
fn without_a_kill_nothing_is_amiss() {
    for language in [Language::C, Language::Rust] {
        let bench = Bench::new();
        let events = 200_000;
        let plan = Plan { policy: Policy::Wait, slots: 4, ring_log2: 14, threads: 3, events };
        let mut producer = bench.produce(language, plan);
        let mut list = bench.wait_for("test.events").into_list().unwrap();
        let mut check = Check::default();
        while list.sensor().is_alive() {
            check.drain(&mut list);
            let _ = producer.child.try_wait();
        }
        check.finish(&mut list, &producer);
        // Some are lost: the ring filled before we came, or a busy machine kept us from showing a
        // sign of life for a while.
        let account = list.sensor().account().unwrap();
        assert_eq!(account.produced, 3 * events, "{language:?}");
        assert!(account.read > 512, "{language:?} {account:?}");
        assert_eq!(producer.truth.done(0).load(SeqCst), events);
    }
}
