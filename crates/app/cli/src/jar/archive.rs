//! What the JVM keeps of a program's classes between runs, so that it starts faster.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The first Java that has caches of its ahead-of-time compilation, and the first that makes archives of a
/// program's classes at its end.
const CACHES: u32 = 25;
const ARCHIVES: u32 = 17;

/// An archive for one Java, and how it is named to it.
pub struct Archive {
    /// The option that names it, which no jar can give by itself.
    pub option: String,
    /// Its size.
    pub bytes: u64,
}

/// Runs a jar once, without arguments and input, for the archive of the classes that its start needs. The
/// archive lies beside the jar.
pub fn make(java: &str, jar: &Path) -> anyhow::Result<Archive> {
    let version = version(java)?;
    let (ending, making, using) = match version {
        CACHES.. => ("aot", "-XX:AOTCacheOutput=", "-XX:AOTCache="),
        ARCHIVES.. => ("jsa", "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="),
        _ => bail!("--aot-cache: {java} is Java {version}; {ARCHIVES} or newer runs jars"),
    };
    let file = jar.with_extension(ending);
    // What is left of another run must not pass for this one's.
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("replacing {}", file.display()));
        }
        _ => {}
    }
    // The program may write files: it sees an empty folder.
    let folder = tempfile::tempdir().context("making a temporary folder")?;
    let told = folder.path().join("fettle-java");
    let [jar, absolute] = [jar, &file].map(std::path::absolute);
    let mut command = Command::new(program(java)?);
    command.arg(format!("{making}{}", absolute?.display())).arg("-jar").arg(jar?);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&told).context("making a temporary file")?);
    let status = run(command).with_context(|| format!("starting {java}"))?;
    let Ok(written) = std::fs::metadata(&file) else {
        let said = std::fs::read(&told).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
        bail!("--aot-cache: {java} made no {} ({status}): {last}", file.display());
    };
    Ok(Archive { option: format!("{using}{}", file.display()), bytes: written.len() })
}

/// How long a program may run; a server is then asked to end, and has as long to write the archive.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs it to its end.
fn run(mut command: Command) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn()?;
    for ask in [true, false] {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if ask {
            // A process that has just ended is none to ask.
            let _ = Command::new("kill").arg(child.id().to_string()).output();
        }
    }
    child.kill()?;
    Ok(child.wait()?)
}

/// What starts it from another folder.
fn program(java: &str) -> anyhow::Result<PathBuf> {
    Ok(if java.contains('/') { std::path::absolute(java)? } else { java.into() })
}

/// Which Java this is: its first number.
fn version(java: &str) -> anyhow::Result<u32> {
    let run = Command::new(java).arg("-version").output();
    let run = run.with_context(|| {
        format!("--aot-cache starts the program once, and {java} cannot be started; install a JDK or name one by --java")
    })?;
    // It says so on standard error, behind what it picked up from the environment.
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    number(&said).with_context(|| format!("--aot-cache: {java} does not say which Java it is"))
}

/// The first number of a version, as in `openjdk version "17.0.15" 2025-04-15`.
fn number(said: &str) -> Option<u32> {
    let quoted =
        said.lines().find_map(|line| line.split_once(" version \"")?.1.split('"').next())?;
    quoted.split(['.', '-', '+']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn versions_of_java() {
        assert_eq!(number("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(number("Picked up X\njava version \"25\" 2025-09-16"), Some(25));
        assert_eq!(number("openjdk version \"26-ea\" 2026-03-17"), Some(26));
        assert_eq!(number("command not found"), None);
    }
}
