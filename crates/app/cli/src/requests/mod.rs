//! `fettle requests`: what a trace's requests are, and where their time went.

mod differences;
mod findings;
mod follow;
#[cfg(feature = "query")]
mod sql;
mod summary;
mod tables;
mod waterfall;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use fettle_follow::{Session, analyses, choose};
use fettle_report::render::json;
use fettle_requests::Source;

use self::tables::Form;
use crate::{output, schema};

/// Show the requests in a trace: classes, latencies, the slowest, and where their time went
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("tables").args(["sql", "python"])), after_help = "Examples:
  fettle record --kernel -- nginx -g 'daemon off;'
  fettle requests                                 the newest trace in this folder
  fettle requests nginx.fettle --slowest 3
  fettle requests nginx.fettle --request 812      one request whole, event by event
  fettle requests nginx.fettle --schema sockets --schema mine.fettle-schema
  fettle requests nginx.fettle --follow           while it is recorded, each as it ends
  fettle requests nginx.fettle --analysis outliers
  fettle requests nginx.fettle --analysis communication --dot | dot -Tsvg > graph.svg
  fettle requests after.fettle --diff before.fettle
  fettle requests nginx.fettle --sql 'SELECT class, avg(response_ns) FROM requests GROUP BY class'
  fettle requests nginx.fettle --parquet out/     tables for DuckDB, Polars, Spark
  fettle requests nginx.fettle --python slow.py -- 20
  fettle requests nginx.fettle --json

What a request is, a schema says: `fettle schema list`, docs/schemas.md.")]
pub struct RequestsArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// What a request is: a shipped schema's name, or a file [default: what suits the trace]
    #[arg(long, value_name = "NAME|FILE")]
    schema: Vec<String>,
    /// Requests shown with their critical paths
    #[arg(long, value_name = "N", default_value_t = 5)]
    slowest: usize,
    /// Show one request whole: its number, or SCHEMA:NUMBER
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// List all requests, one line each
    #[arg(long, conflicts_with = "request")]
    list: bool,
    /// List requests of a trace that is still being recorded, each when it has ended
    #[arg(long, conflicts_with_all = ["request", "list", "analysis", "diff", "parquet",
        "python"])]
    follow: bool,
    /// Answer another question
    #[arg(long, value_name = "NAME", conflicts_with_all = ["request", "list"],
        value_parser = PossibleValuesParser::new(analyses().map(|(name, purpose)| {
            clap::builder::PossibleValue::new(name).help(purpose)
        })))]
    analysis: Option<String>,
    /// Compare with another trace, of another system or of before a change: where the time of a
    /// request goes in each, by the same schema
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["request", "list", "analysis"])]
    diff: Option<PathBuf>,
    /// Write the graph of `--analysis communication` in GraphViz's language, for `dot -Tsvg`
    #[arg(long, requires = "analysis", conflicts_with = "json")]
    dot: bool,
    /// Ask in SQL: requests, spans, sections, steps, links, request_events, events, calls, threads,
    /// and each kind of event by its name. `SHOW TABLES` and `DESCRIBE requests` tell what there is;
    /// docs/query.md what it means
    #[arg(long, value_name = "QUESTION", conflicts_with_all = ["request", "list", "follow",
        "analysis", "diff", "parquet", "python"])]
    sql: Option<String>,
    /// Find the requests for `--sql` in so many parts beside each other, as a cluster does [default:
    /// in one pass, which takes the least processor time; with --cluster, 8]
    #[arg(long, value_name = "N", requires = "sql", value_parser = clap::value_parser!(u16).range(1..))]
    parts: Option<u16>,
    /// Have the question answered by a cluster: its scheduler's address (`fettle cluster`)
    #[arg(long, value_name = "ADDRESS:PORT", requires = "sql")]
    cluster: Option<std::net::SocketAddr>,
    /// Write requests, spans, sections, steps, links and events as Parquet files into DIR [without
    /// DIR: `requests` in the trace]; docs/query.md has their columns
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["request", "list", "analysis"])]
    parquet: Option<PathBuf>,
    /// Run an analysis of your own, a Python module that gets batches of pyarrow; docs/query.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["request", "list", "analysis", "parquet"])]
    python: Option<PathBuf>,
    /// What `init(args)` of the Python module gets
    #[arg(last = true, requires = "python")]
    args: Vec<String>,
    /// Write the tables of `--sql` or `--python` as comma-separated values
    #[arg(long, conflicts_with = "json", requires = "tables")]
    csv: bool,
    /// Write JSON with a version field
    #[arg(long)]
    json: bool,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

impl RequestsArgs {
    /// How tables are shown.
    fn form(&self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        }
    }
}

/// Runs `fettle requests`: 0, or 1 if something could not be read or there is no request.
pub fn run(args: RequestsArgs) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
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

#[cfg(feature = "query")]
fn answer(sql: &str, trace: &fettle_trace::Trace, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    let parts = args.parts.map(usize::from);
    let question = sql::Question { sql, named: &args.schema, parts, scheduler: args.cluster };
    sql::run(trace, &question, args.form())
}

#[cfg(not(feature = "query"))]
fn answer(_: &str, _: &fettle_trace::Trace, args: &RequestsArgs) -> anyhow::Result<ExitCode> {
    // Nobody is there to be asked, in parts or otherwise.
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

/// The schemas that were named, or the one that suits the trace, with the reason.
pub fn sources(
    named: &[String],
    trace: &fettle_trace::Trace,
) -> anyhow::Result<(Vec<Source>, Option<String>)> {
    if named.is_empty() {
        let choice = choose(trace)?;
        return Ok((choice.sources, Some(choice.reason)));
    }
    let sources: anyhow::Result<Vec<Source>> =
        named.iter().map(|name| schema::source(name)).collect();
    Ok((sources?, None))
}

/// A session with the schemas, whose files may use those beside them.
pub fn open<'a>(
    trace: &'a fettle_trace::Trace,
    sources: &[Source],
    named: &[String],
) -> anyhow::Result<Session<'a>> {
    let files: Vec<&Path> = named.iter().map(Path::new).collect();
    Session::open(trace, sources, &schema::library(&files)).map_err(schema_error)
}

/// What is wrong with a schema stands in lines of its own.
fn schema_error(error: fettle_follow::Error) -> anyhow::Error {
    match error {
        fettle_follow::Error::Schema(report) => anyhow::anyhow!("the schema is wrong:\n{report}"),
        error => error.into(),
    }
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
