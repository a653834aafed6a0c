//! `fettle report`: what a trace says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use fettle_report::render::{self, Terminal};
use fettle_report::{Analysis, Diff, Error, Options, SortBy, Weight};
use fettle_trace::{ProbeMode, Trace};
use fettle_watch::last::trace_in;
use serde_json::json;

use crate::evidence::Evidence;
use crate::{alias, output};

/// Show what a trace says: functions by time, callers, trees, latencies.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle report                                   the newest trace in this folder
  fettle report run.fettle --sort p99 --limit 5
  fettle report run.fettle --function parse       its callers and callees
  fettle report run.fettle --args open            what its calls were given
  fettle report run.fettle --calls-tree
  fettle report run.fettle --flamegraph run.html
  fettle report run.fettle --sort cpu             by time on a processor, without waiting
  fettle report run.fettle --histogram parse parse.html
  fettle report new.fettle --diff old.fettle      what changed since old.fettle")]
pub struct ReportArgs {
    /// Trace folder, or a folder of evidence of `fettle watch` [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Rows shown at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Order of functions
    #[arg(long, value_enum, default_value = "self")]
    sort: Sort,
    /// Show names as the linker knows them
    #[arg(long)]
    no_demangle: bool,
    /// Show names as their authors wrote them (the default)
    #[arg(long, conflicts_with = "no_demangle", hide = true)]
    demangle: bool,
    /// Show the threads
    #[arg(long, group = "what")]
    threads: bool,
    /// Show the call tree
    #[arg(long, visible_alias = "tree", group = "what")]
    calls_tree: bool,
    /// Leave branches of the call tree out whose share of the time is below this, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    min_share: f64,
    /// Show one function with its callers and callees
    #[arg(long, value_name = "NAME", group = "what")]
    function: Option<String>,
    /// Show what a function's calls were given and gave back (`fettle record --args`)
    #[arg(long = "args", value_name = "FUNCTION", group = "what")]
    arguments: Option<String>,
    /// Show the hottest blocks, or all of one function (modes blocks and edges, where it is what
    /// the report shows by itself)
    #[arg(
        long,
        value_name = "FUNCTION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        group = "what"
    )]
    blocks: Option<String>,
    /// Write a flame graph, as SVG or HTML by the file's name
    #[arg(long, value_name = "FILE", group = "what")]
    flamegraph: Option<PathBuf>,
    /// Let the flame graph show time on a processor only, without waiting (mode events)
    #[arg(long, requires = "flamegraph")]
    cpu: bool,
    /// Show how long the calls of a function took, or write it as SVG or HTML
    #[arg(long, value_names = ["FUNCTION", "FILE"], num_args = 1..=2, group = "what")]
    histogram: Option<Vec<String>>,
    /// Compare with an earlier trace: what changed since
    #[arg(long, value_name = "TRACE", group = "what")]
    diff: Option<PathBuf>,
    /// Write JSON with a version field
    #[arg(long)]
    json: bool,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    /// Time outside callees
    #[value(name = "self")]
    SelfTime,
    /// Time with callees
    Total,
    /// Number of calls
    Calls,
    /// The latency that 99 of 100 calls stay within
    P99,
    /// Time on a processor outside callees (mode events)
    Cpu,
}

/// What is to be shown.
enum What {
    Functions,
    Threads,
    Tree { share_min: f64 },
    Function(String),
    Arguments(String),
    Blocks(Option<String>),
    Own,
    Flamegraph(PathBuf, Weight),
    Histogram(String, Option<PathBuf>),
    Diff(PathBuf),
}

/// Runs `fettle report`: 0, or 1 if a function was not found or parts of the trace are damaged.
pub fn run(mut args: ReportArgs) -> anyhow::Result<ExitCode> {
    let what = what(&mut args);
    let options = Options {
        limit: args.limit,
        sort: match args.sort {
            Sort::SelfTime => SortBy::SelfTime,
            Sort::Total => SortBy::Total,
            Sort::Calls => SortBy::Calls,
            Sort::P99 => SortBy::P99,
            Sort::Cpu => SortBy::Cpu,
        },
        demangle: !args.no_demangle,
    };
    let path = output::chosen(args.trace.as_deref())?;
    let evidence = match &args.trace {
        Some(folder) if matches!(what, What::Functions) && trace_in(folder).is_some() => {
            Some(Evidence::read(folder)?)
        }
        _ => None,
    };
    let trace = output::open(&path)?;
    let analysis = Analysis::read(&trace, options.demangle)?;
    let terminal = output::terminal(args.no_color);
    let what = match what {
        // What such a trace has of functions is their blocks.
        What::Functions if analysis.manifest.probe_mode.counts_blocks() && !args.json => {
            What::Blocks(None)
        }
        What::Functions if analysis.manifest.probe_mode == ProbeMode::User => What::Own,
        what => what,
    };
    let what = what.by_recorded_name(&trace);
    match show((&trace, &analysis), what, &options, args.json, terminal) {
        Ok(text) => output::print(&with_evidence(evidence.as_ref(), text, args.json)?)?,
        // Looked for and not there: said, and distinguished from a failure by the exit status.
        Err(error) if is_not_found(&error) => {
            say!("fettle: {error}");
            return Ok(ExitCode::from(1));
        }
        Err(error) => return Err(error),
    }
    let damaged = !analysis.warnings.is_empty();
    Ok(ExitCode::from(u8::from(damaged)))
}

/// What a watcher has found, above the report of what the process did last.
fn with_evidence(
    evidence: Option<&Evidence>,
    report: String,
    as_json: bool,
) -> anyhow::Result<String> {
    let Some(evidence) = evidence else { return Ok(report) };
    if !as_json {
        return Ok(format!("{}\n{report}", evidence.text()));
    }
    let mut value: serde_json::Value = serde_json::from_str(&report)?;
    value["evidence"] = evidence.json();
    Ok(render::json(&value)?)
}

