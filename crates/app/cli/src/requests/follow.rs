//! `fettle requests --follow`: requests of a trace that is being recorded, each when it has ended.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fettle_follow::{Live, RequestRow, Summary, choose_by};
use fettle_record::tail::{self, Listener, Tail};
use fettle_requests::Source;
use fettle_trace::{Error, EventKind, Trace};

use super::args::RequestsArgs;
use super::{session, summary};
use crate::{output, schema};

/// How often it is looked for more. Recorders store what they have several times a second.
const PERIOD: Duration = Duration::from_millis(300);
/// After this time without any event that a schema matches, the user gets a message on what is
/// waited for.
const SILENCE: Duration = Duration::from_secs(3);

/// Runs `fettle requests --follow` until the recording has ended, or until it is interrupted.
pub fn run(path: &Path, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    let stop = fettle_live::catch_signals()?;
    let mut following = Following::new(path, args)?;
    let began = Instant::now();
    let mut said = false;
    let end = loop {
        // Whether it has ended is asked before what it has stored: nothing comes in between.
        let end = End::of(path, stop)?;
        following.look(end == Some(End::Recorded) || end == Some(End::CutOff))?;
        if let Some(end) = end {
            break end;
        }
        if !said && following.live.is_none() && began.elapsed() > SILENCE {
            said = true;
            say!(
                "fettle: waiting for messages between threads or processes; --schema NAME follows \
                 something else"
            );
        }
        std::thread::sleep(PERIOD);
    };
    match end {
        End::Recorded => {}
        End::CutOff if following.tail.is_none() => {}
        End::CutOff => say!(
            "fettle: the recorder of {} has gone without ending its recording; this is what it \
             had stored",
            path.display()
        ),
        End::Interrupted => say!("fettle: the recording goes on; this is what was seen of it"),
    }
    if end != End::Interrupted && following.tail.is_none() {
        return ended(path, args);
    }
    let found = following.end()?;
    Ok(ExitCode::from(u8::from(!found || end == End::CutOff)))
}

/// A recording that has ended before it was followed: the same, of its trace.
fn ended(path: &Path, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    let trace = output::open(path)?;
    let (sources, reason) = super::sources(&args.schema, &trace)?;
    let session = super::open(&trace, &sources, &args.schema)?;
    let names = session.program().schemas().iter().map(|schema| schema.name().to_owned());
    let mut teller = Reporter::new(args, names.collect());
    let (mut reported, mut none) = (Ok(()), true);
    session.for_each_while(&mut |request, context| {
        none = false;
        reported = teller.notify(&[context.row(request)]);
        reported.is_ok()
    })?;
    reported?;
    teller.end(&session.summary(args.slowest)?, reason.as_deref())?;
    Ok(ExitCode::from(u8::from(none)))
}

/// Prints requests, each in a line, and figures after them.
struct Reporter<'a> {
    args: &'a RequestsArgs,
    /// Names of the schemas, by place.
    names: Vec<String>,
    headed: bool,
}

impl<'a> Reporter<'a> {
    fn new(args: &'a RequestsArgs, names: Vec<String>) -> Reporter<'a> {
        Reporter { args, names, headed: false }
    }

    fn notify(&mut self, rows: &[RequestRow]) -> anyhow::Result<()> {
        let mut text = String::new();
        for row in rows {
            if self.args.json {
                let name = self.names.get(row.schema);
                let line = serde_json::json!({ "version": 1, "schema": name, "request": row });
                text.push_str(&format!("{line}\n"));
                continue;
            }
            if !std::mem::replace(&mut self.headed, true) {
                text.push_str(&summary::line_head());
            }
            text.push_str(&summary::line(row, output::terminal(self.args.no_color)));
        }
        if text.is_empty() { Ok(()) } else { output::print(&text) }
    }

    fn end(&self, summary: &Summary, reason: Option<&str>) -> anyhow::Result<()> {
        if self.args.json {
            let line = serde_json::json!({ "version": 1, "summary": summary });
            return output::print(&format!("{line}\n"));
        }
        let text = summary::text(summary, reason, output::terminal(self.args.no_color));
        output::print(&format!("\n{text}"))
    }
}

/// Why following ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The recording has ended, and its trace is there.
    Recorded,
    /// The recorder is gone, and has not made a trace.
    CutOff,
    /// The user wants no more.
    Interrupted,
}

