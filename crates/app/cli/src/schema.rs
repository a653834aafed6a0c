//! `fettle schema`: what says which events belong together.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use fettle_requests::{EventType, Program, Report, SCHEMAS, Severity, Source, compile, shipped};
use serde_json::json;

use crate::output;

/// The ending of schemas' files.
const ENDING: &str = "fettle-schema";
/// A schema's file larger than this is not read.
const BYTES_MAX: u64 = 1 << 20;

/// Look at schemas, which say what a request is
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle schema check shop.fettle-schema
  fettle schema list
  fettle schema show sockets > mine.fettle-schema   to begin one's own
  fettle schema events rec                          events whose names begin so, and their fields

The language: docs/user/schemas.md.")]
pub struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, Subcommand)]
enum SchemaCommand {
    /// Say what is wrong in schemas' files, line and column
    ///
    /// Exit status 0 if nothing is wrong, 1 if something is. A file may `use` the shipped schemas
    /// and those in its own folder.
    Check {
        /// Files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// List the shipped schemas
    List {
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// Print a shipped schema
    Show {
        /// Its name
        #[arg(value_parser = PossibleValuesParser::new(SCHEMAS.map(|(name, _)| name)))]
        name: String,
    },
    /// List events and their fields, as `on NAME` and expressions may name them
    Events {
        /// Only those whose names begin so
        #[arg(default_value = "")]
        prefix: String,
        /// Of this trace, instead of those that shipped schemas declare
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Of this schema's file and what it uses
        #[arg(long, conflicts_with = "trace")]
        schema: Option<PathBuf>,
    },
}

/// Runs `fettle schema`.
pub fn run(args: SchemaArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        SchemaCommand::Check { files, json } => check(&files, json),
        SchemaCommand::List { json } => list(json),
        SchemaCommand::Show { name } => {
            output::print(&shipped(&name).unwrap_or_default())?;
            Ok(ExitCode::SUCCESS)
        }
        SchemaCommand::Events { prefix, trace, schema } => {
            events(&prefix, trace.as_deref(), schema.as_deref())
        }
    }
}

/// A schema as the command line names it: a file, or the name of a shipped one.
pub fn source(name: &str) -> anyhow::Result<Source> {
    let is_file = name.contains('/') || name.ends_with(&format!(".{ENDING}"));
    match shipped(name) {
        Some(text) if !is_file => Ok(Source::new(name, text)),
        _ if is_file || Path::new(name).is_file() => read(Path::new(name)),
        _ => {
            let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
            bail!(
                "no shipped schema is called {name:?}, and there is no such file; shipped ones \
                 are {}",
                names.join(", ")
            )
        }
    }
}

/// Finds what schemas `use`: shipped ones, and files in the folders of these.
pub fn library(files: &[&Path]) -> impl Fn(&str) -> Option<String> + use<> {
    let folders: Vec<PathBuf> =
        files.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect();
    move |name: &str| {
        shipped(name).or_else(|| {
            let beside = |folder: &PathBuf| folder.join(format!("{name}.{ENDING}"));
            let found = folders.iter().map(beside).find(|file| file.is_file())?;
            read(&found).ok().map(|source| source.text)
        })
    }
}

fn read(file: &Path) -> anyhow::Result<Source> {
    let what = || format!("cannot read the schema {}", file.display());
    let bytes = fs::metadata(file).with_context(what)?.len();
    if bytes > BYTES_MAX {
        bail!("{} has {bytes} bytes; a schema has {BYTES_MAX} at most", file.display());
    }
    let mut text = String::new();
    // What says that it is empty may be without an end.
    let file_read = fs::File::open(file).with_context(what)?;
    file_read.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(what)?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{} has more than {BYTES_MAX} bytes, which a schema has at most", file.display());
    }
    Ok(Source::new(file.display().to_string(), text))
}

