//! Programs as WebAssembly on a JVM, by Chicory, whose compiler also makes Java bytecode: what people
//! use for C on a JVM.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::jar::projects::Compiler;
use crate::{apt, proc};

/// The compiler whose programs it runs.
pub const WASM: Compiler = Compiler {
    name: "clang",
    options: &[
        "--target=wasm32-wasi",
        "--sysroot=/usr",
        "-I/usr/include/wasm32-wasi",
        "-L/usr/lib/wasm32-wasi",
        "-O2",
        "-w",
    ],
};

/// What clang needs for it.
const PACKAGES: [&str; 4] = ["clang", "lld", "wasi-libc", "libclang-rt-14-dev-wasm32"];

/// The last version under this name; its successor's jars are not in all registries.
const PROJECT: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
<modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>peer</artifactId>
<version>1</version><dependencies>
<dependency><groupId>com.dylibso.chicory</groupId><artifactId>compiler</artifactId><version>1.7.5</version></dependency>
<dependency><groupId>com.dylibso.chicory</groupId><artifactId>wasi</artifactId><version>1.7.5</version></dependency>
</dependencies></project>
";

/// It, ready to run programs.
pub struct Chicory {
    classpath: String,
}

impl Chicory {
    /// Fetches it by Maven, and compiles what runs programs in rounds.
    pub fn prepare(place: &Path) -> Result<Self> {
        apt::ensure(&PACKAGES.map(str::to_owned))?;
        let folder = place.join("chicory");
        let library = folder.join("lib");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("pom.xml"), PROJECT)?;
        std::fs::write(folder.join("Chicory.java"), include_str!("Chicory.java"))?;
        if !library.is_dir() {
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
            proc::output_of(maven.current_dir(&folder)).context("fetching Chicory")?;
        }
        let classpath = format!("{}/*:{}", library.display(), folder.display());
        let mut javac = Command::new("javac");
        javac.args(["--release", "17", "-nowarn", "-d"]).arg(&folder).args(["-cp", &classpath]);
        proc::output_of(javac.arg(folder.join("Chicory.java")))?;
        Ok(Self { classpath })
    }

    /// Compiles a source to what it runs.
    pub fn build(&self, source: &Path, folder: &Path) -> Result<PathBuf> {
        let program = folder.join("program.wasm");
        let mut clang = Command::new(WASM.name);
        clang.args(WASM.options).arg(source).arg("-o").arg(&program).arg("-lm");
        proc::output_of(&mut clang)?;
        Ok(program)
    }

    /// A JVM that runs a program whenever a line comes in.
    pub fn command(&self, jvm: &Path, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(jvm);
        command.args(["-cp", &self.classpath, "Chicory"]).arg(program).args(arguments);
        command
    }
}
