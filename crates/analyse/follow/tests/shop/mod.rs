//! A shop whose requests are known: nginx in front, a Python program with a thread per connection, Redis
//! behind, and clients on another machine. The events are those that a kernel would report, so the
//! shipped schemas apply; which request an event is of, the events do not say.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use fettle_trace::{
    CpuLoss, EventField, EventWriter, FieldType, Finish, KindId, Manifest, Process, TraceWriter,
};

#[path = "../random/mod.rs"]
mod random;

use random::Random;

/// What is known of a request.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// When its bytes came in.
    pub begin_ns: u64,
    /// When its reply was sent.
    pub end_ns: u64,
    /// Whether a file was read from disk for it.
    pub slow: bool,
}

const NGINX: u64 = 100;
const PYTHON: u64 = 200;
const REDIS: u64 = 300;
const REDIS_PORT: u64 = 6379;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    In,
    Python,
    Redis,
    PythonAgain,
    Out,
}

/// A socket as one end sees it.
#[derive(Clone, Copy)]
struct End {
    socket: u64,
    local: (u64, u64),
    remote: (u64, u64),
}

struct Shop {
    events: EventWriter,
    kinds: Vec<(&'static str, KindId)>,
    random: Random,
    /// When each thread has done what it does.
    free_ns: Vec<(u64, u64)>,
}

fn fields(of: &[(&str, FieldType)]) -> Vec<EventField> {
    of.iter().map(|(name, ty)| EventField::new(*name, *ty)).collect()
}

/// Writes a trace of `count` requests by `clients` clients. The truth is in order of begin.
pub fn write(folder: &Path, clients: u64, count: u64) -> Vec<Truth> {
    use FieldType::{Bool, I32, I64, Text, U32, U64};
    let manifest = Manifest {
        command: ["nginx", "-g", "daemon off;"].map(str::to_owned).to_vec(),
        ..Manifest::default()
    };
    let writer = TraceWriter::create(folder, &manifest).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let who = [("pid", U32), ("tid", U32)];
    let with = |more: &[(&str, FieldType)]| fields(&[&who, more].concat());
    let stream = [("socket", U64), ("local", Text), ("remote", Text), ("bytes", I64)];
    let mut kinds = Vec::new();
    for (name, declared) in [
        ("switch_out", fields(&[("tid", U32), ("runnable", Bool)])),
        ("switch_in", fields(&[("tid", U32)])),
        ("wakeup", fields(&[("tid", U32), ("target", U32), ("interrupt", Bool)])),
        ("received", with(&stream)),
        ("sent", with(&stream)),
        ("receive_begin", with(&[("socket", U64)])),
        ("poll_begin", with(&[])),
        ("poll", with(&[("ready", I32)])),
        ("read_begin", with(&[("fd", I32), ("inode", U64), ("of", Text)])),
        ("read", with(&[("fd", I32), ("bytes", I64), ("inode", U64), ("of", Text)])),
    ] {
        kinds.push((name, events.kind(name, &declared).unwrap()));
    }
    let mut shop = Shop { events, kinds, random: Random(7), free_ns: Vec::new() };
    let truths = shop.open(clients, count);
    let lost = vec![CpuLoss { cpu: 0, lost: 0 }];
    let process = |(pid, command): (u64, &str)| Process {
        pid: pid as u32,
        command: command.into(),
        ..Process::default()
    };
    let finish = Finish {
        manifest: Manifest {
            duration_ns: truths.iter().map(|truth| truth.end_ns).max().unwrap_or(0),
            ..manifest
        },
        processes: [
            (NGINX, "/usr/sbin/nginx -g"),
            (PYTHON, "python3 app.py"),
            (REDIS, "redis-server"),
        ]
        .map(process)
        .to_vec(),
        events: shop.events.finish(lost).unwrap(),
        ..Finish::default()
    };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    truths
}

impl Shop {
    fn event(&mut self, name: &str, ns: u64, values: &[u64]) {
        let kind = self.kinds.iter().find(|(known, _)| *known == name).unwrap().1;
        self.events.push(kind, ns, 0, values).unwrap();
    }

    fn transfer(&mut self, name: &str, ns: u64, who: (u64, u64), end: End, bytes: u64) {
        let mut address = |(host, port): (u64, u64)| {
            u64::from(self.events.text(&format!("10.0.0.{host}:{port}")))
        };
        let (local, remote) = (address(end.local), address(end.remote));
        self.event(name, ns, &[who.0, who.1, end.socket, local, remote, bytes]);
    }

