//! Debian packages and their sources, through the machine's own configured archives.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, bail};

use crate::{proc, repo};

/// One apt at a time, and the index is fetched at most once.
static INDEX_IS_FRESH: Mutex<bool> = Mutex::new(false);

/// Installs those of the packages that are missing. The error says what is missing when that is
/// not possible; callers count it as a reason to skip.
pub fn ensure(packages: &[String]) -> Result<()> {
    let mut index_is_fresh =
        INDEX_IS_FRESH.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let missing = missing(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("needs packages {} (not root, cannot install)", missing.join(" "));
    }
    if !*index_is_fresh {
        proc::output_of(apt_get().arg("update").arg("-q"))?;
        *index_is_fresh = true;
    }
    // No daemon of a package may start: the corpus starts what it needs, where it needs it.
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let made_policy = !policy.exists();
    if made_policy {
        std::fs::write(policy, "#!/bin/sh\nexit 101\n")?;
        proc::output_of(Command::new("chmod").arg("+x").arg(policy))?;
    }
    let installed = proc::output_of(
        apt_get().args(["install", "-q", "-y", "--no-install-recommends"]).args(&missing),
    );
    if made_policy {
        std::fs::remove_file(policy)?;
    }
    installed.map(drop).with_context(|| format!("installing {}", missing.join(" ")))
}

/// Which of the packages are not installed.
pub fn missing(packages: &[String]) -> Result<Vec<String>> {
    // Fails when one of them is unknown to dpkg; the known ones are printed all the same.
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(packages)
        .output()
        .context("starting dpkg-query")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let installed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    Ok(packages.iter().filter(|p| !installed.contains(p.as_str())).cloned().collect())
}

/// Version of an installed package, or a dash.
pub fn version(package: &str) -> String {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(|| "-".into(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Fetches and unpacks a source package; returns the unpacked folder. Done once per target folder.
pub fn source(package: &str) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = repo::target_folder(&format!("sources/{package}"))?;
    let unpacked = place.join("unpacked");
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    ensure(&["dpkg-dev".into()])?;
    let options = source_options()?;
    proc::output_of(
        Command::new("apt-get")
            .args(&options)
            .args(["source", "--download-only", "-q", package])
            .current_dir(&place),
    )?;
    let description = std::fs::read_dir(&place)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "dsc"))
        .ok_or_else(|| anyhow!("no source description of {package} was fetched"))?;
    let partial = place.join("partial");
    proc::output_of(
        Command::new("dpkg-source")
            .args(["--no-check", "--extract"])
            .arg(&description)
            .arg(&partial)
            .current_dir(&place),
    )?;
    std::fs::rename(&partial, &unpacked)?;
    Ok(unpacked)
}

/// Options that let apt see the source packages of the archives that the machine's binary
/// packages come from, without changing the machine's configuration. Security updates are left
/// out: mirrors often lack their sources, and tests need a source, not the newest one.
fn source_options() -> Result<Vec<String>> {
    let place = repo::target_folder("sources/.apt")?;
    let parts = place.join("parts");
    let lists = place.join("lists");
    let options = vec![
        format!("-oDir::Etc::sourcelist={}", place.join("sources.list").display()),
        format!("-oDir::Etc::sourceparts={}", parts.display()),
        format!("-oDir::State::lists={}", lists.display()),
        "-oAPT::Sandbox::User=root".into(),
    ];
    let fetched = place.join("fetched");
    if fetched.exists() {
        return Ok(options);
    }
    std::fs::create_dir_all(&parts)?;
    std::fs::create_dir_all(lists.join("partial"))?;
    let etc = Path::new("/etc/apt");
    let classic = std::fs::read_to_string(etc.join("sources.list")).unwrap_or_default();
    let classic: String = classic
        .lines()
        .filter_map(|line| line.strip_prefix("deb "))
        .filter(|line| !line.contains("security"))
        .map(|line| format!("deb-src {line}\n"))
        .collect();
    std::fs::write(place.join("sources.list"), classic)?;
    if let Ok(modern) = std::fs::read_to_string(etc.join("sources.list.d/debian.sources")) {
        let modern: Vec<String> = modern
            .split("\n\n")
            .filter(|paragraph| !paragraph.contains("security"))
            .map(|paragraph| paragraph.replace("Types: deb\n", "Types: deb-src\n"))
            .collect();
        std::fs::write(parts.join("debian.sources"), modern.join("\n\n"))?;
    }
    proc::output_of(Command::new("apt-get").args(&options).args(["update", "-q"]))?;
    std::fs::write(fetched, "")?;
    Ok(options)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
