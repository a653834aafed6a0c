//! The client of the module's core: its control file, `/proc/fettle`.
//!
//! While it is open, what is installed stays; when the last one who has it open closes it or dies, the core
//! undoes everything, unless it was asked to keep it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::module::Counter;

/// Where the core is spoken to.
pub const PATH: &str = "/proc/fettle";

/// Layout of what the file begins with, and of what follows: as in `runtime/kmod/kmod.h`.
const VERSION: u64 = 3;
const HEADER: u64 = 4096;
const INSTALL: u32 = 1;
const REMOVE: u32 = 2;
const UNDO: u32 = 3;
const KEEP: u32 = 4;

/// Whether rewritten text is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The originals run, and no thread is in rewritten text.
    Out,
    /// Jumps lead to rewritten text.
    Installed,
    /// No jump leads to rewritten text, but threads may be in it.
    Leaving,
}

/// What the core reports.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Status {
    /// Whether rewritten text is in use.
    pub state: State,
    /// Whether it stays when no process has the control file open.
    pub keep: bool,
    /// Whether a livepatch has come, after which nothing is installed.
    pub barred: bool,
    /// Entries that jumps are written to.
    pub entries: u64,
    /// Where the rewritten text begins.
    pub text_begin: u64,
    /// Where it ends.
    pub text_end: u64,
    /// Rows of per-CPU counters.
    pub cpus: u64,
    /// Counters in each row.
    pub cpu_counters: u64,
    /// Counters for all CPUs together.
    pub shared_counters: u64,
    /// Time that writing the jumps took, ns.
    pub install_ns: u64,
    /// Time that reverting them took, ns.
    pub remove_ns: u64,
    /// How long all processors were stopped by the last undo, ns.
    pub stopped_ns: u64,
    /// Threads whose stacks were walked then.
    pub tasks: u64,
    /// Return addresses that were patched then.
    pub moved: u64,
    /// Return addresses into rewritten text that a tracer keeps.
    pub hooked: u64,
    /// Frames in rewritten text without a counterpart.
    pub stuck: u64,
    /// Entries that others wrote to.
    pub foreign: u64,
    /// Original whose bytes were not the expected ones at the last attempt to install, or 0.
    pub taken: u64,
    /// Threads that met a breakpoint while jumps were written.
    pub trapped: u64,
    /// The time-stamp counter when this was read.
    pub ticks: u64,
    /// The kernel's monotonic clock then, ns.
    pub now_ns: u64,
    /// Ticks that all processors have spent in interrupts since time was first taken.
    pub interrupt_ticks: u64,
    /// How often a thread's virtual time was not known: when it stopped running, or was deoptimised.
    pub lost_threads: u64,
}

/// A loaded module.
#[derive(Debug)]
pub struct Installed {
    file: File,
}

