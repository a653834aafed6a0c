//! Jars for small devices and for Android, by what is nearest to those: MicroEmulator, and D8 with its
//! result translated back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::proc::{self, Outcome};
use crate::{apt, fettle, repo};

/// What this needs besides Maven's artifacts.
const PACKAGES: [&str; 6] = [
    "default-jdk-headless",
    "enjarify",
    "g++-mipsel-linux-gnu",
    "libc6-dev-mipsel-cross",
    "maven",
    "qemu-user-static",
];

/// A device, or what makes Android's code of classes.
const PROJECT: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>devices</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.microemu</groupId><artifactId>microemulator</artifactId><version>2.0.4</version></dependency>
    <dependency><groupId>com.android.tools</groupId><artifactId>r8</artifactId><version>8.5.35</version></dependency>
  </dependencies>
</project>
"#;

/// The program: exceptions, destructors and output.
const SOURCE: &str = "crates/port/jar/tests/c/handlers.cpp";

const LIMIT: Duration = Duration::from_secs(120);

/// MicroEmulator goes on when the program has ended.
const DEVICE_LIMIT: Duration = Duration::from_secs(15);

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// Whether a program does on both what it does under QEMU.
pub fn run(options: &Options) -> Result<bool> {
    apt::ensure(&PACKAGES.map(str::to_owned))?;
    let binary = fettle::binary(options.fettle.as_deref())?;
    let place = repo::target_folder("jar-devices")?;
    let library = fetch(&place)?;
    let program = place.join("program");
    let mut compiler = Command::new("mipsel-linux-gnu-g++");
    compiler.args(["-O2", "-static", "-Wl,-Ttext-segment=0x20000", "-o"]).arg(&program);
    proc::output_of(compiler.arg(repo::root().join(SOURCE)))?;
    let mut qemu = Command::new("qemu-mipsel-static");
    qemu.arg(&program);
    let expected = output(qemu, &place, LIMIT)?.stdout;
    let midlet = on_device(&binary, &program, &library, &place)?;
    let android = on_android(&binary, &program, &library, &place)?;
    let mut good = true;
    for (name, got) in [("MicroEmulator", midlet), ("D8 and back", android)] {
        let same = got == expected;
        println!("{name}: {}", if same { "the same" } else { "not the same" });
        if !same {
            println!("{}", String::from_utf8_lossy(&got));
        }
        good &= same;
    }
    Ok(good)
}

fn fetch(place: &Path) -> Result<PathBuf> {
    let library = place.join("lib");
    if !library.is_dir() {
        std::fs::write(place.join("pom.xml"), PROJECT)?;
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
        proc::output_of(maven.current_dir(place)).context("fetching MicroEmulator and D8")?;
    }
    Ok(library)
}

fn output(command: Command, place: &Path, limit: Duration) -> Result<Outcome> {
    proc::start(command, place, "run", None)?.finish(limit)
}

fn translate(binary: &Path, program: &Path, target: &str, place: &Path) -> Result<PathBuf> {
    let jar = place.join(format!("{target}.jar"));
    let mut command = Command::new(binary);
    command.arg("jar").arg(program).args(["--target", target, "-o"]).arg(&jar);
    proc::output_of(&mut command)?;
    Ok(jar)
}

/// The program as a MIDlet. The emulator's log goes to the same console.
fn on_device(binary: &Path, program: &Path, library: &Path, place: &Path) -> Result<Vec<u8>> {
    let jar = translate(binary, program, "cldc", place)?;
    let mut emulator = Command::new("java");
    emulator.arg("-cp").arg(format!("{}/*:{}", library.display(), jar.display()));
    emulator.args(["org.microemu.app.Headless", "fettle.program.Midlet"]);
    let outcome = output(emulator, place, DEVICE_LIMIT)?;
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let own = text.lines().filter(|line| !line.starts_with("headless") && !line.starts_with('\t'));
    Ok(own.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes())
}

/// The program as D8 translates it for Android 8.0; enjarify makes classes of that again, which any
/// Java runs.
fn on_android(binary: &Path, program: &Path, library: &Path, place: &Path) -> Result<Vec<u8>> {
    let jar = translate(binary, program, "android", place)?;
    let java = std::fs::canonicalize("/usr/lib/jvm/default-java").context("Java's own classes")?;
    let mut d8 = Command::new("java");
    d8.arg("-cp").arg(format!("{}/*", library.display())).arg("com.android.tools.r8.D8");
    d8.args(["--min-api", "26", "--lib"]).arg(java).arg("--output").arg(place).arg(&jar);
    let said = proc::output_of(&mut d8)?;
    if !said.trim().is_empty() {
        bail!("D8 said: {said}");
    }
    let back = place.join("back.jar");
    let mut enjarify = Command::new("enjarify");
    proc::output_of(enjarify.args(["-f", "-o"]).arg(&back).arg(place.join("classes.dex")))?;
    // Behind it, for the program's image.
    let path = format!("{}:{}", back.display(), jar.display());
    let mut command = Command::new("java");
    command.args(["-cp", &path, "fettle.program.Main"]);
    Ok(output(command, place, LIMIT)?.stdout)
}
