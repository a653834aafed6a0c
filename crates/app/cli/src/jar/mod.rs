//! `fettle jar`: MIPS and RISC-V programs as jars.

mod archive;
mod arguments;
mod compile;
mod library;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fettle_jar::{Image, Report, Target};
use serde_json::json;

use crate::output;

pub use arguments::Args;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = library::options(args)?;
    let folder = tempfile::tempdir().context("making a temporary folder")?;
    let shown = name(&args.files[0]);
    let program = executable(args, folder.path())?;
    let file = std::fs::read(&program).with_context(|| format!("reading {shown}"))?;
    let in_file = || shown.clone();
    let image = Image::parse(&file).with_context(in_file)?;
    if let Some(function) = &args.explain {
        let Some(text) = fettle_jar::explain(&image, function).with_context(in_file)? else {
            bail!("{shown}: the program cannot reach a function named {function}");
        };
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let translated = fettle_jar::translate(&image, &options).with_context(in_file)?;
    let mut written = None;
    if !args.check {
        let jar = fettle_jar::write(&image, &translated)?;
        let path = args.output.clone().unwrap_or_else(|| beside(&args.files[0]));
        std::fs::write(&path, &jar).with_context(|| format!("writing {}", name(&path)))?;
        written = Some((path, jar.len()));
    }
    let archive = match &written {
        Some((path, _)) if args.aot_cache => Some(archive::make(&args.java, path)?),
        _ => None,
    };
    let report = &translated.summary;
    let written = written.as_ref().map(|(path, size)| (path.as_path(), *size));
    let mut text = match args.json {
        true => as_json(report, written, archive.as_ref()),
        false => as_text(args, report, written),
    };
    if let Some(archive) = archive.filter(|_| !args.json) {
        text += &format!("start it with {} ({} bytes)\n", archive.option, archive.bytes);
    }
    output::print(&text)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The file to translate: the one that is given, or what the compiler makes of sources.
fn executable(args: &Args, folder: &Path) -> anyhow::Result<PathBuf> {
    if let [only] = &args.files[..]
        && !compile::is_source(only)
    {
        if !args.flags.is_empty() {
            bail!("{}: flags behind -- are for sources, and this is none", name(only));
        }
        return Ok(only.clone());
    }
    let small = args.target == Target::Cldc;
    let compiler =
        compile::Compiler { prefix: &args.cross, flags: &args.flags, exports: &args.export, small };
    compiler.run(&args.files, folder)
}

fn beside(file: &Path) -> PathBuf {
    if compile::is_source(file) {
        return file.with_extension("jar");
    }
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
        name(&args.files[0]),
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

fn as_json(
    report: &Report,
    written: Option<(&Path, usize)>,
    archive: Option<&archive::Archive>,
) -> String {
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
        "machine_code_bytes": report.code,
        "bytecode_bytes": report.bytecode,
        "largest_method_bytes": report.largest_method,
        "divided_functions": report.split,
        "problems": problems,
        "jar": written.map(|(path, _)| path.display().to_string()),
        "jar_bytes": written.map(|(_, size)| size),
        "java_option": archive.map(|archive| &archive.option),
    });
    format!("{object}\n")
}
