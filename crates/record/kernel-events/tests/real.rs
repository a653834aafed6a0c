//! Real programs: what is recorded is what they did.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::{Recorded, alone, capture, drain_until, record, scratch};
use fettle_kernel_events::{Event, Options};
use fettle_types::Pid;

fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    command
}

fn sum<'a>(reported: impl Iterator<Item = &'a common::ReportedEvent>, field: &str) -> i64 {
    reported.map(|reported| reported.number(field)).filter(|n| *n > 0).sum()
}

fn whole(recorded: &Recorded) {
    assert_eq!(recorded.losses.total(), 0);
    assert_eq!((recorded.losses.missed, recorded.unreadable), (0, 0));
}

#[test]
fn a_pipeline() {
    let _alone = alone();
    let mut command =
        shell("dd if=/dev/zero bs=1000 count=100 2>/dev/null | cat >/dev/null; exit 3");
    let options = Options { begins: true, ..Options::default() };
    let Some((status, r)) = record(&mut command, options) else { return };
    assert_eq!(status.code(), Some(3));
    whole(&r);
    let pipes: Vec<i64> = r.of(Event::PipeMade).map(|t| t.number("pipe")).collect();
    let [pipe] = pipes[..] else { panic!("{} pipes", pipes.len()) };
    let of_pipe = |event| r.of(event).filter(move |t| t.number("pipe") == pipe);
    assert_eq!(of_pipe(Event::PipeWrite).count(), 100);
    assert_eq!(sum(of_pipe(Event::PipeWrite), "bytes"), 100_000);
    assert_eq!(sum(of_pipe(Event::PipeRead), "bytes"), 100_000);
    assert_eq!(of_pipe(Event::PipeReadBegin).count(), of_pipe(Event::PipeRead).count());
    // The shell and its two children, each with its own end.
    let paths: Vec<&str> = r.of(Event::Exec).map(|t| t.text("path")).collect();
    let named = |name: &str| paths.iter().filter(|path| path.ends_with(name)).count();
    assert_eq!((paths.len(), named("/sh"), named("/dd"), named("/cat")), (3, 1, 1, 1));
    let children: BTreeSet<i64> = r.of(Event::Fork).map(|t| t.number("child_pid")).collect();
    let ended: BTreeMap<i64, i64> =
        r.of(Event::ProcessExit).map(|t| (t.number("pid"), t.number("status"))).collect();
    assert_eq!(ended.len(), 3);
    assert!(children.iter().all(|child| ended[child] == 0), "{ended:?}");
    assert_eq!(ended.values().filter(|status| **status == 3).count(), 1);
    // Per thread, what began has ended, in order of time.
    assert!(r.reported.is_sorted_by_key(|reported| reported.time_ns));
}

#[test]
fn children_are_followed_however_quick() {
    let _alone = alone();
    let mut command = shell("i=0; while [ $i -lt 200 ]; do (:); i=$((i+1)); done");
    let Some((_, r)) = record(&mut command, Options::default()) else { return };
    whole(&r);
    assert_eq!(r.of(Event::Fork).count(), 200);
    assert_eq!(r.of(Event::ProcessExit).count(), 201);
    let pids: BTreeSet<i64> = r.of(Event::ProcessExit).map(|t| t.number("pid")).collect();
    // No other process's events are among them.
    let strangers = r.reported.iter().filter(|t| t.fields.contains_key("pid"));
    let strangers = strangers.filter(|t| t.event != Event::Signal);
    assert_eq!(strangers.filter(|t| !pids.contains(&t.number("pid"))).count(), 0);
}

/// Talks to itself over TCP of both versions and a local socket, in two threads, in a way that
/// does not depend on time.
const TALK: &str = r#"
import os, socket, threading
def talk(listener, client, many):
    def serve():
        connection, _ = listener.accept()
        for _ in range(many):
            data = connection.recv(100, socket.MSG_WAITALL)
            connection.sendall(data * 2)
        connection.close()
    thread = threading.Thread(target=serve)
    thread.start()
    for _ in range(many):
        client.sendall(b"x" * 100)
        client.recv(200, socket.MSG_WAITALL)
    client.close()
    thread.join()
    listener.close()
v4 = socket.create_server(("127.0.0.1", 0))
talk(v4, socket.create_connection(v4.getsockname()), 20)
v6 = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
talk(v6, socket.create_connection(("127.0.0.1", v6.getsockname()[1])), 30)
a, b = socket.socketpair()
a.sendall(b"y" * 50)
b.recv(20, socket.MSG_PEEK)
b.recvmsg(50, 0, socket.MSG_PEEK)
b.recv(50)
"#;

