//! Analyses that users write in Python.
//!
//! An analysis is a module with the life of those in `fettle-follow`: `init(args)`, a handler for
//! each table or kind of event that it wants (`on_requests(batch)`, `on_sent(batch)`), and
//! `dispose()`, which may return tables. A small driver of ours (`driver.py`) runs it in a process
//! of its own, with the interpreter and the packages that the user has. Batches go there as Arrow
//! IPC over a socket, which is the driver's standard input: its standard output stays the user's.
//! The socket is written to as fast as the analysis reads, so memory stays that of a batch.

mod returned;
mod wire;

use std::io::{BufReader, BufWriter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fettle_follow::{Context, Observer, Session};
use fettle_requests::{Batch, EventId, Program, Request};

use crate::BATCH_ROWS;
use crate::build::Builders;
use crate::error::{Error, Result};
use crate::events::EventTable;
use crate::schema::Table;
use returned::Returned;

const DRIVER: &str = include_str!("driver.py");
/// Exit statuses of the driver.
const NO_PYARROW: i32 = 77;
const FAILED: i32 = 78;

/// What came of an analysis.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tables that it returned.
    pub tables: Vec<Returned>,
    /// What of the trace could not be read, one sentence each.
    pub problems: Vec<String>,
}

/// Runs the analysis in `file` over a session's requests and events, with an interpreter: `python3`,
/// or the one of a virtual environment.
///
/// # Errors
///
/// [`Error::Python`] if there is no Python, it has no pyarrow, or the analysis fails: then its
/// traceback has gone to standard error.
pub fn run(
    session: &Session<'_>,
    interpreter: &Path,
    file: &Path,
    args: &[String],
) -> Result<Outcome> {
    std::fs::metadata(file)
        .map_err(|e| Error::Python(format!("cannot read the analysis {}: {e}", file.display())))?;
    let (ours, theirs) =
        UnixStream::pair().map_err(|e| Error::python("make a socket for Python", &e))?;
    let child = Command::new(interpreter)
        .args(["-c", DRIVER])
        .arg(file)
        .args(args)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn();
    let child = child.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Python(format!(
            "there is no {}: an analysis needs Python 3.8 or later with pyarrow (`apt install \
             python3 python3-pip && pip install pyarrow`)",
            interpreter.display()
        )),
        _ => Error::python("start Python", &e),
    })?;
    let mut child = Reaped(child);
    let talked = talk(session, file, &ours);
    // Whatever it still waits for does not come.
    drop(ours);
    let status = child.0.wait().map_err(|e| Error::python("wait for Python", &e))?;
    match status.code() {
        Some(0) => talked,
        Some(NO_PYARROW) => Err(Error::Python(
            "Python has no pyarrow, which an analysis gets its batches with: `pip install \
             pyarrow`, in a virtual environment where the system's packages are not yours"
                .into(),
        )),
        // We refused its handlers: our own message says more than its end.
        Some(FAILED) if matches!(&talked, Err(Error::Python(_))) => talked,
        _ => Err(Error::Python(format!(
            "the analysis {} failed ({status}); what it said stands above",
            file.display()
        ))),
    }
}

/// A child that does not outlive us.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn talk(session: &Session<'_>, file: &Path, socket: &UnixStream) -> Result<Outcome> {
    let mut source = BufReader::new(socket);
    let handlers: Vec<String> = wire::handlers(&mut source)?;
    let (tables, kinds) = wanted(&handlers, session.program(), file)?;
    let wants = |event: EventId| kinds.iter().any(|(kind, _)| *kind == event);
    let mut sender = Sender {
        to: BufWriter::new(socket),
        builders: Builders::new(&tables),
        kinds: &kinds,
        failed: None,
    };
    let problems = session.observe(&wants, &mut sender)?;
    if sender.failed.is_none() {
        sender.failed = sender.drain(1).err();
    }
    if let Some(error) = sender.failed {
        return Err(error);
    }
    wire::end(&mut sender.to)?;
    drop(sender);
    let tables = wire::returned(&mut source)?;
    Ok(Outcome { tables, problems })
}

/// Kinds of events with their tables.
type Kinds = Vec<(EventId, EventTable)>;

/// The tables and kinds of events that handlers are for.
fn wanted(handlers: &[String], program: &Program, file: &Path) -> Result<(Vec<Table>, Kinds)> {
    let (mut tables, mut kinds) = (Vec::new(), Vec::new());
    for name in handlers {
        if let Some(table) = Table::from_name(name) {
            tables.push(table);
        } else if let Some(event) = program.catalog().find(name) {
            kinds.push((event, EventTable::new(program, &[event])));
        } else {
            let tables: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
            return Err(Error::Python(format!(
                "{} has a handler on_{name}, but there is neither a table nor an event of that \
                 name. Tables are {}; events are those of the schema (`fettle schema events`)",
                file.display(),
                tables.join(", ")
            )));
        }
    }
    if handlers.is_empty() {
        return Err(Error::Python(format!(
            "{} has no handler: define on_requests(batch), or on_EVENT(batch) for an event of the \
             schema",
            file.display()
        )));
    }
    Ok((tables, kinds))
}

/// Sends what is observed.
struct Sender<'a> {
    to: BufWriter<&'a UnixStream>,
    builders: Builders,
    kinds: &'a Kinds,
    failed: Option<Error>,
}

impl Sender<'_> {
    fn drain(&mut self, rows: usize) -> Result<()> {
        for (table, batch) in self.builders.take(rows)? {
            wire::send(&mut self.to, table.name(), &batch)?;
        }
        Ok(())
    }

    fn send_events(&mut self, first: u64, events: &Batch, context: &Context<'_>) -> Result<()> {
        let program = context.program();
        for (kind, table) in self.kinds {
            let batch = table.batch(first, events, program, context.strings())?;
            let name = program.catalog().get(*kind).map_or("", |kind| kind.name.as_str());
            if batch.num_rows() > 0 {
                wire::send(&mut self.to, name, &batch)?;
            }
        }
        Ok(())
    }
}

impl Observer for Sender<'_> {
    fn events(&mut self, first: u64, events: &Batch, context: &Context<'_>) -> bool {
        self.failed = self.send_events(first, events, context).err();
        self.failed.is_none()
    }

    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool {
        if self.failed.is_none() {
            self.builders.push(request, context);
            self.failed = self.drain(BATCH_ROWS).err();
        }
        self.failed.is_none()
    }
}
