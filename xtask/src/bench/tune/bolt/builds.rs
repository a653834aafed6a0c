//! Debian's programs from their sources, with Debian's ways to compile them, and with what BOLT
//! needs: relocations in the file, and functions that GCC has not taken apart.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::programs::{Recipe, Subject};
use crate::{apt, proc, repo};

const COMPILE: [&str; 3] =
    ["-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fno-reorder-blocks-and-partition"];
const LINK: [&str; 2] = ["-Wl,-z,relro", "-Wl,--emit-relocs"];

/// Main loops that jump from label to label, which BOLT 19 does not follow.
pub const LUA_SKIP: [&str; 1] = ["luaV_execute.*"];
pub const PYTHON_SKIP: [&str; 2] = ["_PyEval_EvalFrameDefault.*", "sre_ucs[124]_match.*"];

pub fn lua() -> Result<PathBuf> {
    Subject::Lua.build(&recipe())
}

/// With its library in the program: that is where the work is done.
pub fn sqlite() -> Result<PathBuf> {
    Subject::SqliteShell.build(&recipe())
}

fn recipe() -> Recipe {
    Recipe {
        name: "bolt",
        compiler: "gcc",
        flags: COMPILE.map(str::to_owned).into(),
        link: [&LINK[..], &["-Wl,-z,now"]].concat(),
        ..Recipe::default()
    }
}

pub fn bash() -> Result<PathBuf> {
    apt::ensure(&["gcc", "libc6-dev", "make", "libncurses-dev"].map(str::to_owned))?;
    let compile = format!("CFLAGS=-O2 {}", COMPILE.join(" "));
    let link = format!("LDFLAGS={} -Wl,-z,now", LINK.join(" "));
    let configure = ["--prefix=/usr", "--without-bash-malloc", &compile, &link];
    made("bash", &apt::source("bash")?, &configure, &[])
}

/// With profiles and at link time, as Debian has it; only more of its modules are files of their own.
/// The program has a fixed address, which its modules cannot have.
pub fn python() -> Result<PathBuf> {
    let packages = ["gcc", "libc6-dev", "make", "dpkg-dev", "zlib1g-dev", "libffi-dev"];
    let libraries = ["libssl-dev", "libbz2-dev", "liblzma-dev"];
    apt::ensure(
        &[&packages[..], &libraries]
            .concat()
            .iter()
            .map(std::string::ToString::to_string)
            .collect::<Vec<_>>(),
    )?;
    // `python3.11`, as the source package is called.
    let version = std::fs::canonicalize("/usr/bin/python3")?;
    let version = version.file_name().and_then(|name| name.to_str()).context("a version")?;
    let fixed = |step: &str| format!("-specs=/usr/share/dpkg/no-pie-{step}.specs");
    let compile = format!("CFLAGS={} {}", fixed("compile"), COMPILE.join(" "));
    let link = format!("LDFLAGS={} {}", fixed("link"), LINK.join(" "));
    let configure = [
        "--prefix=/usr",
        "--enable-optimizations",
        "--with-lto",
        "--with-computed-gotos",
        "--without-ensurepip",
        &compile,
        &link,
    ];
    // Some of the tests that it is trained on fail outside of Debian's builders, and then the whole
    // would fail, unless the interpreter is called with `-s`, which means nothing here.
    let train = ["PROFILE_TASK=-s -m test --pgo --timeout=300"];
    made("python", &apt::source(version)?, &configure, &train)
}

/// The program that `source` makes in a folder of its own, unless that has been done.
fn made(name: &str, source: &Path, configure: &[&str], make: &[&str]) -> Result<PathBuf> {
    let folder = repo::target_folder("bench/tune/built")?.join(name);
    let (program, done) = (folder.join(name), folder.join("done"));
    if done.exists() {
        return Ok(program);
    }
    eprintln!("building {name} in {}", folder.display());
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new(source.join("configure"));
    proc::output_of(command.current_dir(&folder).args(configure))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut command = Command::new("make");
    proc::output_of(command.current_dir(&folder).args(["-j", &jobs]).args(make))?;
    std::fs::write(done, "")?;
    Ok(program)
}