#[test]
fn both_ends_of_a_connection_have_the_same_names() {
    let _alone = alone();
    let mut command = Command::new("python3");
    command.args(["-c", TALK]);
    let Some((status, r)) = record(&mut command, Options::default()) else { return };
    assert!(status.success());
    whole(&r);
    let mut bytes: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
    for reported in r.of(Event::Sent) {
        let ends = (reported.text("local").to_owned(), reported.text("remote").to_owned());
        bytes.entry(ends).or_default().0 += reported.number("bytes").max(0);
    }
    for reported in r.of(Event::Received) {
        let ends = (reported.text("remote").to_owned(), reported.text("local").to_owned());
        bytes.entry(ends).or_default().1 += reported.number("bytes").max(0);
    }
    // What one end sent is what the other received, under one name.
    assert!(bytes.values().all(|(sent, received)| sent == received), "{bytes:?}");
    let mut sums: Vec<i64> = bytes.values().map(|(sent, _)| *sent).collect();
    sums.sort_unstable();
    assert_eq!(sums, [50, 2000, 3000, 4000, 6000]);
    assert_eq!(r.of(Event::Accept).count(), 2);
    let accepted: BTreeSet<&str> = r.of(Event::Accept).map(|t| t.text("remote")).collect();
    let connected: BTreeSet<&str> = r.of(Event::Connect).map(|t| t.text("local")).collect();
    assert!(accepted.is_subset(&connected), "{accepted:?} {connected:?}");
    assert!(accepted.iter().all(|end| end.starts_with("127.0.0.1:")), "{accepted:?}");
    let pair = r.of(Event::SocketPair).next().expect("a pair of sockets");
    assert!(pair.text("local").starts_with("unix:"));
    assert_ne!(pair.text("local"), pair.text("remote"));
}

/// A server that reads what its client has sent when both have closed: the connection is no more.
const LATE: &str = r#"
import socket, time
listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
port = listener.getsockname()[1]
for host in "127.0.0.1", "::1":
    client = socket.create_connection((host, port))
    client.sendall(b"x" * 100)
    server, _ = listener.accept()
    server.shutdown(socket.SHUT_WR)
    while client.recv(1):
        pass
    client.close()
    while server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 7: # TCP_CLOSE
        time.sleep(0.01)
    server.recv(100, socket.MSG_WAITALL)
    server.close()
"#;

#[test]
fn a_connection_that_is_closed_keeps_its_name() {
    let _alone = alone();
    let mut command = Command::new("python3");
    command.args(["-c", LATE]);
    let Some((status, r)) = record(&mut command, Options::default()) else { return };
    assert!(status.success());
    whole(&r);
    let sent: Vec<_> = r.of(Event::Sent).map(|t| (t.text("local"), t.text("remote"))).collect();
    let received = r.of(Event::Received).filter(|t| t.number("bytes") == 100);
    let received: Vec<_> = received.map(|t| (t.text("remote"), t.text("local"))).collect();
    assert_eq!((sent.len(), &sent), (2, &received));
}

/// A server that reads the first question at once and the second one late; so with a local socket.
const LAZY: &str = r#"
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
for pair in (client, server), socket.socketpair():
    thread = threading.Thread(target=pair[1].recv, args=(10,))
    thread.start()
    time.sleep(0.1)
    pair[0].sendall(b"x" * 10)
    thread.join()
    pair[0].sendall(b"x" * 20)
    time.sleep(0.3)
    pair[1].recv(20)
"#;

#[test]
fn how_long_bytes_have_lain_in_a_socket() {
    let _alone = alone();
    let mut command = Command::new("python3");
    command.args(["-c", LAZY]);
    let Some((status, r)) = record(&mut command, Options::default()) else { return };
    assert!(status.success());
    whole(&r);
    let of = |bytes: i64| r.of(Event::Received).filter(move |t| t.number("bytes") == bytes);
    let lay = |bytes| of(bytes).map(|t| t.number("lay_ns")).collect::<Vec<_>>();
    let sent: Vec<u64> = r.of(Event::Sent).map(|t| t.time_ns).collect();
    let [late, local] = lay(20)[..] else { panic!("{:?}", lay(20)) };
    // From when the segment came, which is while it was sent, to when it was read.
    let read_ns = of(20).next().expect("found above").time_ns;
    let most = (read_ns - sent[0]) as i64;
    assert!((300_000_000..=most).contains(&late) && local == 0, "{late} of {most}, {local}");
    let [at_once, local] = lay(10)[..] else { panic!("{:?}", lay(10)) };
    assert!(at_once < late && local == 0, "{at_once}, {late}, {local}");
}

