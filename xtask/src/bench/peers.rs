//! Programs as WebAssembly on a JVM, by what people use for C there: Chicory, whose compiler also makes
//! Java bytecode, and GraalWasm, which has a compiler of its own where the JVM lets it in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::jar::projects::{Compiler, Project};
use crate::{apt, proc, repo};

/// The compiler whose programs they run.
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

/// Signals, clocks and process numbers that wasi-libc has only if one asks for them.
const EMULATED: [&str; 6] = [
    "-D_WASI_EMULATED_SIGNAL",
    "-D_WASI_EMULATED_PROCESS_CLOCKS",
    "-D_WASI_EMULATED_GETPID",
    "-lwasi-emulated-signal",
    "-lwasi-emulated-process-clocks",
    "-lwasi-emulated-getpid",
];

/// What rewrites clang 14's exceptions as they have become since; one version, as results depend on it.
const BINARYEN: &str = "binaryen@132.0.0";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Chicory,
    GraalWasm,
}

impl Peer {
    pub const ALL: [Self; 2] = [Self::Chicory, Self::GraalWasm];

    pub fn name(self) -> &'static str {
        match self {
            Self::Chicory => "Chicory",
            Self::GraalWasm => "GraalWasm",
        }
    }

    /// Why it cannot run a program, where it cannot.
    pub fn obstacle(self, project: Project) -> Option<&'static str> {
        match (self, project) {
            (Self::GraalWasm, Project::Lua) => {
                Some("25.0.2 knows no exceptions, by which WebAssembly has setjmp")
            }
            _ => None,
        }
    }

    fn runner(self) -> &'static str {
        match self {
            Self::Chicory => include_str!("Chicory.java"),
            Self::GraalWasm => include_str!("GraalWasm.java"),
        }
    }

    /// What Maven fetches. Chicory's successor's jars are not in all registries.
    fn artifacts(self) -> &'static [[&'static str; 3]] {
        match self {
            Self::Chicory => &[
                ["com.dylibso.chicory", "compiler", "1.7.5"],
                ["com.dylibso.chicory", "wasi", "1.7.5"],
            ],
            Self::GraalWasm => &[
                ["org.graalvm.polyglot", "polyglot", "25.0.2"],
                ["org.graalvm.wasm", "wasm-language", "25.0.2"],
                ["org.graalvm.truffle", "truffle-runtime", "25.0.2"],
                ["org.graalvm.compiler", "compiler", "25.0.2"],
            ],
        }
    }

    /// The JDK that compiles what runs programs in rounds.
    fn release(self) -> &'static str {
        match self {
            Self::Chicory => "17",
            Self::GraalWasm => "21",
        }
    }

    /// Fetches it by Maven, and compiles what runs programs in rounds, by one of these JVMs' own compilers.
    fn prepare(self, place: &Path, jvms: &[PathBuf]) -> Result<Ready> {
        let folder = place.join(self.name());
        let library = folder.join("lib");
        std::fs::create_dir_all(&folder)?;
        let dependencies = self.artifacts().iter().map(|[group, artifact, version]| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>\n"
            )
        });
        let project = format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
             <modelVersion>4.0.0</modelVersion><groupId>bench</groupId>\
             <artifactId>peer</artifactId><version>1</version>\n\
             <dependencies>\n{}</dependencies></project>\n",
            dependencies.collect::<String>()
        );
        std::fs::write(folder.join("pom.xml"), project)?;
        if !library.is_dir() {
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
            proc::output_of(maven.current_dir(&folder))
                .with_context(|| format!("fetching {}", self.name()))?;
        }
        let ready = Ready { peer: self, library, folder };
        let source = ready.folder.join(format!("{}.java", self.name()));
        std::fs::write(&source, self.runner())?;
        if let Some(jvm) = jvms.iter().find(|jvm| ready.start(jvm).is_some()) {
            let mut javac = Command::new(jvm.with_file_name("javac"));
            javac.args(["--release", self.release(), "-nowarn", "-d"]).arg(&ready.folder);
            javac.arg("-cp").arg(format!("{}/*", ready.library.display())).arg(&source);
            proc::output_of(&mut javac)?;
        }
        Ok(ready)
    }
}

/// A peer, ready to run programs.
struct Ready {
    peer: Peer,
    library: PathBuf,
    folder: PathBuf,
}

/// How a JVM is started with a peer.
struct Start {
    options: Vec<String>,
    /// What belongs behind the peer's name.
    note: &'static str,
}

