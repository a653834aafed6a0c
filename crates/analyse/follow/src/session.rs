//! One question after another about a trace's requests.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fettle_requests::{
    Batch, Complete, Counts, Engine, EventId, FieldType, Options, Outcome, Program, Request,
    SchemaCounts, Source, Strings, compile,
};
use fettle_trace::Trace;

use crate::deferred::ByTraceId;
use crate::error::Result;
use crate::feed::Feed;
use crate::names::Names;
use crate::view::{Actor, CriticalStep, RequestRow, TimesNs};

/// A trace and the schemas that say what its requests are.
#[derive(Debug)]
pub struct Session<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) program: Program,
    options: Options,
    pub(crate) names: RefCell<Names>,
    problems: Vec<String>,
}

/// What gives a request's numbers their names.
pub struct Context<'a> {
    pub(crate) program: &'a Program,
    pub(crate) strings: &'a Strings,
    pub(crate) names: &'a Names,
}

/// Notified of events and requests as they come. Either says `false` when it has seen enough.
pub trait Observer {
    /// Some events, before the requests that they complete: the first has the place `first` among
    /// all that are read.
    fn events(&mut self, first: u64, events: &Batch, context: &Context<'_>) -> bool {
        let _ = (first, events, context);
        true
    }

    /// A request that is complete.
    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool;
}

impl<F: FnMut(&Request, &Context<'_>) -> bool> Observer for F {
    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool {
        self(request, context)
    }
}

/// What a run over a trace came to.
pub(crate) struct Ran {
    pub counts: Counts,
    pub schema_counts: Vec<SchemaCounts>,
    pub problems: Vec<String>,
    /// The texts that keys name by code.
    pub strings: Strings,
    /// Of how many questions their bytes said whose they are.
    pub by_trace_id: ByTraceId,
}

impl<'a> Session<'a> {
    /// Compiles schemas for a trace. `library` finds those that they use; it is
    /// [`fettle_requests::shipped`], or something that asks that first.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Schema`] if a schema is wrong.
    pub fn open(
        trace: &'a Trace,
        sources: &[Source],
        library: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Session<'a>> {
        let program = compile(sources, library)?;
        let mut problems = trace.warnings().to_vec();
        let names = RefCell::new(Names::read(trace, &mut problems)?);
        Ok(Session { trace, program, options: Options::default(), names, problems })
    }

    /// The schemas, compiled.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What the engine may take.
    pub(crate) fn options(&self) -> Options {
        self.options
    }

    /// Whether a schema does something with an event.
    pub(crate) fn uses(&self, event: EventId) -> bool {
        self.program.schemas().iter().any(|schema| schema.uses(event))
    }

