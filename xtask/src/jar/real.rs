//! Programs that people use, run as jars: standard output and error, status and the files that they
//! leave are what they are under QEMU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::projects::{CROSS, Project};
use super::{PACKAGES, Tally};
use crate::proc::{self, Outcome};
use crate::{apt, fettle, repo};

/// Which programs.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only programs whose name contains this
    #[arg(long, default_value = "")]
    pub filter: String,
    /// Options for the JVM, as -Xint
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub java: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// What a program is started with.
struct Case {
    project: Project,
    arguments: &'static [&'static str],
    input: Option<&'static str>,
}

const LIMIT: Duration = Duration::from_secs(600);

/// Options with which tcc compiles itself.
const SELF: &[&str] = &[
    "-nostdinc",
    "-Itcc/include",
    "-Iheaders",
    "-Itcc",
    "-DTCC_TARGET_ARM",
    "-DTCC_ARM_EABI",
    "-DTCC_ARM_VFP",
    "-DTCC_ARM_HARDFLOAT",
    "-DONE_SOURCE=1",
    "-c",
    "tcc/tcc.c",
    "-o",
    "self.o",
];

/// Options with which cppcheck finds much.
const CHECK: &[&str] =
    &["--library=std.cfg", "--enable=all", "--inconclusive", "--verbose", "sample.cpp", "text.c"];

fn cases() -> Vec<Case> {
    let case = |project, arguments, input| Case { project, arguments, input };
    vec![
        case(Project::Bzip2, &["-k", "-9", "text"], None),
        case(Project::Bzip2, &["-kd", "sample.bz2"], None),
        case(Project::Bzip2, &["-d", "text"], None),
        case(Project::Minigzip, &["text"], None),
        case(Project::Lua, &["script.lua"], None),
        case(Project::Mujs, &["script.js"], None),
        case(Project::Tcc, &["-v"], None),
        case(Project::Tcc, SELF, None),
        case(Project::Pngtest, &["image.png", "out.png"], None),
        case(Project::Sqlite, &["new.db"], Some("statements.sql")),
        case(Project::Speedtest, &["--size", "2", "--verify", "--memdb"], None),
        case(Project::Lzip, &["-k", "-9", "text"], None),
        case(Project::Lzip, &["-d", "packed.lz"], None),
        case(Project::Cppcheck, CHECK, None),
    ]
}

/// Runs them.
pub fn run(options: &Options) -> Result<Tally> {
    let packages: Vec<String> = PACKAGES.iter().map(|name| String::from(*name)).collect();
    apt::ensure(&packages)?;
    let binary = fettle::binary(options.fettle.as_deref())?;
    let place = repo::target_folder("jar-programs/run")?;
    let mut tally = Tally::default();
    for case in cases() {
        if !case.project.name().contains(&options.filter) {
            continue;
        }
        let name = format!("{} {}", case.project.name(), case.arguments.join(" "));
        let name: String = name.chars().take(60).collect();
        match judge(&binary, &case, &place, &options.java).with_context(|| name.clone())? {
            None => {
                println!("same: {name}");
                tally.passed += 1;
            }
            Some(what) => {
                println!("failed: {name}: {what}");
                tally.failed.push((name, what));
            }
        }
    }
    println!("{} passed; {} failed", tally.passed, tally.failed.len());
    Ok(tally)
}

