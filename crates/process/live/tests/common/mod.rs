//! A session for tests: injects pages into every program and writes down what happens.

#![allow(dead_code)] // each test file uses a part

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fettle_live::{
    Birth, ExecStop, ExitStatus, FileMap, Injection, Launch, LiveAddr, LiveError, Prot, RunOptions,
    Session, WaitFor,
};
use fettle_types::{Pid, Tid};

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
    Exec { pid: Pid, executable: PathBuf },
    Injected { pid: Pid, error: Option<String> },
    Born { parent: Option<Tid>, pid: Pid, tid: Tid, birth: Birth },
    ThreadExit { pid: Pid, tid: Tid },
    ProcessExit { pid: Pid, status: ExitStatus },
    Detached { pid: Pid },
    SetuidExec { pid: Pid, path: PathBuf },
}

/// Chooses what to inject.
pub type Inject = Box<dyn FnMut(&ExecStop<'_>) -> Option<Injection>>;

/// Called at each tick, with the ticks and events so far.
pub type OnTick = Box<dyn FnMut(u32, &[Event])>;

pub struct Recorder {
    pub events: Vec<Event>,
    pub ticks: u32,
    pub cpu: HashMap<Pid, Duration>,
    pub inject: Inject,
    /// Base for the gs of new threads, counted up.
    pub next_gs: Option<u64>,
    pub on_tick: OnTick,
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
        let mut threads = HashMap::<Tid, Pid>::new();
        let mut processes = std::collections::HashSet::new();
        for event in &self.events {
            match event {
                Event::Exec { pid, .. } if processes.is_empty() => {
                    processes.insert(*pid);
                }
                Event::Exec { pid, .. } => assert!(processes.contains(pid), "{event:?}"),
                Event::Born { pid, tid, birth: Birth::Thread, parent } => {
                    assert!(processes.contains(pid), "{event:?}");
                    let sibling = parent.expect("threads have living parents");
                    let is_of_process = threads.get(&sibling) == Some(pid);
                    assert!(is_of_process || sibling.is_first_of(*pid), "{event:?}");
                    assert_eq!(threads.insert(*tid, *pid), None, "{event:?}");
                }
                Event::Born { pid, tid, .. } => {
                    assert!(tid.is_first_of(*pid));
                    assert!(processes.insert(*pid), "{event:?}");
                }
                Event::ThreadExit { pid, tid } => {
                    assert_eq!(threads.remove(tid), Some(*pid), "{event:?}");
                }
                Event::ProcessExit { pid, .. } => {
                    assert!(!threads.values().any(|of| of == pid), "{event:?}");
                    assert!(processes.remove(pid), "{event:?}");
                }
                Event::Injected { .. } | Event::Detached { .. } | Event::SetuidExec { .. } => {}
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

    fn injected(&mut self, pid: Pid, result: Result<(), LiveError>) {
        let error = result.err().map(|error| error.to_string());
        self.events.push(Event::Injected { pid, error });
    }

    fn born(&mut self, parent: Option<Tid>, pid: Pid, tid: Tid, birth: Birth) -> Option<u64> {
        self.events.push(Event::Born { parent, pid, tid, birth });
        let base = self.next_gs?;
        self.next_gs = Some(base + PAGE);
        Some(base)
    }

    fn thread_exit(&mut self, pid: Pid, tid: Tid) {
        self.events.push(Event::ThreadExit { pid, tid });
    }

    fn process_exit(&mut self, pid: Pid, status: ExitStatus, cpu: Duration) {
        self.cpu.insert(pid, cpu);
        self.events.push(Event::ProcessExit { pid, status });
    }

    fn tick(&mut self) {
        self.ticks += 1;
        (self.on_tick)(self.ticks, &self.events);
    }

    fn setuid_exec(&mut self, pid: Pid, path: &Path) {
        let path = path.to_owned();
        self.events.push(Event::SetuidExec { pid, path });
    }

    fn detached(&mut self, pid: Pid) {
        self.events.push(Event::Detached { pid });
    }
}

// What an instrumented program looks like, made as small as possible: the program's first
// instructions are overwritten with a jump to here. This counts, through an address and through
// gs, puts the first instructions back, clears the registers as they were, and goes there.
core::arch::global_asm!(
    ".pushsection .rodata.fettle_live_test, \"a\", @progbits",
    "fettle_live_test_begin:",
    "    lea  rbx, [rip + fettle_live_test_end]",
    "    mov  rax, [rbx]",
    "    lock inc qword ptr [rax]",
    "    lock inc qword ptr gs:[8]",
    "    mov  eax, 10", // mprotect, to be able to write
    "    mov  rdi, [rbx + 8]",
    "    mov  rsi, [rbx + 16]",
    "    mov  edx, 7",
    "    syscall",
    "    mov  rdi, [rbx + 24]",
    "    lea  rsi, [rbx + 32]",
    "    mov  ecx, 14",
    "    rep movsb",
    "    mov  eax, 10", // and back
    "    mov  rdi, [rbx + 8]",
    "    mov  rsi, [rbx + 16]",
    "    mov  edx, 5",
    "    syscall",
    "    mov  rax, [rbx + 24]",
    "    push rax",
    "    xor  eax, eax",
    "    xor  ebx, ebx",
    "    xor  ecx, ecx",
    "    xor  edx, edx",
    "    xor  esi, esi",
    "    xor  edi, edi",
    "    xor  r11d, r11d",
    "    ret",
    // counter, page, length of pages, first instruction, what was there
    "fettle_live_test_end:",
    ".popsection",
);

unsafe extern "C" {
    static fettle_live_test_begin: u8;
    static fettle_live_test_end: u8;
}

fn counting_code(stop: &ExecStop<'_>) -> Vec<u8> {
    let (begin, end) = (&raw const fettle_live_test_begin, &raw const fettle_live_test_end);
    // SAFETY: both symbols lie in the section above.
    let code = unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) };
    let at = stop.instruction.0;
    let (page, end) = (at & !(PAGE - 1), (at + 14).next_multiple_of(PAGE));
    let mut bytes = code.to_vec();
    for word in [DATA, page, end - page, at] {
        bytes.extend(word.to_le_bytes());
    }
    // A process that was killed meanwhile does not get to run them.
    bytes.extend(stop.read(stop.instruction, 14).unwrap_or_else(|_| vec![0; 14]));
    bytes
}

/// An injection that counts the program's start in a shared page, at 0 and 8.
pub fn counting_injection(stop: &ExecStop<'_>, counter: &Arc<OwnedFd>) -> Injection {
    let map = |fd, addr, prot, shared| FileMap {
        fd,
        offset: 0,
        len: PAGE,
        addr: LiveAddr(addr),
        prot,
        shared,
        dont_dump: true,
    };
    let code_prot = Prot { read: true, write: false, exec: true };
    let data_prot = Prot { read: true, write: true, exec: false };
    // jmp [rip]; address
    let mut jump = vec![0xff, 0x25, 0, 0, 0, 0];
    jump.extend(CODE.to_le_bytes());
    Injection {
        maps: vec![
            map(memfd(&counting_code(stop)), CODE, code_prot, false),
            map(counter.clone(), DATA, data_prot, true),
        ],
        writes: vec![(stop.instruction, jump)],
        phdr: Some((stop.auxv.phdr, stop.auxv.phnum)),
        gs_base: Some(DATA),
    }
}

/// The two counts that [`counting_injection`] makes.
pub fn counts(counter: &OwnedFd) -> (u64, u64) {
    let bytes = content(counter);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (word(0), word(8))
}

/// A fresh counter and a recorder that injects it everywhere it can.
pub fn counting_recorder() -> (Recorder, Arc<OwnedFd>) {
    let counter = memfd(&[0; PAGE as usize]);
    let shared = counter.clone();
    let inject =
        move |stop: &ExecStop<'_>| (!stop.compat).then(|| counting_injection(stop, &shared));
    (Recorder::new(inject), counter)
}

/// One of the C programs in `tests/programs`, compiled once.
pub fn program(name: &str) -> PathBuf {
    static COMPILED: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap();
    let compiled = compiled.get_or_insert_default();
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let output = temporary(name);
        let status = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .arg(&output)
            .arg(source.with_extension("c"))
            .status();
        assert!(status.unwrap().success(), "compile {name}");
        output
    };
    compiled.entry(name.to_owned()).or_insert_with(compile).clone()
}

/// A path for a file of this test process.
pub fn temporary(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        // Tests run programs as other users.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), permissions).unwrap();
        directory
    });
    DIRECTORY.get().unwrap().path().join(name)
}

/// Copies a program without having the copy open for writing in this process: a test that forks at
/// the same time would inherit the descriptor, and a file that is open for writing cannot be
/// executed. So another process writes it.
pub fn copy_file(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap().success());
}

/// The example program `follow`, as it is now.
pub fn follow() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let deps = std::env::current_exe().unwrap();
        let target = deps.parent().unwrap().parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "fettle-live", "--example", "follow"]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(target.parent().unwrap());
        assert!(cargo.status().unwrap().success(), "build the example");
        target.join("examples/follow")
    };
    BUILT.get_or_init(build).clone()
}

pub fn launch(program: impl AsRef<Path>, args: &[&str]) -> Launch {
    Launch::new(program.as_ref(), args.iter().map(OsString::from))
}

pub static NEVER: AtomicBool = AtomicBool::new(false);

pub fn options(wait_for: WaitFor) -> RunOptions<'static> {
    RunOptions { period: Duration::from_millis(5), stop: &NEVER, wait_for }
}
