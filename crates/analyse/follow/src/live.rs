//! Requests of a trace that is still being recorded, from events as they come: one pass, in the
//! memory of open requests, by the same engine and in the same order as afterwards.

use fettle_requests::{Batch, Engine, EventId, Options, Program, Request, Source, compile};
use fettle_trace::{EventKind, Manifest, Process, Thread};

use crate::deferred::Deferred;
use crate::error::Result;
use crate::feed::places;
use crate::names::Names;
use crate::session::Context;
use crate::summary::Summing;
use crate::view::Summary;

/// Follows requests while events come.
pub struct Live {
    engine: Engine,
    program: Program,
    strings: fettle_requests::Strings,
    names: Names,
    deferred: Deferred,
    kinds: Vec<Known>,
    summing: Summing,
    problems: Vec<String>,
    /// Values on their way.
    values: Vec<u64>,
    batch: Batch,
    reported_ns: u64,
}

/// What a kind of event is to the program.
#[derive(Default)]
struct Known {
    /// As the program knows it, with the places of its fields.
    event: Option<(EventId, Vec<usize>)>,
    /// Places of `pid` and `tid`.
    who: Option<(usize, usize)>,
    naming: Naming,
}

/// What a kind says of the names of processes.
#[derive(Default)]
enum Naming {
    #[default]
    Nothing,
    Exec {
        pid: usize,
        path: usize,
    },
    Fork {
        pid: usize,
        child_pid: usize,
    },
}

impl Live {
    /// Compiles schemas for events of these kinds. The summary has the `slowest` slowest requests.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Schema`] if a schema is wrong.
    pub fn open(
        sources: &[Source],
        library: &dyn Fn(&str) -> Option<String>,
        kinds: &[EventKind],
        slowest: usize,
    ) -> Result<Live> {
        let program = compile(sources, library)?;
        let mut problems = Vec::new();
        let summing = Summing::new(&program, slowest);
        let also = |event| summing.wants(event);
        let known = kinds.iter().map(|kind| Known::new(kind, &program, &also, &mut problems));
        let known = known.collect();
        let uses = |event| program.schemas().iter().any(|schema| schema.uses(event));
        // The kernel reports switches in every recording of its events.
        let options = Options { switches: true, ..Options::default() };
        Ok(Live {
            engine: Engine::new(program.clone(), options),
            strings: program.strings().clone(),
            names: Names::default(),
            deferred: Deferred::new(&program, &uses),
            kinds: known,
            summing,
            problems,
            values: Vec::new(),
            reported_ns: 0,
            batch: Batch::new(program.catalog()),
            program,
        })
    }

    /// Names of the schemas, by place.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        self.program.schemas().iter().map(fettle_requests::Schema::name)
    }

    /// Before when, in nanoseconds of trace time, everything has come.
    pub fn reported_ns(&self) -> u64 {
        self.reported_ns
    }

    /// Whether schemas ask for calls, which are not known before they end.
    pub fn asks_for_calls(&self) -> bool {
        let catalog = self.program.catalog();
        let used = |event| self.program.schemas().iter().any(|schema| schema.uses(event));
        ["call", "call_end"].into_iter().filter_map(|name| catalog.find(name)).any(used)
    }

    /// The processes and threads that were there when the recording began.
    pub fn know(&mut self, processes: &[Process], threads: &[Thread]) {
        self.names.take_in(processes, threads);
    }

    /// The code of a text, for values.
    pub fn text(&mut self, text: &str) -> u32 {
        self.strings.code(text)
    }

    /// Takes in an event: its kind's place, nanoseconds of trace time, and the values of its
    /// fields. Events come in order of time.
    pub fn event(&mut self, kind: usize, time_ns: u64, values: &[u64]) {
        let Some(known) = self.kinds.get(kind) else { return };
        let value = |place: usize| values.get(place).copied().unwrap_or(0);
        match known.naming {
            Naming::Nothing => {}
            Naming::Exec { pid, path } => {
                let path = self.strings.of_value(value(path));
                self.names.exec(value(pid) as u32, time_ns, path);
            }
            Naming::Fork { pid, child_pid } => {
                self.names.fork(value(pid) as u32, time_ns, value(child_pid) as u32);
            }
        }
        let Some((event, places)) = &known.event else { return };
        if let Some((pid, tid)) = known.who {
            self.names.learn(value(tid) as u32, value(pid) as u32);
        }
        self.values.clear();
        self.values.extend(places.iter().map(|place| value(*place)));
        self.deferred.input().push(time_ns, *event, &self.values);
    }

    /// Nothing else will come before `reported_ns`. Calls `with` on the requests that are complete by
    /// that.
    pub fn until(&mut self, reported_ns: u64, with: &mut dyn FnMut(&Request, &Context<'_>)) {
        self.reported_ns = reported_ns;
        self.deferred.release_before(reported_ns, &self.strings, &mut self.batch);
        self.run(with);
    }

    /// Nothing else will come at all. Calls `with` on the rest of the requests.
    pub fn finish(&mut self, with: &mut dyn FnMut(&Request, &Context<'_>)) {
        self.deferred.release(true, &self.strings, &mut self.batch);
        self.run(with);
        let Live { engine, program, strings, names, summing, .. } = self;
        let context = Context { program, strings, names };
        engine.finish(&mut |request| {
            let request = request.read();
            summing.take(request, &context);
            with(request, &context);
        });
    }

    fn run(&mut self, with: &mut dyn FnMut(&Request, &Context<'_>)) {
        let Live { engine, program, strings, names, summing, batch, .. } = self;
        let context = Context { program, strings, names };
        summing.look(batch, strings);
        engine.feed(batch, &mut |request| {
            let request = request.read();
            summing.take(request, &context);
            with(request, &context);
        });
        batch.clear();
    }

    /// All requests that were found, in figures.
    pub fn summary(self, manifest: &Manifest) -> Summary {
        let schemas = 0..self.program.schemas().len();
        let counts: Vec<_> = schemas.map(|schema| self.engine.schema_counts(schema)).collect();
        let counted = (&self.engine.counts(), self.deferred.by_trace_id());
        self.summing.finish(&self.program, manifest, counted, &counts, self.problems)
    }
}

impl Known {
    fn new(
        kind: &EventKind,
        program: &Program,
        also: &dyn Fn(EventId) -> bool,
        problems: &mut Vec<String>,
    ) -> Known {
        let naming = match kind.name.as_str() {
            "exec" => {
                let places = kind.place("pid").zip(kind.place("path"));
                places.map(|(pid, path)| Naming::Exec { pid, path })
            }
            "fork" => {
                let pids = kind.place("pid").zip(kind.place("child_pid"));
                pids.map(|(pid, child_pid)| Naming::Fork { pid, child_pid })
            }
            _ => None,
        };
        let catalog = program.catalog();
        let uses = |event: EventId| program.schemas().iter().any(|schema| schema.uses(event));
        let event = catalog.find(&kind.name).filter(|event| uses(*event) || also(*event));
        let declared = event.and_then(|event| Some((event, catalog.get(event)?)));
        let event = declared.and_then(|(event, declared)| match places(kind, declared) {
            Ok(places) => Some((event, places)),
            Err(problem) => {
                problems.push(problem);
                None
            }
        });
        let who = kind.place("pid").zip(kind.place("tid"));
        Known { event, who, naming: naming.unwrap_or_default() }
    }
}
