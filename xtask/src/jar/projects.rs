//! Programs that people use, from Debian's sources, unmodified: how each is built by a compiler.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{apt, proc, repo};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Project {
    /// The compressor.
    Bzip2,
    /// What zlib compresses files with, to show how.
    Minigzip,
    /// The interpreter.
    Lua,
    /// An interpreter of JavaScript.
    Mujs,
    /// A compiler of C, here for ARM.
    Tcc,
    /// What libpng tests itself with.
    Pngtest,
    /// SQLite's shell.
    Sqlite,
    /// SQLite's own benchmark.
    Speedtest,
    /// A compressor in C++.
    Lzip,
    /// A checker of C++ in C++: 100,000 lines.
    Cppcheck,
}

/// A compiler and the options that it always gets.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    /// Its name, and that of the folder for what it makes.
    pub name: &'static str,
    /// Options.
    pub options: &'static [&'static str],
}

/// The one whose programs become jars.
pub const CROSS: Compiler =
    Compiler { name: "mipsel-linux-gnu-gcc", options: &["-static", "-O2", "-w"] };
/// The machine's own.
pub const NATIVE: Compiler = Compiler { name: "gcc", options: &["-O2", "-w"] };

impl Project {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Bzip2,
        Self::Minigzip,
        Self::Lua,
        Self::Mujs,
        Self::Tcc,
        Self::Pngtest,
        Self::Sqlite,
        Self::Speedtest,
        Self::Lzip,
        Self::Cppcheck,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bzip2 => "bzip2",
            Self::Minigzip => "minigzip",
            Self::Lua => "lua",
            Self::Mujs => "mujs",
            Self::Tcc => "tcc",
            Self::Pngtest => "pngtest",
            Self::Sqlite => "sqlite3",
            Self::Speedtest => "speedtest1",
            Self::Lzip => "lzip",
            Self::Cppcheck => "cppcheck",
        }
    }

    /// The folder of its sources.
    pub fn source(self) -> Result<PathBuf> {
        apt::source(match self {
            Self::Bzip2 => "bzip2",
            Self::Minigzip => "zlib",
            Self::Lua => "lua5.4",
            Self::Mujs => "mujs",
            Self::Tcc => "tcc",
            Self::Pngtest => "libpng1.6",
            Self::Sqlite | Self::Speedtest => "sqlite3",
            Self::Lzip => "lzip",
            Self::Cppcheck => "cppcheck",
        })
    }

    /// Builds it, unless that has been done.
    pub fn build(self, compiler: Compiler) -> Result<PathBuf> {
        self.build_with(compiler, &[])
    }

    /// Builds it with more files and options, unless that has been done.
    pub fn build_with(self, compiler: Compiler, more: &[OsString]) -> Result<PathBuf> {
        let folder = repo::target_folder(&format!("jar-programs/{}", compiler.name))?;
        let program = folder.join(self.name());
        if program.is_file() {
            return Ok(program);
        }
        let source = self.source()?;
        let linked = folder.join("linked");
        let mut gcc = Command::new(compiler.name);
        gcc.args(compiler.options).current_dir(&source).arg("-o").arg(&linked);
        match self {
            Self::Bzip2 => {
                let files = "blocksort huffman crctable randtable compress decompress bzlib bzip2";
                gcc.args(files.split(' ').map(|file| format!("{file}.c")));
            }
            Self::Minigzip => {
                gcc.arg("-DHAVE_UNISTD_H").args(c_files(&source)?).arg("test/minigzip.c");
                gcc.arg("-I.");
            }
            Self::Lua => {
                // Debian's patch includes a header that its build makes.
                std::fs::write(folder.join("lua5.4-deb-multiarch.h"), "")?;
                let multiarch = format!("-DDEB_HOST_MULTIARCH=\"{}\"", compiler.name);
                gcc.args(["-DLUA_COMPAT_5_3", "-DLUA_USE_POSIX", &multiarch, "-I"]).arg(&folder);
                let src = source.join("src");
                gcc.args(c_files(&src)?.into_iter().filter(|file| !file.ends_with("luac.c")));
            }
            Self::Mujs => {
                gcc.args(["one.c", "main.c"]);
            }
            Self::Tcc => {
                let header = "#define TCC_VERSION \"0.9.27\"\n";
                std::fs::write(folder.join("config.h"), header)?;
                gcc.args(["-DONE_SOURCE=1", "-DTCC_TARGET_ARM", "-DTCC_ARM_EABI"]);
                gcc.args(["-DTCC_ARM_VFP", "-DTCC_ARM_HARDFLOAT", "-I"]).arg(&folder);
                gcc.args(["tcc.c", "-ldl", "-lpthread"]);
            }
            Self::Pngtest => {
                let settings = folder.join("pnglibconf.h");
                std::fs::copy(source.join("scripts/pnglibconf.h.prebuilt"), settings)?;
                let zlib_source = Self::Minigzip.source()?;
                gcc.args(["-DPNG_INTEL_SSE_OPT=0", "-DHAVE_UNISTD_H", "-I."]);
                gcc.arg("-I").arg(&folder).arg("-I").arg(&zlib_source);
                gcc.args(c_files(&source)?.into_iter().filter(|file| !file.ends_with("example.c")));
                gcc.args(c_files(&zlib_source)?);
            }
            Self::Sqlite | Self::Speedtest => {
                let made = amalgamation(&source)?;
                gcc.arg("-I").arg(&made).arg(made.join("sqlite3.c"));
                gcc.arg("-DSQLITE_OMIT_LOAD_EXTENSION");
                match self {
                    Self::Sqlite => {
                        gcc.args(["-DSQLITE_ENABLE_MATH_FUNCTIONS"]).arg(made.join("shell.c"))
                    }
                    _ => gcc.args(["-DSQLITE_THREADSAFE=0", "test/speedtest1.c"]),
                };
                gcc.arg("-lpthread");
            }
            Self::Lzip | Self::Cppcheck => {
                std::fs::copy(self.make(compiler, &folder)?, &program)?;
                return Ok(program);
            }
        }
        proc::output_of(gcc.args(more).arg("-lm"))
            .with_context(|| format!("building {}", self.name()))?;
        std::fs::rename(linked, &program)?;
        Ok(program)
    }
}

