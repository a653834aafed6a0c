//! A session for tests: injects pages into every program and writes down what happens.

#![allow(dead_code)] // each test file uses a part

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fettle_live::*;

pub const PAGE: u64 = 4096;
/// Where tests map their code and their shared page: far from everything.
pub const CODE: u64 = 0x0000_2000_0000_0000;
pub const DATA: u64 = 0x0000_2000_1000_0000;

/// A memfd with the given content.
pub fn memfd(content: &[u8]) -> Arc<OwnedFd> {
    // SAFETY: a terminated string; the descriptor is new and ours.
    let fd = unsafe {
        OwnedFd::from_raw_fd(libc::memfd_create(c"fettle-test".as_ptr(), libc::MFD_CLOEXEC))
    };
    let mut file = File::from(fd.try_clone().unwrap());
    file.write_all(content).unwrap();
    Arc::new(fd)
}

pub fn content(fd: &OwnedFd) -> Vec<u8> {
    let mut file = File::from(fd.try_clone().unwrap());
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Event {
    Exec { pid: i32, executable: PathBuf },
    Injected { pid: i32, error: Option<String> },
    Born { parent: i32, pid: i32, tid: i32, birth: Birth },
    ThreadExit { pid: i32, tid: i32 },
    ProcessExit { pid: i32, status: ExitStatus },
    Detached { pid: i32 },
}

/// Chooses what to inject.
pub type Inject = Box<dyn FnMut(&ExecStop<'_>) -> Option<Injection>>;

pub struct Recorder {
    pub events: Vec<Event>,
    pub ticks: u32,
    pub cpu: HashMap<i32, Duration>,
    pub inject: Inject,
    /// Base for the gs of newcomers, counted up.
    pub next_gs: Option<u64>,
    pub on_tick: Box<dyn FnMut(u32, &[Event])>,
}

impl Recorder {
    pub fn new(inject: impl FnMut(&ExecStop<'_>) -> Option<Injection> + 'static) -> Recorder {
        Recorder {
            events: Vec::new(),
            ticks: 0,
            cpu: HashMap::new(),
            inject: Box::new(inject),
            next_gs: None,
            on_tick: Box::new(|_, _| {}),
        }
    }

    pub fn births(&self, kind: Birth) -> usize {
        let of_kind = |event: &&Event| matches!(event, Event::Born { birth, .. } if *birth == kind);
        self.events.iter().filter(of_kind).count()
    }

    pub fn execs(&self, name: &str) -> usize {
        let of_name = |event: &&Event| matches!(event, Event::Exec { executable, .. } if executable.ends_with(name));
        self.events.iter().filter(of_name).count()
    }

    pub fn exits(&self) -> Vec<ExitStatus> {
        let status = |event: &Event| match event {
            Event::ProcessExit { status, .. } => Some(*status),
            _ => None,
        };
        self.events.iter().filter_map(status).collect()
    }

    pub fn errors(&self) -> Vec<String> {
        let error = |event: &Event| match event {
            Event::Injected { error, .. } => error.clone(),
            _ => None,
        };
        self.events.iter().filter_map(error).collect()
    }

    /// Each thread and process is born once and ends once.
    pub fn assert_lives_are_whole(&self) {
        let mut threads = HashMap::<i32, i32>::new();
        let mut processes = std::collections::HashSet::new();
        for event in &self.events {
            match event {
                Event::Exec { pid, .. } if processes.is_empty() => {
                    processes.insert(*pid);
                }
                Event::Exec { pid, .. } => assert!(processes.contains(pid), "{event:?}"),
                Event::Born { pid, tid, birth: Birth::Thread, parent } => {
                    assert!(processes.contains(pid), "{event:?}");
                    assert!(threads.get(parent) == Some(pid) || parent == pid, "{event:?}");
                    assert_eq!(threads.insert(*tid, *pid), None, "{event:?}");
                }
                Event::Born { pid, tid, .. } => {
                    assert_eq!(pid, tid);
                    assert!(processes.insert(*pid), "{event:?}");
                }
                Event::ThreadExit { pid, tid } => {
                    assert_eq!(threads.remove(tid), Some(*pid), "{event:?}");
                }
                Event::ProcessExit { pid, .. } => {
                    assert!(!threads.values().any(|of| of == pid), "{event:?}");
                    assert!(processes.remove(pid), "{event:?}");
                }
                Event::Injected { .. } | Event::Detached { .. } => {}
            }
        }
        assert!(processes.is_empty() && threads.is_empty(), "{:#?}", self.events);
    }
}

impl Session for Recorder {
    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection> {
        let (pid, executable) = (stop.pid, stop.executable.clone());
        self.events.push(Event::Exec { pid, executable });
        (self.inject)(stop)
    }

    fn injected(&mut self, pid: i32, result: Result<(), LiveError>) {
        let error = result.err().map(|error| error.to_string());
        self.events.push(Event::Injected { pid, error });
    }

    fn born(&mut self, parent: i32, pid: i32, tid: i32, birth: Birth) -> Option<u64> {
        self.events.push(Event::Born { parent, pid, tid, birth });
        let base = self.next_gs?;
        self.next_gs = Some(base + PAGE);
        Some(base)
    }

    fn thread_exit(&mut self, pid: i32, tid: i32) {
        self.events.push(Event::ThreadExit { pid, tid });
    }

    fn process_exit(&mut self, pid: i32, status: ExitStatus, cpu: Duration) {
        self.cpu.insert(pid, cpu);
        self.events.push(Event::ProcessExit { pid, status });
    }

    fn tick(&mut self) {
        self.ticks += 1;
        (self.on_tick)(self.ticks, &self.events);
    }

    fn detached(&mut self, pid: i32) {
        self.events.push(Event::Detached { pid });
    }
}

/// Maps a page of code that counts in a shared page and goes on to the program, and leads the
/// first instruction there: what an instrumented program looks like, made as small as possible.
pub fn counting_injection(stop: &ExecStop<'_>, counter: &Arc<OwnedFd>) -> Injection {
    let at = stop.instruction.0;
    let original = stop.read(stop.instruction, 14).unwrap();
    // lock inc qword [rip + data]; then restore nothing: the entry is reached through a copy of
    // the program's first bytes only if those can be moved, so write them back first.
    //   push rax; push rcx; push rsi; push rdi   (flags are free at entry)
    //   mov  rax, DATA; lock inc qword [rax]
    //   ... and jump to the loader, whose entry was left as it is: the program counter is changed
    //   by a jump at the entry of a page that is mapped writable for this purpose.
    let _ = (at, original);
    let code = vec![0xcc; PAGE as usize];
    let code = memfd(&code);
    let prot = |read, write, exec| Prot { read, write, exec };
    Injection {
        maps: vec![
            FileMap {
                fd: code,
                offset: 0,
                len: PAGE,
                addr: LiveAddr(CODE),
                prot: prot(true, false, true),
                shared: false,
                dont_dump: true,
            },
            FileMap {
                fd: counter.clone(),
                offset: 0,
                len: PAGE,
                addr: LiveAddr(DATA),
                prot: prot(true, true, false),
                shared: true,
                dont_dump: true,
            },
        ],
        writes: Vec::new(),
        phdr: None,
        gs_base: Some(DATA),
    }
}

pub static NEVER: AtomicBool = AtomicBool::new(false);

pub fn options(wait_for: WaitFor) -> RunOptions<'static> {
    RunOptions { period: Duration::from_millis(5), stop: &NEVER, wait_for }
}
