//! Recording: programs in the kernel, rings, and which processes are observed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crate::code::{Env, counter, state};
use crate::error::KernelError;
use crate::fields::{Fields, UringFields, single_reference};
use crate::programs::{self, PAYLOAD_MOST, Spec, TABLE_BYTES};
use crate::ring::Ring;
use crate::runtimes::{self, At, watch::Watch};
use crate::sys::{Map, MapKind, Program, Rejection, key_of, possible_processors};
use fettle_btf::{Btf, Kind};
use fettle_types::Pid;

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// All processes but this one; otherwise those that are asked for, and their descendants.
    pub system: bool,
    /// Bytes of each processor's ring, a power of two.
    pub ring_bytes: u32,
    /// Bytes of each message on a stream socket that are recorded, 0 for none; at most
    /// [`PAYLOAD_MOST`].
    pub payload: u32,
    /// Record the begin of all calls, not only of those that have to wait.
    pub begins: bool,
    /// Read structures as kernels before 6.2 have to: slower. For tests.
    pub old_reads: bool,
    /// Record when tasks of runtimes wake others. It puts a probe into their programs, so it must not be
    /// where anything else changes these.
    pub task_wakes: bool,
    /// Record only which threads run, begin, end and are woken, and the number of each system call when it
    /// begins and ends.
    pub only_calls: bool,
    /// Do without the kernel's functions, to which some kernels permit no attaching. For tests.
    pub tracepoints_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            system: false,
            ring_bytes: 8 << 20,
            payload: 0,
            begins: false,
            old_reads: false,
            task_wakes: false,
            only_calls: false,
            tracepoints_only: false,
        }
    }
}

/// What was not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that found no room, by processor.
    pub lost: Vec<u64>,
    /// Events that came while the program for them was running on their processor.
    pub missed: u64,
    /// System calls of 32-bit programs.
    pub compat: u64,
}

