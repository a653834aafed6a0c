//! Machines of our own: a stock kernel of Debian's in QEMU, with programs of this machine in its
//! memory. There is no KVM here, so QEMU translates, and a second there is several here.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::proc::{Ending, Running};
use crate::{apt, proc, repo};

/// The line by which a guest says that its script came to its end.
const DONE: &str = "guest: done";

/// A kernel of Debian's, unpacked.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// As `uname -r` says.
    pub release: String,
    image: PathBuf,
    /// Its build folder, for modules.
    pub headers: PathBuf,
}

/// The packages that a guest needs, besides its kernel.
const NEEDED: [&str; 6] =
    ["qemu-system-x86", "busybox-static", "cpio", "gcc", "make", "libelf-dev"];

impl Kernel {
    /// The kernel that a package such as `linux-image-amd64` stands for now, with its headers. The
    /// error says why there is none, and is a reason to skip.
    pub fn fetch(meta: &str) -> Result<Kernel> {
        let (suite, mut kernel) = Kernel::from_suite(meta)?;
        if kernel.headers.is_dir() {
            return Ok(kernel);
        }
        match suite.0.is_empty() {
            true => apt::ensure(&[format!("linux-headers-{}", kernel.release)])?,
            // They ask for the kernel itself, which this machine is not to have.
            false => kernel.headers = unpacked_headers(&suite, &kernel)?,
        }
        Ok(kernel)
    }

    /// The same without headers, for guests that load no module built from source. The kernel of another
    /// suite is named `SUITE/PACKAGE`, as in `bookworm-backports/linux-image-amd64`.
    pub fn fetch_image(meta: &str) -> Result<Kernel> {
        Ok(Kernel::from_suite(meta)?.1)
    }

    /// One of its modules, by name.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        let place = self.image.parent().context("the image lies in a folder")?;
        let found = proc::output_of(
            Command::new("find").arg(modules_of(place)).args(["-name", &format!("{name}.ko*")]),
        )?;
        let found = found
            .lines()
            .next()
            .with_context(|| format!("{} has no module {name}", self.release))?;
        match found.strip_suffix(".xz") {
            None => Ok(PathBuf::from(found)),
            Some(plain) => {
                proc::output_of(Command::new("xz").args(["-df", found]))?;
                Ok(PathBuf::from(plain))
            }
        }
    }

    fn from_suite(meta: &str) -> Result<(Suite, Kernel)> {
        apt::ensure(&NEEDED.map(String::from))?;
        let (suite, meta) = match meta.split_once('/') {
            Some((suite, meta)) => (Suite::of(suite)?, meta),
            None => (Suite::default(), meta),
        };
        let release = release_of(&suite, meta)?;
        let headers = PathBuf::from(format!("/usr/src/linux-headers-{release}"));
        let place = repo::target_folder(&format!("guest/{release}"))?;
        let image = place.join(format!("vmlinuz-{release}"));
        if !image.exists() || !modules_of(&place).exists() {
            unpack(&suite, &place, &release, &image)?;
        }
        Ok((suite, Kernel { release, image, headers }))
    }
}

/// Where packages come from: what this machine is set up for, or a suite of Debian's with lists of its own.
#[derive(Debug, Default)]
struct Suite(Vec<String>);

impl Suite {
    fn of(name: &str) -> Result<Suite> {
        let place = repo::target_folder(&format!("guest/suites/{name}"))?;
        let sources = place.join("sources.list");
        let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let base = name.split_once('-').map_or(name, |(base, _)| base);
        let archives = proc::output_of(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Origin: Debian",
            &format!("Codename: {base}"),
        ]))?;
        let archive = archives.lines().next();
        let archive =
            archive.with_context(|| format!("this machine has no archive with {base}"))?;
        std::fs::write(&sources, format!("deb [signed-by={key}] {archive} {name} main\n"))?;
        for folder in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(place.join(folder))?;
        }
        let mut options = Vec::new();
        for (option, value) in [
            ("Dir::Etc::sourcelist", sources.as_path()),
            ("Dir::Etc::sourceparts", Path::new("/dev/null")),
            ("Dir::State::lists", &place.join("lists")),
            ("Dir::Cache", &place.join("cache")),
        ] {
            options.extend(["-o".to_string(), format!("{option}={}", value.display())]);
        }
        proc::output_of(Command::new("apt-get").args(&options).args(["update", "-q"]))?;
        Ok(Suite(options))
    }
}

