//! What a profile of many runs brings to a program that ends soon: Debian's C++ compiler proper (`cc1plus`) over the build of
//! a project.
//!
//! Some files of a project are compiled under `fettle record --mode edges`, their traces become one profile, and
//! `fettle instrument --layout` writes a compiler by it. Then the original and that one compile all files of the
//! project, and those of another that the profile does not know, in turns. What both write must be the same. BOLT
//! is given the same file, if that is wanted; and both files run in huge pages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::bolt::{self, in_turns, run as run_piece};
use super::files::{self, Piece};
use crate::bench::machine;
use crate::{apt, fettle, proc, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds of four builds of each project
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Files of each project at most
    #[arg(long, default_value_t = 20)]
    pub files: usize,
    /// Files of the first project that the profile is made of
    #[arg(long, default_value_t = 8)]
    pub train: usize,
    /// Instructions and misses of one file, too, by callgrind
    #[arg(long)]
    pub callgrind: bool,
    /// BOLT 19 beside it, as far as it works with the file
    #[arg(long)]
    pub bolt: bool,
    /// Both files with their code in huge pages, too
    #[arg(long)]
    pub huge_pages: bool,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

/// A project of Debian's: a source package, where its files are, what they need, and which are for other systems
/// or need what the build makes.
struct Project {
    package: &'static str,
    folder: &'static str,
    arguments: &'static [&'static str],
    without: &'static [&'static str],
}

/// The one that the profile is of, and another.
const PROJECTS: [Project; 2] = [
    Project {
        package: "ninja-build",
        folder: "src",
        arguments: &["-Isrc"],
        without: &["_test", "win32", "msvc", "browse", "perftest", "test."],
    },
    Project { package: "libjsoncpp", folder: "src", arguments: &["-Iinclude"], without: &[] },
];

/// As Debian compiles its packages, but for the debug information.
const COMPILE: [&str; 5] =
    ["-O2", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-w", "-std=c++17"];

/// A way to run the compiler.
#[derive(Clone, Copy)]
struct Way<'a> {
    program: &'a Path,
    /// Preloaded.
    library: Option<&'a Path>,
}

/// A project's name, and the compilations of its files.
type Builds = Vec<(&'static str, Vec<Piece>)>;

/// Measures and prints.
///
/// # Errors
///
/// A missing package, a file that does not compile, and a compiler that writes something else.
pub fn run(options: &Options) -> Result<bool> {
    apt::ensure(&["g++".to_owned()])?;
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("bench/compiler")?;
    let original = compiler()?;
    let builds: Builds = PROJECTS
        .iter()
        .map(|project| Ok((project.package, pieces(project, &original, options.files)?)))
        .collect::<Result<_>>()?;
    let trained = &builds[0].1[..options.train.min(builds[0].1.len())];
    let (profile, new) = (folder.join("cc1plus.profile"), folder.join("cc1plus"));
    let begun = Instant::now();
    train(trained, &binary, &folder, &profile)?;
    let trained_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    lay_out(&binary, &profile, &original, &new)?;
    let laid_out_s = begun.elapsed().as_secs_f64();
    let say = |text: String| {
        if !options.json {
            println!("{text}");
        }
    };
    let count = trained.len();
    say(format!("profile of {count} files in {trained_s:.0} s, laid out in {laid_out_s:.0} s"));
    let huge = if options.huge_pages { Some(preloaded(&folder)?) } else { None };
    let mut moved = json!({});
    for (name, program) in [("original", &original), ("laid out", &new)] {
        if let Some(library) = &huge {
            let said = in_huge_pages(program, library)?;
            say(format!("{name}: {said}"));
            moved[name] = said.into();
        }
    }
    let bolted = options.bolt.then(|| bolt::optimise_stripped(&original, &trained[0], &folder));
    let without_bolt = bolted.as_ref().and_then(|made| made.as_ref().err());
    let without_bolt = without_bolt.map(|why| format!("{why:#}"));
    if let Some(why) = &without_bolt {
        say(format!("BOLT does not work with {}: {why}", original.display()));
    }
    let bolted = bolted.and_then(Result::ok);
    let ways = ways((&original, &new), bolted.as_deref(), huge.as_deref());
    say(line(("project", "files"), "compiler", ("speed-up", "95 % interval")));
    let measured = measure(&builds, &original, &ways, (options.rounds, &say))?;
    let counted = match options.callgrind {
        false => Value::Null,
        true => {
            let piece = trained.iter().min_by_key(|piece| size(piece)).context("a file")?;
            let module = original.to_str().context("a plain name")?;
            files::count(piece, &[module], &profile, &binary, &folder)?
        }
    };
    if options.callgrind {
        say(format!("callgrind, the smallest file, before and after: {counted}"));
    }
    let all = json!({
        "version": 1, "machine": machine::describe(), "compiler": original,
        "trained_files": count, "trained_s": trained_s, "laid_out_s": laid_out_s,
        "huge_pages": moved, "without_bolt": without_bolt, "projects": measured,
        "callgrind": counted,
    });
    std::fs::write(folder.join("compiler.json"), format!("{all}\n"))?;
    if options.json {
        println!("{all}");
    }
    Ok(true)
}

/// What is compared with the original.
fn ways<'a>(
    (original, new): (&'a Path, &'a Path),
    bolted: Option<&'a Path>,
    huge: Option<&'a Path>,
) -> Vec<(&'static str, Way<'a>)> {
    let mut ways = vec![("laid out", Way { program: new, library: None })];
    ways.extend(bolted.map(|program| ("BOLT's", Way { program, library: None })));
    for (name, program) in [("in huge pages", original), ("laid out, in huge pages", new)] {
        ways.extend(huge.map(|library| (name, Way { program, library: Some(library) })));
    }
    ways
}