/// What is different, if anything.
fn judge(binary: &Path, case: &Case, place: &Path, java: &[String]) -> Result<Option<String>> {
    let elf = case.project.build(CROSS)?;
    let jar = place.join(format!("{}.jar", case.project.name()));
    let translated =
        Command::new(binary).args(["jar", "-o"]).arg(&jar).arg(&elf).output().context("fettle")?;
    if !translated.status.success() {
        let reported = [translated.stdout, translated.stderr].concat();
        return Ok(Some(format!("not translated: {}", String::from_utf8_lossy(&reported).trim())));
    }
    let mut qemu = Command::new("qemu-mipsel-static");
    qemu.arg(&elf);
    let mut jvm = Command::new("java");
    jvm.args(java).arg("-jar").arg(&jar);
    let (expected, expected_files) = once(qemu, case, &place.join("qemu"))?;
    let (found, found_files) = once(jvm, case, &place.join("java"))?;
    let differs = |what: &str, found: &[u8], expected: &[u8]| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (found, expected) = (text(found), text(expected));
        let (mine, theirs) = found.lines().zip(expected.lines()).find(|(a, b)| a != b)?;
        Some(format!("{what}: {mine:?}, not {theirs:?}"))
    };
    let (out, expected_out) = (untimed(&found.stdout), untimed(&expected.stdout));
    Ok(if found.ending != expected.ending {
        Some(format!("{}, not {}", found.ending, expected.ending))
    } else if out != expected_out {
        Some(differs("output", &out, &expected_out).unwrap_or("output of another length".into()))
    } else if found.stderr != expected.stderr {
        let what = differs("errors", &found.stderr, &expected.stderr);
        Some(what.unwrap_or("errors of another length".into()))
    } else {
        let names = expected_files.keys().chain(found_files.keys());
        let other =
            names.into_iter().find(|&name| expected_files.get(name) != found_files.get(name));
        other.map(|name| format!("the file {name} is another"))
    })
}

/// Runs a program in a fresh folder; what it printed and which files are there afterwards.
fn once(
    mut command: Command,
    case: &Case,
    folder: &Path,
) -> Result<(Outcome, BTreeMap<String, Vec<u8>>)> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    inputs(case.project, folder)?;
    command.args(case.arguments).current_dir(folder);
    let logs = folder.with_extension("logs");
    std::fs::create_dir_all(&logs)?;
    let input = case.input.map(|name| folder.join(name));
    let outcome = proc::start(command, &logs, "run", input.as_deref())?.finish(LIMIT)?;
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path)?);
        }
    }
    Ok((outcome, files))
}

/// Puts what programs read into their folder.
fn inputs(project: Project, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("script.lua"), include_str!("cases/script.lua"))?;
    std::fs::write(folder.join("script.js"), include_str!("cases/script.js"))?;
    std::fs::write(folder.join("statements.sql"), include_str!("cases/statements.sql"))?;
    let source = project.source()?;
    let copy = |from: &str, to: &str| std::fs::copy(source.join(from), folder.join(to)).map(drop);
    match project {
        Project::Bzip2 => {
            copy("sample1.bz2", "sample.bz2")?;
            copy("bzip2.c", "text")?;
        }
        Project::Minigzip => copy("deflate.c", "text")?,
        Project::Lzip => {
            copy("decoder.cc", "text")?;
            copy("testsuite/test.txt.lz", "packed.lz")?;
        }
        Project::Cppcheck => {
            copy("cfg/std.cfg", "std.cfg")?;
            std::fs::write(folder.join("sample.cpp"), include_str!("cases/sample.cpp"))?;
            let text = Project::Bzip2.source()?.join("huffman.c");
            std::fs::copy(text, folder.join("text.c"))?;
        }
        Project::Pngtest => copy("pngtest.png", "image.png")?,
        Project::Tcc => {
            // As a directory is all that a program sees, the headers are there as well.
            let made = repo::target_folder("jar-programs")?.join(CROSS.name).join("config.h");
            let (tcc, headers) = (folder.join("tcc"), folder.join("headers"));
            let mut cp = Command::new("cp");
            proc::output_of(cp.args(["-rL", "--"]).arg(&source).arg(&tcc))?;
            std::fs::copy(made, tcc.join("config.h"))?;
            let mut cp = Command::new("cp");
            let include = "/usr/mipsel-linux-gnu/include";
            proc::output_of(cp.args(["-rL", "--", include]).arg(&headers))?;
        }
        _ => {}
    }
    Ok(())
}

/// Without the times that speedtest1 prints at the ends of its lines.
fn untimed(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(|line| match line.rsplit_once(' ') {
        Some((rest, time))
            if time.ends_with('s') && time[..time.len() - 1].parse::<f64>().is_ok() =>
        {
            rest.trim_end()
        }
        _ => line,
    });
    lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_left_out() {
        assert_eq!(
            untimed(b"100 - INSERTs....  0.035s\nas it 1s is\n"),
            b"100 - INSERTs....\nas it 1s is\n"
        );
    }
}