impl Ready {
    /// None where the JVM is too old for it.
    fn start(&self, jvm: &Path) -> Option<Start> {
        let library = self.library.display();
        let classpath = format!("{library}/*:{}", self.folder.display());
        if self.peer == Peer::Chicory {
            return Some(Start { options: vec!["-cp".into(), classpath], note: "" });
        }
        if class_version(jvm)? < JAVA_21 {
            return None;
        }
        let compiled = [
            "-XX:+UnlockExperimentalVMOptions".to_owned(),
            "-XX:+EnableJVMCI".to_owned(),
            "--enable-native-access=org.graalvm.truffle".to_owned(),
            "--sun-misc-unsafe-memory-access=allow".to_owned(),
            format!("--upgrade-module-path={library}/compiler-25.0.2.jar"),
            format!("--module-path={library}"),
            "--add-modules=ALL-MODULE-PATH".to_owned(),
            "-cp".to_owned(),
            self.folder.display().to_string(),
        ];
        let takes_compiler = Command::new(jvm).args(&compiled).arg("-version").output();
        if takes_compiler.is_ok_and(|output| output.status.success()) {
            return Some(Start { options: compiled.to_vec(), note: "" });
        }
        let quiet = "-Dpolyglot.engine.WarnInterpreterOnly=false".to_owned();
        let options = vec![quiet, "-cp".to_owned(), classpath];
        Some(Start { options, note: " (interpreter)" })
    }
}

/// The version of class files that began with Java 21.
const JAVA_21: f64 = 65.0;

/// The newest class files that a JVM takes.
fn class_version(jvm: &Path) -> Option<f64> {
    let mut command = Command::new(jvm);
    let output = command.args(["-XshowSettings:properties", "-version"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("java.class.version = "))?;
    line.parse().ok()
}

/// All of them, and the compiler of their programs.
pub struct Peers {
    ready: Vec<Ready>,
    place: PathBuf,
}

impl Peers {
    /// Fetches them.
    pub fn prepare(place: &Path, jvms: &[PathBuf]) -> Result<Self> {
        apt::ensure(&PACKAGES.map(str::to_owned))?;
        let ready = Peer::ALL.map(|peer| peer.prepare(place, jvms));
        let ready = ready.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Self { ready, place: place.to_owned() })
    }

    /// Compiles a program of ours to what they run.
    pub fn build(&self, source: &Path, folder: &Path) -> Result<PathBuf> {
        let program = folder.join("program.wasm");
        let mut clang = Command::new(WASM.name);
        clang.args(WASM.options).arg(source).arg("-o").arg(&program).arg("-lm");
        proc::output_of(&mut clang)?;
        Ok(program)
    }

    /// Compiles one that people use, with what wasi-libc does not have.
    pub fn build_project(&self, project: Project) -> Result<PathBuf> {
        let own = repo::root().join("xtask/src/bench/wasi");
        let mut more: Vec<OsString> = EMULATED.map(OsString::from).to_vec();
        more.push(format!("-I{}", own.display()).into());
        more.push(own.join("missing.c").into());
        match project {
            Project::Lua => {
                // Neither names of temporary files, nor what else POSIX has.
                more.extend(["-ULUA_USE_POSIX", "-DL_tmpnam=20"].map(OsString::from));
                more.extend(["-mllvm", "-wasm-enable-sjlj"].map(OsString::from));
                more.extend([OsString::from("-mexception-handling"), own.join("longjmp.c").into()]);
            }
            Project::Speedtest => {
                more.extend(["-DSQLITE_OS_OTHER=1".into(), own.join("no_files.c").into()]);
            }
            _ => {}
        }
        let program = project.build_with(WASM, &more)?;
        if project != Project::Lua {
            return Ok(program);
        }
        let rewritten = program.with_extension("wasm");
        let mut optimizer = Command::new(self.optimizer()?);
        optimizer.args(["--translate-to-exnref", "--enable-exception-handling"]);
        optimizer.args(["--enable-reference-types", "--enable-multivalue", "--enable-bulk-memory"]);
        optimizer.args(["--enable-sign-ext", "--enable-nontrapping-float-to-int"]);
        proc::output_of(optimizer.arg(&program).arg("-o").arg(&rewritten))?;
        Ok(rewritten)
    }

    fn optimizer(&self) -> Result<PathBuf> {
        let program = self.place.join("node_modules/.bin/wasm-opt");
        if !program.exists() {
            if !proc::on_path("npm") {
                apt::ensure(&["npm".to_owned()])?;
            }
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&self.place);
            proc::output_of(npm.arg(BINARYEN)).context("fetching binaryen")?;
        }
        Ok(program)
    }

    /// JVMs that run a program whenever a line comes in, with the names of what runs it.
    pub fn commands(
        &self,
        jvm: &Path,
        program: &Path,
        arguments: &[&str],
    ) -> Vec<(Peer, String, Command)> {
        let commands = self.ready.iter().filter_map(|ready| {
            let start = ready.start(jvm)?;
            let mut command = Command::new(jvm);
            command.args(&start.options).arg(ready.peer.name()).arg(program).args(arguments);
            Some((ready.peer, format!("{}{}", ready.peer.name(), start.note), command))
        });
        commands.collect()
    }
}
