//! Gives the program its version. That of a release says the commit, too; a build for tests does not ask for it,
//! because each commit would build the program anew.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=FETTLE_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let given = std::env::var("FETTLE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(commit)?);
    match commit {
        Some(commit) => println!("cargo:rustc-env=FETTLE_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=FETTLE_VERSION={version}"),
    }
}

/// The commit that is checked out; none in a folder that git does not know.
fn commit() -> Option<String> {
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", file])?;
        println!("cargo:rerun-if-changed={path}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
