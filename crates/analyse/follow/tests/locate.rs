//! Faults are located in a shop of twelve processes whose faults are known.

mod random;

use std::path::Path;

use fettle_follow::{LocateOptions, Located, Session, locate};
use fettle_requests::{Source, shipped};
use fettle_trace::{
    CpuLoss, EventField, EventWriter, FieldType, Finish, KindId, Manifest, Process, Trace,
    TraceWriter,
};
use random::Random;

/// Services, each a process with a thread for each client's connection, in the order of their ports: the first is
/// asked from outside.
const SERVICES: [&str; 12] = [
    "front", "auth", "cart", "catalog", "search", "price", "stock", "pay", "mail", "users",
    "cache", "store",
];
/// Who asks whom. A request takes each way with the chance that stands behind it, in percent.
const WAYS: [(usize, usize, u64); 15] = [
    (0, 1, 100),
    (1, 9, 60),
    (9, 11, 80),
    (0, 2, 70),
    (2, 3, 60),
    (3, 4, 40),
    (4, 11, 50),
    (3, 10, 50),
    (2, 5, 50),
    (5, 10, 60),
    (2, 6, 50),
    (6, 11, 50),
    (0, 7, 40),
    (7, 8, 50),
    (7, 11, 60),
];

/// What is wrong with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Every answer takes long, on the processor.
    Computes(usize),
    /// So do those of some statements.
    Statement(usize, u64),
    /// It waits for a disk to read a file.
    Disk(usize),
    /// Its answers say that they failed, and so do all that needed them.
    Fails(usize),
}

impl Fault {
    /// What names it.
    fn names(self) -> Vec<String> {
        let port = |service: usize| format!("service 10.0.0.1:{}", 8000 + service);
        let name = |service: usize| SERVICES[service].to_owned();
        match self {
            Fault::Computes(service) => vec![format!("{}  running", name(service))],
            Fault::Statement(service, kind) => vec![
                format!("{}  running", name(service)),
                format!("statement GET /{}/{}", name(service), kind_name(kind)),
            ],
            Fault::Disk(service) => {
                vec![format!("{}  disk", name(service)), format!("file /var/{}.db", name(service))]
            }
            Fault::Fails(service) => vec![format!("{} fails: 500", port(service))],
        }
    }
}

fn kind_name(kind: u64) -> String {
    ["item", "list", "page", "view"][kind as usize].to_owned()
}

struct Shop {
    events: EventWriter,
    kinds: Vec<(&'static str, KindId)>,
    random: Random,
    faults: Vec<Fault>,
    /// Of a hundred answers of a service with a fault so many have it.
    share: u64,
    now: u64,
    exchange: u64,
}

impl Shop {
    fn event(&mut self, name: &str, values: &[u64]) {
        let kind = self.kinds.iter().find(|(known, _)| *known == name).unwrap().1;
        self.events.push(kind, self.now, 0, values).unwrap();
        self.now += 200;
    }

    fn text(&mut self, text: &str) -> u64 {
        u64::from(self.events.text(text))
    }

    fn pid(service: usize) -> u64 {
        1000 * (service as u64 + 1)
    }

    /// The thread of a service that works for what another one asks for a client.
    fn thread(service: usize, caller: usize, client: u64) -> u64 {
        Shop::pid(service) + 1 + client * 12 + caller as u64
    }

    /// Its connection, at the caller's end.
    fn port(service: usize, caller: usize, client: u64) -> u64 {
        40_000 + (client * 12 + caller as u64) * 12 + service as u64
    }

    /// A thread that was woken waits for a processor, and runs.
    fn comes(&mut self, tid: u64) {
        self.spend(2_000, 8_000);
        self.event("switch_in", &[tid]);
    }

    fn spend(&mut self, least: u64, more: u64) {
        self.now += least + self.random.below(more);
    }

