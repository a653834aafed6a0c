//! Languages: what their test programs need, and how they are built, in `target/rpc`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;

use crate::{apt, proc, repo};

/// A language of stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// grpc-go
    Go,
    /// grpcio
    Python,
    /// grpc++
    Cpp,
    /// grpc-java
    Java,
    /// tonic
    Rust,
}

/// Packages of the compiler, and of the schemas that `fettle.proto` imports.
const PROTOC: [&str; 2] = ["protobuf-compiler", "libprotobuf-dev"];

/// Versions of generators and libraries that tests are run with.
const GO_GENERATORS: [&str; 2] = [
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
];
const PYTHON_PACKAGES: [&str; 3] = ["grpcio==1.85.*", "grpcio-tools==1.85.*", "setuptools"];

const OPENTELEMETRY: [&str; 2] = ["opentelemetry-sdk", "opentelemetry-instrumentation-grpc"];
const JAVA_GENERATOR: &str = "io.grpc:protoc-gen-grpc-java:1.68.1:exe:linux-x86_64";
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
const MAVEN_COPY_ALL: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Why a language cannot be tried: something of others' is not there and cannot be had. Errors without it are
/// ours.
#[derive(Debug, Clone, Copy)]
pub struct Missing;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tool or a library is missing")
    }
}

/// The test programs of a language, built.
pub struct Programs {
    server: Vec<String>,
    client: Vec<String>,
    bench: Vec<String>,
    folder: PathBuf,
}

impl Programs {
    /// The server, which prints its port.
    pub fn server(&self) -> Command {
        command(&self.server, &self.folder)
    }

    /// The client, whose argument is a port.
    pub fn client(&self) -> Command {
        let limited = ["timeout", "--signal=KILL", "120"].map(str::to_owned);
        command(&[&limited, &self.client[..]].concat(), &self.folder)
    }

    /// The client of a chain, whose arguments are a port and how many calls to make.
    pub fn chain(&self) -> Command {
        let mut words = self.client.clone();
        if let Some(role) = words.last_mut() {
            *role = "chain".to_owned();
        }
        command(&words, &self.folder)
    }

    /// What the numbers in the events of Go's stubs mean: a file of names.
    pub fn names(&self) -> PathBuf {
        self.folder.join("pb/matrix.fettle-calls")
    }

    /// What prints the CPU time of a call in nanoseconds, and is given how many to make.
    pub fn bench(&self) -> Command {
        command(&self.bench, &self.folder)
    }
}

fn command(words: &[String], folder: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder);
    command
}

impl Language {
    /// Its name.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether the server's side counts the messages of streams.
    pub fn counts_streams(self) -> bool {
        self != Language::Cpp
    }

    /// Builds the test programs with stubs of a kind. An error says what is missing.
    pub fn build(self, plugin: &Path, stubs: &Stubs, aim: Aim) -> Result<Programs> {
        let folder = format!("{}-{}", self.name(), stubs.name());
        let folder = repo::target().join("rpc").join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let tests = repo::root().join("tests/rpc");
        let job = Job { plugin, stubs, folder: &folder, tests, aim };
        match self {
            Language::Go => job.go(),
            Language::Python => job.python(),
            Language::Cpp => job.cpp(),
            Language::Java => job.java(),
            Language::Rust => job.rust(),
        }
    }
}

/// What programs are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To be right: compiling is most of what that takes, so compilers are not asked to optimise.
    Calls,
    /// To be measured.
    Speed,
}

/// What stubs a program is built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stubs {
    /// Those of gRPC, and nothing else.
    Plain,
    /// Those of gRPC, and what OpenTelemetry has for them.
    OpenTelemetry,
    /// Ours with these options.
    Woven(String),
}

impl Stubs {
    fn name(&self) -> &'static str {
        match self {
            Stubs::Plain => "plain",
            Stubs::OpenTelemetry => "opentelemetry",
            Stubs::Woven(_) => "woven",
        }
    }
}