impl Losses {
    /// All records that found no room.
    pub fn total(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// A recording of kernel events. All of it ends when this is dropped, or the process ends.
#[derive(Debug)]
pub struct Capture {
    rings: Vec<Ring>,
    counters: Map,
    observed: Arc<Map>,
    programs: Vec<(&'static str, Program)>,
    links: Vec<OwnedFd>,
    watch: Watch,
    system: bool,
    /// Places that this kernel has not got.
    pub without: Vec<&'static str>,
    /// Kept alive for the programs, which hold only numbers of some of them.
    _maps: Vec<Map>,
}

/// Processes that can be observed at once.
const PROCESSES: u32 = 1 << 16;
/// Transfers under way at once.
const TRANSFERS: u32 = 1 << 14;
/// Connections that are being read at once. What `io_uring` reads, no call reports: it stays until the
/// socket is read otherwise, or closed.
const READS: u32 = 1 << 14;
const TYPES: &str = "/sys/kernel/btf/vmlinux";

impl Capture {
    /// Puts the programs into the kernel; nothing is recorded before [`Capture::start`].
    ///
    /// # Errors
    ///
    /// When the user may not or the kernel cannot; then nothing is left behind.
    pub fn new(options: &Options) -> Result<Capture, KernelError> {
        let btf = types()?;
        let map = |kind, key, value, entries| {
            Map::new(kind, key, value, entries).map_err(|error| refused("map", error))
        };
        let processors = possible_processors().map_err(KernelError::io("count processors"))?;
        let rings = (0..processors).map(|_| Ring::new(options.ring_bytes));
        let rings: Vec<Ring> =
            rings.collect::<io::Result<_>>().map_err(|error| refused("ring buffer", error))?;
        let outer = Map::of_maps(processors as u32, rings[0].map());
        let outer = outer.map_err(|error| refused("map of ring buffers", error))?;
        for (processor, ring) in rings.iter().enumerate() {
            let fd = ring.map().fd().to_le_bytes();
            let set = outer.set(&(processor as u32).to_le_bytes(), &fd);
            set.map_err(KernelError::io("give each processor its ring"))?;
        }
        let counters = map(MapKind::PerCpuArray, 4, 8, counter::COUNT)?;
        let observed = Arc::new(map(MapKind::Hash, 4, state::BYTES, PROCESSES)?);
        let transfers = map(MapKind::Hash, 8, 8, TRANSFERS)?;
        let arrivals = map(MapKind::Hash, 8, 8, READS)?;
        let calls = map(MapKind::Array, 4, TABLE_BYTES, 1)?;
        let set = calls.set(&0_u32.to_le_bytes(), &programs::table(options.begins));
        set.map_err(KernelError::io("write the table of system calls"))?;
        let payload = options.payload.min(PAYLOAD_MOST);
        let scratch = map(MapKind::PerCpuArray, 4, programs::scratch_bytes(payload), 1)?;
        let runtimes = Arc::new(map(MapKind::Hash, 4, runtimes::BYTES, PROCESSES)?);
        let cast = btf.find(Kind::Func, "bpf_rdonly_cast").ok();
        let mut env = Env {
            fields: Fields::find(&btf)?,
            cast: cast.filter(|_| !options.old_reads),
            payload,
            scratch: scratch.fd(),
            rings: outer.fd(),
            counters: counters.fd(),
            observed: observed.fd(),
            calls: calls.fd(),
            transfers: transfers.fd(),
            arrivals: arrivals.fd(),
            runtimes: runtimes.fd(),
            single_reference: single_reference(&btf),
            uring: UringFields::find(&btf),
            functions: false,
            only_calls: options.only_calls,
            all_but: options.system.then(std::process::id),
        };
        env.functions = !options.tracepoints_only
            && load(&programs::trial(&env), &btf).is_ok_and(|program| program.is_some());
        // Where the kernel does not say what is given to rings, every call counts.
        let given = load(&programs::given_to_rings(&env), &btf);
        env.uring = env.uring.filter(|_| given.is_ok_and(|program| program.is_some()));
        let (mut loaded, mut without) = (Vec::new(), Vec::new());
        for spec in programs::all(&env, &btf) {
            match load(&spec, &btf)? {
                Some(program) => loaded.push((spec.place, program)),
                None => without.push(spec.place),
            }
        }
        let of_tasks = if options.task_wakes { load_for_tasks(&env)? } else { Vec::new() };
        if options.task_wakes && of_tasks.is_empty() {
            without.push("tasks' wake-ups");
        }
        let watch = Watch::start(runtimes, of_tasks).map_err(KernelError::io("start a thread"))?;
        let system = options.system;
        let _maps = vec![outer, transfers, arrivals, calls, scratch];
        let links = Vec::new();
        Ok(Capture {
            rings,
            counters,
            observed,
            programs: loaded,
            links,
            watch,
            system,
            without,
            _maps,
        })
    }

    /// Begins to record.
    ///
    /// # Errors
    ///
    /// When the kernel does not attach a program.
    pub fn start(&mut self) -> Result<(), KernelError> {
        for (_, program) in &self.programs {
            let link = program.attach().map_err(KernelError::io("attach to the kernel"))?;
            self.links.push(link);
        }
        if self.system {
            running().for_each(|pid| self.watch.runs(pid));
        }
        Ok(())
    }

    /// Stops recording; what was recorded stays in the rings.
    pub fn stop(&mut self) {
        self.watch.stop();
        // The first ones follow the starts and ends of processes and go last.
        while self.links.pop().is_some() {}
    }

    /// The observed processes, to be changed while the recording runs.
    pub fn processes(&self) -> Processes {
        Processes { observed: self.observed.clone(), watch: self.watch.clone() }
    }

    /// Hands what every processor has recorded since last time to `take`, with its number; see
    /// [`crate::ring::records`]. Returns the bytes of the fullest ring.
    ///
    /// # Errors
    ///
    /// What `take` answers.
    pub fn drain<E>(
        &mut self,
        mut take: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut most = 0;
        for (processor, ring) in self.rings.iter_mut().enumerate() {
            let watch = &self.watch;
            let drained = ring.drain(|bytes| {
                watch.look(bytes);
                take(processor as u32, bytes)
            });
            most = drained?.max(most);
        }
        Ok(most)
    }

    /// What was not recorded so far.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn losses(&self) -> Result<Losses, KernelError> {
        let count = |counter: i32| -> io::Result<Vec<u64>> {
            let bytes = self.counters.get(&counter.to_le_bytes())?.unwrap_or_default();
            let words = bytes.as_chunks::<8>().0;
            Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
        };
        let notify = KernelError::io("ask the kernel what was lost");
        let missed = self.programs.iter().map(|(_, program)| program.missed());
        Ok(Losses {
            lost: count(counter::LOST).map_err(&notify)?,
            missed: missed.sum::<io::Result<u64>>().map_err(&notify)?,
            compat: count(counter::COMPAT).map_err(&notify)?.iter().sum(),
        })
    }
}

/// The observed processes.
#[derive(Clone, Debug)]
pub struct Processes {
    observed: Arc<Map>,
    watch: Watch,
}

impl Processes {
    fn set_state(&self, pid: Pid, state: i32) -> Result<(), KernelError> {
        let mut value = [0; state::BYTES as usize];
        value[..4].copy_from_slice(&state.to_le_bytes());
        let set = self.observed.set(&key_of(pid), &value);
        set.map_err(KernelError::io("observe a process"))
    }

    /// Observes a process from now on, and all of its descendants from now on.
    pub fn observe(&self, pid: Pid) -> Result<(), KernelError> {
        self.set_state(pid, state::OBSERVED)?;
        self.watch.runs(pid);
        Ok(())
    }

    /// Observes children that this process forks from now on, each from its first exec on, until what is
    /// returned is dropped.
    ///
    /// # Errors
    ///
    /// As [`Processes::observe`].
    pub fn observe_children(&self) -> Result<Children, KernelError> {
        self.set_state(Pid::own(), state::PARENT)?;
        Ok(Children(self.clone()))
    }

    /// Observes a running process and all its descendants, and gives their numbers.
    pub fn observe_tree(&self, pid: Pid) -> Result<BTreeSet<Pid>, KernelError> {
        let mut seen = BTreeSet::new();
        let mut wanted = vec![pid];
        // A child that begins meanwhile is observed by its parent's being so; one that began
        // before its parent was observed is found once nothing new is.
        while !wanted.is_empty() {
            for pid in wanted.drain(..) {
                if seen.insert(pid) {
                    self.observe(pid)?;
                }
            }
            let all: Vec<Pid> = seen.iter().copied().collect();
            wanted.extend(all.into_iter().flat_map(children).filter(|pid| !seen.contains(pid)));
        }
        Ok(seen)
    }

    /// Whether no process is observed any more, children of this process aside. A process that is gone
    /// although the kernel's programs did not see its end is observed no more.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn none_left(&self) -> Result<bool, KernelError> {
        let ask = KernelError::io("ask the kernel who is observed");
        let own = std::process::id();
        let mut after: Option<Vec<u8>> = None;
        while let Some(key) = self.observed.next_key(after.as_deref()).map_err(&ask)? {
            let pid = key[..].try_into().map_or(own, u32::from_le_bytes);
            if pid == own {
                after = Some(key);
            } else if Path::new(&format!("/proc/{pid}")).exists() {
                return Ok(false);
            } else {
                // Gone since is as good as removed.
                let _ = self.observed.remove(&key);
            }
        }
        Ok(true)
    }
}

/// While this exists, children of this process are observed; see [`Processes::observe_children`].
#[derive(Debug)]
#[must_use]
pub struct Children(Processes);

impl Drop for Children {
    fn drop(&mut self) {
        // If it cannot be removed, children of this process go on being observed: there are none.
        let _ = self.0.observed.remove(&key_of(Pid::own()));
    }
}

/// The kernel's types, if programs in it can be asked about our processes.
pub(crate) fn types() -> Result<Btf, KernelError> {
    own_numbers()?;
    Ok(Btf::parse(fs::read(TYPES).map_err(KernelError::NoTypes)?)?)
}

/// Fails unless the kernel's numbers of processes are ours.
fn own_numbers() -> Result<(), KernelError> {
    use std::os::unix::fs::MetadataExt;
    /// What the kernel calls the first namespace of process numbers.
    const FIRST: u64 = 0xefff_fffc;
    match fs::metadata("/proc/self/ns/pid") {
        Ok(found) if found.ino() != FIRST => Err(KernelError::PidNamespace),
        _ => Ok(()),
    }
}

/// The programs at functions of runtimes; none if this kernel is too old for them.
fn load_for_tasks(env: &Env) -> Result<Vec<(At, Program)>, KernelError> {
    type Write = fn(&Env) -> Vec<crate::asm::Insn>;
    let all: [(At, &str, Write); 3] = [
        (At::Ready, "ready", programs::ready),
        (At::Made, "made", programs::made),
        (At::Queued, "queued", programs::queued),
    ];
    let mut loaded = Vec::new();
    for (at, name, write) in all {
        match Program::load_for_programs(name, &write(env)) {
            Ok(program) => loaded.push((at, program)),
            // Before Linux 6.6 it is not known what the program is to be attached to.
            Err(rejection) if rejection.log.is_empty() => {}
            Err(Rejection { error, log }) => {
                return Err(KernelError::Rejected { program: "tasks of runtimes", error, log });
            }
        }
    }
    Ok(loaded)
}

/// Hands a program to the kernel; `None` if it can be done without, and this kernel has not got
/// its place.
pub(crate) fn load(spec: &Spec, btf: &Btf) -> Result<Option<Program>, KernelError> {
    let (kind, name) = spec.target();
    let target = match btf.find(kind, &name) {
        Ok(target) => target,
        Err(_) if spec.optional => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match Program::load(spec.place, &spec.code, spec.attach, target) {
        Ok(program) => Ok(Some(program)),
        Err(rejection) => {
            /// The kernel's own, for what it cannot do.
            const ENOTSUPP: i32 = 524;
            let code = rejection.error.raw_os_error();
            if code == Some(libc::EPERM) && rejection.log.is_empty() {
                return Err(KernelError::NotPermitted);
            }
            if spec.optional && matches!(code, Some(libc::ENOENT | libc::EOPNOTSUPP | ENOTSUPP)) {
                return Ok(None);
            }
            // The verifier's last words say what it did not like.
            let lines: Vec<&str> = rejection.log.lines().collect();
            let log = lines[lines.len().saturating_sub(30)..].join("\n");
            Err(KernelError::Rejected { program: spec.place, error: rejection.error, log })
        }
    }
}

pub(crate) fn refused(what: &'static str, error: io::Error) -> KernelError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => KernelError::NotPermitted,
        _ => KernelError::NoBpf { what, error },
    }
}

/// All processes that run now.
fn running() -> impl Iterator<Item = Pid> {
    let found = fs::read_dir("/proc").into_iter().flatten().flatten();
    found.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The children that a process has now.
fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let threads = threads.into_iter().flatten().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let texts = threads.filter_map(|thread| of_thread(thread).ok());
    texts
        .flat_map(|t| t.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
        .collect()
}