/// Which kernel a meta package depends on.
fn release_of(suite: &Suite, meta: &str) -> Result<String> {
    let text = proc::output_of(Command::new("apt-cache").args(&suite.0).args([
        "depends",
        "--no-recommends",
        meta,
    ]))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .map(str::to_string)
        .ok_or_else(|| anyhow!("the archive has no {meta}"))
}

fn unpack(suite: &Suite, place: &Path, release: &str, image: &Path) -> Result<()> {
    let partial = place.join("partial");
    unpack_package(suite, place, &format!("linux-image-{release}"), &partial)?;
    let modules = modules_of(place);
    if !modules.exists() {
        std::fs::rename(partial.join(format!("lib/modules/{release}/kernel")), modules)?;
    }
    std::fs::rename(partial.join(format!("boot/vmlinuz-{release}")), image)?;
    Ok(std::fs::remove_dir_all(&partial)?)
}

/// Where a kernel's modules are, beside its image.
fn modules_of(place: &Path) -> PathBuf {
    place.join("modules")
}

/// Fetches a package into `place` and unpacks it to `root`, without installing it.
fn unpack_package(suite: &Suite, place: &Path, package: &str, root: &Path) -> Result<()> {
    proc::output_of(
        Command::new("apt-get").args(&suite.0).args(["download", "-q", package]).current_dir(place),
    )?;
    let archive = std::fs::read_dir(place)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("no archive of {package} was fetched"))?;
    proc::output_of(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(root))?;
    Ok(std::fs::remove_file(&archive)?)
}

/// A kernel's headers beside its image, where its build system finds them; gives their folder.
fn unpacked_headers(suite: &Suite, kernel: &Kernel) -> Result<PathBuf> {
    let place = kernel.image.parent().context("the image lies in a folder")?;
    let root = place.join("headers");
    let headers = root.join(format!("usr/src/linux-headers-{}", kernel.release));
    if root.exists() {
        return Ok(headers);
    }
    let partial = place.join("partial");
    let package = format!("linux-headers-{}", kernel.release);
    let needs = proc::output_of(Command::new("apt-cache").args(&suite.0).args([
        "depends",
        "--no-recommends",
        &package,
    ]))?;
    // Headers that all flavours share, and the programs of the build system.
    let parts = needs
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|of| of.starts_with("linux-kbuild-") || of.starts_with("linux-headers-"));
    for part in parts.chain([package.as_str()]) {
        unpack_package(suite, place, part, &partial)?;
    }
    let makefile = partial.join(format!("usr/src/{package}/Makefile"));
    let text = std::fs::read_to_string(&makefile)?;
    // With it, the build system writes types for the module, by a program that is not here.
    let types = partial.join(format!("usr/src/{package}/vmlinux"));
    if types.exists() {
        std::fs::remove_file(types)?;
    }
    let sources = root.join("usr/src");
    std::fs::write(&makefile, text.replace("/usr/src", &sources.to_string_lossy()))?;
    std::fs::rename(&partial, &root)?;
    Ok(headers)
}

