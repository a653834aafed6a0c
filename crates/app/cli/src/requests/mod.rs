//! `fettle requests`: what a trace's requests are, and where their time went.

mod args;
mod differences;
mod findings;
mod follow;
pub mod session;
#[cfg(feature = "query")]
mod sql;
mod states;
mod summary;
mod tables;
mod waterfall;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use fettle_follow::Session;
use fettle_import::Import;
use fettle_report::render::{count, json};

use crate::output;
pub use args::RequestsArgs;
use session::{open, sources};

/// Runs `fettle requests`: 0, or 1 if something could not be read or there is no request.
pub fn run(args: RequestsArgs) -> anyhow::Result<ExitCode> {
    // What is made of spans is removed in the end.
    let (path, _made) = trace_of(&args)?;
    if args.follow {
        return follow::run(&path, &args);
    }
    let trace = output::open(&path)?;
    if let Some(sql) = &args.sql {
        return answer(sql, &trace, &args);
    }
    let (sources, reason) = match sources(&args.schema, &trace) {
        // Analyses of events need no schema.
        Err(_) if args.analysis.is_some() && args.schema.is_empty() => (Vec::new(), None),
        found => found?,
    };
    let session = open(&trace, &sources, &args.schema)?;
    if let Some(name) = &args.analysis {
        return analyse(&session, name, &args);
    }
    if let Some(folder) = &args.parquet {
        return tables::write(&session, &path, folder, args.json);
    }
    if let Some(file) = &args.python {
        return tables::analyse(&session, file, &args.args, args.form());
    }
    let terminal = output::terminal(args.no_color);
    if let Some(before) = &args.diff {
        let before = output::open(before)?;
        let before = open(&before, &sources, &args.schema)?;
        let diff = fettle_follow::diff(&before, &session)?;
        let text = match args.json {
            true => json(&diff)?,
            false => differences::text(&diff),
        };
        output::print(&text)?;
        let none = diff.requests == [0, 0];
        return Ok(ExitCode::from(u8::from(none || !diff.problems.is_empty())));
    }
    if let Some(wanted) = &args.request {
        let (schema, id) = number(wanted, &session)?;
        let Some(detail) = session.request(schema, id)? else {
            let name = session.program().schemas()[schema].name();
            bail!("schema {name} finds no request {id} in {}", path.display());
        };
        let text = match args.json {
            true => json(&detail)?,
            false => waterfall::text(&detail, terminal),
        };
        output::print(&text)?;
        return Ok(ExitCode::from(u8::from(!detail.problems.is_empty())));
    }
    if args.list {
        let rows = session.list()?;
        let text = match args.json {
            true => json(&serde_json::json!({ "version": 1, "requests": rows }))?,
            false => summary::list(&rows, terminal),
        };
        output::print(&text)?;
        return Ok(ExitCode::from(u8::from(rows.is_empty())));
    }
    let summary = session.summary(args.slowest)?;
    let text = match args.json {
        true => json(&summary)?,
        false => summary::text(&summary, reason.as_deref(), terminal),
    };
    output::print(&text)?;
    let none = summary.schemas.iter().all(|schema| schema.requests == 0);
    Ok(ExitCode::from(u8::from(none || !summary.problems.is_empty())))
}

/// Where the trace is, and the folder of one that is only there for this.
fn trace_of(args: &RequestsArgs) -> anyhow::Result<(PathBuf, Option<tempfile::TempDir>)> {
    if args.without_ids.is_empty() {
        return Ok((output::chosen(args.trace.as_deref())?, None));
    }
    let made = reconstructed(&args.without_ids)?;
    Ok((made.path().join("spans.fettle"), Some(made)))
}

/// A folder with a trace of spans whose ids were dropped.
fn reconstructed(files: &[PathBuf]) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a folder for the trace")?;
    let output = folder.path().join("spans.fettle");
    let import = Import { inputs: files.to_vec(), output, format: None, without_ids: true };
    let stop = fettle_live::catch_signals()?;
    let imported = fettle_import::import(&import, &|| stop.load(Ordering::Relaxed))?;
    for loss in &imported.manifest.losses {
        say!("fettle: {}: {}", count(loss.count), loss.reason);
    }
    for note in imported.manifest.notes.iter().skip(1) {
        say!("fettle: {note}");
    }
    Ok(folder)
}

#[cfg(feature = "query")]
fn answer(sql: &str, trace: &fettle_trace::Trace, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    let parts = args.parts.map(usize::from);
    let question = sql::Question { sql, named: &args.schema, parts, scheduler: args.cluster };
    sql::run(trace, &question, args.form())
}

#[cfg(not(feature = "query"))]
fn answer(_: &str, _: &fettle_trace::Trace, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    // Without the feature these options have no use.
    let _ = (args.parts, args.cluster);
    bail!(
        "this fettle was built without the feature `query`, which answers SQL: \
         cargo build --release --package fettle-cli --features query"
    )
}

fn analyse(session: &Session<'_>, name: &str, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    let findings = session.analyse(name)?.context("there is no such analysis")?;
    let text = match (args.json, args.dot) {
        (true, _) => json(&findings)?,
        (_, true) => match &findings.found.dot {
            Some(dot) => dot.clone(),
            None => bail!("the analysis {name} makes no graph; `communication` does"),
        },
        _ => findings::text(&findings, output::terminal(args.no_color)),
    };
    output::print(&text)?;
    let nothing = findings.found.tables.iter().all(|table| table.rows.is_empty());
    Ok(ExitCode::from(u8::from(nothing || !findings.problems.is_empty())))
}

/// A request's number, and the place of its schema.
fn number(wanted: &str, session: &Session<'_>) -> anyhow::Result<(usize, u64)> {
    let (schema, id) = match wanted.rsplit_once(':') {
        Some((name, id)) => {
            let mut schemas = session.program().schemas().iter();
            let place = schemas.position(|schema| schema.name() == name);
            (place.with_context(|| format!("no schema is called {name:?}"))?, id)
        }
        None => (0, wanted),
    };
    let id = id.trim_start_matches('#').parse();
    Ok((schema, id.with_context(|| format!("{wanted:?} is not a request's number"))?))
}
