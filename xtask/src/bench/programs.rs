//! The benchmarked programs and how each is compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{apt, proc, repo};

/// A program to benchmark, before compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nothing but calls.
    Fib,
    /// The Lua interpreter with `benches/probe/load.lua`.
    Lua,
    /// SQLite with its own speedtest1.
    Sqlite,
    /// SQLite's shell with its library in it, which reads statements.
    SqliteShell,
}

/// How a variant is compiled.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// Name of the folder that holds the result.
    pub name: &'static str,
    /// `gcc` or `clang-14`.
    pub compiler: &'static str,
    /// Flags for the program's own sources.
    pub flags: Vec<String>,
    /// Environment of the compiler.
    pub env: Vec<(&'static str, &'static str)>,
    /// Sources of `benches/probe`, with flags, that are linked in without the program's flags.
    pub hooks: Vec<(&'static str, Vec<&'static str>)>,
    /// Flags for the linker.
    pub link: Vec<&'static str>,
}

impl Subject {
    /// Name in tables and folders.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Fib => "fib",
            Subject::Lua => "lua",
            Subject::Sqlite => "sqlite",
            Subject::SqliteShell => "sqlite-shell",
        }
    }

    /// Arguments that make a run of about a third of a second.
    pub fn arguments(self) -> Vec<String> {
        let owned = |words: &[&str]| words.iter().map(std::string::ToString::to_string).collect();
        match self {
            Subject::Fib => owned(&["37"]),
            Subject::Lua => vec![benches().join("load.lua").display().to_string(), "36".into()],
            Subject::Sqlite => owned(&["--memdb", "--size", "20"]),
            Subject::SqliteShell => owned(&[":memory:"]),
        }
    }

    /// Compiles this program by that recipe, unless that has been done.
    pub fn build(self, recipe: &Recipe) -> Result<PathBuf> {
        let folder = repo::target_folder(&format!("bench/{}/{}", self.name(), recipe.name))?;
        let program = folder.join(self.name());
        if program.is_file() {
            return Ok(program);
        }
        let mut objects = vec![compile(&benches().join("cpu.c"), "gcc", &["-O2"], &[], &folder)?];
        for (source, flags) in &recipe.hooks {
            let compiler = if source.ends_with(".cc") { "clang++-14" } else { "gcc" };
            let flags: Vec<&str> = [&["-O2"], flags.as_slice()].concat();
            objects.push(compile(&benches().join(source), compiler, &flags, &[], &folder)?);
        }
        let (sources, own_flags) = self.sources()?;
        let own_flags = own_flags.iter().map(String::as_str);
        let recipe_flags = recipe.flags.iter().map(String::as_str);
        let flags: Vec<&str> = ["-O2"].into_iter().chain(own_flags).chain(recipe_flags).collect();
        for source in sources {
            objects.push(compile(&source, recipe.compiler, &flags, &recipe.env, &folder)?);
        }
        let mut link = Command::new(recipe.compiler);
        link.args(&objects).args(&recipe.link).arg("-o").arg(folder.join("linked"));
        link.args(["-Wl,-E", "-lm", "-ldl", "-lpthread"]);
        proc::output_of(&mut link)?;
        std::fs::rename(folder.join("linked"), &program)?;
        Ok(program)
    }

    /// Source files and the flags they need.
    pub fn sources(self) -> Result<(Vec<PathBuf>, Vec<String>)> {
        match self {
            Subject::Fib => Ok((vec![benches().join("fib.c")], Vec::new())),
            Subject::Lua => {
                let folder = apt::source("lua5.4")?.join("src");
                let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)?
                    .filter_map(|item| item.ok().map(|item| item.path()))
                    .filter(|path| path.extension().is_some_and(|e| e == "c"))
                    .filter(|path| path.file_stem().is_none_or(|stem| stem != "luac"))
                    .collect();
                sources.sort();
                // Debian's patch includes a header that its build generates.
                let generated = repo::target_folder("bench/lua")?;
                let header = "#define DEB_HOST_MULTIARCH \"x86_64-linux-gnu\"\n";
                std::fs::write(generated.join("lua5.4-deb-multiarch.h"), header)?;
                let include = format!("-I{}", generated.display());
                Ok((sources, vec!["-DLUA_COMPAT_5_3".into(), "-DLUA_USE_POSIX".into(), include]))
            }
            Subject::Sqlite => {
                let folder = amalgamation()?;
                let sources = vec![folder.join("sqlite3.c"), folder.join("test/speedtest1.c")];
                let flags = ["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"];
                let include = format!("-I{}", folder.display());
                Ok((sources, flags.map(String::from).into_iter().chain([include]).collect()))
            }
            Subject::SqliteShell => {
                let folder = amalgamation()?;
                let sources = vec![folder.join("sqlite3.c"), folder.join("shell.c")];
                let own = ["-fno-strict-aliasing".to_owned(), format!("-I{}", folder.display())];
                Ok((sources, own.into_iter().chain(debian_defines(&folder)?).collect()))
            }
        }
    }
}

/// Folder with the benchmark's own sources.
pub fn benches() -> PathBuf {
    repo::root().join("benches/probe")
}

/// SQLite in one file, made from its source package by its own scripts.
fn amalgamation() -> Result<PathBuf> {
    let folder = apt::source("sqlite3")?;
    let made = ["sqlite3.c", "shell.c"];
    if made.iter().all(|source| folder.join(source).is_file()) {
        return Ok(folder);
    }
    apt::ensure(&["tcl".into(), "make".into(), "gcc".into(), "libc6-dev".into()])?;
    let mut configure = Command::new("./configure");
    configure.current_dir(&folder).args(["--disable-tcl", "--disable-readline"]);
    proc::output_of(&mut configure)?;
    let mut make = Command::new("make");
    proc::output_of(make.current_dir(&folder).args(made)).context("SQLite's amalgamation")?;
    Ok(folder)
}

/// What Debian has its SQLite know and leave out.
fn debian_defines(folder: &Path) -> Result<Vec<String>> {
    let rules = std::fs::read_to_string(folder.join("debian/rules"))?;
    let words = rules.split_whitespace().filter(|word| word.starts_with("-DSQLITE_"));
    Ok(words.map(str::to_owned).collect())
}

fn compile(
    source: &Path,
    compiler: &str,
    flags: &[&str],
    env: &[(&str, &str)],
    folder: &Path,
) -> Result<PathBuf> {
    let object = folder.join(source.file_name().context("a source file")?).with_extension("o");
    let mut command = Command::new(compiler);
    command.args(flags).arg("-c").arg(source).arg("-o").arg(&object).envs(env.iter().copied());
    proc::output_of(&mut command)?;
    Ok(object)
}

/// Compiles the plug-in for clang that puts probes in at compile time.
pub fn floor_plugin() -> Result<PathBuf> {
    let plugin = repo::target_folder("bench")?.join("floor_pass.so");
    if plugin.is_file() {
        return Ok(plugin);
    }
    let flags = proc::output_of(Command::new("llvm-config-14").arg("--cxxflags"))?;
    let mut command = Command::new("clang++-14");
    command.args(["-std=c++17", "-O1", "-fPIC", "-shared", "-fno-exceptions"]);
    command.args(flags.split_whitespace().filter(|f| f.starts_with("-I") || f.starts_with("-D")));
    command.arg(benches().join("floor_pass.cc")).arg("-o").arg(&plugin);
    proc::output_of(&mut command)?;
    Ok(plugin)
}
