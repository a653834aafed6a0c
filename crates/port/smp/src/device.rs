//! The module's device: a command is written, its answer read from the same open file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::list::List;

/// Where the device is.
pub const PATH: &str = "/dev/fettle-smp";

/// The open device of a loaded module.
#[derive(Debug)]
pub struct Device {
    file: File,
}

/// What a lent processor does, and did since it was lent.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Processor {
    /// Linux's number.
    pub processor: u32,
    /// `idle`, `running` or `failed`.
    pub state: String,
    /// System calls that went to Linux.
    pub calls: u64,
    /// System calls that the application kernel answered.
    pub local_calls: u64,
    /// Page faults that went to Linux.
    pub faults: u64,
    /// Other exceptions.
    pub traps: u64,
    /// Interrupts from Linux.
    pub pokes: u64,
    /// Interrupts of the processor's own timer.
    pub ticks: u64,
    /// Times that a thread began to run.
    pub switches: u64,
    /// Times that translations were forgotten since Linux had changed page tables.
    pub flushes: u64,
    /// Threads taken from another lent processor.
    pub steals: u64,
    /// Nanoseconds without a thread.
    pub idle_ns: u64,
}

/// A thread that runs on lent processors when it can.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// `running`, `ready`, `in Linux` (in a system call or page fault), or `home`.
    pub state: String,
    /// Lent processor it ran on last, or -1.
    pub processor: i64,
    /// Nanoseconds in user mode since it last went out.
    pub ran_ns: u64,
    /// System calls that went to Linux since then.
    pub calls: u64,
    /// System calls answered on the lent processor since then.
    pub local_calls: u64,
    /// Page faults since then.
    pub faults: u64,
}

/// A user other than root who may use lent processors.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Right {
    /// Its number.
    pub user: u32,
    /// Processors that it may use while they are lent, as a list like `2,4-7`.
    pub processors: String,
}

/// What [`Device::status`] tells.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Status {
    /// Lent processors.
    pub processors: Vec<Processor>,
    /// Threads that take part.
    pub threads: Vec<Thread>,
    /// Users other than root who may use them.
    #[serde(default)]
    pub users: Vec<Right>,
    /// Changes of page tables that Linux told the module of.
    pub invalidations: u64,
    /// Interrupts by which the application kernel woke threads in Linux.
    pub bells: u64,
}

/// An entry of the application kernel's log.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
pub struct Note {
    /// Time-stamp counter.
    pub tick: u64,
    /// Index of the lent processor.
    pub index: u32,
    /// `up`, `left`, `failure` or `recalled`.
    pub what: String,
    /// `up`: its controller's number; `failure`: the exception; `recalled`: the thread.
    pub a: u64,
    /// `up`: Linux's number of it; `failure`: the instruction's address.
    pub b: u64,
}

/// How a program takes part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Membership<'a> {
    /// Lent processors that it may run on; all without.
    pub list: Option<&'a List>,
    /// A thread of it comes home while Linux has more to do with it than it has itself.
    pub is_mixed: bool,
}

impl fmt::Display for Membership<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_mixed {
            to.write_str(" mixed")?;
        }
        self.list.map_or(Ok(()), |list| write!(to, " {list}"))
    }
}

impl Device {
    /// Whether the module is loaded.
    pub fn is_there() -> bool {
        Path::new(PATH).exists()
    }

    /// Opens the device of a loaded module.
    ///
    /// # Errors
    ///
    /// When it is not loaded, or the caller is not allowed to.
    pub fn open() -> Result<Device, Error> {
        let path = PathBuf::from(PATH);
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => Ok(Device { file }),
            Err(why) => Err(Error::Device { path, why }),
        }
    }

    /// Loads the module from a file unless it is loaded, and opens its device.
    ///
    /// # Errors
    ///
    /// When there is no such file, or Linux does not load it; what Linux said is in its own log.
    pub fn load(module: &Path) -> Result<Device, Error> {
        if Device::is_there() {
            return Device::open();
        }
        if !module.exists() {
            return Err(Error::NoModule(module.to_path_buf()));
        }
        crate::source::run(std::process::Command::new("insmod").arg(module))?;
        Device::open()
    }

    fn notify(&mut self, command: &str) -> Result<String, Error> {
        let done = self.file.write_all(command.as_bytes());
        let mut answer = String::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut answer));
        match (done, read) {
            (Ok(()), Ok(_)) => Ok(answer),
            (Err(why), _) if answer.is_empty() => Err(Error::Refused(format!("{command}: {why}"))),
            (Err(_), _) => Err(Error::Refused(answer)),
            (_, Err(why)) => Err(Error::Answer(why.to_string())),
        }
    }

    /// Takes processors out of Linux and starts the application kernel on them. With `hold` they are
    /// given back when this device is closed.
    ///
    /// # Errors
    ///
    /// When one of them cannot be lent; then none is.
    pub fn lend(&mut self, list: &List, hold: bool) -> Result<(), Error> {
        let hold = if hold { " hold" } else { "" };
        self.notify(&format!("lend {list}{hold}")).map(drop)
    }

    /// Brings threads home and gives processors back to Linux, all if none are named.
    ///
    /// # Errors
    ///
    /// When one of them is not lent.
    pub fn give_back(&mut self, list: Option<&List>) -> Result<(), Error> {
        self.notify(&with_list("give-back", list)).map(drop)
    }

    /// Makes the calling thread, what it executes and its children run on lent processors.
    ///
    /// # Errors
    ///
    /// When none is lent.
    pub fn join(&mut self, terms: Membership<'_>) -> Result<(), Error> {
        self.notify(&format!("join{terms}")).map(drop)
    }

    /// Makes a running process do so.
    ///
    /// # Errors
    ///
    /// When there is no such process, or no processor is lent.
    pub fn attach(&mut self, pid: u32, terms: Membership<'_>) -> Result<(), Error> {
        self.notify(&format!("attach {pid}{terms}")).map(drop)
    }

    /// Gives a user other than root the right to use these processors while they are lent, or takes it away.
    ///
    /// # Errors
    ///
    /// When the caller is not root, or too many users have a right.
    pub fn allow(&mut self, user: u32, list: Option<&List>) -> Result<(), Error> {
        let list = list.map_or("none".to_owned(), List::to_string);
        self.notify(&format!("allow {user} {list}")).map(drop)
    }

    /// Brings a process home for good.
    ///
    /// # Errors
    ///
    /// When it does not take part.
    pub fn home(&mut self, pid: u32) -> Result<(), Error> {
        self.notify(&format!("home {pid}")).map(drop)
    }

    /// What lent processors and threads do.
    ///
    /// # Errors
    ///
    /// When the module is of another version.
    pub fn status(&mut self) -> Result<Status, Error> {
        let answer = self.notify("status")?;
        serde_json::from_str(&answer).map_err(|why| Error::Answer(why.to_string()))
    }

    /// The application kernel's log, oldest entry first.
    ///
    /// # Errors
    ///
    /// When the module is of another version.
    pub fn log(&mut self) -> Result<Vec<Note>, Error> {
        let answer = self.notify("log")?;
        serde_json::from_str(&answer).map_err(|why| Error::Answer(why.to_string()))
    }
}

fn with_list(command: &str, list: Option<&List>) -> String {
    match list {
        Some(list) => format!("{command} {list}"),
        None => command.to_string(),
    }
}
