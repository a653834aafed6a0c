//! Languages: what their test programs need, and how they are built, in `target/rpc`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
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
}

/// Versions of generators and libraries that tests are run with.
const GO_GENERATORS: [&str; 2] = [
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
];
const PYTHON_PACKAGES: [&str; 3] = ["grpcio==1.85.*", "grpcio-tools==1.85.*", "setuptools"];

const JAVA_GENERATOR: &str = "io.grpc:protoc-gen-grpc-java:1.68.1:exe:linux-x86_64";
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
const MAVEN_COPY_ALL: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// The test programs of a language, built.
pub struct Programs {
    server: Vec<String>,
    client: Vec<String>,
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

    /// Where the stubs' names files are.
    pub fn names(&self) -> PathBuf {
        self.folder.join("matrix.fettle-calls")
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

    /// Builds the test programs with stubs that have `options`. An error says what is missing.
    pub fn build(self, plugin: &Path, options: &str) -> Result<Programs> {
        let name = self.name();
        let folder = repo::target().join("rpc").join(&name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let job = Job { plugin, options, folder: &folder, tests: repo::root().join("tests/rpc") };
        match self {
            Language::Go => job.go(),
            Language::Python => job.python(),
            Language::Cpp => job.cpp(),
            Language::Java => job.java(),
        }
    }
}

struct Job<'a> {
    plugin: &'a Path,
    options: &'a str,
    folder: &'a Path,
    tests: PathBuf,
}

impl Job<'_> {
    /// Adds what every compiler is told.
    fn stubs(&self, compiler: &mut Command, lang: &str, out: &str, more: &str) -> Result<()> {
        compiler.current_dir(self.folder);
        compiler.arg(format!("-I{}", self.tests.display()));
        compiler.arg(format!("-I{}", repo::root().join("runtime/rpc").display()));
        compiler.arg(format!("--plugin=protoc-gen-fettle={}", self.plugin.display()));
        compiler.arg(format!("--fettle_out={out}"));
        compiler.arg(format!("--fettle_opt=lang={lang},{}{more}", self.options));
        proc::output_of(compiler.arg("matrix.proto")).map(drop)
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
            bail!("go is not in PATH");
        }
        apt::ensure(&["protobuf-compiler".to_owned()])?;
        let bin = repo::target_folder("rpc/bin")?;
        for generator in GO_GENERATORS {
            let program = generator.split('@').next().unwrap_or_default();
            let program = bin.join(program.rsplit('/').next().unwrap_or_default());
            if !program.exists() {
                proc::output_of(
                    Command::new("go").args(["install", generator]).env("GOBIN", &bin),
                )?;
            }
        }
        std::fs::create_dir_all(self.folder.join("pb"))?;
        self.copy("go", &["main.go"])?;
        let modules = std::fs::read_to_string(self.tests.join("go/go.mod"))?;
        let root = repo::root().join("runtime");
        let modules = modules.replace("../../../runtime", &root.display().to_string());
        std::fs::write(self.folder.join("go.mod"), modules)?;
        let mut compiler = Command::new("protoc");
        compiler.arg(format!("--plugin={}", bin.join("protoc-gen-go").display()));
        compiler.args(["--go_out=pb", "--go_opt=paths=source_relative"]);
        let grpc = bin.join("protoc-gen-go-grpc");
        let more = format!(",paths=source_relative,generator={}", grpc.display());
        self.stubs(&mut compiler, "go", "pb", &more)?;
        std::fs::rename(
            self.folder.join("pb/matrix.fettle-calls"),
            self.folder.join("matrix.fettle-calls"),
        )?;
        let go = |arguments: &[&str]| -> Result<()> {
            let mut go = Command::new("go");
            go.args(arguments).current_dir(self.folder).env("GOFLAGS", "-mod=mod");
            proc::output_of(&mut go).map(drop)
        };
        go(&["mod", "tidy"])?;
        go(&["build", "-o", "matrix", "."])?;
        let program = self.folder.join("matrix").display().to_string();
        Ok(Programs {
            server: vec![program.clone(), "server".to_owned()],
            client: vec![program, "client".to_owned()],
            folder: self.folder.to_owned(),
        })
    }

    fn cpp(&self) -> Result<Programs> {
        let packages =
            ["protobuf-compiler", "protobuf-compiler-grpc", "libgrpc++-dev", "g++", "pkg-config"];
        apt::ensure(&packages.map(str::to_owned))?;
        self.copy("cpp", &["matrix.cc"])?;
        let mut compiler = Command::new("protoc");
        compiler.args(["--cpp_out=.", "fettle.proto"]);
        self.stubs(&mut compiler, "cpp", ".", "")?;
        let library = ["--cflags", "--libs", "grpc++", "protobuf"];
        let flags = proc::output_of(Command::new("pkg-config").args(library))?;
        let runtime = repo::root().join("runtime");
        let mut build = Command::new("g++");
        build.current_dir(self.folder).args(["-O1", "-std=c++14", "-Wall", "-Wextra", "-I."]);
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
        let program = self.folder.join("matrix").display().to_string();
        Ok(Programs {
            server: vec![program.clone(), "server".to_owned()],
            client: vec![program, "client".to_owned()],
            folder: self.folder.to_owned(),
        })
    }

    fn java(&self) -> Result<Programs> {
        if !proc::on_path("javac") || !proc::on_path("mvn") {
            bail!("javac or mvn is not in PATH");
        }
        apt::ensure(&["protobuf-compiler".to_owned()])?;
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
            ])?;
            std::fs::rename(bin.join("protoc-gen-grpc-java-linux-x86_64.exe"), &generator)?;
            proc::output_of(Command::new("chmod").arg("+x").arg(&generator))?;
        }
        let libraries = repo::target_folder("rpc/java-libraries")?;
        maven(&[MAVEN_COPY_ALL, &format!("-DoutputDirectory={}", libraries.display())])?;
        let mut compiler = Command::new("protoc");
        compiler.args(["--java_out=.", "fettle.proto"]);
        let more = format!(",generator={}", generator.display());
        self.stubs(&mut compiler, "java", ".", &more)?;
        std::fs::rename(
            self.folder.join("dev/fettle/matrix/matrix.fettle-calls"),
            self.folder.join("matrix.fettle-calls"),
        )?;
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
        let run = |role: &str| {
            let words = ["java", "-cp", &format!("classes:{path}"), "Matrix", role];
            words.map(str::to_owned).to_vec()
        };
        Ok(Programs {
            server: run("server"),
            client: run("client"),
            folder: self.folder.to_owned(),
        })
    }

    fn python(&self) -> Result<Programs> {
        let python = python()?;
        self.copy("python", &["server.py", "client.py"])?;
        let mut compiler = Command::new(&python);
        compiler.args(["-m", "grpc_tools.protoc"]);
        // The plugin runs `python3`, which is to be the same.
        if let Some(bin) = python.parent() {
            let path = std::env::var("PATH").unwrap_or_default();
            compiler.env("PATH", format!("{}:{path}", bin.display()));
        }
        compiler.args(["--python_out=.", "fettle.proto"]);
        self.stubs(&mut compiler, "python", ".", ",generator=grpc_tools")?;
        let run = |program: &str| vec![python.display().to_string(), program.to_owned()];
        Ok(Programs {
            server: run("server.py"),
            client: run("client.py"),
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
        proc::output_of(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let pip = |arguments: &[&str]| -> Result<()> {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        proc::output_of(pip.args(arguments)).map(drop)
    };
    pip(&PYTHON_PACKAGES)?;
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