impl Installed {
    /// Opens the control file of the module that is loaded.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn open() -> Result<Installed> {
        Installed::open_at(Path::new(PATH))
    }

    fn open_at(path: &Path) -> Result<Installed> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Installed { file }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NotLoaded),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::NotRoot),
            Err(error) => Err(Error::Control(error)),
        }
    }

    /// What the core reports.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is another version's.
    pub fn status(&self) -> Result<Status> {
        let mut bytes = [0; 4 * 4 + 8 * 20];
        self.file.read_exact_at(&mut bytes, 0).map_err(Error::Control)?;
        Status::parse(&bytes).ok_or_else(|| {
            let what = "the module in the kernel is of another version of fettle: unload it (rmmod fettle_kernel)";
            Error::Unfit(what.to_string())
        })
    }

    /// Writes the jumps. `name` says which function an address lies in.
    ///
    /// # Errors
    ///
    /// When an original has changed since the plan was made, or a livepatch has come.
    pub fn write_jumps(&mut self, name: &dyn Fn(u64) -> String) -> Result<Status> {
        match self.command(INSTALL, 0) {
            Ok(()) => self.status(),
            Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => {
                let status = self.status()?;
                match status.barred {
                    true => Err(Error::Barred),
                    false => Err(Error::Taken(name(status.taken))),
                }
            }
            Err(error) => Err(Error::Control(error)),
        }
    }

    /// Takes the jumps back and lets threads leave by themselves, for a comparison that goes on.
    ///
    /// # Errors
    ///
    /// When the core cannot be reached.
    pub fn remove_jumps(&mut self) -> Result<Status> {
        self.command(REMOVE, 0).map_err(Error::Control)?;
        self.status()
    }

    /// Takes the jumps back and leads every thread out. Tries again until `patience` is over.
    ///
    /// # Errors
    ///
    /// When threads are still in rewritten text. No jump leads to it any more, and it stays in memory.
    pub fn undo(&mut self, patience: Duration) -> Result<Status> {
        let start = Instant::now();
        loop {
            match self.command(UNDO, 0) {
                Ok(()) => return self.status(),
                Err(error) if error.raw_os_error() != Some(nix::libc::EAGAIN) => {
                    return Err(Error::Control(error));
                }
                Err(_) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(_) => {
                    let Status { hooked, stuck, foreign, .. } = self.status()?;
                    return Err(Error::Occupied { hooked, stuck, foreign });
                }
            }
        }
    }

    /// Whether rewritten text stays when no process has the control file open.
    ///
    /// # Errors
    ///
    /// When the core cannot be reached.
    pub fn keep(&mut self, keep: bool) -> Result<()> {
        self.command(KEEP, u32::from(keep)).map_err(Error::Control)
    }

    /// Reads counters, which go on counting: all CPUs of each added up.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or there are fewer.
    pub fn read_counters(&self, places: &[Counter]) -> Result<Vec<u64>> {
        let status = self.status()?;
        let own = (status.cpus * status.cpu_counters) as usize;
        let all = own + status.shared_counters as usize;
        let mut bytes = vec![0; 8 * all];
        self.file.read_exact_at(&mut bytes, HEADER).map_err(Error::Control)?;
        let word =
            |index: usize| bytes.chunks_exact(8).nth(index).map_or(0, |word| number(word, 8));
        Ok(places
            .iter()
            .map(|place| match *place {
                Counter::PerCpu(slot) => (0..status.cpus)
                    .map(|cpu| word((cpu * status.cpu_counters) as usize + slot as usize))
                    .fold(0, u64::wrapping_add),
                Counter::Shared(slot) => word(own + slot as usize),
            })
            .collect())
    }

    fn command(&mut self, verb: u32, argument: u32) -> io::Result<()> {
        let bytes = [verb.to_le_bytes(), argument.to_le_bytes()].concat();
        self.file.write_all(&bytes)
    }
}

fn number(bytes: &[u8], width: usize) -> u64 {
    bytes.iter().take(width).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Status {
    /// Reads the core's `struct status`.
    fn parse(bytes: &[u8]) -> Option<Status> {
        let half = |index: usize| number(&bytes[4 * index..], 4);
        let word = |index: usize| number(&bytes[16 + 8 * index..], 8);
        if half(0) != VERSION {
            return None;
        }
        Some(Status {
            state: match half(1) {
                0 => State::Out,
                1 => State::Installed,
                2 => State::Leaving,
                _ => return None,
            },
            keep: half(2) != 0,
            barred: half(3) != 0,
            entries: word(0),
            text_begin: word(1),
            text_end: word(2),
            cpus: word(3),
            cpu_counters: word(4),
            shared_counters: word(5),
            install_ns: word(6),
            remove_ns: word(7),
            stopped_ns: word(8),
            tasks: word(9),
            moved: word(10),
            hooked: word(11),
            stuck: word(12),
            foreign: word(13),
            taken: word(14),
            trapped: word(15),
            ticks: word(16),
            now_ns: word(17),
            interrupt_ticks: word(18),
            lost_threads: word(19),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of a core with two CPUs, two counters for each, and one for both.
    fn example() -> Vec<u8> {
        let mut bytes = Vec::new();
        [3u32, 1, 0, 0].iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        let words =
            [7u64, 0x1000, 0x2000, 2, 2, 1, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];
        words.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        bytes.resize(HEADER as usize, 0);
        [1u64, 10, 100, 1000, 5].iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
        bytes
    }

    #[test]
    fn counters_of_all_processors_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fettle");
        assert!(matches!(Installed::open_at(&path), Err(Error::NotLoaded)));
        std::fs::write(&path, example()).unwrap();
        let installed = Installed::open_at(&path).unwrap();
        let status = installed.status().unwrap();
        assert_eq!((status.state, status.entries), (State::Installed, 7));
        assert_eq!((status.cpus, status.trapped, status.now_ns), (2, 20, 22));
        let places = [Counter::PerCpu(1), Counter::Shared(0), Counter::PerCpu(0)];
        assert_eq!(installed.read_counters(&places).unwrap(), [1010, 5, 101]);
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = example();
        bytes[0] = 1;
        assert!(Status::parse(&bytes).is_none());
        bytes[0] = 1;
        bytes[4] = 9;
        assert!(Status::parse(&bytes).is_none());
    }
}
