//! A JVM that runs one translated program after the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::proc;

/// What came of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status; otherwise what happened instead.
    pub status: Result<i32, String>,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
}

struct Process {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A JVM, started when it is needed and again when a program did not end.
pub struct Jvm {
    /// The command that starts it.
    program: PathBuf,
    options: Vec<String>,
    folder: PathBuf,
    process: Option<Process>,
}

impl Jvm {
    /// The runner is compiled into `folder`.
    pub fn new(program: &Path, options: &[String], folder: &Path) -> Self {
        Self {
            program: program.to_owned(),
            options: options.to_vec(),
            folder: folder.to_owned(),
            process: None,
        }
    }

    /// Runs a jar to its end, for at most so many seconds.
    pub fn run(&mut self, jar: &Path, seconds: u32) -> Result<Ran> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => self.start(jar)?,
        };
        writeln!(process.ask, "{seconds}\t{}", jar.display()).context("asking the JVM")?;
        let mut line = String::new();
        process.answers.read_line(&mut line).context("waiting for the JVM")?;
        let Some((status, length)) = line.trim_end().split_once('\t') else {
            let status = process.child.wait()?;
            return Ok(Ran { status: Err(format!("the JVM ended: {status}")), stdout: Vec::new() });
        };
        let mut stdout = vec![0; length.parse().context("the JVM's answer")?];
        process.answers.read_exact(&mut stdout).context("reading the program's output")?;
        let late = status == "late";
        let status = status.parse().map_err(|_| status.to_owned());
        if late {
            process.child.wait()?;
        } else {
            self.process = Some(process);
        }
        Ok(Ran { status, stdout })
    }

    fn start(&self, jar: &Path) -> Result<Process> {
        // The first jar's runtime serves for all. A JVM may come without a compiler.
        let runtime = self.folder.join("runtime.jar");
        let runner = self.folder.join("Batch.java");
        std::fs::copy(jar, &runtime).context("copying the runtime")?;
        std::fs::write(&runner, include_str!("Batch.java"))?;
        let mut javac = Command::new("javac");
        javac.args(["--release", "17", "-nowarn", "-cp"]).arg(&runtime).arg("-d").arg(&self.folder);
        proc::output_of(javac.arg(&runner)).context("compiling the runner")?;
        let mut java = Command::new(&self.program);
        java.args(["-Xmx1500m", "-XX:+UseSerialGC"]).args(&self.options);
        // What the manifest of a jar says where it is started by itself.
        java.arg("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED");
        java.arg("-cp").arg(format!("{}:{}", runtime.display(), self.folder.display()));
        java.arg("Batch");
        let mut child = java
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let (Some(ask), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a JVM without pipes");
        };
        Ok(Process { child, ask, answers: BufReader::new(answers) })
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // Without input it ends.
            drop(process.ask);
            let mut child = process.child;
            let _ = child.wait();
        }
    }
}