struct Job<'a> {
    plugin: &'a Path,
    stubs: &'a Stubs,
    folder: &'a Path,
    tests: PathBuf,
    aim: Aim,
}

impl Job<'_> {
    /// Adds the options that every compiler gets. `plain` is the generator's own output option, with its
    /// plugin before it.
    fn stubs(
        &self,
        compiler: &mut Command,
        lang: &str,
        out: &str,
        more: &str,
        plain: &[String],
    ) -> Result<()> {
        compiler.current_dir(self.folder);
        compiler.arg(format!("-I{}", self.tests.display()));
        compiler.arg(format!("-I{}", repo::root().join("runtime/rpc").display()));
        match self.stubs {
            Stubs::Woven(options) => {
                compiler.arg(format!("--plugin=protoc-gen-fettle={}", self.plugin.display()));
                compiler.arg(format!("--fettle_out={out}"));
                compiler.arg(format!("--fettle_opt=lang={lang},{options}{more}"));
            }
            Stubs::Plain | Stubs::OpenTelemetry => {
                compiler.args(plain);
            }
        }
        proc::output_of(compiler.arg("matrix.proto")).map(drop)
    }

    /// A program that does all by its first argument.
    fn programs(&self, program: &[&str]) -> Programs {
        let with =
            |role: &str| program.iter().chain([&role]).map(|word| (*word).to_owned()).collect();
        Programs {
            server: with("server"),
            client: with("client"),
            bench: with("bench"),
            folder: self.folder.to_owned(),
        }
    }

    fn copy(&self, from: &str, names: &[&str]) -> Result<()> {
        for name in names {
            let path = self.tests.join(from).join(name);
            std::fs::copy(&path, self.folder.join(name))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn go(&self) -> Result<Programs> {
        if !proc::on_path("go") {
            return Err(anyhow!("go is not in PATH").context(Missing));
        }
        apt::ensure(&PROTOC.map(str::to_owned)).context(Missing)?;
        let bin = repo::target_folder("rpc/bin")?;
        for generator in GO_GENERATORS {
            let program = generator.split('@').next().unwrap_or_default();
            let program = bin.join(program.rsplit('/').next().unwrap_or_default());
            if !program.exists() {
                proc::output_of(Command::new("go").args(["install", generator]).env("GOBIN", &bin))
                    .context(Missing)?;
            }
        }
        std::fs::create_dir_all(self.folder.join("pb"))?;
        self.copy("go", &["main.go", "peer.go"])?;
        let tags = match self.stubs {
            Stubs::OpenTelemetry => {
                self.copy("go", &["otel.go"])?;
                "-tags=otel"
            }
            _ => "-tags=",
        };
        let modules = std::fs::read_to_string(self.tests.join("go/go.mod"))?;
        let root = repo::root().join("runtime");
        let modules = modules.replace("../../../runtime", &root.display().to_string());
        std::fs::write(self.folder.join("go.mod"), modules)?;
        let mut compiler = Command::new("protoc");
        compiler.arg(format!("--plugin={}", bin.join("protoc-gen-go").display()));
        compiler.args(["--go_out=pb", "--go_opt=paths=source_relative"]);
        let grpc = bin.join("protoc-gen-go-grpc");
        let more = format!(",paths=source_relative,generator={}", grpc.display());
        let plain = [
            format!("--plugin=protoc-gen-go-grpc={}", grpc.display()),
            "--go-grpc_out=pb".to_owned(),
            "--go-grpc_opt=paths=source_relative".to_owned(),
        ];
        self.stubs(&mut compiler, "go", "pb", &more, &plain)?;
        let go = |arguments: &[&str]| -> Result<()> {
            let mut go = Command::new("go");
            go.args(arguments).current_dir(self.folder).env("GOFLAGS", "-mod=mod");
            proc::output_of(&mut go).map(drop)
        };
        go(&["mod", "tidy"]).context(Missing)?;
        go(&["build", tags, "-o", "matrix", "."])?;
        Ok(self.programs(&["./matrix"]))
    }

    fn cpp(&self) -> Result<Programs> {
        let more = ["protobuf-compiler-grpc", "libgrpc++-dev", "g++", "pkg-config"];
        let packages: Vec<String> = PROTOC.iter().chain(&more).map(|s| (*s).to_owned()).collect();
        apt::ensure(&packages).context(Missing)?;
        self.copy("cpp", &["matrix.cc"])?;
        let mut compiler = Command::new("protoc");
        compiler.args(["--cpp_out=.", "fettle.proto"]);
        let own = "/usr/bin/grpc_cpp_plugin";
        let plain = [format!("--plugin=protoc-gen-grpc={own}"), "--grpc_out=.".to_owned()];
        self.stubs(&mut compiler, "cpp", ".", "", &plain)?;
        let library = ["--cflags", "--libs", "grpc++", "protobuf"];
        let flags = proc::output_of(Command::new("pkg-config").args(library))?;
        let runtime = repo::root().join("runtime");
        let mut build = Command::new("g++");
        let optimized = match self.aim {
            Aim::Calls => "-O0",
            Aim::Speed => "-O2",
        };
        build.current_dir(self.folder);
        build.args([optimized, "-std=c++14", "-Wall", "-Wextra", "-I."]);
        build.arg(format!("-I{}", runtime.join("rpc/cpp").display()));
        build.arg(format!("-I{}", runtime.join("sensor").display()));
        build.args([
            "matrix.cc",
            "matrix.grpc.pb.cc",
            "matrix.pb.cc",
            "fettle.pb.cc",
            "-o",
            "matrix",
        ]);
        proc::output_of(build.args(flags.split_whitespace()))?;
        Ok(self.programs(&["./matrix"]))
    }

    fn java(&self) -> Result<Programs> {
        if !proc::on_path("javac") || !proc::on_path("mvn") {
            return Err(anyhow!("javac or mvn is not in PATH").context(Missing));
        }
        apt::ensure(&PROTOC.map(str::to_owned)).context(Missing)?;
        let bin = repo::target_folder("rpc/bin")?;
        let generator = bin.join("protoc-gen-grpc-java");
        let maven = |arguments: &[&str]| -> Result<()> {
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B"]).args(arguments).current_dir(self.folder);
            proc::output_of(&mut maven).map(drop)
        };
        self.copy("java", &["pom.xml", "Matrix.java"])?;
        if !generator.exists() {
            let out = format!("-DoutputDirectory={}", bin.display());
            maven(&[
                MAVEN_COPY,
                &format!("-Dartifact={JAVA_GENERATOR}"),
                &out,
                "-Dmdep.stripVersion",
            ])
            .context(Missing)?;
            std::fs::rename(bin.join("protoc-gen-grpc-java-linux-x86_64.exe"), &generator)?;
            proc::output_of(Command::new("chmod").arg("+x").arg(&generator))?;
        }
        let libraries = repo::target_folder("rpc/java-libraries")?;
        maven(&[MAVEN_COPY_ALL, &format!("-DoutputDirectory={}", libraries.display())])
            .context(Missing)?;
        let mut compiler = Command::new("protoc");
        compiler.args(["--java_out=.", "fettle.proto"]);
        let more = format!(",generator={}", generator.display());
        let plain = [
            format!("--plugin=protoc-gen-grpc-java={}", generator.display()),
            "--grpc-java_out=.".to_owned(),
        ];
        self.stubs(&mut compiler, "java", ".", &more, &plain)?;
        let mut sources = Vec::new();
        let runtime = repo::root().join("runtime");
        for folder in
            [self.folder.to_owned(), runtime.join("sensor/java"), runtime.join("rpc/java")]
        {
            java_files(&folder, &mut sources)?;
        }
        let path = format!("{}/*", libraries.display());
        let mut javac = Command::new("javac");
        javac
            .current_dir(self.folder)
            .args(["-nowarn", "-d", "classes", "-cp", &path])
            .args(&sources);
        proc::output_of(&mut javac)?;
        Ok(self.programs(&["java", "-cp", &format!("classes:{path}"), "Matrix"]))
    }

    fn rust(&self) -> Result<Programs> {
        apt::ensure(&PROTOC.map(str::to_owned)).context(Missing)?;
        std::fs::create_dir_all(self.folder.join("src"))?;
        self.copy("rust", &["build.rs", "src/main.rs"])?;
        let manifest = std::fs::read_to_string(self.tests.join("rust/Cargo.toml"))?;
        let root = repo::root().display().to_string();
        std::fs::write(self.folder.join("Cargo.toml"), manifest.replace("../../..", &root))?;
        // Dependencies are kept from run to run.
        let target = repo::target_folder("rpc/rust-target")?;
        let mut fetch = Command::new("cargo");
        fetch.args(["fetch", "--quiet"]).current_dir(self.folder);
        proc::output_of(&mut fetch).context(Missing)?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet"]).current_dir(self.folder);
        let options = match self.stubs {
            Stubs::Woven(options) => options.as_str(),
            _ => "plain",
        };
        cargo.env("CARGO_TARGET_DIR", &target).env("FETTLE_OPTIONS", options);
        if self.aim == Aim::Speed {
            cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
        }
        let protos = format!("{}:{root}/runtime/rpc", self.tests.display());
        proc::output_of(cargo.env("FETTLE_PROTOS", protos))?;
        std::fs::copy(target.join("debug/matrix"), self.folder.join("matrix"))?;
        Ok(self.programs(&["./matrix"]))
    }

    fn python(&self) -> Result<Programs> {
        let python = python()?;
        self.copy("python", &["server.py", "client.py", "bench.py"])?;
        let mut compiler = Command::new(&python);
        compiler.args(["-m", "grpc_tools.protoc"]);
        // The plugin runs `python3`, which is to be the same.
        if let Some(bin) = python.parent() {
            let path = std::env::var("PATH").unwrap_or_default();
            compiler.env("PATH", format!("{}:{path}", bin.display()));
        }
        compiler.args(["--python_out=.", "fettle.proto"]);
        let plain = ["--grpc_python_out=.".to_owned()];
        self.stubs(&mut compiler, "python", ".", ",generator=grpc_tools", &plain)?;
        if *self.stubs == Stubs::OpenTelemetry {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            proc::output_of(pip.args(OPENTELEMETRY))?;
        }
        let run = |program: &str| vec![python.display().to_string(), program.to_owned()];
        Ok(Programs {
            server: run("server.py"),
            client: run("client.py"),
            bench: run("bench.py"),
            folder: self.folder.to_owned(),
        })
    }
}

/// All files of Java below a folder.
fn java_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            java_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "java") {
            into.push(path);
        }
    }
    Ok(())
}

/// A Python of its own with gRPC and with what stubs call.
fn python() -> Result<PathBuf> {
    let folder = repo::target_folder("rpc")?.join("venv");
    let python = folder.join("bin/python3");
    if !python.exists() {
        proc::output_of(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            .context(Missing)?;
    }
    let pip = |arguments: &[&str]| -> Result<()> {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        proc::output_of(pip.args(arguments)).map(drop)
    };
    pip(&PYTHON_PACKAGES).context(Missing)?;
    // The packages are built from copies: a build leaves files beside its source.
    for name in ["sensor", "rpc"] {
        let source = repo::root().join("runtime").join(name).join("python");
        let copy = repo::target_folder("rpc/python-packages")?.join(name);
        let _ = std::fs::remove_dir_all(&copy);
        proc::output_of(Command::new("cp").arg("-r").arg(&source).arg(&copy))?;
        let include = repo::root().join("runtime/sensor");
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--no-build-isolation", "--force-reinstall"]).arg(&copy);
        proc::output_of(pip.env("FETTLE_INCLUDE", include))?;
    }
    Ok(python)
}
