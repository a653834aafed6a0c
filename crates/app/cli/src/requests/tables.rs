//! Requests as tables: files, and analyses in Python.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fettle_follow::Session;
use fettle_report::render::{count, json};
use fettle_tables::{python, render, write_parquet};
use serde_json::{Value, json};

use crate::output;

/// Rows of a table shown at most.
pub const ROWS_MAX: usize = 200;

/// How tables are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// With a version field.
    Json,
    /// For spreadsheets.
    Csv,
}

/// Writes Parquet files into a folder, or into `requests` within the trace.
pub fn write(
    session: &Session<'_>,
    trace: &Path,
    folder: &Path,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let folder: PathBuf = match folder.as_os_str().is_empty() {
        true => trace.join("requests"),
        false => folder.to_owned(),
    };
    let written = write_parquet(session, &folder)?;
    let text = match as_json {
        true => {
            let file = |file: &fettle_tables::Written| json!({ "path": file.path.display().to_string(), "rows": file.rows });
            let files: Vec<Value> = written.iter().map(file).collect();
            json(&json!({ "version": 1, "files": files }))?
        }
        false => {
            let line = |file: &fettle_tables::Written| {
                format!("{:>12} rows  {}\n", count(file.rows), file.path.display())
            };
            written.iter().map(line).collect()
        }
    };
    output::print(&text)?;
    let none = written.iter().all(|file| file.rows == 0);
    Ok(ExitCode::from(u8::from(none)))
}

/// Runs an analysis of the user's.
pub fn analyse(
    session: &Session<'_>,
    file: &Path,
    args: &[String],
    form: Form,
) -> anyhow::Result<ExitCode> {
    let outcome = python::run(session, Path::new("python3"), file, args)?;
    for problem in &outcome.problems {
        say!("fettle: {problem}");
    }
    let mut text = String::new();
    let mut tables = Vec::new();
    for table in &outcome.tables {
        let Some(schema) = table.batches.first().map(|batch| batch.schema()) else { continue };
        if form == Form::Json {
            let rows = render::json(&schema, &table.batches)?;
            tables.push(json!({ "title": table.title, "rows": rows }));
            continue;
        }
        let separator = if text.is_empty() { "" } else { "\n" };
        let title =
            if table.title.is_empty() { String::new() } else { format!("{}\n", table.title) };
        text.push_str(separator);
        match form {
            Form::Csv => text.push_str(&render::csv(&schema, &table.batches)?),
            _ => {
                text.push_str(&title);
                text.push_str(&render::text(&schema, &table.batches, ROWS_MAX, 0)?);
            }
        }
    }
    if form == Form::Json {
        text = json(&json!({
            "version": 1,
            "analysis": file.display().to_string(),
            "tables": tables,
            "problems": outcome.problems,
        }))?;
    }
    output::print(&text)?;
    Ok(ExitCode::from(u8::from(!outcome.problems.is_empty())))
}
