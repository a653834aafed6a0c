//! A page's commands, run in a scratch folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::page::{Page, Step};
use crate::{proc, repo};

/// How long a page may take: several times what the slowest does on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// How a command ended, and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// Its exit status; `None` if the page did not come to it.
    pub status: Option<i32>,
    /// Standard output and standard error, as a terminal shows them.
    pub output: Vec<String>,
}

/// Runs a page. The results are those of its examples, in order.
pub fn run(page: &Page, binary: &Path) -> Result<Vec<Ran>> {
    let name = page.name.replace(['/', '.', ' '], "-");
    let folder = repo::target_folder("examples")?.join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let (work, reported) = (folder.join("work"), folder.join("printed"));
    for each in [&work, &reported, &folder.join("bin")] {
        std::fs::create_dir_all(each)?;
    }
    tools(&folder.join("bin"), binary)?;
    let script = folder.join("script");
    std::fs::write(&script, text(page, &reported, &work)?)?;
    let mut bash = Command::new("bash");
    bash.arg(&script).current_dir(&work);
    let path = std::env::var("PATH").unwrap_or_default();
    bash.env("PATH", format!("{}:{path}", folder.join("bin").display()));
    bash.env("XDG_CACHE_HOME", folder.join("cache")).env("FETTLE_REPO", repo::root());
    bash.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    let outcome = proc::start(bash, &folder, "script", None)?.finish(PATIENCE)?;
    cleanup(&folder)?;
    if outcome.ending != proc::Ending::Exit(0) {
        println!("{}: the page's script ended with {}", page.name, outcome.ending);
    }
    (0..page.examples().count()).map(|number| read(&reported, number, &work)).collect()
}

/// `fettle`, and a `sudo` for sessions that run as root anyway.
fn tools(bin: &Path, binary: &Path) -> Result<()> {
    std::os::unix::fs::symlink(binary, bin.join("fettle"))?;
    if !proc::on_path("sudo") {
        let sudo = bin.join("sudo");
        std::fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n")?;
        proc::output_of(Command::new("chmod").arg("+x").arg(&sudo))?;
    }
    Ok(())
}

/// The script: setup, files, and each command with its output and status in files.
fn text(page: &Page, reported: &Path, work: &Path) -> Result<String> {
    let mut script = format!(
        "cleanup() {{ (cd {}; eval \"echo \\\"$1\\\"\") >> ../cleanup; }}\n{}",
        work.display(),
        page.setup
    );
    let mut number = 0;
    for step in &page.steps {
        match step {
            Step::File { name, text } => std::fs::write(work.join(name), text)?,
            Step::Example(example) => {
                let file = reported.join(number.to_string());
                script.push_str(&format!(
                    "{{\n{}\n}} > {file} 2>&1 < /dev/null\necho $? > {file}.status\n",
                    example.command,
                    file = file.display(),
                ));
                number += 1;
            }
        }
    }
    // Servers in the background are ended by what the page has left to clean up, not waited for.
    script.push_str("exit 0\n");
    Ok(script)
}

fn cleanup(folder: &Path) -> Result<()> {
    let script = folder.join("cleanup");
    if script.exists() {
        let mut bash = Command::new("bash");
        bash.arg(&script).current_dir(folder.join("work"));
        proc::start(bash, folder, "cleanup", None)?.finish(Duration::from_secs(30))?;
    }
    Ok(())
}

fn read(reported: &Path, number: usize, work: &Path) -> Result<Ran> {
    let file: PathBuf = reported.join(number.to_string());
    let bytes = std::fs::read(&file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace(&format!("{}/", work.display()), "");
    let output = text.lines().map(|line| line.trim_end().to_owned()).collect();
    let status = match std::fs::read_to_string(reported.join(format!("{number}.status"))) {
        Ok(text) => Some(text.trim().parse().context("a status")?),
        Err(_) => None,
    };
    Ok(Ran { status, output })
}