/// Numbers of events that are numbers of system calls, by what `strace` calls those.
const COUNTED: &[(&str, &[Event])] = &[
    ("accept4", &[Event::Accept, Event::AcceptFailed]),
    ("connect", &[Event::Connect]),
    ("socketpair", &[Event::SocketPair]),
    ("sendto", &[Event::Sent]),
    ("recvfrom,recvmsg", &[Event::Received]),
    ("openat", &[Event::Open]),
    ("close", &[Event::Close]),
    ("read,pread64,getdents64", &[Event::Read, Event::PipeRead]),
    ("write", &[Event::Write, Event::PipeWrite]),
];

#[test]
fn as_many_calls_as_strace_counts() {
    let _alone = alone();
    let Ok(version) = Command::new("strace").arg("-V").output() else {
        eprintln!("skipped: no strace");
        return;
    };
    assert!(version.status.success());
    // Both look at the same run: we at strace and what it runs, strace at what it runs.
    let path = scratch();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o"]).arg(&path).args(["python3", "-c", TALK]);
    let Some((status, r)) = record(&mut traced, Options::default()) else { return };
    assert!(status.success());
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    whole(&r);
    let mut execs = r.of(Event::Exec);
    let (strace, first) = (execs.next().expect("strace"), execs.next().expect("what it runs"));
    let count = |event: Event| {
        let others = r.of(event).filter(|t| t.number("pid") != strace.number("pid"));
        others.filter(|t| t.time_ns > first.time_ns).count()
    };
    for (calls, events) in COUNTED {
        let is_call = |line: &&str| {
            let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
            let name = call.split('(').next().unwrap_or_default();
            calls.split(',').any(|wanted| wanted == name)
        };
        let expected = log.lines().filter(is_call).count();
        let found: usize = events.iter().map(|event| count(*event)).sum();
        assert!(expected > 0, "{calls}");
        assert_eq!(found, expected, "{calls}");
    }
}

#[test]
fn a_running_process_and_its_descendants() {
    let _alone = alone();
    let mut child = shell("sh -c 'while :; do read line; echo $line; done' <&0 & wait")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Until its child is there.
    let pid = Pid::of_child(&child);
    while !std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .is_ok_and(|text| !text.trim().is_empty())
    {
        std::thread::yield_now();
    }
    let Some(mut capture) = capture(Options::default()) else {
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    };
    capture.start().unwrap();
    let processes = capture.processes();
    let seen = processes.observe_tree(pid).unwrap();
    assert!(seen.len() >= 2 && seen.contains(&pid), "{seen:?}");
    let grandchild = *seen.iter().find(|other| **other != pid).unwrap();
    // SAFETY: takes numbers only; both are processes of this test that live.
    unsafe {
        libc::kill(pid.get(), libc::SIGTERM);
        libc::kill(grandchild.get(), libc::SIGKILL);
    }
    child.wait().unwrap();
    let r = drain_until(capture, |_| processes.none_left().unwrap());
    let ended: BTreeMap<i64, i64> =
        r.of(Event::ProcessExit).map(|t| (t.number("pid"), t.number("status"))).collect();
    assert_eq!(ended.get(&i64::from(pid.get())), Some(&-15), "{ended:?}");
    assert_eq!(ended.get(&i64::from(grandchild.get())), Some(&-9), "{ended:?}");
}

#[test]
fn what_finds_no_room_is_counted() {
    let _alone = alone();
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"]);
    let options = Options { ring_bytes: 4096, begins: true, ..Options::default() };
    let Some((_, r)) = record(&mut command, options) else { return };
    let kept = [Event::ReadBegin, Event::Read, Event::WriteBegin, Event::Write];
    let kept: usize = kept.iter().map(|event| r.of(*event).count()).sum();
    assert!(r.losses.total() > 100_000, "{:?}", r.losses);
    // Each byte is four records.
    assert!(kept as u64 + r.losses.total() >= 400_000, "{kept} and {:?}", r.losses);
    assert_eq!(r.losses.missed, 0);
}

#[test]
fn the_whole_system_without_ourselves() {
    let _alone = alone();
    let options = Options { system: true, ring_bytes: 1 << 22, ..Options::default() };
    let Some(mut capture) = capture(options) else { return };
    capture.start().unwrap();
    let path = scratch();
    // A child that was not asked for.
    assert!(shell(&format!("echo here >{}", path.display())).status().unwrap().success());
    let r = drain_until(capture, |_| true);
    let opened = r.of(Event::Open).filter(|t| Path::new(t.text("path")) == path);
    let opened: Vec<i64> = opened.map(|t| t.number("pid")).collect();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(opened.len(), 1);
    let own = i64::from(std::process::id());
    assert!(r.reported.iter().all(|t| t.fields.get("pid") != Some(&common::Value::Number(own))));
}