    /// What the thread of a service does for a question that the thread `asks` sent to it; whether it answers well.
    fn serve(&mut self, service: usize, caller: usize, client: u64, asks: u64, kind: u64) -> bool {
        let (pid, tid) = (Shop::pid(service), Shop::thread(service, caller, client));
        let local = self.text(&format!("10.0.0.1:{}", 8000 + service));
        let from = if service == 0 { 9 } else { 1 };
        let port = Shop::port(service, caller, client);
        let remote = self.text(&format!("10.0.0.{from}:{port}"));
        let socket = 1000 * tid;
        let exchange = self.exchange;
        self.comes(tid);
        self.event("received", &[pid, tid, socket, local, remote, 100]);
        let hit = |fault: &&Fault| match **fault {
            Fault::Computes(at) | Fault::Disk(at) | Fault::Fails(at) => at == service,
            Fault::Statement(at, of) => at == service && of == kind,
        };
        let fault = self.faults.iter().find(hit).copied();
        let fault = fault.filter(|_| self.random.below(100) < self.share);
        self.spend(20_000, 60_000);
        match fault {
            Some(Fault::Computes(_) | Fault::Statement(..)) => self.spend(30_000_000, 20_000_000),
            Some(Fault::Disk(_)) => {
                let path = self.text(&format!("/var/{}.db", SERVICES[service]));
                let of = self.text("file");
                self.event("open", &[pid, tid, 7, path, 99, of]);
                self.event("read_begin", &[pid, tid, 7, 99, of]);
                self.event("switch_out", &[tid, 0]);
                self.spend(30_000_000, 20_000_000);
                self.event("wakeup", &[0, tid, 1]);
                self.event("switch_in", &[tid]);
                self.event("read", &[pid, tid, 7, 4096, 99, of]);
            }
            Some(Fault::Fails(_)) | None => {}
        }
        let mut well = !matches!(fault, Some(Fault::Fails(_)));
        for (_, to, chance) in WAYS.into_iter().filter(|(from, ..)| *from == service) {
            if self.random.below(100) < chance && well {
                well &= self.ask((service, tid), to, client);
            }
        }
        let status = self.text(if well { "200" } else { "500" });
        let protocol = self.text("http");
        self.event(
            "answer",
            &[pid, tid, socket, local, remote, 1, protocol, exchange, u64::from(well), status],
        );
        if asks != 0 {
            self.event("wakeup", &[tid, asks, 1]);
        }
        self.event("sent", &[pid, tid, socket, local, remote, 100]);
        self.event("poll_begin", &[pid, tid]);
        self.event("switch_out", &[tid, 0]);
        well
    }

