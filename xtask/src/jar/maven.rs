//! Projects of Maven with libraries that became jars: the sample, which the plugin builds, and a project
//! that depends on an installed jar.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::java::{self, Outcome};
use crate::{fettle, proc, repo};

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// The library that is installed, and its user.
const SOURCE: &str = "int twice(int number) { return 2 * number; }\n";
const PROJECT: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
<modelVersion>4.0.0</modelVersion><groupId>org.acme</groupId><artifactId>user</artifactId>
<version>1</version><properties><maven.compiler.release>17</maven.compiler.release></properties>
<dependencies><dependency><groupId>org.acme.native</groupId><artifactId>twice-lib</artifactId>
<version>1.0-beta</version></dependency></dependencies>
<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId>
<artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin></plugins></build></project>
";
const MODULE: &str = "module user { requires org.acme; }\n";
const MAIN: &str = "package user;
public final class Main {
    public static void main(String[] arguments) {
        try (org.acme.Twice twice = org.acme.Twice.open()) {
            System.out.println(twice.twice(21));
        }
    }
}
";
const INSTALL: &str = "org.apache.maven.plugins:maven-install-plugin:3.1.2:install-file";

/// Builds and tests them. `Skipped` says why that was not possible.
pub fn run(options: &Options) -> Result<Outcome> {
    if let Some(why) = java::missing() {
        return Ok(Outcome::Skipped(why));
    }
    let binary = std::path::absolute(fettle::binary(options.fettle.as_deref())?)?;
    let place = repo::target_folder("jar-maven")?;
    let runtime = repo::root().join("runtime/jvm");
    for project in ["maven-plugin", "sample"] {
        let copy = place.join(project);
        if copy.exists() {
            std::fs::remove_dir_all(&copy)?;
        }
        let from = runtime.join(project);
        proc::output_of(Command::new("cp").arg("-a").arg(from).arg(&copy))?;
        let built = copy.join("target");
        if built.exists() {
            std::fs::remove_dir_all(built)?;
        }
    }
    let maven = Maven { repository: place.join("repository"), binary: binary.clone() };
    if let Err(error) = maven.run(&place.join("maven-plugin"), &["install"]) {
        return match java::cannot_fetch(&format!("{error:#}")) {
            Some(why) => Ok(Outcome::Skipped(why)),
            None => Err(error),
        };
    }
    let sample = place.join("sample");
    let ran = maven.run(&sample, &["test"]);
    let outcome = java::count(&sample.join("target/surefire-reports"));
    ran?;
    let Outcome::Ran { passed, failed, skipped } = outcome? else { bail!("no test ran") };
    depend(&maven, &binary, &place)?;
    Ok(Outcome::Ran { passed: passed + 1, failed, skipped })
}

/// Maven with a repository of its own: nothing of ours stays in the user's.
struct Maven {
    repository: PathBuf,
    binary: PathBuf,
}

impl Maven {
    fn run(&self, project: &Path, goals: &[&str]) -> Result<()> {
        let mut command = Command::new("mvn");
        command.args(["-q", "-B", "-Dstyle.color=never"]);
        command.arg(format!("-Dmaven.repo.local={}", self.repository.display()));
        command.arg(format!("-Dfettle.binary={}", self.binary.display()));
        let output = command.args(goals).current_dir(project).output().context("starting mvn")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "mvn {} failed:\n{said}", goals.join(" "));
        Ok(())
    }
}

/// A library with coordinates is installed, by what its jar says of itself, and a project that names them
/// uses it, as a module and without.
fn depend(maven: &Maven, binary: &Path, place: &Path) -> Result<()> {
    let user = place.join("user");
    let sources = user.join("src/main/java/user");
    std::fs::create_dir_all(&sources)?;
    std::fs::write(user.join("pom.xml"), PROJECT)?;
    std::fs::write(user.join("src/main/java/module-info.java"), MODULE)?;
    std::fs::write(sources.join("Main.java"), MAIN)?;
    let (source, jar) = (user.join("twice.c"), user.join("twice.jar"));
    std::fs::write(&source, SOURCE)?;
    let mut command = Command::new(binary);
    command.arg("jar").arg(&source).arg("-o").arg(&jar);
    command.args(["--export", "twice", "--interface", "org.acme.Twice"]);
    proc::output_of(command.args(["--coordinates", "org.acme.native:twice-lib:1.0-beta"]))?;
    maven.run(&user, &[INSTALL, &format!("-Dfile={}", jar.display())])?;
    maven.run(&user, &["compile"])?;
    let installed =
        maven.repository.join("org/acme/native/twice-lib/1.0-beta/twice-lib-1.0-beta.jar");
    let path = format!("{}:{}", installed.display(), user.join("target/classes").display());
    for how in [["-p", &path, "-m", "user/user.Main"], ["-cp", &path, "user.Main", ""]] {
        let said =
            proc::output_of(Command::new("java").args(how.iter().filter(|s| !s.is_empty())))?;
        ensure!(said.trim() == "42", "java {} {}: {said}", how[0], how[2]);
    }
    Ok(())
}
