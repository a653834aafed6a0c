//! Every interleaving of a commit with a signal handler, a kill and the consumer, forced by the
//! header's injection points. The Rust producer's are in its own tests.

mod common;

use std::ops::{Deref, DerefMut};
use std::process::{Child, ExitStatus};

use common::Bench;
use fettle_sensor::{List, Policy};

/// Events that come before the interrupted one.
const BEFORE: u64 = 100;
/// Injection points of a commit in order; from `RESERVED` on the cell is taken.
const POINTS: std::ops::RangeInclusive<u32> = 1..=5;
const RESERVED: u32 = 3;
const COMMITTED: u32 = 5;

/// A child that does not outlive its test.
struct Started(Child);

impl Deref for Started {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = self.wait();
    }
}

fn start(bench: &Bench, point: u32, action: char, policy: Policy, slots: u32, nth: u64) -> Started {
    let args = [point, policy as u32, slots].map(|n| n.to_string());
    let mut command = bench.command(&common::compile("inject"));
    command.args([&args[0], &action.to_string(), &args[1], &args[2], &nth.to_string()]);
    Started(command.spawn().unwrap())
}

/// The numbers of all events that are there; each is checked.
fn drain(list: &mut List) -> (Vec<(u16, u64)>, u64) {
    let mut events = Vec::new();
    let drained = list.drain(|event| {
        let [word, hash] = *event.words else { panic!("torn: {event:?}") };
        assert_eq!(hash, word.wrapping_mul(0x9e37_79b9_7f4a_7c15), "torn: {event:?}");
        events.push((event.number, word));
    });
    (events, drained.unwrap().lost)
}

fn ends(mut child: Started, bench: &Bench) -> (ExitStatus, List) {
    let status = child.wait().unwrap();
    (status, bench.wait_for("test.inject").into_list().unwrap())
}

#[test]
fn killed_at_each_point() {
    for slots in [1, 2] {
        for point in POINTS {
            let bench = Bench::new();
            // With the shared ring, point 1 is passed as well, then all is done in the slow path.
            let child = start(&bench, point, 'k', Policy::Drop, slots, BEFORE);
            let (_, mut list) = ends(child, &bench);
            let (events, lost) = drain(&mut list);
            let whole = BEFORE + u64::from(point == COMMITTED);
            assert_eq!(events, (0..whole).map(|i| (1, i)).collect::<Vec<_>>(), "{point} {slots}");
            let hole = u64::from((RESERVED..COMMITTED).contains(&point));
            assert_eq!(lost, hole, "{point} {slots}");
            assert_eq!(list.sensor().account().unwrap().produced, whole + hole);
        }
    }
}

#[test]
fn a_handler_nests_at_each_point() {
    for slots in [1, 2] {
        for nth in [0, 1, BEFORE] {
            for point in POINTS {
                let bench = Bench::new();
                let child = start(&bench, point, 's', Policy::Overwrite, slots, nth);
                let (status, mut list) = ends(child, &bench);
                assert!(status.success());
                // A ring of 128 holds the last of 202 events.
                let account = list.sensor().account().unwrap();
                assert_eq!((account.produced, account.pending, account.lost), (202, 128, 74));
                let (events, lost) = drain(&mut list);
                assert_eq!((events.len(), lost), (128, 74));
                let mut all: Vec<(u16, u64)> = (0..200).map(|i| (1, i)).collect();
                let place = nth as usize + usize::from(point >= RESERVED);
                all.splice(place..place, [(2, 0), (2, 1)]);
                assert_eq!(events, all[74..], "{point} {slots} {nth}");
            }
        }
    }
}

#[test]
fn events_of_a_handler_that_interrupts_the_making_are_counted() {
    let bench = Bench::new();
    let child = start(&bench, 6, 's', Policy::Overwrite, 2, 0);
    let (status, mut list) = ends(child, &bench);
    assert!(status.success());
    let (events, lost) = drain(&mut list);
    assert_eq!((events.len(), lost), (128, 200 + 2 - 128));
    assert_eq!(list.sensor().account().unwrap().produced, 202);
}

#[test]
fn a_handler_that_fills_the_ring_takes_nobodys_cell() {
    for point in POINTS {
        let bench = Bench::new();
        let child = start(&bench, point, 'f', Policy::Drop, 2, BEFORE);
        let (status, mut list) = ends(child, &bench);
        assert!(status.success());
        let (events, lost) = drain(&mut list);
        assert_eq!((events.len(), lost), (128, 500 - 128), "{point}");
        let own = BEFORE as usize + usize::from(point >= RESERVED);
        let filled = (0..).map(|i| (2, i));
        let all: Vec<_> = (0..own as u64).map(|i| (1, i)).chain(filled).take(128).collect();
        assert_eq!(events, all, "{point}");
    }
}