/// Compares each way with the original over each project, and says what came of it.
fn measure(
    builds: &Builds,
    original: &Path,
    ways: &[(&'static str, Way<'_>)],
    (rounds, say): (usize, &dyn Fn(String)),
) -> Result<Vec<Value>> {
    let mut measured = Vec::new();
    for (project, pieces) in builds {
        for (name, way) in ways {
            let plain = Way { program: original, library: None };
            let one = compare(pieces, (plain, *way), rounds)
                .with_context(|| format!("{project}, {name}"))?;
            let number = |of: &str| one["speed_up"][of].as_f64().unwrap_or(f64::NAN);
            let value = format!("{:.3}", number("value"));
            let interval = format!("{:.3} to {:.3}", number("low"), number("high"));
            let files = pieces.len().to_string();
            say(line((project, &files), name, (&value, &interval)));
            let files = pieces.len();
            measured
                .push(json!({ "project": project, "files": files, "way": name, "measured": one }));
        }
    }
    Ok(measured)
}

fn line((project, files): (&str, &str), name: &str, (value, interval): (&str, &str)) -> String {
    format!("{project:<16} {files:>6} {name:<24} {value:>9} {interval:>18}")
}

/// The compiler proper that `g++` starts.
fn compiler() -> Result<PathBuf> {
    let path = proc::output_of(Command::new("g++").arg("-print-prog-name=cc1plus"))?;
    Ok(std::fs::canonicalize(path.trim())?)
}

/// The compilation of each file of a project: the arguments that `g++` gives the compiler.
fn pieces(project: &Project, compiler: &Path, most: usize) -> Result<Vec<Piece>> {
    let source = apt::source(project.package)?;
    let mut files = Vec::new();
    collect(&source.join(project.folder), &mut files)?;
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !project.without.iter().any(|part| name.contains(part))
    });
    files.sort();
    let piece = |file: &PathBuf| -> Result<Piece> {
        let mut driver = Command::new("g++");
        driver.current_dir(&source).args(["-###", "-S", "-o", "-"]).args(COMPILE);
        driver.args(project.arguments.iter().map(|argument| match argument.strip_prefix("-I") {
            Some(folder) => format!("-I{}", source.join(folder).display()),
            None => (*argument).to_owned(),
        }));
        let output = driver.arg(file).output().context("g++")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let arguments = arguments_of(&said).with_context(|| format!("g++ -### says {said}"))?;
        Ok(Piece { program: compiler.to_owned(), arguments, input: None })
    };
    let pieces: Vec<Piece> = files.iter().take(most).map(piece).collect::<Result<_>>()?;
    ensure!(!pieces.is_empty(), "{} has no C++ files", project.package);
    Ok(pieces)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "cc" || end == "cpp") {
            files.push(path);
        }
    }
    Ok(())
}