impl What {
    /// The same question with the trace's own name of the function, where another one was given.
    fn by_recorded_name(self, trace: &Trace) -> What {
        let known = |name: String| alias::recorded_as(trace, &name).unwrap_or(name);
        match self {
            What::Function(name) => What::Function(known(name)),
            What::Arguments(name) => What::Arguments(known(name)),
            What::Histogram(name, file) => What::Histogram(known(name), file),
            what => what,
        }
    }
}

fn what(args: &mut ReportArgs) -> What {
    if args.threads {
        What::Threads
    } else if args.calls_tree {
        What::Tree { share_min: args.min_share / 100.0 }
    } else if let Some(name) = args.function.take() {
        What::Function(name)
    } else if let Some(name) = args.arguments.take() {
        What::Arguments(name)
    } else if let Some(name) = args.blocks.take() {
        What::Blocks((!name.is_empty()).then_some(name))
    } else if let Some(file) = args.flamegraph.take() {
        What::Flamegraph(file, if args.cpu { Weight::Cpu } else { Weight::Wall })
    } else if let Some(other) = args.diff.take() {
        What::Diff(other)
    } else if let Some(values) = args.histogram.take() {
        let mut values = values.into_iter();
        let name = values.next().unwrap_or_default();
        let mut file = values.next().map(PathBuf::from);
        // `--histogram NAME TRACE`: the second value is a page only if it is called one.
        if args.trace.is_none() && file.as_deref().is_some_and(|file| drawing(file).is_none()) {
            args.trace = file.take();
        }
        What::Histogram(name, file)
    } else {
        What::Functions
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::NoFunction(_)
                | Error::NoArguments { .. }
                | Error::NoCounts { .. }
                | Error::ManyFunctions { .. }
                | Error::NoRecords { .. }
                | Error::NoCpu
        )
    )
}

/// The text for standard output.
fn show(
    (trace, analysis): (&Trace, &Analysis),
    what: What,
    options: &Options,
    json: bool,
    terminal: Terminal,
) -> anyhow::Result<String> {
    let text = match what {
        What::Functions => {
            let report = analysis.report(options);
            if json { render::json(&report)? } else { render::report_text(&report, terminal) }
        }
        What::Threads => {
            let report = analysis.report(options);
            if json {
                let version = report.version;
                render::json(&json!({ "version": version, "threads": report.threads }))?
            } else {
                render::threads_text(&report.threads, terminal)
            }
        }
        What::Tree { share_min } => {
            analysis.need_records("a call tree")?;
            // A tree of the default 20 rows would be a stump.
            let rows = options.limit.max(200);
            let tree = analysis.tree(share_min, rows);
            if json { render::json(&tree)? } else { render::tree_text(&tree, terminal) }
        }
        What::Function(name) => {
            let focus = analysis.focus(&name)?;
            if json { render::json(&focus)? } else { render::focus_text(&focus, terminal) }
        }
        What::Arguments(name) => {
            let view = analysis.arguments(trace, &name, options.limit)?;
            if json { render::json(&view)? } else { render::arguments_text(&view, terminal) }
        }
        What::Own => {
            let view = analysis.user_probe(trace, options.limit)?;
            if json { render::json(&view)? } else { render::user_text(&view, terminal) }
        }
        What::Blocks(name) => {
            let view = analysis.blocks(trace, name.as_deref(), options.limit)?;
            if json { render::json(&view)? } else { render::blocks_text(&view, terminal) }
        }
        What::Flamegraph(file, weight) => {
            analysis.need_records("a flame graph")?;
            if weight == Weight::Cpu {
                analysis.need_cpu()?;
            }
            let graph = analysis.flame_graph(weight);
            let page = match drawing(&file) {
                Some(Drawing::Html) => render::flame_html(&graph),
                Some(Drawing::Svg) => render::flame_svg(&graph),
                None => bail!("{}: call it .svg or .html", file.display()),
            };
            write(&file, &page, json)?
        }
        What::Histogram(name, file) => {
            let histogram = analysis.histogram(&name)?;
            match file {
                Some(file) => {
                    let page = match drawing(&file) {
                        Some(Drawing::Html) => render::histogram_html(&histogram),
                        Some(Drawing::Svg) => render::histogram_svg(&histogram),
                        None => bail!("{}: call it .svg or .html", file.display()),
                    };
                    write(&file, &page, json)?
                }
                None if json => render::json(&histogram)?,
                None => render::histogram_text(&histogram, terminal),
            }
        }
        What::Diff(before) => {
            let before = Analysis::read(&output::open(&before)?, options.demangle)?;
            let diff = Diff::new(&before, analysis, options.limit);
            if json { render::json(&diff)? } else { render::diff_text(&diff, terminal) }
        }
    };
    Ok(text)
}

enum Drawing {
    Svg,
    Html,
}

/// What a file is to hold, by its name.
fn drawing(file: &Path) -> Option<Drawing> {
    match file.extension()?.to_str()? {
        "svg" => Some(Drawing::Svg),
        "html" | "htm" => Some(Drawing::Html),
        _ => None,
    }
}

/// Writes a page and says so.
fn write(file: &Path, page: &str, json: bool) -> anyhow::Result<String> {
    output::to_file(file, |out| Ok(out.write_all(page.as_bytes())?))?;
    if json {
        let written = json!({ "version": fettle_report::JSON_VERSION, "written": file });
        return Ok(render::json(&written)?);
    }
    say!("Wrote {} ({} bytes).", file.display(), page.len());
    Ok(String::new())
}