fn check(files: &[PathBuf], as_json: bool) -> anyhow::Result<ExitCode> {
    let mut wrong = false;
    let mut results = Vec::new();
    for file in files {
        let source = read(file)?;
        let name = source.name.clone();
        let (report, program) = match compile(&[source], &library(&[file])) {
            Ok(program) => (program.warnings().clone(), Some(program)),
            Err(report) => (report, None),
        };
        wrong |= report.has_errors();
        if as_json {
            results.push(json!({
                "file": name,
                "fine": !report.has_errors(),
                "messages": messages(&report),
            }));
            continue;
        }
        let mut text = report.to_string();
        if let Some(program) = &program {
            text.push_str(&format!("{name}: fine; {}\n", describe(program)));
        }
        output::print(&text)?;
    }
    if as_json {
        let all = json!({ "version": 1, "files": results });
        output::print(&format!("{all:#}\n"))?;
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

fn messages(report: &Report) -> Vec<serde_json::Value> {
    let message = |d: &fettle_requests::Diagnostic| {
        let (line, column) = report.position(d.file, d.span.start);
        let (end_line, end_column) = report.position(d.file, d.span.end);
        json!({
            "file": report.files.get(d.file).map(|file| &file.name),
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "severity": match d.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "message": d.message,
            "help": d.help,
        })
    };
    report.diagnostics.iter().map(message).collect()
}

/// What a schema is about, in a line.
fn describe(program: &Program) -> String {
    let events = program.catalog().events();
    let ids = events.iter().filter_map(|event| program.catalog().find(&event.name));
    let used = ids.filter(|id| program.schemas().iter().any(|schema| schema.uses(*id))).count();
    let lanes = program.schemas().iter().flat_map(|schema| schema.timelines());
    let lanes: Vec<&str> = lanes.map(|lane| lane.name.as_str()).collect();
    let classes = program.schemas().iter().flat_map(|schema| schema.classes());
    let classes: Vec<String> = classes.map(|class| format!("{class:?}")).collect();
    let mut text = format!("uses {used} kinds of events of {}", events.len());
    if !lanes.is_empty() {
        text.push_str(&format!("; timelines {}", lanes.join(", ")));
    }
    if !classes.is_empty() {
        text.push_str(&format!("; requests {}", classes.join(", ")));
    }
    text
}

/// The sentence that a schema's first comment begins with.
fn purpose(text: &str) -> String {
    let comment = text.lines().take_while(|line| line.starts_with('#'));
    let comment: Vec<&str> = comment.map(|line| line.trim_start_matches('#').trim()).collect();
    let comment = comment.join(" ");
    let end = comment.find(". ").map_or(comment.len(), |at| at + 1);
    comment[..end].to_owned()
}

fn list(as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        let schema =
            |(name, text): &(&str, &str)| json!({ "name": name, "purpose": purpose(text) });
        let all: Vec<_> = SCHEMAS.iter().map(schema).collect();
        output::print(&format!("{:#}\n", json!({ "version": 1, "schemas": all })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = SCHEMAS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let terminal = output::terminal(true);
    let mut out = String::new();
    for (name, text) in SCHEMAS {
        let purpose = purpose(text);
        let room = terminal.width.map_or(usize::MAX, |w| w.saturating_sub(width + 2).max(20));
        let mut line = String::new();
        let mut left = name;
        for word in purpose.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                out.push_str(&format!("{left:<width$}  {line}\n"));
                (left, line) = ("", String::new());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(&format!("{left:<width$}  {line}\n"));
    }
    output::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn events(prefix: &str, trace: Option<&Path>, schema: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut lines: Vec<(String, String)> = Vec::new();
    if let Some(path) = trace {
        let trace = output::open(path)?;
        let (kinds, damaged) = trace.event_kinds()?;
        for kind in kinds {
            let fields = kind.fields.iter().map(|field| (field.name.as_str(), field.ty.name()));
            lines.push((kind.name.clone(), declaration(&kind.name, fields)));
        }
        // Recorded calls are events, too, and so are locks that follow from them.
        let derived = fettle_follow::derived_events(&trace)?;
        let all = compile(&[Source::new("all", "use kernel\nuse probes\n".to_owned())], &shipped);
        let all = all.map_err(|report| anyhow::anyhow!("{report}"))?;
        for EventType { name, fields } in all.catalog().events() {
            if derived.contains(&name.as_str()) && lines.iter().all(|(there, _)| there != name) {
                let fields = fields.iter().map(|field| (field.name.as_str(), field.ty.name()));
                lines.push((name.clone(), declaration(name, fields)));
            }
        }
        for error in damaged {
            say!("fettle: {error}");
        }
    } else {
        let program = match schema {
            Some(file) => compile(&[read(file)?], &library(&[file])),
            None => {
                let all = SCHEMAS.map(|(name, text)| Source::new(name, text));
                compile(&all, &shipped)
            }
        };
        let program = program.map_err(|report| anyhow::anyhow!("{report}"))?;
        for EventType { name, fields } in program.catalog().events() {
            let fields = fields.iter().map(|field| (field.name.as_str(), field.ty.name()));
            lines.push((name.clone(), declaration(name, fields)));
        }
        lines.sort();
    }
    lines.retain(|(name, _)| name.starts_with(prefix));
    if lines.is_empty() {
        match (trace, prefix) {
            (Some(path), "") => {
                say!("fettle: {} has no events and no recorded calls", path.display());
            }
            _ => say!("fettle: no event's name begins with {prefix:?}"),
        }
        return Ok(ExitCode::from(1));
    }
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn declaration<'a>(name: &str, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<String> = fields.map(|(name, ty)| format!("{name}: {ty}")).collect();
    format!("event {name}({})\n", fields.join(", "))
}