    fn open(&mut self, clients: u64, count: u64) -> Vec<Truth> {
        let mut truths: Vec<Truth> = Vec::new();
        let mut due: BinaryHeap<Reverse<(u64, Stage, u64, usize)>> = BinaryHeap::new();
        // Threads sleep in the beginning.
        for client in 0..clients.min(count) {
            due.push(Reverse((1_000_000 + client * 10_000, Stage::In, client, usize::MAX)));
        }
        let mut begun = clients.min(count);
        while let Some(Reverse((ready_ns, stage, client, request))) = due.pop() {
            let request = if stage == Stage::In {
                truths.push(Truth::default());
                truths.len() - 1
            } else {
                request
            };
            let end_ns = self.stage(ready_ns, stage, client, &mut truths[request]);
            let next = match stage {
                Stage::In => Stage::Python,
                Stage::Python => Stage::Redis,
                Stage::Redis => Stage::PythonAgain,
                Stage::PythonAgain => Stage::Out,
                Stage::Out => {
                    if begun < count {
                        begun += 1;
                        let think_ns = 50_000 + self.random.below(500_000);
                        due.push(Reverse((end_ns + think_ns, Stage::In, client, usize::MAX)));
                    }
                    continue;
                }
            };
            due.push(Reverse((end_ns + 5_000, next, client, request)));
        }
        truths.sort_by_key(|truth| truth.begin_ns);
        truths
    }

    /// What a thread does for a request at a time; when it has done it.
    fn stage(&mut self, ready_ns: u64, stage: Stage, client: u64, truth: &mut Truth) -> u64 {
        let outside = End { socket: 1000 + client, local: (1, 80), remote: (9, 40_000 + client) };
        let upstream =
            End { socket: 2000 + client, local: (1, 50_000 + client), remote: (2, 8000) };
        let served = End { socket: 3000 + client, local: (2, 8000), remote: (1, 50_000 + client) };
        let store =
            End { socket: 4000 + client, local: (2, 60_000 + client), remote: (3, REDIS_PORT) };
        let stored =
            End { socket: 5000 + client, local: (3, REDIS_PORT), remote: (2, 60_000 + client) };
        let worker = (PYTHON, PYTHON + 1 + client);
        let ((pid, tid), from, to, waker) = match stage {
            Stage::In => ((NGINX, NGINX), outside, upstream, 0),
            Stage::Python => (worker, served, store, NGINX),
            Stage::Redis => ((REDIS, REDIS), stored, stored, worker.1),
            Stage::PythonAgain => (worker, store, served, REDIS),
            Stage::Out => ((NGINX, NGINX), upstream, outside, worker.1),
        };
        let free_ns = self.free_ns.iter().find(|(known, _)| *known == tid).map_or(0, |f| f.1);
        let slept = free_ns <= ready_ns;
        let mut now = ready_ns.max(free_ns);
        if slept {
            self.event("wakeup", now, &[waker, tid, 0]);
            now += 2_000 + self.random.below(8_000);
            self.event("switch_in", now, &[tid]);
        }
        let waits_in_poll = stage != Stage::PythonAgain;
        if waits_in_poll {
            now += 500;
            self.event("poll", now, &[pid, tid, 1]);
        }
        now += 1_000;
        self.transfer("received", now, (pid, tid), from, 200);
        if stage == Stage::In {
            truth.begin_ns = now;
        }
        now += 20_000 + self.random.below(60_000);
        if stage == Stage::Python && self.random.below(100) == 0 {
            truth.slow = true;
            let of = u64::from(self.events.text("file"));
            self.event("read_begin", now, &[pid, tid, 7, 99, of]);
            self.event("switch_out", now + 300, &[tid, 0]);
            now += 20_000_000 + self.random.below(10_000_000);
            self.event("wakeup", now, &[0, tid, 1]);
            self.event("switch_in", now + 4_000, &[tid]);
            now += 5_000;
            self.event("read", now, &[pid, tid, 7, 4096, 99, of]);
            now += 10_000;
        }
        self.transfer("sent", now, (pid, tid), to, 200);
        let sent_ns = now;
        if stage == Stage::Out {
            truth.end_ns = now;
        }
        now += 500;
        if stage == Stage::Python {
            self.event("receive_begin", now, &[pid, tid, store.socket]);
        } else {
            self.event("poll_begin", now, &[pid, tid]);
        }
        now += 500;
        self.event("switch_out", now, &[tid, 0]);
        self.free_ns.retain(|(known, _)| *known != tid);
        self.free_ns.push((tid, now));
        sent_ns
    }
}
