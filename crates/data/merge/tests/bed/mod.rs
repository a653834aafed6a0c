//! Traces of machines that speak to each other, made event by event.
#![allow(dead_code)] // Not every test needs all of it.

use std::path::{Path, PathBuf};

use fettle_trace::{
    EventField, EventWriter, FieldType, Finish, KindId, Machine, Manifest, Process, Thread, Trace,
    TraceWriter,
};

pub const CLIENT: &str = "10.0.0.1:40000";
pub const SERVER: &str = "10.0.0.2:5432";

/// A trace being made of events whose times are those of the machine's own clock.
pub struct Bed {
    pub folder: PathBuf,
    writer: TraceWriter,
    events: EventWriter,
    pub manifest: Manifest,
    pub connect: KindId,
    pub accept: KindId,
    pub sent: KindId,
    pub received: KindId,
    pub pipe: KindId,
    pub pid: u32,
}

fn fields(of: &[(&str, FieldType)]) -> Vec<EventField> {
    of.iter().map(|(name, ty)| EventField::new(*name, *ty)).collect()
}

impl Bed {
    pub fn new(folder: &Path, host: &str, pid: u32, start_unix_ns: u64) -> Bed {
        let machine =
            Machine { host: host.into(), boot: format!("boot of {host}"), ..Machine::default() };
        let manifest = Manifest { machine, start_unix_ns, ..Manifest::default() };
        let folder = folder.join(host).with_extension("fettle");
        let writer = TraceWriter::create(&folder, &manifest).unwrap();
        let mut events = EventWriter::create(&folder).unwrap();
        let who = [("pid", FieldType::U32), ("tid", FieldType::U32), ("socket", FieldType::U64)];
        let ends = [("local", FieldType::Text), ("remote", FieldType::Text)];
        let mut kind = |name: &str, more: &[(&str, FieldType)]| {
            let all: Vec<_> = who.iter().chain(&ends).chain(more).copied().collect();
            events.kind(name, &fields(&all)).unwrap()
        };
        let connect = kind("connect", &[("fd", FieldType::I32), ("result", FieldType::I32)]);
        let accept = kind("accept", &[("fd", FieldType::I32)]);
        let sent = kind("sent", &[("bytes", FieldType::I64)]);
        let received = kind("received", &[("bytes", FieldType::I64)]);
        let pipe = [("pid", FieldType::U32), ("tid", FieldType::U32), ("pipe", FieldType::U64)];
        let pipe = events.kind("pipe_read", &fields(&pipe)).unwrap();
        Bed { folder, writer, events, manifest, connect, accept, sent, received, pipe, pid }
    }

    pub fn event(
        &mut self,
        kind: KindId,
        time_ns: u64,
        (local, remote): (&str, &str),
        more: &[u64],
    ) {
        let (local, remote) = (self.events.text(local), self.events.text(remote));
        let pid = u64::from(self.pid);
        let mut values = vec![pid, pid, 77, u64::from(local), u64::from(remote)];
        values.extend(more);
        self.events.push(kind, time_ns, 1, &values).unwrap();
    }

    /// The thread comes back from something else.
    pub fn returned(&mut self, time_ns: u64) {
        let pid = u64::from(self.pid);
        self.events.push(self.pipe, time_ns, 1, &[pid, pid, 5]).unwrap();
    }

    pub fn finish(self) -> Trace {
        let pid = self.pid;
        let name = "server".to_owned();
        let process = Process { pid, command: "/bin/server".into(), ..Process::default() };
        let thread = Thread { pid, tid: pid, name, ..Thread::default() };
        let finish = Finish {
            manifest: self.manifest,
            processes: vec![process],
            threads: vec![thread],
            events: self.events.finish(Vec::new()).unwrap(),
            ..Finish::default()
        };
        self.writer.finish(finish, &mut |_, _| {}).unwrap();
        Trace::open(&self.folder).unwrap()
    }
}
