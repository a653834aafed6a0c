//! What is given to others: the release binary without debug information, that information beside it, and Debian
//! packages with manual pages, completions and the daemon's unit.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{proc, repo};

/// What goes into it.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Leave out SQL (`fettle requests --sql`), whose engine is most of the build
    #[arg(long)]
    pub without_sql: bool,
    /// Package this binary instead of a fresh release build
    #[arg(long, value_name = "FILE", conflicts_with = "without_sql")]
    pub fettle: Option<PathBuf>,
}

/// Services that the package has, and where.
const UNITS: [&str; 2] = ["fettle-tuned.service", "fettle-kernel.service"];
const UNIT_FOLDER: &str = "usr/lib/systemd/system";

/// Shells whose completions are in the package: the name for `fettle completions`, and the file.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/fettle"),
    ("fish", "usr/share/fish/vendor_completions.d/fettle.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_fettle"),
];

/// Builds everything into `target/dist`, and looks into what was built.
///
/// # Errors
///
/// When a step fails, or the package's program does not say its version.
pub fn run(options: &Options) -> Result<bool> {
    let folder = repo::target().join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let built = match &options.fettle {
        Some(file) => file.canonicalize().with_context(|| file.display().to_string())?,
        None => build(options)?,
    };
    let (binary, debug) = split(&built, &folder)?;
    let said = proc::output_of(Command::new(&binary).arg("--version"))?;
    let version = version_of(&said)?;
    let package = package(&folder, &binary, version)?;
    let symbols = symbols_package(&folder, &binary, &debug, version)?;
    inspect(&package, &folder, &said)?;
    for file in [&binary, &debug, &package, &symbols] {
        println!("{:>10} bytes  {}", fs::metadata(file)?.len(), file.display());
    }
    print!("{said}");
    Ok(true)
}

fn build(options: &Options) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repo::root());
    cargo.args(["build", "--release", "--locked", "-p", "fettle-cli"]);
    if !options.without_sql {
        cargo.args(["--features", "query"]);
    }
    proc::step(&mut cargo)?;
    Ok(repo::target().join("release/fettle"))
}

/// The binary without debug information, which names the file that has it.
fn split(built: &Path, folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (binary, debug) = (folder.join("fettle"), folder.join("fettle.debug"));
    let objcopy = || {
        let mut command = Command::new("objcopy");
        command.current_dir(folder);
        command
    };
    proc::step(objcopy().arg("--only-keep-debug").arg(built).arg(&debug))?;
    proc::step(objcopy().arg("--compress-debug-sections").arg(&debug))?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    proc::step(objcopy().args(["--strip-all", &link]).arg(built).arg(&binary))?;
    Ok((binary, debug))
}

/// The number in what `fettle --version` says: `fettle 0.1.0 (0123456789ab)`.
fn version_of(said: &str) -> Result<&str> {
    let mut words = said.split_whitespace();
    ensure!(words.next() == Some("fettle"), "unexpected: {said}");
    let version = words.next().context("no version")?;
    let commit = words.next().context("the version says no commit")?;
    ensure!(commit.len() == "(0123456789ab)".len(), "{commit} is no commit");
    Ok(version)
}

fn package(folder: &Path, binary: &Path, version: &str) -> Result<PathBuf> {
    let root = folder.join("root");
    put(&root, "usr/bin/fettle", &fs::read(binary)?, 0o755)?;
    let pages = folder.join("man");
    proc::step(Command::new(binary).arg("man").arg(&pages).stdout(Stdio::null()))?;
    for page in fs::read_dir(&pages)? {
        let page = page?;
        let name = page.file_name().into_string().ok().context("a page's name")?;
        let text = compressed(&fs::read(page.path())?)?;
        put(&root, &format!("usr/share/man/man1/{name}.gz"), &text, 0o644)?;
    }
    for (shell, path) in COMPLETIONS {
        let text = proc::output_of(Command::new(binary).args(["completions", shell]))?;
        put(&root, path, text.as_bytes(), 0o644)?;
    }
    let read = |name: &str| fs::read(repo::root().join(name)).with_context(|| name.to_owned());
    for unit in UNITS {
        let text = read(&format!("packaging/systemd/{unit}"))?;
        put(&root, &format!("{UNIT_FOLDER}/{unit}"), &text, 0o644)?;
    }
    let mut copyright =
        b"Fettle may be used under the Apache License 2.0, or the MIT License:\n\n".to_vec();
    copyright.extend(read("LICENSE-MIT")?);
    copyright.extend(b"\nThe Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n");
    put(&root, "usr/share/doc/fettle/copyright", &copyright, 0o644)?;
    put(&root, "usr/share/doc/fettle/changelog.gz", &compressed(&read("CHANGELOG.md")?)?, 0o644)?;
    let control = Control {
        name: "fettle",
        version,
        depends: &needed(binary)?,
        more: "Recommends: gcc\nSuggests: fettle-dbgsym\n",
        description: "observes, tunes and moves unmodified native programs\n \
            Records calls, times and requests of programs as they are, makes running ones\n \
            faster, reverts that again, and says what it could not prove safe.",
    };
    control.build(folder, &root)
}