/// A writer that is interrupted while others fill an overwriting ring stores nothing over their
/// records: killed between two of its steps, it leaves all of them whole.
#[test]
fn who_comes_a_lap_late_tears_nothing() {
    for slots in [1, 2] {
        for point in POINTS {
            let bench = Bench::new();
            let child = start(&bench, point, 'l', Policy::Overwrite, slots, BEFORE);
            let (_, mut list) = ends(child, &bench);
            let (events, lost) = drain(&mut list);
            // The last of 300, but for one whose cell was being stored to.
            let (taken, stored) = (u64::from(point >= RESERVED), point == RESERVED + 1);
            let first = 300 - 128;
            // Two laps further.
            let in_its_cell = 2 * 128 - taken;
            let whole = (first..300).filter(|i| !stored || *i != in_its_cell);
            assert_eq!(events, whole.map(|i| (2, i)).collect::<Vec<_>>(), "{point} {slots}");
            assert_eq!(events.len() as u64 + lost, BEFORE + taken + 300, "{point} {slots}");
        }
    }
}

#[test]
fn the_consumer_stops_at_a_commit_under_way() {
    for slots in [1, 2] {
        for point in POINTS {
            let bench = Bench::new();
            let mut child = start(&bench, point, 'p', Policy::Drop, slots, BEFORE);
            wait_until_stopped(child.id());
            let mut list = bench.wait_for("test.inject").into_list().unwrap();
            let (events, lost) = drain(&mut list);
            let whole = BEFORE + u64::from(point == COMMITTED);
            assert_eq!((events.len() as u64, lost), (whole, 0), "{point} {slots}");
            assert_eq!(drain(&mut list), (vec![], 0));
            let pending = u64::from((RESERVED..COMMITTED).contains(&point));
            assert_eq!(list.sensor().account().unwrap().pending, pending);
            // SAFETY: continues a child of ours.
            unsafe { libc::kill(child.id() as i32, libc::SIGCONT) };
            assert!(child.wait().unwrap().success());
            let (events, lost) = drain(&mut list);
            assert_eq!((events.len() as u64 + whole, lost), (200, 0), "{point} {slots}");
        }
    }
}

/// A handler that leaves by `siglongjmp` leaves a hole that the consumer cannot tell from a commit
/// under way: it stops there until the thread is gone. Nothing hangs, and all is counted.
#[test]
fn a_jump_out_of_a_commit_hangs_nobody() {
    for policy in [Policy::Drop, Policy::Wait, Policy::Overwrite] {
        let bench = Bench::new();
        // Early, so that the ring of 128 is full long before the end.
        let mut child = start(&bench, RESERVED, 'j', policy, 2, 10);
        wait_until_stopped(child.id());
        let mut list = bench.wait_for("test.inject").into_list().unwrap();
        // SAFETY: continues a child of ours.
        unsafe { libc::kill(child.id() as i32, libc::SIGCONT) };
        let (mut read, mut lost) = (0, 0);
        while child.try_wait().unwrap().is_none() {
            let (events, more) = drain(&mut list);
            (read, lost) = (read + events.len() as u64, lost + more);
        }
        let (events, more) = drain(&mut list);
        (read, lost) = (read + events.len() as u64, lost + more);
        assert!(lost >= 1, "{policy:?}");
        assert_eq!(read + lost, 200, "{policy:?}");
    }
}

/// The hole of a thread that is gone is passed although its slot has a new owner, who lives.
#[test]
fn a_dead_threads_hole_does_not_stop_its_successor() {
    let bench = Bench::new();
    let child = start(&bench, RESERVED, 't', Policy::Drop, 2, 10);
    wait_until_stopped(child.id());
    let mut list = bench.wait_for("test.inject").into_list().unwrap();
    let (events, lost) = drain(&mut list);
    assert_eq!((events.len(), lost), (10 + 20, 1));
}

fn wait_until_stopped(pid: u32) {
    let pid = pid as i32;
    let mut status = 0;
    // SAFETY: waits for a child of ours; writes to `status`, which lives.
    let waited = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
    assert!(waited == pid && libc::WIFSTOPPED(status));
}