/// What a guest has in its memory when it starts.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// BusyBox and a start script, in a folder that is emptied.
    pub fn new(root: &Path) -> Result<Files> {
        if root.exists() {
            std::fs::remove_dir_all(root)?;
        }
        for folder in ["bin", "dev", "proc", "sys", "tmp", "etc", "root", "var/lib"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let files = Files { root: root.to_path_buf() };
        files.put_file(Path::new("/bin/busybox"), "bin/busybox")?;
        let init = format!(
            "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/usr/bin:/bin HOME=/root\n\
             mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev\n\
             ln -s /proc/self/fd /dev/fd 2>/dev/null\ndmesg -n 1\n. /script\n\
             echo '{DONE}'\npoweroff -f\n"
        );
        files.put_text("init", &init)?;
        Ok(files)
    }

    /// Puts a text there, executable.
    pub fn put_text(&self, name: &str, text: &str) -> Result<()> {
        let path = self.root.join(name);
        std::fs::write(&path, text)?;
        Ok(std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?)
    }

    /// Puts a copy of a file there.
    pub fn put_file(&self, file: &Path, name: &str) -> Result<()> {
        let path = self.root.join(name);
        let folder = path.parent().context("a file's name has a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::copy(file, &path).with_context(|| file.display().to_string())?;
        Ok(())
    }

    /// Puts a program there, with the libraries that it loads.
    pub fn put_program(&self, program: &Path, name: &str) -> Result<()> {
        self.put_file(program, name)?;
        let text = Command::new("ldd").arg(program).output()?.stdout;
        for word in String::from_utf8_lossy(&text).split_whitespace() {
            let relative = word.trim_start_matches('/');
            if word.starts_with('/') && !self.root.join(relative).exists() {
                self.put_file(Path::new(word), relative)?;
            }
        }
        Ok(())
    }

    /// Puts a folder of this machine there, under its own name. One that is not here is left out.
    pub fn put_folder(&self, folder: &Path) -> Result<()> {
        if !folder.is_dir() {
            return Ok(());
        }
        let script = "find . -name __pycache__ -prune -o -name test -prune -o -print0 | \
                      cpio -0 -p -d -L --quiet \"$0\"";
        let to = self.root.join(folder.strip_prefix("/").unwrap_or(folder));
        std::fs::create_dir_all(&to)?;
        proc::output_of(Command::new("sh").arg("-c").arg(script).arg(&to).current_dir(folder))?;
        Ok(())
    }

    /// All of it as one archive, which the kernel unpacks.
    fn archive(&self, to: &Path) -> Result<()> {
        let script = "find . | cpio -o -H newc --quiet | gzip -1 >\"$0\"";
        proc::output_of(Command::new("sh").arg("-c").arg(script).arg(to).current_dir(&self.root))?;
        Ok(())
    }
}

/// What a guest's time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// That of this machine; each processor has a thread of QEMU's.
    Host,
    /// The same, and one thread of QEMU's takes the processors in turn. Where one processor writes code that
    /// another is about to execute, QEMU 7.2 with several threads may go on with what stood there before, for
    /// ever: seen as breakpoints without end, of which the memory has none.
    HostInTurns,
    /// Two nanoseconds an instruction, of one processor; time in which it waits passes at once. What a guest
    /// does then hardly depends on how fast this machine is.
    Instructions,
}

/// Builds a plugin of QEMU's.
pub fn plugin(source: &Path, to: &Path) -> Result<()> {
    proc::output_of(
        Command::new("gcc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-I"])
            .arg(repo::root().join("xtask/src"))
            .arg("-o")
            .arg(to)
            .arg(source),
    )?;
    Ok(())
}

/// How a guest is started.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Processors.
    pub processors: u32,
    /// Its time.
    pub clock: Clock,
    /// QEMU's name of their model, with features.
    pub model: String,
    /// Memory, MiB.
    pub memory: u32,
    /// What is added to the kernel's command line.
    pub options: String,
    /// A file of this machine's that receives what the guest writes to `/dev/ttyS1`.
    pub output: Option<PathBuf>,
    /// A plugin of QEMU's that is loaded before its C library, too, and its options.
    pub plugin: Option<(PathBuf, String)>,
    /// Most time it may take here.
    pub limit: Duration,
}

/// By this a guest says that its script begins.
const START: &str = "guest: script";
/// A guest that has not begun its script after so long never will: now and then QEMU's translated
/// processors lose each other in the firmware or the first of the kernel's code, and it starts anew.
const STARTS_WITHIN: Duration = Duration::from_secs(100);
/// So often a guest is started.
const STARTS: u32 = 3;

/// Starts a guest, runs `script` in it, and gives what its console showed from the script's start. A
/// guest that does not come to the script's end is an error, which has the console.
pub fn run(kernel: &Kernel, files: &Files, machine: &Machine, script: &str) -> Result<String> {
    let (shown, ending) = run_any(kernel, files, machine, script)?;
    match shown.split_once(DONE) {
        Some((shown, _)) => Ok(shown.to_string()),
        None => bail!("the guest did not come to its end ({ending}):\n{shown}"),
    }
}

