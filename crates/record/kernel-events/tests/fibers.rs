//! Fibers of a real Ruby are reported: each writes to a connection of its own, all on one thread, and what one resumes
//! first works for it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use common::{alone, observed};
use fettle_kernel_events::Event;

/// So many fibers write ten times each, in turns, and each has another one that writes as often.
const FIBERS: usize = 20;

const PROGRAM: &str = r#"
require "socket"
sleep 1.5
server = TCPServer.new("127.0.0.1", 0)
sockets = (2 * 20).times.map do
  socket = TCPSocket.new("127.0.0.1", server.addr[1])
  [socket, server.accept]
end
write = ->(socket) { 10.times { socket.syswrite("x"); Fiber.yield } }
inner = []
outer = 20.times.map do |n|
  Fiber.new do
    inner << other = Fiber.new { write.(sockets[2 * n][0]) }
    other.resume
    write.(sockets[2 * n + 1][0])
  end
end
10.times { outer.each(&:resume); inner.each(&:resume) }
"#;

#[test]
fn each_fiber_writes_as_a_task_of_its_own() {
    let _alone = alone();
    let version = Command::new("/usr/bin/ruby").args(["-e", "print RUBY_VERSION"]).output();
    if !version.is_ok_and(|output| output.stdout.starts_with(b"3.1.")) {
        eprintln!("skipped: there is no Ruby 3.1");
        return;
    }
    let recorded = observed(|| {
        let mut ruby = Command::new("/usr/bin/ruby");
        Some(ruby.args(["-e", PROGRAM]).stdout(Stdio::null()).spawn().unwrap())
    });
    let Some(recorded) = recorded else { return };
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    for reported in recorded.of(Event::Task) {
        *times.entry(reported.number("task")).or_default() += 1;
        assert_eq!(reported.number("parent"), -1, "what resumes one need not have made it");
    }
    // A word that cannot be read at that moment leaves a write without a fiber.
    let often: BTreeSet<i64> =
        times.iter().filter(|(_, times)| **times >= 8).map(|(task, _)| *task).collect();
    assert_eq!(often.len(), 2 * FIBERS, "{times:?}");
    let given: BTreeMap<i64, i64> = recorded
        .of(Event::TaskResumed)
        .map(|reported| (reported.number("task"), reported.number("by")))
        .collect();
    let makers: BTreeSet<i64> = given.values().copied().collect();
    assert_eq!((given.len(), makers.len()), (FIBERS, FIBERS), "{given:?}");
    // The program's own fiber resumes all of them later, which gives them nothing.
    assert!(given.keys().chain(&makers).all(|fiber| often.contains(fiber)), "{given:?}");
}
