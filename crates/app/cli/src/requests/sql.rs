//! Questions in SQL.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use fettle_query::{Answer, Database, Definition, Error};
use fettle_requests::Source;
use fettle_tables::render;
use fettle_trace::Trace;
use serde_json::json;

use super::tables::{Form, ROWS_MAX};
use crate::schema;

/// The exit status that shells report for a process that an interrupt ended.
const INTERRUPTED: u8 = 130;

/// What is asked, and of which trace or cluster.
pub struct Question<'a> {
    /// In SQL.
    pub sql: &'a str,
    /// The schemas as they were named.
    pub named: &'a [String],
    /// In how many parts requests are to be found.
    pub parts: Option<usize>,
    /// A cluster's scheduler.
    pub scheduler: Option<SocketAddr>,
}

/// Answers: 0, or 1 if the answer is empty or a file could not be read.
pub fn run(trace: &Trace, question: &Question<'_>, form: Form) -> anyhow::Result<ExitCode> {
    // Questions about the trace's own files need no schema.
    let (sources, without) = match super::session::sources(question.named, trace) {
        Err(why) if question.named.is_empty() => (Vec::new(), Some(why)),
        found => (found?.0, None),
    };
    // What is wrong with a schema is shown as for all other questions.
    super::session::open(trace, &sources, question.named)?;
    let database = open(trace, question, &sources)?;
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let answer = database.ask(question.sql).map_err(anyhow::Error::from);
    match answer.and_then(|answer| write(answer, &database, form, &mut stdout)) {
        Ok(any) => {
            let problems = database.problems();
            for problem in &problems {
                say!("fettle: {problem}");
            }
            Ok(ExitCode::from(u8::from(!any || !problems.is_empty())))
        }
        Err(error) => {
            if let Some(Error::Interrupted) = error.downcast_ref() {
                return Ok(ExitCode::from(INTERRUPTED));
            }
            let closed = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
            if error.downcast_ref().is_some_and(closed) {
                return Ok(ExitCode::SUCCESS);
            }
            Err(match (error.downcast_ref(), without) {
                (Some(Error::Question(_)), Some(why)) => {
                    anyhow::anyhow!("{error}\nThere are no tables about requests: {why}")
                }
                _ => error,
            })
        }
    }
}

fn open(trace: &Trace, question: &Question<'_>, sources: &[Source]) -> anyhow::Result<Database> {
    let files: Vec<&Path> = question.named.iter().map(Path::new).collect();
    let definition = match sources {
        [] => None,
        sources => Some(Definition::new(trace.path(), sources, &schema::library(&files))?),
    };
    match question.scheduler {
        Some(scheduler) => on_cluster(scheduler, trace, definition, question.parts),
        None => Ok(Database::open(trace, definition, question.parts)?),
    }
}

/// Writes an answer as it comes; whether there are any rows.
fn write(
    mut answer: Answer<'_>,
    database: &Database,
    form: Form,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let schema = answer.schema().clone();
    let mut rows = 0;
    // What a person sees has columns as wide as their cells, so it is seen at the end.
    let mut seen = Vec::new();
    let mut unseen = 0;
    match form {
        Form::Json => out.write_all(b"{\"version\":1,\"rows\":[")?,
        Form::Csv => out.write_all(render::csv(&schema, &[])?.as_bytes())?,
        Form::Text => {}
    }
    while let Some(batch) = answer.read()? {
        if batch.num_rows() == 0 {
            continue;
        }
        let before = rows;
        rows += batch.num_rows();
        match form {
            Form::Text if before < ROWS_MAX => seen.push(batch),
            Form::Text => unseen += batch.num_rows(),
            Form::Csv => out.write_all(render::csv_rows(&[batch])?.as_bytes())?,
            Form::Json => {
                for (n, row) in render::json(&schema, &[batch])?.iter().enumerate() {
                    let comma = if before + n == 0 { "" } else { "," };
                    write!(out, "{comma}\n{row}")?;
                }
            }
        }
    }
    match form {
        Form::Text => out.write_all(render::text(&schema, &seen, ROWS_MAX, unseen)?.as_bytes())?,
        Form::Csv => {}
        Form::Json => writeln!(out, "\n],\"problems\":{}}}", json!(database.problems()))?,
    }
    out.flush()?;
    Ok(rows > 0)
}

#[cfg(feature = "cluster")]
fn on_cluster(
    scheduler: SocketAddr,
    trace: &Trace,
    definition: Option<Definition>,
    parts: Option<usize>,
) -> anyhow::Result<Database> {
    Ok(fettle_query::cluster::connect(scheduler, trace, definition, parts)?)
}

#[cfg(not(feature = "cluster"))]
fn on_cluster(
    _: SocketAddr,
    _: &Trace,
    _: Option<Definition>,
    _: Option<usize>,
) -> anyhow::Result<Database> {
    anyhow::bail!(
        "this fettle was built without the feature `cluster`: \
         cargo build --release --package fettle-cli --features cluster"
    )
}
