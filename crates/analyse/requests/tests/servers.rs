//! Random servers whose truth is known.
//!
//! A server has clients on keep-alive connections, threads that take whatever can go on, files,
//! queues, locks and a wire on which messages of many requests follow each other. A request is a
//! random program of steps and moves from thread to thread. The generator knows whose each event is;
//! extraction sees the events alone and has to find exactly that, and the time on processors too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fettle_requests::{
    Batch, Engine, EventId, Footprint, MayBeOpen, Options, Program, Request, Source, compile,
};

const SCHEMA: &str = "
event received(tid: u32, connection: u32)
event sent(tid: u32, connection: u32)
event open(tid: u32, fd: i32)
event read(tid: u32, fd: i32)
event close(tid: u32, fd: i32)
event push(tid: u32, item: u64)
event pop(tid: u32, item: u64)
event write(tid: u32, wire: u32, n: i64)
event take(tid: u32, wire: u32, n: i64)
event wake(tid: u32, target: u32)
event out(tid: u32)
event back(tid: u32)
event poll(tid: u32)
event other(tid: u32)

actor thread(tid: u32)
timeline connection(n: u32)
timeline file(fd: i32)
timeline item(n: u64)
stream wire(n: u32)

on received {
  start connection(connection) after sent, nothing
  start thread(tid)
  seed
}
on sent { basic connection(connection)  basic thread(tid) }
on open { start file(fd)  basic thread(tid) }
on read { basic file(fd)  basic thread(tid) }
on close { stop file(fd)  basic thread(tid) }
on push { start item(item)  basic thread(tid) }
on pop { stop item(item)  start thread(tid) }
on write { basic thread(tid)  send wire(wire) bytes n }
on take { start thread(tid)  receive wire(wire) bytes n }
on wake { handoff thread(tid) -> thread(target) }
on out { basic thread(tid) is sleeping }
on back { basic thread(tid) is running }
on poll { stop thread(tid) }
";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Where a request is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Thread(usize),
    Queue(u64),
    Wire(usize),
    Done,
}

struct Truth {
    at: At,
    connection: usize,
    file: Option<u64>,
    steps: usize,
    events: BTreeSet<u64>,
    cpu_ns: u64,
}

/// The activity of a thread, and since when it was not counted.
#[derive(Clone, Default)]
struct Thread {
    request: Option<usize>,
    running: bool,
    since_ns: u64,
}

struct Server<'a> {
    program: &'a Program,
    random: Random,
    batch: Batch,
    time_ns: u64,
    threads: Vec<Thread>,
    /// The request on each connection.
    connections: Vec<Option<usize>>,
    /// Messages on each wire: whose, and bytes left.
    wires: Vec<VecDeque<(usize, u64)>>,
    truths: Vec<Truth>,
    items: u64,
}