impl Project {
    /// Has its own build system build it, in a copy of its sources; the program.
    fn make(self, compiler: Compiler, folder: &Path) -> Result<PathBuf> {
        apt::ensure(&["make".into(), "g++".into(), "g++-mipsel-linux-gnu".into()])?;
        let copy = folder.join(format!("{}-source", self.name()));
        if copy.is_dir() {
            std::fs::remove_dir_all(&copy)?;
        }
        proc::output_of(Command::new("cp").args(["-r", "--"]).arg(self.source()?).arg(&copy))?;
        let (linking, others): (Vec<&str>, Vec<&str>) =
            compiler.options.iter().partition(|&&option| option == "-static");
        let settings = [
            format!("CXX={}", compiler.name.replace("gcc", "g++")),
            format!("CXXFLAGS={}", others.join(" ")),
            format!("LDFLAGS={}", linking.join(" ")),
        ];
        if self == Self::Lzip {
            let mut configure = Command::new("./configure");
            proc::output_of(configure.args(&settings).current_dir(&copy))?;
        }
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut make = Command::new("make");
        make.arg(format!("-j{jobs}")).args(&settings).arg(self.name()).current_dir(&copy);
        proc::output_of(&mut make).with_context(|| format!("building {}", self.name()))?;
        Ok(copy.join(self.name()))
    }
}

fn c_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension() == Some(OsStr::new("c"))).collect();
    files.sort();
    Ok(files)
}

/// SQLite as two files, which its own build makes of its sources.
fn amalgamation(source: &Path) -> Result<PathBuf> {
    let folder = repo::target_folder("jar-programs/sqlite")?;
    if folder.join("shell.c").is_file() && folder.join("sqlite3.c").is_file() {
        return Ok(folder);
    }
    apt::ensure(&["tcl".into(), "make".into(), "gcc".into(), "libc6-dev".into()])?;
    let mut configure = Command::new(source.join("configure"));
    configure.args(["--disable-shared", "--disable-readline", "--disable-tcl"]);
    proc::output_of(configure.current_dir(&folder))?;
    proc::output_of(Command::new("make").args(["sqlite3.c", "shell.c"]).current_dir(&folder))?;
    Ok(folder)
}