/// A question in three buffers, one in one, one in forty, one that comes in two reads; answers with bodies of which
/// most bytes are not recorded, the last one sent from a file.
const ASK: &str = r#"
import os, socket, tempfile, threading
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
def answer(body):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server.sendall(head)
    client.recv(len(head), socket.MSG_WAITALL)
    server.sendall(body)
    client.recv(len(body), socket.MSG_WAITALL)
client.sendmsg([b"GET ", b"/several", b" HTTP/1.1\r\n\r\n"])
server.recvmsg(10000)
answer(b"x" * 20000)
client.send(b"POST /one HTTP/1.1\r\nX-Request-Id: 7\r\nContent-Length: 5\r\n\r\nhello")
server.recv(5, socket.MSG_PEEK)
server.recv(10000)
answer(b"GET /wrong HTTP/1.1\r\n\r\n" * 300)
client.sendmsg([bytes([b]) for b in b"GET /parts HTTP/1.1\r\nHost: all-in-parts\r\n\r\n"])
server.recv(10000)
answer(b"z")
client.send(b"GET /cut HTTP/1.1\r\nHos")
server.recv(10000)
os.write(client.fileno(), b"t: a\r\n\r\n")
os.read(server.fileno(), 10000)
with tempfile.TemporaryFile() as file:
    file.write(b"y" * 3000)
    file.seek(0)
    head = b"HTTP/1.1 404 No\r\nContent-Length: 3000\r\n\r\n"
    server.sendall(head)
    os.sendfile(server.fileno(), file.fileno(), 0, 3000)
client.recv(len(head), socket.MSG_WAITALL)
client.recv(3000, socket.MSG_WAITALL)
"#;

#[test]
fn messages_are_reported_by_both_ends() {
    let _alone = alone();
    for (old_reads, payload) in [(false, 64), (true, fettle_kernel_events::PAYLOAD_MOST)] {
        let mut command = Command::new("python3");
        command.args(["-c", ASK]);
        let options = Options { payload, old_reads, ..Options::default() };
        let Some((status, r)) = record(&mut command, options) else { return };
        assert!(status.success());
        whole(&r);
        let ends = |event, sent: bool, name: &str| -> Vec<String> {
            let of = r.of(event).filter(|reported| (reported.number("sent") == 1) == sent);
            of.map(|reported| format!("{} {}", reported.number("exchange"), reported.text(name)))
                .collect()
        };
        let asked = ["0 /several", "1 /one", "2 /parts", "3 /cut"];
        let answered = ["0 200", "1 200", "2 200", "3 404"];
        // Both ends have the same hash of an id.
        let ids: Vec<i64> = r.of(Event::Ask).map(|ask| ask.number("trace_id")).collect();
        let known: Vec<i64> = ids.iter().copied().filter(|id| *id != 0).collect();
        assert!(ids.len() == 8 && matches!(known[..], [a, b] if a == b), "{ids:?}");
        for sent in [true, false] {
            assert_eq!(ends(Event::Ask, sent, "detail"), asked, "{payload}");
            assert_eq!(ends(Event::Answer, sent, "status"), answered, "{payload}");
        }
    }
    // Nothing is looked into unless it is asked for.
    let mut command = Command::new("python3");
    command.args(["-c", ASK]);
    let Some((_, r)) = record(&mut command, Options::default()) else { return };
    assert_eq!(r.of(Event::Ask).count() + r.of(Event::Undecoded).count(), 0);
}

/// Beginnings are reported of calls that have to wait, once each, before the thread is switched out.
#[test]
fn only_calls_that_wait_are_reported_when_they_begin() {
    let _alone = alone();
    let text = "(sleep 0.1; echo a; sleep 0.1) | cat >/dev/null; \
                dd if=/dev/zero bs=1000 count=100 2>/dev/null | cat >/dev/null";
    let Some((status, r)) = record(&mut shell(text), Options::default()) else { return };
    assert!(status.success());
    whole(&r);
    let (begun, done) = (r.of(Event::PipeReadBegin).count(), r.of(Event::PipeRead).count());
    // `cat` waits for the line and for the end; of the rest it depends on which process is quicker.
    assert!((2..=done).contains(&begun), "{begun} of {done}");
    let mut waiting = BTreeSet::new();
    for reported in &r.reported {
        let Some(tid) = reported.fields.get("tid").map(|_| reported.number("tid")) else {
            continue;
        };
        match reported.event {
            Event::PipeReadBegin => assert!(waiting.insert(tid), "twice: {reported:?}"),
            Event::PipeRead => drop(waiting.remove(&tid)),
            _ => {}
        }
    }
    assert!(r.of(Event::SleepBegin).count() >= 2);
}