impl Server<'_> {
    fn event(&mut self, name: &str, fields: &[u64], whose: Option<usize>) {
        self.time_ns += self.random.next() % 5;
        let event: EventId = self.program.catalog().find(name).unwrap();
        if let Some(request) = whose {
            self.truths[request].events.insert(self.batch.len() as u64);
        }
        self.batch.push(self.time_ns, event, fields);
    }

    /// A thread's time until now goes to its request.
    fn settle(&mut self, thread: usize) {
        let Thread { request, running, since_ns } = self.threads[thread];
        if let (Some(request), true) = (request, running) {
            self.truths[request].cpu_ns += self.time_ns - since_ns;
        }
        self.threads[thread].since_ns = self.time_ns;
    }

    /// From now on, the time of the last event, a thread works on this.
    fn works_on(&mut self, thread: usize, request: Option<usize>) {
        self.settle(thread);
        self.threads[thread].request = request;
        self.threads[thread].running = true;
    }

    fn idle(&mut self) -> Option<usize> {
        let idle: Vec<usize> =
            (0..self.threads.len()).filter(|n| self.threads[*n].request.is_none()).collect();
        (!idle.is_empty()).then(|| idle[self.random.below(idle.len())])
    }

    /// The thread has nothing to do any more.
    fn poll(&mut self, thread: usize) {
        let request = self.threads[thread].request;
        self.event("poll", &[thread as u64], request);
        self.works_on(thread, None);
    }

    /// A client sends a request.
    fn begin(&mut self) {
        let connection = self.random.below(self.connections.len());
        let Some(thread) = self.idle() else { return };
        if self.connections[connection].is_some() {
            return;
        }
        let request = self.truths.len();
        self.truths.push(Truth {
            at: At::Thread(thread),
            connection,
            file: None,
            steps: self.random.below(12),
            events: BTreeSet::new(),
            cpu_ns: 0,
        });
        self.connections[connection] = Some(request);
        for _ in 0..=self.random.below(2) {
            self.event("received", &[thread as u64, connection as u64], Some(request));
            self.works_on(thread, Some(request));
        }
    }

    /// An open request does something.
    fn go_on(&mut self) {
        let open: Vec<usize> =
            (0..self.truths.len()).filter(|n| self.truths[*n].at != At::Done).collect();
        if open.is_empty() {
            return;
        }
        let request = open[self.random.below(open.len())];
        match self.truths[request].at {
            At::Thread(thread) if self.threads[thread].running => self.work(request, thread),
            At::Thread(thread) => {
                self.event("back", &[thread as u64], Some(request));
                self.settle(thread);
                self.threads[thread].running = true;
            }
            At::Queue(item) => {
                let Some(thread) = self.idle() else { return };
                self.event("pop", &[thread as u64, item], Some(request));
                self.works_on(thread, Some(request));
                self.truths[request].at = At::Thread(thread);
            }
            At::Wire(wire) => self.take(request, wire),
            At::Done => {}
        }
    }

    /// The first message on a wire is read, in parts perhaps.
    fn take(&mut self, request: usize, wire: usize) {
        let Some(thread) = self.idle() else { return };
        if self.wires[wire].front().is_none_or(|(whose, _)| *whose != request) {
            return;
        }
        self.truths[request].at = At::Thread(thread);
        while let Some((whose, left)) = self.wires[wire].front().copied() {
            if whose != request {
                break;
            }
            let n = 1 + self.random.next() % left;
            self.event("take", &[thread as u64, wire as u64, n], Some(request));
            self.works_on(thread, Some(request));
            match n == left {
                true => drop(self.wires[wire].pop_front()),
                false => self.wires[wire][0].1 -= n,
            }
            if n == left {
                break;
            }
        }
    }

    fn work(&mut self, request: usize, thread: usize) {
        let tid = thread as u64;
        if self.truths[request].steps == 0 {
            if let Some(fd) = self.truths[request].file.take() {
                self.event("close", &[tid, fd], Some(request));
            }
            let connection = self.truths[request].connection;
            self.event("sent", &[tid, connection as u64], Some(request));
            self.poll(thread);
            self.connections[connection] = None;
            self.truths[request].at = At::Done;
            return;
        }
        self.truths[request].steps -= 1;
        match (self.random.below(7), self.truths[request].file) {
            (0, None) => {
                self.items += 1;
                // Descriptors are used again: the lowest that is free.
                let used: BTreeSet<u64> = self.truths.iter().filter_map(|t| t.file).collect();
                let fd = (3..).find(|fd| !used.contains(fd)).unwrap();
                self.truths[request].file = Some(fd);
                self.event("open", &[tid, fd], Some(request));
            }
            (0 | 1, Some(fd)) => self.event("read", &[tid, fd], Some(request)),
            (2, Some(fd)) => {
                self.truths[request].file = None;
                self.event("close", &[tid, fd], Some(request));
            }
            (3, _) => {
                // Few numbers, so that they are used again.
                let used: BTreeSet<u64> = self.truths.iter().filter_map(Truth::item).collect();
                let item = (1..).find(|item| !used.contains(item)).unwrap();
                self.event("push", &[tid, item], Some(request));
                self.truths[request].at = At::Queue(item);
                self.poll(thread);
            }
            (4, _) => {
                let wire = self.random.below(self.wires.len());
                let n = 1 + self.random.next() % 50;
                self.event("write", &[tid, wire as u64, n], Some(request));
                self.wires[wire].push_back((request, n));
                self.truths[request].at = At::Wire(wire);
                self.poll(thread);
            }
            (5, _) => {
                self.event("out", &[tid], Some(request));
                self.settle(thread);
                self.threads[thread].running = false;
            }
            _ => {
                // A lock is let go: a thread with work of its own is woken.
                let target = self.random.below(self.threads.len());
                match self.threads[target].request {
                    Some(_) => self.event("wake", &[tid, target as u64], Some(request)),
                    None => self.event("other", &[tid], None),
                }
            }
        }
    }
}

impl Truth {
    fn item(&self) -> Option<u64> {
        match self.at {
            At::Queue(item) => Some(item),
            _ => None,
        }
    }
}

fn serve(program: &Program, seed: u64) -> (Batch, Vec<Truth>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.next();
    let threads = 1 + random.below(12);
    let connections = 1 + random.below(24);
    let wires = 1 + random.below(3);
    let mut server = Server {
        program,
        batch: Batch::new(program.catalog()),
        time_ns: 1000,
        threads: vec![Thread::default(); threads],
        connections: vec![None; connections],
        wires: vec![VecDeque::new(); wires],
        truths: Vec::new(),
        items: 0,
        random,
    };
    for _ in 0..600 {
        match server.random.below(4) {
            0 => server.begin(),
            _ => server.go_on(),
        }
    }
    // Open requests are brought to an end, so that their time is known.
    while server.truths.iter().any(|truth| truth.at != At::Done) {
        server.go_on();
    }
    (server.batch, server.truths)
}