/// Debug information where gdb and perf look for it: by the binary's build id.
fn symbols_package(folder: &Path, binary: &Path, debug: &Path, version: &str) -> Result<PathBuf> {
    let root = folder.join("symbols");
    let notes = proc::output_of(Command::new("readelf").arg("-n").arg(binary))?;
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    let (first, rest) = id.and_then(|id| id.split_at_checked(2)).context("no build id")?;
    let place = format!("usr/lib/debug/.build-id/{first}/{rest}.debug");
    put(&root, &place, &fs::read(debug)?, 0o644)?;
    let control = Control {
        name: "fettle-dbgsym",
        version,
        depends: &format!("fettle (= {version})"),
        more: "",
        description: "debug information of fettle",
    };
    control.build(folder, &root)
}

/// What a package says of itself.
struct Control<'a> {
    name: &'a str,
    version: &'a str,
    depends: &'a str,
    /// Further lines.
    more: &'a str,
    description: &'a str,
}

impl Control<'_> {
    fn build(&self, folder: &Path, root: &Path) -> Result<PathBuf> {
        let Control { name, version, depends, more, description } = self;
        let kilobytes = size_of(root)?.div_ceil(1024);
        let mut text = format!("Package: {name}\nVersion: {version}\nArchitecture: amd64\n");
        write!(
            text,
            "Maintainer: Fettle's developers <fettle@localhost>\nInstalled-Size: {kilobytes}\n"
        )?;
        write!(text, "Section: devel\nPriority: optional\nDepends: {depends}\n{more}")?;
        writeln!(text, "Description: {description}")?;
        put(root, "DEBIAN/control", text.as_bytes(), 0o644)?;
        let file = folder.join(format!("{name}_{version}_amd64.deb"));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build", "-Zxz"]).arg(root).arg(&file);
        proc::step(build.stdout(Stdio::null()))?;
        Ok(file)
    }
}

/// The C library that a binary needs: the newest version among those of its symbols.
fn needed(binary: &Path) -> Result<String> {
    let symbols = proc::output_of(Command::new("objdump").arg("-T").arg(binary))?;
    let newest = newest_glibc(&symbols).context("no symbol of glibc")?;
    Ok(format!("libc6 (>= {newest}), libgcc-s1"))
}

fn newest_glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        rest[..end].split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    });
    let parts: Vec<String> = versions.max()?.iter().map(u32::to_string).collect();
    Some(parts.join("."))
}

fn size_of(folder: &Path) -> Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        all += if meta.is_dir() { size_of(&entry.path())? } else { meta.len() };
    }
    Ok(all)
}

fn put(root: &Path, name: &str, contents: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = root.join(name);
    fs::create_dir_all(path.parent().context("a path in the package")?)?;
    fs::write(&path, contents).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}

/// What `gzip -9n` makes of it, as Debian asks for.
fn compressed(contents: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-n", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = gzip.spawn().context("gzip")?;
    let mut input = child.stdin.take().context("gzip's input")?;
    let contents = contents.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&contents));
    let output = child.wait_with_output()?;
    match writer.join() {
        Ok(written) => written?,
        Err(_) => bail!("gzip's input"),
    }
    ensure!(output.status.success(), "gzip: {}", output.status);
    Ok(output.stdout)
}

/// Takes the package apart, runs what is in it, and misses nothing.
fn inspect(package: &Path, folder: &Path, said: &str) -> Result<()> {
    let place = folder.join("unpacked");
    proc::step(Command::new("dpkg-deb").arg("-x").arg(package).arg(&place))?;
    let says = proc::output_of(Command::new(place.join("usr/bin/fettle")).arg("--version"))?;
    ensure!(says == said, "the package's program says {says}");
    let pages = ["usr/share/man/man1/fettle.1.gz", "usr/share/man/man1/fettle-tune.1.gz"];
    let units = UNITS.map(|unit| format!("{UNIT_FOLDER}/{unit}"));
    let files = COMPLETIONS.iter().map(|(_, path)| *path).chain(pages);
    for file in files.chain(units.iter().map(String::as_str)) {
        ensure!(fs::metadata(place.join(file)).is_ok_and(|meta| meta.len() > 0), "no {file}");
    }
    for part in ["man", "root", "symbols", "unpacked"] {
        fs::remove_dir_all(folder.join(part))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        let symbols = "f (GLIBC_2.2.5) a\ng (GLIBC_2.34) b\nh (GLIBC_2.9) c\n(GLIBC_PRIVATE) d\n";
        assert_eq!(newest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("nothing"), None);
    }

    #[test]
    fn a_version_says_its_commit() {
        assert_eq!(version_of("fettle 0.1.0 (0123456789ab)\n").unwrap(), "0.1.0");
        assert!(version_of("fettle 0.1.0\n").is_err());
        assert!(version_of("other 0.1.0 (0123456789ab)\n").is_err());
    }
}