    /// A thread asks another service, and waits for its answer.
    fn ask(&mut self, (service, tid): (usize, u64), to: usize, client: u64) -> bool {
        let (pid, callee) = (Shop::pid(service), Shop::thread(to, service, client));
        let socket = 1000 * tid + 1 + to as u64;
        let local = self.text(&format!("10.0.0.1:{}", Shop::port(to, service, client)));
        let remote = self.text(&format!("10.0.0.1:{}", 8000 + to));
        self.exchange += 1;
        let (exchange, kind) = (self.exchange, self.random.below(4));
        let (protocol, command) = (self.text("http"), self.text("GET"));
        let path = format!("/{}/{}", SERVICES[to], kind_name(kind));
        let detail = self.text(&path);
        self.event(
            "ask",
            &[pid, tid, socket, local, remote, 1, protocol, exchange, command, detail],
        );
        self.event("wakeup", &[tid, callee, 1]);
        self.event("sent", &[pid, tid, socket, local, remote, 100]);
        self.event("receive_begin", &[pid, tid, socket]);
        self.event("switch_out", &[tid, 0]);
        let well = self.serve(to, service, client, tid, kind);
        self.comes(tid);
        self.event("received", &[pid, tid, socket, local, remote, 100]);
        let status = self.text(if well { "200" } else { "500" });
        self.event(
            "answer",
            &[pid, tid, socket, local, remote, 0, protocol, exchange, u64::from(well), status],
        );
        self.spend(5_000, 20_000);
        well
    }
}

/// Writes a trace of a shop with these faults, one request after the other.
fn write(folder: &Path, seed: u64, faults: &[Fault], share: u64, requests: u64) {
    use FieldType::{Bool, I32, I64, Text, U32, U64};
    let writer = TraceWriter::create(folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let fields = |of: &[(&str, FieldType)]| -> Vec<EventField> {
        of.iter().map(|(name, ty)| EventField::new(*name, *ty)).collect()
    };
    let who = [("pid", U32), ("tid", U32)];
    let with = |more: &[(&str, FieldType)]| fields(&[&who, more].concat());
    let ends = [("socket", U64), ("local", Text), ("remote", Text)];
    let of_ends = |more: &[(&str, FieldType)]| with(&[&ends, more].concat());
    let exchange = [("sent", Bool), ("protocol", Text), ("exchange", U64)];
    let of_exchange = |more: &[(&str, FieldType)]| of_ends(&[&exchange, more].concat());
    let mut kinds = Vec::new();
    for (name, declared) in [
        ("switch_out", fields(&[("tid", U32), ("runnable", Bool)])),
        ("switch_in", fields(&[("tid", U32)])),
        ("wakeup", fields(&[("tid", U32), ("target", U32), ("interrupt", Bool)])),
        ("received", of_ends(&[("bytes", I64)])),
        ("sent", of_ends(&[("bytes", I64)])),
        ("ask", of_exchange(&[("command", Text), ("detail", Text)])),
        ("answer", of_exchange(&[("ok", Bool), ("status", Text)])),
        ("receive_begin", with(&[("socket", U64)])),
        ("poll_begin", with(&[])),
        ("open", with(&[("fd", I32), ("path", Text), ("inode", U64), ("of", Text)])),
        ("read_begin", with(&[("fd", I32), ("inode", U64), ("of", Text)])),
        ("read", with(&[("fd", I32), ("bytes", I64), ("inode", U64), ("of", Text)])),
    ] {
        kinds.push((name, events.kind(name, &declared).unwrap()));
    }
    let (random, faults) = (Random(seed * 7919 + 3), faults.to_vec());
    let mut shop = Shop { events, kinds, random, faults, share, now: 1_000_000, exchange: 0 };
    for n in 0..requests {
        let kind = shop.random.below(4);
        let client = n % 8;
        shop.event("wakeup", &[0, Shop::thread(0, 0, client), 1]);
        shop.serve(0, 0, client, 0, kind);
        shop.spend(50_000, 500_000);
    }
    let processes = SERVICES.iter().enumerate().map(|(service, name)| Process {
        pid: Shop::pid(service) as u32,
        command: (*name).to_owned(),
        ..Process::default()
    });
    let finish = Finish {
        manifest: Manifest { duration_ns: shop.now, ..Manifest::default() },
        processes: processes.collect(),
        events: shop.events.finish(vec![CpuLoss { cpu: 0, lost: 0 }]).unwrap(),
        ..Finish::default()
    };
    writer.finish(finish, &mut |_, _| {}).unwrap();
}

fn located(seed: u64, faults: &[Fault], share: u64) -> Located {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.fettle");
    write(&path, seed, faults, share, 400);
    let trace = Trace::open(&path).unwrap();
    let sources = [Source::new("locate", "use sockets\n")];
    let session = Session::open(&trace, &sources, &shipped).unwrap();
    locate(&session, &LocateOptions::default()).unwrap()
}

fn kinds() -> Vec<Fault> {
    (0..20)
        .map(|n| match n % 4 {
            0 => Fault::Computes(1 + (n * 5) % 11),
            1 => Fault::Fails(1 + (n * 3) % 11),
            2 => Fault::Disk(1 + (n * 7) % 11),
            _ => Fault::Statement(1 + (n * 2) % 11, n as u64 % 3),
        })
        .collect()
}

/// Whether one of the first so many faults names it.
fn names(located: &Located, fault: Fault, first: usize) -> bool {
    let named = |component: &String| fault.names().iter().any(|name| component == name);
    located.faults.iter().take(first).any(|found| found.components.iter().any(named))
}

/// Of twenty kinds of faults, each in a quarter of its service's answers, in so many shops.
#[test]
fn faults_are_located_by_what_bad_requests_have_in_common() {
    let rounds: u64 = std::env::var("LOCATE_ROUNDS").map_or(2, |text| text.parse().unwrap());
    let (mut first, mut third, mut all) = (0, 0, 0);
    for (n, fault) in kinds().into_iter().enumerate() {
        for round in 0..rounds {
            // One of a statement is rare enough by itself.
            let share = if matches!(fault, Fault::Statement(..)) { 100 } else { 25 };
            let found = located(round * 100 + n as u64 + 1, &[fault], share);
            all += 1;
            first += u64::from(names(&found, fault, 1));
            third += u64::from(names(&found, fault, 3));
            if !names(&found, fault, 1) {
                println!("{fault:?}: {:#?}", found.faults);
            }
        }
    }
    println!("of {all}: first {first}, among the first three {third}");
    assert!(first * 100 >= all * 90 && third * 100 >= all * 98, "{first} and {third} of {all}");
}

/// Two faults at once are both among the first four.
#[test]
fn two_faults_are_told_apart() {
    let rounds: u64 = std::env::var("LOCATE_ROUNDS").map_or(1, |text| text.parse().unwrap());
    let kinds = kinds();
    let (mut both, mut all) = (0, 0);
    for round in 0..rounds {
        for n in 0..kinds.len() {
            let (one, other) = (kinds[n], kinds[(n + 7) % kinds.len()]);
            let found = located(round * 100 + n as u64 + 50, &[one, other], 25);
            all += 1;
            both += u64::from(names(&found, one, 4) && names(&found, other, 4));
        }
    }
    println!("of {all}: both among the first four {both}");
    assert!(both * 100 >= all * 85, "{both} of {all}");
}

/// Where nothing is wrong, nothing is named.
#[test]
fn a_shop_without_faults_has_none() {
    let rounds: u64 = std::env::var("LOCATE_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let named = (0..rounds).filter(|seed| {
        let found = located(seed + 1000, &[], 0);
        assert!(found.requests >= 390, "{}", found.requests);
        !found.faults.is_empty()
    });
    let named = named.count() as u64;
    println!("of {rounds}: {named} named");
    assert!(named * 100 <= rounds, "{named} of {rounds}");
}