fn program() -> Program {
    compile(&[Source::new("server", SCHEMA)], &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

fn extract(program: &Program, batches: &[Batch]) -> Vec<Request> {
    let mut engine = Engine::new(program.clone(), Options::default());
    let mut requests = Vec::new();
    for batch in batches {
        engine.feed(batch, &mut |request| requests.push(request.read().clone()));
    }
    engine.finish(&mut |request| requests.push(request.read().clone()));
    requests
}

#[test]
fn extraction_finds_exactly_the_truth() {
    let program = program();
    let mut total = 0;
    for seed in 0..400 {
        let (batch, truths) = serve(&program, seed);
        let mut found: BTreeMap<u64, Request> = BTreeMap::new();
        for request in extract(&program, &[batch]) {
            found.insert(request.id, request);
        }
        assert_eq!(found.len(), truths.len(), "seed {seed}");
        for (truth, request) in truths.iter().zip(found.values()) {
            let events: BTreeSet<u64> = request.events.iter().map(|e| e.ordinal).collect();
            assert_eq!(events, truth.events, "seed {seed}, request {}", request.id);
            assert_eq!(events.len(), request.events.len(), "seed {seed}: an event twice");
            assert_eq!(request.cpu_ns(), truth.cpu_ns, "seed {seed}, request {}", request.id);
            assert!(request.shared_with.is_empty(), "seed {seed}");
            check_path(request, seed);
            total += events.len();
        }
    }
    assert!(total > 100_000, "only {total} events: the generator is broken");
}

/// The critical path covers the request without gaps and overlaps, from its beginning to its end.
fn check_path(request: &Request, seed: u64) {
    let steps = request.critical_path();
    let mut at = request.begin_ns;
    for step in &steps {
        assert_eq!(step.from_ns, at, "seed {seed}: {request:#?}\n{steps:#?}");
        assert!(step.to_ns > step.from_ns);
        at = step.to_ns;
    }
    assert_eq!(at, request.end_ns, "seed {seed}: {request:#?}\n{steps:#?}");
}

#[test]
fn batches_make_no_difference() {
    let program = program();
    for seed in 0..40 {
        let (batch, _) = serve(&program, seed);
        let mut parts = vec![Batch::new(program.catalog())];
        let mut random = Random(seed + 77);
        for row in 0..batch.len() {
            if random.below(7) == 0 {
                parts.push(Batch::new(program.catalog()));
            }
            let fields: Vec<u64> =
                (0..program.catalog().width()).map(|field| batch.value(row, field)).collect();
            parts.last_mut().unwrap().push(batch.time_ns(row), batch.kind(row), &fields);
        }
        assert_eq!(extract(&program, &[batch]), extract(&program, &parts), "seed {seed}");
    }
}

#[test]
fn several_schemas_in_one_pass_are_the_same_as_one_by_one() {
    let one = program();
    let others = "event open(tid: u32, fd: i32) event close(tid: u32, fd: i32)
        event received(tid: u32, connection: u32)
        timeline file(fd: i32)
        on open { start file(fd) seed } on close { stop file(fd) }";
    let files = Source::new("files", others);
    let both = compile(&[Source::new("server", SCHEMA), files], &|_| None).unwrap();
    for seed in 0..20 {
        let (batch, _) = serve(&one, seed);
        let alone = extract(&one, std::slice::from_ref(&batch));
        let (first, second): (Vec<Request>, Vec<Request>) =
            extract(&both, &[batch]).into_iter().partition(|request| request.schema == 0);
        assert_eq!(alone, first, "seed {seed}");
        assert!(second.iter().all(|request| request.schema == 1 && !request.events.is_empty()));
    }
}

/// Any event of any kind with any fields at any time: no panic, and what comes out is sound.
#[test]
fn nonsense_is_survived() {
    let program = program();
    let events: Vec<EventId> =
        program.catalog().events().iter().filter_map(|e| program.catalog().find(&e.name)).collect();
    for seed in 0..200u64 {
        let mut random = Random(seed * 1_000_003 + 1);
        let mut batch = Batch::new(program.catalog());
        for _ in 0..2000 {
            let fields: Vec<u64> = (0..program.catalog().width())
                .map(|_| match random.below(20) {
                    0 => u64::MAX - random.next() % 3,
                    _ => random.next() % 6,
                })
                .collect();
            let time = match random.below(50) {
                0 => random.next(),
                _ => random.next() % 1000,
            };
            batch.push(time, events[random.below(events.len())], &fields);
        }
        let options = Options {
            sections_max: 8 + random.below(20),
            requests_max: 1 + random.below(20),
            events_max: 1 + random.below(100),
            swallow_min: 1 + random.below(100),
            ranges_max: 1 + random.below(8),
            sharers_max: 1 + random.below(4),
            quiet_ns: Some(1 + random.next() % 1000),
            jump_ns: random.next() % 2000,
            switches: random.below(2) == 0,
            only: None,
        };
        let mut engine = Engine::new(program.clone(), options);
        let mut requests = Vec::new();
        engine.feed(&batch, &mut |request| requests.push(request.read().clone()));
        assert!(engine.open().0 <= options.sections_max + 3);
        assert!(engine.open().1 <= options.requests_max);
        engine.finish(&mut |request| requests.push(request.read().clone()));
        for request in &requests {
            sound(request, &options, seed);
        }
        let ids: BTreeSet<u64> = requests.iter().map(|request| request.id).collect();
        assert_eq!(ids.len(), requests.len(), "seed {seed}");
        assert_eq!(ids.len() as u64, engine.schema_counts(0).begun, "seed {seed}");
    }
}

/// Events that cannot matter are left out, key by key, and the result is the same.
#[test]
fn events_that_cannot_matter_do_not() {
    let program = program();
    let events: Vec<EventId> =
        program.catalog().events().iter().filter_map(|e| program.catalog().find(&e.name)).collect();
    let (mut all, mut kept_of_all) = (0, 0);
    for seed in 0..200u64 {
        let mut random = Random(seed * 7_654_321 + 5);
        let mut batch = Batch::new(program.catalog());
        for n in 0..1000 {
            let fields: Vec<u64> =
                (0..program.catalog().width()).map(|_| random.next() % 12).collect();
            batch.push(n * 10 + random.next() % 10, events[random.below(events.len())], &fields);
        }
        let width = program.catalog().width();
        let (mut open, mut footprint) = (MayBeOpen::default(), Footprint::default());
        let (mut kept, mut rows) = (Batch::new(program.catalog()), Vec::new());
        for row in 0..batch.len() {
            let taken = program.footprint(0, &batch, row, &mut footprint);
            // All keys are asked: what an event does to one does not depend on the others.
            let mut matters = taken && footprint.always;
            for reference in footprint.references.iter().filter(|_| taken) {
                matters |= open.matters(reference, batch.time_ns(row));
            }
            // The last one says how late it is.
            if matters || row + 1 == batch.len() {
                let fields: Vec<u64> = (0..width).map(|field| batch.value(row, field)).collect();
                kept.push(batch.time_ns(row), batch.kind(row), &fields);
                rows.push(row as u64);
            }
        }
        let options = Options { quiet_ns: Some(1 + random.next() % 3000), ..Options::default() };
        let run = |batch: &Batch, place: &dyn Fn(u64) -> u64| {
            let mut engine = Engine::new(program.clone(), options);
            let mut found: Vec<Request> = Vec::new();
            engine.feed(batch, &mut |request| found.push(request.read().clone()));
            engine.finish(&mut |request| found.push(request.read().clone()));
            for request in &mut found {
                request.events.iter_mut().for_each(|event| event.ordinal = place(event.ordinal));
            }
            found.sort_by_key(|request| request.id);
            found
        };
        assert_eq!(run(&batch, &|n| n), run(&kept, &|n| rows[n as usize]), "seed {seed}");
        (all, kept_of_all) = (all + batch.len(), kept_of_all + kept.len());
    }
    assert!(kept_of_all * 10 < all * 9, "{kept_of_all} of {all} were kept");
}

fn sound(request: &Request, options: &Options, seed: u64) {
    assert!(request.events.is_sorted_by_key(|e| (e.time_ns, e.ordinal)), "seed {seed}");
    assert!(request.events.is_sorted_by(|a, b| a.ordinal < b.ordinal), "seed {seed}");
    assert!(request.events.len() <= options.events_max, "seed {seed}");
    assert!(request.sections.iter().all(|s| s.joined_ns <= s.left_ns), "seed {seed}");
    for span in &request.spans {
        assert!(span.from_ns < span.to_ns, "seed {seed}");
        assert!((span.section as usize) < request.sections.len(), "seed {seed}");
    }
    let steps = request.critical_path();
    assert!(steps.is_sorted_by(|a, b| a.to_ns <= b.from_ns), "seed {seed}: {steps:?}");
    let covered: u64 = steps.iter().map(|step| step.to_ns - step.from_ns).sum();
    assert!(covered <= request.wall_ns(), "seed {seed}");
}