impl End {
    /// Whether it has come.
    fn of(path: &Path, stop: &AtomicBool) -> anyhow::Result<Option<End>> {
        if stop.load(Ordering::Relaxed) {
            return Ok(Some(End::Interrupted));
        }
        match Trace::open(path) {
            Ok(_) | Err(Error::Deferred { .. }) => Ok(Some(End::Recorded)),
            Err(Error::CutOff { .. }) => Ok(Some(End::CutOff)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A recording that is followed.
struct Following<'a> {
    path: &'a Path,
    args: &'a RequestsArgs,
    kinds: Vec<EventKind>,
    tail: Option<Tail>,
    /// By kind, whether one has come.
    present: Vec<bool>,
    live: Option<Live>,
    teller: Reporter<'a>,
    /// Why it is this schema, where it was not named.
    reason: Option<String>,
    /// Whether it is known which processes were there before.
    known: bool,
    any: bool,
}

/// Gives events to the engine, and notes which kinds there are.
struct Ears<'a> {
    present: &'a mut [bool],
    live: Option<&'a mut Live>,
}

impl Listener for Ears<'_> {
    fn text(&mut self, text: &str) -> u32 {
        self.live.as_mut().map_or(0, |live| live.text(text))
    }

    fn event(&mut self, kind: usize, time_ns: u64, values: &[u64]) {
        self.present[kind] = true;
        if let Some(live) = &mut self.live {
            live.event(kind, time_ns, values);
        }
    }
}

impl<'a> Following<'a> {
    fn new(path: &'a Path, args: &'a RequestsArgs) -> anyhow::Result<Following<'a>> {
        let kinds = tail::kinds();
        let mut following = Following {
            path,
            args,
            present: vec![false; kinds.len()],
            kinds,
            tail: None,
            live: None,
            teller: Reporter::new(args, Vec::new()),
            reason: None,
            known: false,
            any: false,
        };
        if !args.schema.is_empty() {
            let sources: anyhow::Result<Vec<Source>> =
                args.schema.iter().map(|name| schema::source(name)).collect();
            following.by(&sources?, None)?;
        }
        Ok(following)
    }

    /// Follows by these schemas, from the beginning.
    fn by(&mut self, sources: &[Source], reason: Option<String>) -> anyhow::Result<()> {
        let files: Vec<&Path> = self.args.schema.iter().map(Path::new).collect();
        let library = schema::library(&files);
        let live = Live::open(sources, &library, &self.kinds, self.args.slowest);
        let live = live.map_err(session::schema_error)?;
        if live.asks_for_calls() {
            bail!(
                "calls are stored when they end, so requests of calls cannot be followed while \
                 they are recorded: leave out --follow when the recording has ended"
            );
        }
        self.teller.headed = false;
        self.teller.names = live.schemas().map(str::to_owned).collect();
        self.live = Some(live);
        self.tail = None;
        self.known = false;
        self.reason = reason;
        Ok(())
    }

    /// Reads what has come, and reports the requests that are complete.
    fn look(&mut self, ended: bool) -> anyhow::Result<()> {
        loop {
            self.poll(ended)?;
            if !self.better(ended)? {
                return Ok(());
            }
            // Once more from the beginning, by what suits better.
        }
    }

    fn poll(&mut self, ended: bool) -> anyhow::Result<()> {
        let cannot = || format!("cannot read what is recorded into {}", self.path.display());
        if self.tail.is_none() {
            let trace = Trace::open_growing(self.path)?;
            self.tail = Tail::open(self.path, &trace.manifest().clock).with_context(cannot)?;
        }
        let Some(tail) = &mut self.tail else { return Ok(()) };
        if let (false, Some(live)) = (self.known, &mut self.live) {
            // Written when the recording has just begun.
            let trace = Trace::open_growing(self.path)?;
            let (processes, threads) =
                (trace.processes().unwrap_or_default(), trace.threads().unwrap_or_default());
            self.known = !processes.is_empty();
            live.know(&processes, &threads);
        }
        let mut rows = Vec::new();
        let mut ears = Ears { present: &mut self.present, live: self.live.as_mut() };
        if ended {
            tail.finish(&mut ears).with_context(cannot)?;
            if let Some(live) = &mut self.live {
                live.finish(&mut |request, context| rows.push(context.row(request)));
            }
        } else {
            let reported_ns = tail.poll(&mut ears).with_context(cannot)?;
            if let Some(live) = &mut self.live {
                live.until(reported_ns, &mut |request, context| rows.push(context.row(request)));
            }
        }
        self.any |= !rows.is_empty();
        self.teller.notify(&rows)
    }

    /// Chooses a schema where none was named. Events that have come may suit another one better
    /// than the one that was chosen before.
    fn better(&mut self, ended: bool) -> anyhow::Result<bool> {
        if !self.args.schema.is_empty() {
            return Ok(false);
        }
        let present = self.kinds.iter().zip(&self.present).filter(|(_, present)| **present);
        let present: HashSet<&str> = present.map(|(kind, _)| kind.name.as_str()).collect();
        let choice = choose_by(&present).filter(|choice| ended || !choice.weak);
        let Some(choice) = choice else { return Ok(false) };
        if self.reason.as_ref() == Some(&choice.reason) {
            return Ok(false);
        }
        let again = if self.live.is_some() { ", from the beginning" } else { "" };
        self.by(&choice.sources, Some(choice.reason.clone()))?;
        let (names, reason) = (self.teller.names.join(", "), choice.reason);
        say!("fettle: following by the schema {names}{again}: {reason}");
        Ok(true)
    }

    /// Prints the figures of all requests; whether there were any.
    fn end(self) -> anyhow::Result<bool> {
        let Some(live) = self.live else {
            say!("fettle: nothing was recorded that requests can be followed through");
            return Ok(false);
        };
        let mut manifest = Trace::open_growing(self.path)?.manifest().clone();
        if manifest.duration_ns == 0 {
            manifest.duration_ns = live.reported_ns();
        }
        let summary = live.summary(&manifest);
        self.teller.end(&summary, self.reason.as_deref())?;
        Ok(self.any)
    }
}
