//! Systems that can be compared, and how a program is started in each.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::error::CompareError;
use crate::folder::Folder;
use crate::tracefs::Traced;

/// Something that offers Linux's calls to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// This kernel.
    Native,
    /// A User-Mode Linux with this machine's files, read-only.
    Uml,
    /// gVisor, with the platform by which it takes system calls: `systrap`, `ptrace`, `kvm`.
    Gvisor(String),
    /// What a command makes of the program that is put behind it.
    Command(String),
    /// The same, under another name.
    Named(String, String),
    /// This kernel, with programs in it that observe the system's processes.
    Observed(Observer),
}

/// What programs in the kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// Count system calls.
    Calls,
    /// Record the kernel's events.
    Events,
    /// Count how often a function of the program's is executed: a uprobe.
    Uprobe,
    /// Record something by the kernel's own tracing.
    Ftrace(Traced),
}

/// The programs that start systems.
#[derive(Clone, Debug)]
pub struct Tools {
    /// User-Mode Linux's kernel.
    pub uml: PathBuf,
    /// gVisor's `runsc`.
    pub runsc: PathBuf,
}

impl Default for Tools {
    fn default() -> Tools {
        Tools { uml: "linux.uml".into(), runsc: "runsc".into() }
    }
}

/// Most characters of a command as a system's name.
const NAME_MAX: usize = 24;
/// Memory of a User-Mode Linux. It takes of the machine's what it uses.
const UML_MEMORY: &str = "mem=512M";

impl FromStr for System {
    type Err = CompareError;

    fn from_str(name: &str) -> Result<System, CompareError> {
        let no = || CompareError::NoSystem { name: name.to_owned() };
        match name.trim() {
            "native" => Ok(System::Native),
            "uml" => Ok(System::Uml),
            "gvisor" => Ok(System::Gvisor("systrap".to_owned())),
            other => match other.strip_prefix("gvisor:") {
                Some(platform) if is_word(platform) => Ok(System::Gvisor(platform.to_owned())),
                Some(_) => Err(no()),
                None => {
                    let program = other.split_whitespace().next().ok_or_else(no)?;
                    found(Path::new(program))
                        .map(|_| System::Command(other.to_owned()))
                        .ok_or_else(no)
                }
            },
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Native => f.write_str("native"),
            System::Uml => f.write_str("uml"),
            System::Gvisor(platform) => write!(f, "gvisor:{platform}"),
            System::Named(name, _) => f.write_str(name),
            System::Observed(Observer::Calls) => f.write_str("calls counted"),
            System::Observed(Observer::Events) => f.write_str("kernel events"),
            System::Observed(Observer::Uprobe) => f.write_str("uprobe counted"),
            System::Observed(Observer::Ftrace(traced)) => f.write_str(match traced {
                Traced::Uprobe => "ftrace uprobe",
                Traced::Calls => "ftrace calls",
                Traced::Function => "ftrace function",
                Traced::Kprobe => "ftrace kprobe",
            }),
            System::Command(command) if command.chars().count() <= NAME_MAX => f.write_str(command),
            System::Command(command) => {
                let begin: String = command.chars().take(NAME_MAX - 1).collect();
                write!(f, "{}…", begin.trim_end())
            }
        }
    }
}

impl System {
    /// Whether its processes are processes of this kernel with their own CPU time.
    pub(crate) fn counts_own_time(&self) -> bool {
        matches!(self, System::Native | System::Observed(_))
    }

    /// What starts our program in it, and which version it is.
    pub(crate) fn start(
        &self,
        tools: &Tools,
        folder: &Folder,
        number: usize,
    ) -> Result<(Command, String), CompareError> {
        let program = folder.program();
        let own = |what: &str| folder.make(&format!("{what}-{number}"));
        match self {
            System::Native | System::Observed(_) => {
                let mut command = Command::new(&program);
                command.arg("serve").arg(folder.make_in_memory(&format!("files-{number}"))?);
                Ok((command, release()))
            }
            System::Uml => {
                let uml = self.tool(&tools.uml, "apt-get install user-mode-linux")?;
                let mut command = Command::new(&uml);
                command.arg(UML_MEMORY).arg("umid=fettle");
                command.arg(format!("uml_dir={}/", own("uml")?.display()));
                command.args(["rootfstype=hostfs", "ro", "con=null", "con0=fd:0,fd:1", "quiet"]);
                command.arg(format!("init={}", program.display()));
                command.args(["--", "system"]).arg(own("files")?);
                Ok((command, version_of(&uml)))
            }
            System::Gvisor(platform) => {
                let install = "apt-get install runsc has the platform ptrace; systrap needs a version of 2023 \
                               or newer: https://gvisor.dev/docs/user_guide/install/";
                let runsc = self.tool(&tools.runsc, install)?;
                let mut command = Command::new(&runsc);
                let state = own("runsc")?;
                // It leaves a folder there when it is killed.
                command.env("TMPDIR", &state);
                command.arg(format!("--root={}", state.display()));
                command.arg(format!("--platform={platform}"));
                command.args(["--network=none", "--ignore-cgroups"]);
                if !rustix::process::geteuid().is_root() {
                    command.arg("--rootless");
                }
                command.arg("do").arg(&program).arg("serve").arg(own("files")?);
                Ok((command, version_of(&runsc)))
            }
            System::Command(line) | System::Named(_, line) => {
                let line = line.replace("{dir}", &folder.path().display().to_string());
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("exec {line} \"$0\" \"$@\""));
                command.arg(&program).arg("serve").arg(own("files")?);
                Ok((command, String::new()))
            }
        }
    }

    /// The path of a program that it needs.
    fn tool(&self, program: &Path, install: &str) -> Result<PathBuf, CompareError> {
        found(program).ok_or_else(|| CompareError::Missing {
            system: self.to_string(),
            program: program.display().to_string(),
            install: install.to_owned(),
        })
    }
}

/// Where a program is, as shells find it.
fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// This kernel's release.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// The first line that `--version` prints.
fn version_of(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for name in ["native", "uml", "gvisor:ptrace", "gvisor:systrap", "sh -c", "env A=1"] {
            assert_eq!(name.parse::<System>().unwrap().to_string(), name);
        }
        assert_eq!("gvisor".parse::<System>().unwrap(), System::Gvisor("systrap".into()));
        for name in ["", " ", "gvisor:", "gvisor:a b", "no-such-program-here x"] {
            let said = name.parse::<System>().unwrap_err().to_string();
            assert!(said.contains("is no system"), "{said}");
        }
        let long = format!("env {}", "A=1 ".repeat(20)).parse::<System>().unwrap();
        assert_eq!(long.to_string().chars().count(), NAME_MAX);
    }

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        let folder = Folder::new().unwrap();
        let tools = Tools { uml: "no-linux.uml".into(), runsc: "/no/runsc".into() };
        let said = System::Uml.start(&tools, &folder, 0).unwrap_err().to_string();
        assert!(said.contains("no-linux.uml") && said.contains("user-mode-linux"), "{said}");
        let gvisor = System::Gvisor("systrap".into());
        let said = gvisor.start(&tools, &folder, 0).unwrap_err().to_string();
        assert!(said.contains("/no/runsc") && said.contains("install"), "{said}");
    }
}
