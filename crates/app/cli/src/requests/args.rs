//! What `fettle requests` can be asked.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use fettle_follow::analyses;

use crate::requests::tables::Form;

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
  fettle requests --without-ids front.json cart.json      spans that have no ids
  fettle requests --without-ids calls.jsonl shop.fettle-calls --schema shop.fettle-schema

What a request is, a schema says: `fettle schema list`, docs/user/schemas.md.

--sql and --parts take a fettle that was built with the feature `query`, --cluster one with
`cluster`: cargo build --release --package fettle-cli --features query")]
pub struct RequestsArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    pub(crate) trace: Option<PathBuf>,
    /// Reconstruct requests from spans whose ids are missing, or dropped: files of OpenTelemetry, Jaeger or Zipkin,
    /// all of one system; or from calls of traced stubs, with their names files. `fettle import --without-ids` keeps
    /// what comes of it as a trace
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["trace", "follow"])]
    pub(crate) without_ids: Vec<PathBuf>,
    /// What a request is: a shipped schema's name, or a file [default: what suits the trace]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) schema: Vec<String>,
    /// Requests shown with their critical paths
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) slowest: usize,
    /// Show one request whole: its number, or SCHEMA:NUMBER
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
    /// List all requests, one line each
    #[arg(long, conflicts_with = "request")]
    pub(crate) list: bool,
    /// List requests of a trace that is still being recorded, each when it has ended
    #[arg(long, conflicts_with_all = ["request", "list", "analysis", "diff", "parquet",
        "python"])]
    pub(crate) follow: bool,
    /// Answer another question
    #[arg(long, value_name = "NAME", conflicts_with_all = ["request", "list"],
        value_parser = PossibleValuesParser::new(analyses().map(|(name, purpose)| {
            clap::builder::PossibleValue::new(name).help(purpose)
        })))]
    pub(crate) analysis: Option<String>,
    /// Compare with another trace, of another system or of before a change: where the time of a
    /// request goes in each, by the same schema
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["request", "list", "analysis"])]
    pub(crate) diff: Option<PathBuf>,
    /// Write the graph of `--analysis communication` in GraphViz's language, for `dot -Tsvg`
    #[arg(long, requires = "analysis", conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Ask in SQL: requests, spans, sections, steps, links, request_events, events, calls, threads,
    /// and each kind of event by its name. `SHOW TABLES` and `DESCRIBE requests` tell what there is;
    /// docs/user/tables.md what it means. Takes a build with the feature `query`
    #[arg(long, value_name = "QUESTION", conflicts_with_all = ["request", "list", "follow",
        "analysis", "diff", "parquet", "python"])]
    pub(crate) sql: Option<String>,
    /// Find the requests for `--sql` in so many parts beside each other, as a cluster does [default:
    /// in one pass, which takes the least CPU time; with --cluster, 8]
    #[arg(long, value_name = "N", requires = "sql", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) parts: Option<u16>,
    /// Have the question answered by a cluster: its scheduler's address (`fettle cluster`). Takes a
    /// build with the feature `cluster`
    #[arg(long, value_name = "ADDRESS:PORT", requires = "sql")]
    pub(crate) cluster: Option<std::net::SocketAddr>,
    /// Write requests, spans, sections, steps, links and events as Parquet files into DIR [without
    /// DIR: `requests` in the trace]; docs/user/tables.md has their columns
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["request", "list", "analysis"])]
    pub(crate) parquet: Option<PathBuf>,
    /// Run an analysis of your own, a Python module that gets batches of pyarrow; docs/user/tables.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["request", "list", "analysis", "parquet"])]
    pub(crate) python: Option<PathBuf>,
    /// What `init(args)` of the Python module gets
    #[arg(last = true, requires = "python")]
    pub(crate) args: Vec<String>,
    /// Write the tables of `--sql` or `--python` as comma-separated values
    #[arg(long, conflicts_with = "json", requires = "tables")]
    csv: bool,
    /// Write JSON with a version field
    #[arg(long)]
    pub(crate) json: bool,
    /// No colours
    #[arg(long)]
    pub(crate) no_color: bool,
}

impl RequestsArgs {
    /// How tables are shown.
    pub(crate) fn form(&self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        }
    }
}
