//! `fettle jar`: MIPS programs as jars.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use fettle_jar::{Image, Report};
use serde_json::json;

use crate::output;

/// Arguments of `fettle jar`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    mipsel-linux-gnu-gcc -O2 -static hello.c -o hello\n  \
    fettle jar hello -o hello.jar\n  \
    java -jar hello.jar\n  \
    fettle jar hello --check\n  \
    fettle jar hello --explain main\n\n\
    The file is a static executable for 32-bit MIPS, of either byte order, as Debian's\n\
    gcc-mipsel-linux-gnu makes it. The jar needs Java 17 or newer, and nothing else.\n\n\
    Exit status: 0 done; 1 done, but something in it cannot be executed; 2 error.")]
pub struct Args {
    /// A static MIPS executable
    file: PathBuf,
    /// Where the jar is written; otherwise beside the file, with `.jar` at its end
    #[arg(short, long, value_name = "JAR", conflicts_with_all = ["check", "explain"])]
    output: Option<PathBuf>,
    /// Write nothing: say what cannot be translated, where it is and why
    #[arg(long)]
    check: bool,
    /// Write nothing: show a function's instructions and what they become
    #[arg(long, value_name = "FUNCTION", conflicts_with = "check")]
    explain: Option<String>,
    /// Print what was done as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file =
        std::fs::read(&args.file).with_context(|| format!("reading {}", name(&args.file)))?;
    let in_file = || name(&args.file);
    let image = Image::parse(&file).with_context(in_file)?;
    if let Some(function) = &args.explain {
        let Some(text) = fettle_jar::explain(&image, function).with_context(in_file)? else {
            bail!("{}: the program cannot reach a function named {function}", name(&args.file));
        };
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let translated = fettle_jar::translate(&image).with_context(in_file)?;
    let mut written = None;
    if !args.check {
        let jar = fettle_jar::write(&image, &translated)?;
        let path = args.output.clone().unwrap_or_else(|| beside(&args.file));
        std::fs::write(&path, &jar).with_context(|| format!("writing {}", name(&path)))?;
        written = Some((path, jar.len()));
    }
    let report = &translated.summary;
    let written = written.as_ref().map(|(path, size)| (path.as_path(), *size));
    let text = if args.json { as_json(report, written) } else { as_text(args, report, written) };
    output::print(&text)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".jar");
    name.into()
}

fn as_text(args: &Args, report: &Report, written: Option<(&Path, usize)>) -> String {
    let mut text = String::new();
    if args.check || !report.problems.is_empty() {
        for problem in &report.problems {
            text +=
                &format!("{:#x} in {}: {}\n", problem.address, problem.function, problem.reason);
        }
    }
    text += &format!(
        "{}: {} of {} functions can be reached; {} bytes of bytecode, the largest method {}\n",
        args.file.display(),
        report.functions,
        report.in_file.max(report.functions),
        report.bytecode,
        report.largest_method,
    );
    if let Some((path, size)) = written {
        text += &format!("{}: {size} bytes\n", path.display());
    }
    text
}

fn as_json(report: &Report, written: Option<(&Path, usize)>) -> String {
    let problems: Vec<_> = report
        .problems
        .iter()
        .map(|p| json!({"address": p.address, "function": p.function, "reason": p.reason}))
        .collect();
    let object = json!({
        "version": 1,
        "functions": report.functions,
        "functions_in_file": report.in_file,
        "functions_called_through_pointers": report.taken,
        "bytecode_bytes": report.bytecode,
        "largest_method_bytes": report.largest_method,
        "divided_functions": report.split,
        "problems": problems,
        "jar": written.map(|(path, _)| path.display().to_string()),
        "jar_bytes": written.map(|(_, size)| size),
    });
    format!("{object}\n")
}