    /// Calls `with` on each request, each schema's in the order of their completion.
    pub fn for_each(&self, with: &mut dyn FnMut(&Request, &Context<'_>)) -> Result<()> {
        self.run(&mut |request, context| {
            with(request, context);
            true
        })?;
        Ok(())
    }

    /// The same, until `with` returns `false`.
    pub fn for_each_while(
        &self,
        with: &mut dyn FnMut(&Request, &Context<'_>) -> bool,
    ) -> Result<()> {
        self.run(with)?;
        Ok(())
    }

    /// All requests in one line each, in the order in which they began.
    pub fn list(&self) -> Result<Vec<RequestRow>> {
        let mut rows = Vec::new();
        self.for_each(&mut |request, context| rows.push(context.row(request)))?;
        rows.sort_by_key(|row| (row.begin_ns, row.schema, row.id));
        Ok(rows)
    }

    /// Notifies an observer of the events that the schemas use or that it also wants, and of the
    /// requests. Returns what could not be read.
    pub fn observe(
        &self,
        also: &dyn Fn(EventId) -> bool,
        observer: &mut dyn Observer,
    ) -> Result<Vec<String>> {
        Ok(self.run_with(also, None, observer)?.problems)
    }

    /// Runs the engine over the trace until `with` returns `false` or the events are over.
    pub(crate) fn run(
        &self,
        mut with: &mut dyn FnMut(&Request, &Context<'_>) -> bool,
    ) -> Result<Ran> {
        self.run_with(&|_| false, None, &mut with)
    }

    /// The same with the request of one number only, of each schema: nothing is written down of others.
    pub(crate) fn run_for(
        &self,
        only: u64,
        mut with: &mut dyn FnMut(&Request, &Context<'_>) -> bool,
    ) -> Result<Ran> {
        self.run_with(&|_| false, Some(only), &mut with)
    }

    pub(crate) fn run_with(
        &self,
        also: &dyn Fn(EventId) -> bool,
        only: Option<u64>,
        observer: &mut dyn Observer,
    ) -> Result<Ran> {
        let wanted = |event| self.uses(event) || also(event);
        let mut feed = Feed::open(self.trace, &self.program, &wanted)?;
        let options = Options { switches: feed.switches(), only, ..self.options };
        let mut engine = Engine::new(self.program.clone(), options);
        let mut batch = Batch::new(self.program.catalog());
        let mut first = 0;
        let mut going_on = true;
        while going_on && feed.next(&mut batch, &mut self.names.borrow_mut())? {
            let names = &self.names.borrow();
            let context = Context { program: &self.program, strings: feed.strings(), names };
            going_on = observer.events(first, &batch, &context);
            let mut notify = |request: Complete<'_>| {
                if going_on && request.is_reported() {
                    going_on = observer.request(request.read(), &context);
                }
            };
            engine.feed(&batch, &mut notify);
            first += batch.len() as u64;
        }
        if going_on {
            let names = &self.names.borrow();
            let context = Context { program: &self.program, strings: feed.strings(), names };
            engine.finish(&mut |request| {
                if going_on && request.is_reported() {
                    going_on = observer.request(request.read(), &context);
                }
            });
        }
        let schemas = 0..self.program.schemas().len();
        let mut problems = self.problems.clone();
        problems.extend_from_slice(feed.problems());
        Ok(Ran {
            counts: engine.counts(),
            schema_counts: schemas.map(|schema| engine.schema_counts(schema)).collect(),
            problems,
            by_trace_id: feed.by_trace_id(),
            strings: feed.into_strings(),
        })
    }

    /// Calls `with` on the events that are wanted, a batch at a time with the place of its first
    /// event among all, until it returns `false`, and `finish` at the end. Returns what that gives,
    /// and what could not be read.
    pub(crate) fn events<S, T>(
        &self,
        wanted: &dyn Fn(EventId) -> bool,
        mut state: S,
        with: &mut dyn FnMut(&mut S, u64, &Batch, &Context<'_>) -> bool,
        finish: impl FnOnce(S, &Context<'_>) -> T,
    ) -> Result<(T, Vec<String>)> {
        let mut feed = Feed::open(self.trace, &self.program, wanted)?;
        let mut batch = Batch::new(self.program.catalog());
        let mut first = 0;
        while feed.next(&mut batch, &mut self.names.borrow_mut())? {
            let names = &self.names.borrow();
            let context = Context { program: &self.program, strings: feed.strings(), names };
            if !with(&mut state, first, &batch, &context) {
                break;
            }
            first += batch.len() as u64;
        }
        let mut problems = self.problems.clone();
        problems.extend_from_slice(feed.problems());
        let names = &self.names.borrow();
        let context = Context { program: &self.program, strings: feed.strings(), names };
        Ok((finish(state, &context), problems))
    }
}

impl Context<'_> {
    /// A request in one line.
    pub fn row(&self, request: &Request) -> RequestRow {
        let schema = self.program.schemas().get(request.schema);
        let class = schema.and_then(|schema| schema.classes().get(request.class));
        let label = request.label.and_then(|label| self.strings.text(label));
        let mut path: Vec<String> = Vec::new();
        let mut actors = BTreeSet::new();
        for section in &request.sections {
            let name = if !section.actor {
                // What is no thread, and says what it is, such as a service of a tracing library.
                let Some(service) = self.service(request, section.timeline, section.key) else {
                    continue;
                };
                service.to_owned()
            } else if actors.insert((section.timeline, section.key)) {
                let actor = self.actor(request, section.timeline, section.key, section.joined_ns);
                actor.process.unwrap_or(actor.name)
            } else {
                continue;
            };
            if !path.contains(&name) {
                path.push(name);
            }
        }
        RequestRow {
            schema: request.schema,
            id: request.id,
            class: label.map(str::to_owned).or(class.cloned()).unwrap_or_default(),
            path,
            begin_ns: request.begin_ns,
            end_ns: request.end_ns,
            wall_ns: request.wall_ns(),
            answered_ns: request.answered_ns,
            response_ns: request.response_ns(),
            times_ns: request.times().into(),
            shared_ns: request.shared_ns(),
            events: request.events.len() as u64,
            actors: actors.len() as u64,
            shared_with: request.shared_with.len() as u64,
            outcome: match request.outcome {
                Outcome::Ended => "ended",
                Outcome::Drained => "drained",
                Outcome::Quiet => "quiet",
                Outcome::TooLong => "too long",
                Outcome::Swallowed => "swallowed others",
                Outcome::Unfinished => "unfinished",
            },
            certainty: request.certainty.name(),
            likely: request.certainty.likely(),
            candidates: request.certainty.candidates(),
        }
    }

    /// The schemas that the requests are of.
    pub fn program(&self) -> &Program {
        self.program
    }

    /// The texts that events and keys name by code.
    pub fn strings(&self) -> &Strings {
        self.strings
    }

    /// A section's timeline and key: `file(pid=7, fd=3)`.
    pub fn describe(&self, request: &Request, timeline: usize, key: u128) -> String {
        self.program.describe(request.schema, timeline, key, self.strings)
    }

    /// The service that a section is of, if its timeline is one of services.
    fn service(&self, request: &Request, timeline: usize, key: u128) -> Option<&str> {
        let lane = self.program.schemas().get(request.schema)?.timelines().get(timeline)?;
        let text = |(field, value): (&fettle_requests::Field, i128)| {
            (field.name == "service" && field.ty == FieldType::Text)
                .then(|| self.text(value as u64))
        };
        if lane.name != "service" {
            return None;
        }
        let values = self.program.key_values(request.schema, timeline, key);
        values.into_iter().find_map(text).filter(|service| !service.is_empty())
    }

    /// What an actor is: a thread by its process's name, anything else by its key.
    pub fn actor(&self, request: &Request, timeline: usize, key: u128, at_ns: u64) -> Actor {
        let values = self.program.key_values(request.schema, timeline, key);
        let value = |name: &str| {
            let found = values.iter().find(|(field, _)| field.name == name);
            found.and_then(|(_, value)| u32::try_from(*value).ok())
        };
        let tid = value("tid");
        let pid = value("pid").or_else(|| self.names.process_of(tid?));
        let process = pid.and_then(|pid| self.names.process(pid, at_ns));
        let only_thread = values.len() == 1;
        let (machine, local) = self.names.local(tid.or(pid).unwrap_or(0));
        let process = process.map(|process| format!("{machine}{process}"));
        let name = match (&process, tid) {
            (Some(process), Some(_)) if only_thread => format!("{process}/{local}"),
            (None, Some(_)) if only_thread => format!("thread {machine}{local}"),
            _ => self.program.describe(request.schema, timeline, key, self.strings),
        };
        Actor { name, process, pid, tid, times_ns: TimesNs::default() }
    }

    /// A process by its latest name and its number.
    pub(crate) fn process(&self, pid: u64) -> String {
        let number = u32::try_from(pid).unwrap_or(u32::MAX);
        let (machine, local) = self.names.local(number);
        match self.names.process(number, u64::MAX) {
            Some(name) => format!("{machine}{name}/{local}"),
            None => format!("process {machine}{local}"),
        }
    }

    /// The name of a process, without its number if it has one.
    pub(crate) fn process_name(&self, pid: u64) -> String {
        let number = u32::try_from(pid).unwrap_or(u32::MAX);
        let name = self.names.process(number, u64::MAX);
        name.map_or_else(|| format!("process {pid}"), str::to_owned)
    }

    /// The process of a thread.
    pub(crate) fn process_of(&self, tid: u64) -> String {
        let number = u32::try_from(tid).unwrap_or(u32::MAX);
        match self.names.process_of(number) {
            Some(pid) => self.process(u64::from(pid)),
            None => match self.names.local(number) {
                (machine, 0) => format!("{machine}kernel"),
                (machine, local) => format!("thread {machine}{local}"),
            },
        }
    }

    /// The number of a thread's process.
    pub(crate) fn process_number(&self, tid: u32) -> Option<u32> {
        self.names.process_of(tid)
    }

    /// The text of a code.
    pub(crate) fn text(&self, code: u64) -> &str {
        self.strings.of_value(code)
    }

    /// The critical path of a request.
    pub fn critical(&self, request: &Request) -> Vec<CriticalStep> {
        let step = |step: fettle_requests::Step| {
            let section = &request.sections[step.section as usize];
            let actor = self.actor(request, section.timeline, section.key, step.from_ns);
            CriticalStep {
                actor: actor.name,
                state: step.state.name(),
                from_ns: step.from_ns,
                to_ns: step.to_ns,
                waited_for: step.waited_for.and_then(|peer| self.outsider(request, peer, &step)),
            }
        };
        request.critical_path().into_iter().map(step).collect()
    }

    fn outsider(
        &self,
        request: &Request,
        peer: fettle_requests::Peer,
        step: &fettle_requests::Step,
    ) -> Option<String> {
        let fettle_requests::Peer::Outsider { timeline, key, request: other } = peer else {
            return None;
        };
        let name = self.actor(request, timeline, key, step.from_ns).name;
        Some(match other {
            Some(other) => format!("{name}, at work on request {other}"),
            None => name,
        })
    }
}