/// The same for a script that stops the machine itself: an error unless it does so in time.
pub fn run_until_off(
    kernel: &Kernel,
    files: &Files,
    machine: &Machine,
    script: &str,
) -> Result<String> {
    let (shown, ending) = run_any(kernel, files, machine, script)?;
    match ending {
        Ending::Exit(0) if !shown.contains(DONE) => Ok(shown),
        _ => bail!("the guest did not stop by itself ({ending}):\n{shown}"),
    }
}

/// Runs a script; what the console showed from its start, and how QEMU ended.
fn run_any(
    kernel: &Kernel,
    files: &Files,
    machine: &Machine,
    script: &str,
) -> Result<(String, Ending)> {
    files.put_text("script", &format!("echo '{START}'\n{script}\n"))?;
    let logs = logs()?;
    let archive = logs.join("files.gz");
    files.archive(&archive)?;
    let outcome = started(kernel, machine, &archive, &logs)?.finish(machine.limit)?;
    std::fs::remove_dir_all(&logs)?;
    let text = String::from_utf8_lossy(&outcome.stdout).replace('\r', "");
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(text.contains(START), "the guest did not start ({}): {said}\n{text}", outcome.ending);
    let shown = text.split_once(START).map_or("", |(_, rest)| rest);
    Ok((shown.to_string(), outcome.ending))
}

/// A folder for what this process's guest is given and shows. Those of processes that were killed are removed.
fn logs() -> Result<PathBuf> {
    let all = repo::target_folder("guest/logs")?;
    for entry in std::fs::read_dir(&all)? {
        let entry = entry?;
        if !Path::new("/proc").join(entry.file_name()).exists() && entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    let own = all.join(std::process::id().to_string());
    std::fs::create_dir_all(&own)?;
    Ok(own)
}

/// A guest whose script has begun, or the last that was tried.
fn started(kernel: &Kernel, machine: &Machine, archive: &Path, logs: &Path) -> Result<Running> {
    let mut attempt = 1;
    loop {
        let mut running = proc::start(qemu(kernel, machine, archive), logs, "guest", None)?;
        let began = Instant::now();
        let shown = logs.join("guest.out");
        while running.alive() && began.elapsed() < STARTS_WITHIN {
            let text = std::fs::read(&shown)?;
            if String::from_utf8_lossy(&text).contains(START) {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        if attempt == STARTS {
            return Ok(running);
        }
        println!("the guest did not start within {} s: once more", STARTS_WITHIN.as_secs());
        running.finish(Duration::ZERO)?;
        attempt += 1;
    }
}

fn qemu(kernel: &Kernel, machine: &Machine, archive: &Path) -> Command {
    // It ends with us, also when we are killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "nice", "-n", "5"]);
    command.args(["qemu-system-x86_64", "-M", "q35", "-accel"]);
    match machine.clock {
        Clock::Host => command.arg("tcg,thread=multi"),
        Clock::HostInTurns => command.arg("tcg,thread=single"),
        Clock::Instructions => {
            command.args(["tcg,thread=single", "-icount", "shift=1,sleep=off", "-rtc", "clock=vm"])
        }
    };
    command.args(["-nographic", "-no-reboot", "-net", "none"]);
    command.arg("-cpu").arg(&machine.model);
    command.arg("-smp").arg(machine.processors.to_string());
    command.arg("-m").arg(machine.memory.to_string());
    if let Some(file) = &machine.output {
        command.args(["-serial", "mon:stdio", "-serial"]).arg(format!("file:{}", file.display()));
    }
    if let Some((plugin, options)) = &machine.plugin {
        command.arg("-plugin").arg(format!("{},{options}", plugin.display()));
        command.env("LD_PRELOAD", plugin);
    }
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(archive);
    // QEMU's processors have one clock, which Linux cannot know.
    command.arg("-append").arg(format!(
        "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable {}",
        machine.options
    ));
    command
}