/// What `g++ -###` gives `cc1plus`.
fn arguments_of(said: &str) -> Option<Vec<String>> {
    let is_compiler = |line: &&str| {
        line.split_whitespace()
            .next()
            .is_some_and(|first| first.trim_matches('"').ends_with("/cc1plus"))
    };
    let words = said.lines().find(is_compiler)?.split_whitespace().skip(1);
    Some(words.map(|word| word.trim_matches('"').to_owned()).collect())
}

/// The file that a piece compiles.
fn source_of(piece: &Piece) -> Option<&str> {
    let is_source = |argument: &&String| {
        argument.starts_with('/') && (argument.ends_with(".cc") || argument.ends_with(".cpp"))
    };
    piece.arguments.iter().find(is_source).map(String::as_str)
}

/// How large a piece's file is.
fn size(piece: &Piece) -> Option<u64> {
    Some(std::fs::metadata(source_of(piece)?).ok()?.len())
}

/// Records some compilations, and makes a profile of them.
fn train(pieces: &[Piece], binary: &Path, folder: &Path, profile: &Path) -> Result<()> {
    let cache = folder.join("cache");
    let fettle = || {
        let mut command = Command::new(binary);
        command.env("XDG_CACHE_HOME", &cache);
        command
    };
    let mut traces = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let trace = folder.join(format!("{i}.fettle"));
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = fettle();
        record.args(["record", "-q", "--mode", "edges", "-o"]).arg(&trace).arg("--");
        proc::output_of(record.arg(&piece.program).args(&piece.arguments))?;
        traces.push(trace);
    }
    let mut of = fettle();
    proc::output_of(of.args(["profile", "of"]).args(&traces).arg("-o").arg(profile)).map(drop)
}

fn lay_out(binary: &Path, profile: &Path, original: &Path, new: &Path) -> Result<()> {
    let _ = std::fs::remove_file(new);
    let mut instrument = Command::new(binary);
    instrument.args(["instrument", "--layout"]).arg(profile).arg(original).arg("-o").arg(new);
    proc::output_of(&mut instrument).map(drop)
}

/// The library that moves a program's code into huge pages.
fn preloaded(folder: &Path) -> Result<PathBuf> {
    let library = folder.join("huge.so");
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-shared", "-fPIC"]).arg(repo::root().join("benches/tune/huge.c"));
    proc::output_of(compile.arg("-o").arg(&library))?;
    Ok(library)
}

/// How much of a program's code the library moves.
fn in_huge_pages(program: &Path, library: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("--version").env("LD_PRELOAD", library).env("FETTLE_HUGE", "say");
    let output = command.output().with_context(|| program.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(said.lines().next().context("the library says nothing")?.to_owned())
}

/// All compilations by two ways in turns: the seconds of each round, and how much faster the second one is.
fn compare(pieces: &[Piece], (old, new): (Way<'_>, Way<'_>), rounds: usize) -> Result<Value> {
    for piece in pieces {
        let says = |way: Way<'_>| -> Result<Vec<u8>> {
            Ok(run_piece(piece, (way.program, way.library), Stdio::piped())?.0)
        };
        let name = source_of(piece).unwrap_or_default();
        ensure!(
            says(old)? == says(new)?,
            "{} writes something else: {name}",
            new.program.display()
        );
    }
    let seconds = in_turns(rounds, |is_new| {
        let way = if is_new { new } else { old };
        let one = |piece| Ok(run_piece(piece, (way.program, way.library), Stdio::null())?.1);
        pieces.iter().map(one).sum::<Result<f64>>()
    })?;
    let ratios: Vec<f64> = seconds.iter().map(|(old, new)| old / new).collect();
    Ok(json!({ "seconds": seconds, "speed_up": fettle_stats::geometric_mean(&ratios) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_arguments_are_found() {
        let said = "Using built-in specs.\n /usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet -I /a/src \
                    \"-mtune=generic\" /a/src/x.cc -o -\n as -o x.o\n";
        let arguments = arguments_of(said).unwrap();
        assert_eq!(
            arguments,
            ["-quiet", "-I", "/a/src", "-mtune=generic", "/a/src/x.cc", "-o", "-"]
        );
        assert_eq!(arguments_of("g++: error: no input files\n"), None);
    }
}
