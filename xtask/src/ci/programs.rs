//! The test programs that Cargo builds, and one run of such a program.

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::repo;

/// A program that hangs is killed after so many seconds, with all that it has started, so that the others
/// still run: several times what the longest takes.
const LIMIT: &str = "600";

/// A test program, or what stands for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Cargo's arguments that run it: `-p fettle-cli --test ui`.
    pub target: String,
    /// What is executed, with the first arguments.
    command: Vec<OsString>,
    /// Where: in the folder of its package, as Cargo does.
    folder: PathBuf,
}

/// What a run of a program left.
pub struct Ran {
    /// What it printed, both streams in one.
    pub text: String,
    /// Whether it ended with success.
    pub right: bool,
    /// How long it took.
    pub took: Duration,
}

/// What Cargo says about a file that it has made (`cargo build --message-format json`).
#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Artifact {
    /// The test program, if it is one.
    fn program(self) -> Option<Program> {
        let executable = self.executable.filter(|_| self.profile.test)?;
        let kind = match self.target.kind.first()?.as_str() {
            kind @ ("test" | "bin" | "example" | "bench") => {
                format!("--{kind} {}", self.target.name)
            }
            _ => "--lib".to_owned(),
        };
        let target = format!("-p {} {kind}", package(&self.package_id)?);
        let folder = self.manifest_path.parent()?.to_owned();
        Some(Program { target, command: vec![executable.into()], folder })
    }
}

/// The name in a package's ID: `path+file:///fettle/crates/app/cli#fettle-cli@0.1.0`, where the folder has another
/// name, or `path+file:///fettle/xtask#0.1.0` (Cargo's reference, "Package ID specifications").
fn package(id: &str) -> Option<&str> {
    let (place, version) = id.split_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

/// Builds test programs by Cargo's arguments, and lists them by their targets: Cargo names them as they are built.
pub fn build(arguments: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).args(["--no-run", "--message-format=json-render-diagnostics"]);
    cargo.current_dir(repo::root()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("starting cargo")?;
    let messages = BufReader::new(child.stdout.take().context("its output is a pipe")?);
    let mut programs = Vec::new();
    for message in serde_json::Deserializer::from_reader(messages).into_iter() {
        let message: serde_json::Value = message.context("a message of cargo")?;
        if message["reason"] == "compiler-artifact" {
            programs.extend(serde_json::from_value::<Artifact>(message)?.program());
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{cargo:?}: {status}");
    programs.sort_by(|one, other| one.target.cmp(&other.target));
    Ok(programs)
}

impl Program {
    /// Examples in the documentation of the code, which Cargo compiles as it runs them.
    pub fn documentation(arguments: &[&str]) -> Program {
        let all = [&["cargo"], arguments, &["--quiet", "--no-fail-fast", "--doc", "--"]].concat();
        let command = all.into_iter().map(OsString::from).collect();
        Program { target: "--workspace --doc".to_owned(), command, folder: repo::root() }
    }

    /// One that does nothing.
    #[cfg(test)]
    pub fn named(target: &str) -> Program {
        let command = vec!["true".into()];
        Program { target: target.to_owned(), command, folder: repo::root() }
    }

    /// Runs it with arguments of the test runner.
    pub fn run(&self, arguments: &[&str]) -> Result<Ran> {
        // A file, for the end of a pipe would wait for all that tests have left behind.
        let name = self.target.replace("-p ", "").replace([' ', '/'], "");
        let path = repo::target_folder("ci")?.join(name).with_extension("log");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let begin = Instant::now();
        // Shells start what runs in the background with interrupts ignored, which tests of Ctrl-C inherit.
        let status = Command::new("env")
            .args(["--default-signal=INT,QUIT", "timeout", "--kill-after=10", LIMIT])
            .args(&self.command)
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file)
            .status()
            .context("starting env")?;
        let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        Ok(Ran { text, right: status.success(), took: begin.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_arguments_that_run_them() {
        let program = |id: &str, kind: &str, test: bool| {
            let artifact = serde_json::json!({
                "package_id": format!("path+file:///fettle/{id}"),
                "manifest_path": "/fettle/crates/app/cli/Cargo.toml",
                "target": { "kind": [kind], "name": "ui" },
                "profile": { "test": test },
                "executable": "/fettle/target/debug/deps/ui-0",
            });
            serde_json::from_value::<Artifact>(artifact).unwrap().program()
        };
        let cli = program("crates/app/cli#fettle-cli@0.1.0", "test", true).unwrap();
        assert_eq!(cli.target, "-p fettle-cli --test ui");
        assert_eq!(cli.folder, PathBuf::from("/fettle/crates/app/cli"));
        assert_eq!(program("xtask#0.1.0", "lib", true).unwrap().target, "-p xtask --lib");
        assert_eq!(program("xtask#0.1.0", "bin", false), None);
    }
}
