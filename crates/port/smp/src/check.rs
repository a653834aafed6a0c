//! What a machine lacks for lending processors, found without changing anything.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::source;

/// How a finding bears on lending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Lending works, with the limit that is named.
    Limited,
    /// Lending does not work.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// How it bears on lending.
    pub verdict: Verdict,
    /// What was found, and what to do.
    pub found: String,
}

fn finding(what: &'static str, verdict: Verdict, found: impl Into<String>) -> Finding {
    Finding { what, verdict, found: found.into() }
}

/// The files that say how the machine is. Tests have others.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

/// Options of the kernel that the module cannot do without.
const NEEDED: [&str; 7] = [
    "CONFIG_MODULES",
    "CONFIG_HOTPLUG_CPU",
    "CONFIG_MMU_NOTIFIER",
    "CONFIG_KPROBES",
    "CONFIG_KALLSYMS",
    "CONFIG_TRACEPOINTS",
    "CONFIG_X86_LOCAL_APIC",
];

/// Flags of the processor that the application kernel uses.
const FLAGS: [&str; 3] = ["fsgsbase", "xsave", "apic"];

impl Default for Machine {
    fn default() -> Machine {
        Machine::below(Path::new("/"))
    }
}

impl Machine {
    /// The machine whose files are below a folder.
    pub fn below(root: &Path) -> Machine {
        Machine { root: root.to_path_buf() }
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }

    fn release(&self) -> String {
        self.read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string()
    }

    /// Everything that was looked at, in the order in which it is needed.
    pub fn check(&self) -> Vec<Finding> {
        vec![
            self.architecture(),
            self.processors(),
            self.clocks(),
            self.kernel(),
            self.options(),
            self.lockdown(),
            self.shadow_stacks(),
            self.headers(),
            self.module(),
        ]
    }

    fn flags(&self) -> Vec<String> {
        let text = self.read("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("flags"));
        let flags = line.and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags);
        flags.split_whitespace().map(str::to_string).collect()
    }

    fn architecture(&self) -> Finding {
        const WHAT: &str = "processor";
        let flags = self.flags();
        let missing: Vec<&str> =
            FLAGS.into_iter().filter(|flag| !flags.iter().any(|have| have == flag)).collect();
        match missing.is_empty() {
            true => finding(WHAT, Verdict::Good, "x86-64 with FSGSBASE and XSAVE"),
            false => finding(
                WHAT,
                Verdict::Missing,
                format!("without {}: the application kernel needs it", missing.join(", ")),
            ),
        }
    }

    fn processors(&self) -> Finding {
        const WHAT: &str = "processors";
        let online = self.read("/sys/devices/system/cpu/online").unwrap_or_default();
        let more = online.trim().split([',', '-']).count() > 1;
        match more {
            true => finding(WHAT, Verdict::Good, format!("{} on line", online.trim())),
            false => finding(
                WHAT,
                Verdict::Missing,
                "one on line: Linux keeps processor 0, so there is none to lend",
            ),
        }
    }

    fn clocks(&self) -> Finding {
        const WHAT: &str = "clocks";
        let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        let sources = self.read(path).unwrap_or_default();
        match sources.split_whitespace().any(|source| source == "tsc") {
            true => finding(WHAT, Verdict::Good, "time-stamp counters are synchronised"),
            false => finding(
                WHAT,
                Verdict::Missing,
                "Linux does not trust the time-stamp counter, so threads that move between \
                 processors would see time go back",
            ),
        }
    }

    fn kernel(&self) -> Finding {
        const WHAT: &str = "kernel";
        let release = self.release();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (6, 1) <= (major, minor) && major < 7 => {
                let known = [(6, 1), (6, 12)].contains(&(major, minor));
                let verdict = if known { Verdict::Good } else { Verdict::Limited };
                let tried = if known { "" } else { "; tried are 6.1 and 6.12" };
                finding(WHAT, verdict, format!("Linux {release}{tried}"))
            }
            _ => {
                finding(WHAT, Verdict::Missing, format!("Linux {release}; 6.1 or later is needed"))
            }
        }
    }

    fn options(&self) -> Finding {
        const WHAT: &str = "kernel options";
        let Some(options) = self.read(&format!("/boot/config-{}", self.release())) else {
            return finding(WHAT, Verdict::Limited, "not known: /boot has no configuration");
        };
        let has = |name: &&str| options.lines().any(|line| line == format!("{name}=y"));
        let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !has(name)).collect();
        match missing.is_empty() {
            true => finding(WHAT, Verdict::Good, "all that is needed"),
            false => finding(WHAT, Verdict::Missing, format!("without {}", missing.join(", "))),
        }
    }

    fn lockdown(&self) -> Finding {
        const WHAT: &str = "lockdown";
        let state = self.read("/sys/kernel/security/lockdown").unwrap_or_default();
        match state.contains("[integrity]") || state.contains("[confidentiality]") {
            true => finding(
                WHAT,
                Verdict::Missing,
                "Linux loads signed modules only (Secure Boot): sign the module with a key of the \
                 machine's owner",
            ),
            false => finding(WHAT, Verdict::Good, "unsigned modules can be loaded"),
        }
    }

    fn shadow_stacks(&self) -> Finding {
        const WHAT: &str = "shadow stacks";
        match self.flags().iter().any(|flag| flag == "user_shstk") {
            true => finding(
                WHAT,
                Verdict::Limited,
                "programs with a shadow stack stay on Linux's processors",
            ),
            false => finding(WHAT, Verdict::Good, "programs have none"),
        }
    }

    fn headers(&self) -> Finding {
        const WHAT: &str = "kernel headers";
        let path = format!("/lib/modules/{}/build/Makefile", self.release());
        match self.exists(&path) {
            true => finding(WHAT, Verdict::Good, "the module can be built here"),
            false => finding(
                WHAT,
                Verdict::Limited,
                "not installed: the module cannot be built here (Debian: linux-headers-amd64)",
            ),
        }
    }

    fn module(&self) -> Finding {
        const WHAT: &str = "module";
        let path = source::kept(&self.release());
        match path.to_str().is_some_and(|path| self.exists(path)) {
            true => finding(WHAT, Verdict::Good, path.display().to_string()),
            false => finding(WHAT, Verdict::Limited, "not built: `fettle smp module` builds it"),
        }
    }
}
