//! One recording, from the command to the finished trace.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fettle_abi::ring::Policy;
use fettle_code::{Depth, Mode};
use fettle_live::{ExitStatus, Launch, LiveError, RunOptions, WaitFor};
use fettle_trace::{
    Clock, Exit, Finish, Function, Loss, Manifest, Module, OpenCall, RunTotals, TickConverter,
};

use fettle_kernel_events::{Capture, KernelError};
use fettle_types::ModuleIndex;

use crate::ahead::OnPreparing;
use crate::arguments::ArgumentRequest;
use crate::cache::{Plans, folder::DEFAULT_LIMIT};
use crate::ending::Ending;
use crate::error::RecordError;
use crate::kernel::{KernelOptions, Running};
use crate::libraries::Libraries;
use crate::locking::Locking;
use crate::modules::{self, ModuleOptions, Modules};
use crate::naming::name_tables;
use crate::process_table::ProcessTable;
use crate::relay::{Destination, Finished, Remote};
use crate::select::Selection;
use crate::session::{Done, Outliving, Progress, Recorder};
use crate::slots::{SlotLayout, Slots};
use crate::unmatched::Unmatched;
use crate::user_probe::CompiledProbe;
use crate::{clock, cost, machine, rows};

/// What to record, and how.
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace's folder; it must not exist.
    pub output: PathBuf,
    /// The machine on which the trace is made, if it is another one; then the folder holds what is
    /// on its way.
    pub remote: Option<Remote>,
    /// What probes measure.
    pub mode: Mode,
    /// How deeply nested they measure.
    pub depth: Depth,
    /// Which functions get them.
    pub selection: Selection,
    /// The user probe, in the mode of that name.
    pub user_probe: Option<CompiledProbe>,
    /// Functions whose arguments are recorded.
    pub arguments: Vec<ArgumentRequest>,
    /// Shared libraries to record too: patterns for their paths or file names.
    pub libraries: Vec<String>,
    /// The user's own patterns: others may be there for locks.
    pub unmatched: Unmatched,
    /// Bytes of ring per thread, a power of two.
    pub ring_bytes: u32,
    /// What a thread does whose ring is full.
    pub policy: Policy,
    /// Threads at once.
    pub threads: u32,
    /// Blocks are laid out at random, by this seed: for tests.
    pub shuffle: Option<u64>,
    /// The kernel's events, if they are to be recorded too.
    pub kernel: Option<KernelOptions>,
    /// Calls that took less time leave no record.
    pub min_duration: Option<Duration>,
    /// What becomes of processes that outlive the launched one.
    pub outliving: Outliving,
    /// Where rewritten code is kept for later recordings; `None` for nowhere.
    pub cache: Option<PathBuf>,
    /// Notified of files that take longer than a second to rewrite.
    pub notify: Option<OnPreparing>,
}

impl Options {
    /// The sizes of the memory that threads write to.
    pub fn slots(&self) -> SlotLayout {
        SlotLayout {
            ring_bytes: self.ring_bytes,
            functions: FUNCTIONS,
            counters: match self.mode {
                Mode::Locks => (fettle_abi::locking::TABLE_BYTES / 8) as u32,
                mode if mode.has_counters() => COUNTERS,
                _ => 0,
            },
            slots: self.threads,
            locks: self.mode == Mode::Locks,
        }
    }

    /// The modules of a session, none yet; `osr_map` as in [`ModuleOptions`].
    pub fn modules(&self, osr_map: bool) -> Modules {
        let layout = self.slots();
        Modules::new(ModuleOptions {
            mode: self.mode,
            depth: self.depth,
            selection: self.selection.clone(),
            user_probe: self.user_probe.as_ref().map(|user_probe| user_probe.probe.clone()),
            arguments: self.arguments.clone(),
            functions: layout.functions,
            counters: layout.counters,
            ring_bytes: layout.ring_bytes,
            accumulators_at: layout.accumulators_at(),
            counters_at: layout.counters_at(),
            shuffle: self.shuffle,
            osr_map,
            cache: self.cache.as_deref().and_then(|path| Plans::open(path, DEFAULT_LIMIT)),
            notify: self.notify,
        })
    }
}

/// What came of a recording.
pub struct Outcome {
    /// How the program ended; `None` if it is still running.
    pub status: Option<ExitStatus>,
    /// What became of the trace.
    pub finished: Finished,
    /// Functions with probes.
    pub functions_probed: u64,
    /// The program files and libraries that were rewritten.
    pub modules: Vec<Module>,
    /// Functions left unmodified, by reason.
    pub reasons: Vec<(&'static str, u64)>,
    /// Programs that ran without probes, with the reason.
    pub refused: Vec<(String, String)>,
    /// What lifting and rewriting took.
    pub work: modules::Work,
    /// What threads left of locks, in the mode of that name.
    pub locking: Option<Locking>,
    /// Why the trace is not whole, if it is not.
    pub write_error: Option<fettle_trace::Error>,
}

/// Functions and counters that one session can number. The memory behind is sparse: what is not
/// used costs nothing.
const FUNCTIONS: u32 = 1 << 20;
const COUNTERS: u32 = 1 << 23;

/// Runs a program and records it.
///
/// `stop` ends the recording when the program ends, even if children of its live on, and these are to be
/// recorded to their ends.
///
/// # Errors
///
/// When the program cannot be started or nothing can be recorded of it; then it has not run.
/// Errors that come later are part of the outcome.
pub fn record(
    options: &Options,
    stop: &AtomicBool,
    progress: Option<Box<dyn FnMut(Progress) + '_>>,
    finishing: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, RecordError> {
    fettle_live::check_proc()?;
    let program = find_program(&options.command[0])?;
    if is_elf(&program) {
        modules::open_image(&program)?;
    }
    let slots = Slots::new(options.slots(), options.policy, options.mode);
    let slots = slots.map_err(RecordError::Memory)?;
    let mut command = options.command.iter().cloned();
    let launch = Launch::new(command.next().expect("a program"), command);
    let run = |recorder: &mut Recorder<'_>, kernel: Option<&Running>| {
        let children = kernel.map(|kernel| kernel.processes().observe_children()).transpose()?;
        let wait_for = match options.outliving.recorded {
            true => WaitFor::All,
            false => WaitFor::FirstProcess,
        };
        let waits = RunOptions { period: PERIOD, stop, wait_for };
        let status = fettle_live::run(&launch, recorder, waits);
        drop(children);
        Ok(Some(status?))
    };
    conduct(options, (&slots, options.modules(false)), run, (stop, progress, finishing))
}

/// How often what was recorded is stored.
pub const PERIOD: Duration = Duration::from_millis(2);

/// What a recording is watched by: what ends it, its progress, and that of its last part.
pub type Watch<'a> =
    (&'a AtomicBool, Option<Box<dyn FnMut(Progress) + 'a>>, &'a mut dyn FnMut(u64, u64));

/// Records what `run` has the recorder follow, from an empty trace to a finished one; `modules` may
/// be there already. `run` also gets the recording of kernel events, if there is one, and answers how
/// the program ended.
///
/// # Errors
///
/// When nothing can be recorded, and what `run` fails with; then there is no trace.
pub fn conduct<E: From<RecordError>>(
    options: &Options,
    (slots, modules): (&Slots, Modules),
    run: impl FnOnce(&mut Recorder<'_>, Option<&Running>) -> Result<Option<ExitStatus>, E>,
    (stop, progress, finishing): Watch<'_>,
) -> Result<Outcome, E> {
    // Refused here, nothing has been made or run yet.
    let capture = options.kernel.map(|kernel| kernel.capture()).transpose();
    let capture = capture.map_err(RecordError::from)?;
    let mut manifest = begin_manifest(options);
    let (destination, writer) =
        Destination::create(&options.output, options.remote.as_ref(), &manifest)?;
    let start = |(kernel, capture)| start_kernel(kernel, capture, &destination);
    let kernel = match options.kernel.zip(capture).map(start).transpose() {
        Ok(kernel) => kernel,
        Err(error) => {
            destination.give_up(writer);
            return Err(error.into());
        }
    };
    let libraries = Libraries::new(options.libraries.clone(), options.unmatched.clone());
    let mut recorder = Recorder::new(modules, libraries, slots, writer, progress);
    recorder
        .expect_user_fields(options.user_probe.as_ref().map(|user_probe| user_probe.fields.len()));
    recorder.expect_outliving(options.outliving);
    recorder.leave_out_shorter(options.min_duration);
    recorder.checkpoint_manifest(manifest.clone());
    let run = run(&mut recorder, kernel.as_ref());
    let kernel = kernel.map(Running::end);
    let (modules, writer, mut done, notes, write_error) = recorder.end();
    let status = match run {
        Ok(status) => status,
        Err(e) => {
            destination.give_up(writer);
            return Err(e);
        }
    };

    let converter = end_clock(&mut manifest);
    manifest.exit = status.map(exit);
    manifest.notes = notes;
    manifest.notes.extend(arguments_not_recorded(options, &modules));
    manifest.notes.extend(code_in_no_function(&modules));
    manifest.notes.extend(could_trace(&modules));
    manifest.notes.extend(unmatched_patterns(&mut done, &modules));
    manifest.switches = done.switches;
    fill_totals(&mut manifest, &done);
    let locking = done.locking.take().map(|locking| locking.timed(converter));
    done.into_ns(converter, options.mode);
    let (reasons, refused) = (modules::reasons(modules.all()), done.refused.clone());
    let functions_probed = functions_probed(&modules, &done);
    let work = modules.work;
    let finish = tables(options, manifest, &modules, done);
    let module_rows = finish.modules.clone();
    let mut kernel = kernel.map(|kernel| kernel.known(ProcessTable::default()));
    if let Some(kernel) = kernel.as_mut().filter(|_| options.remote.is_some()) {
        kernel.pack();
    }
    let ending = Ending::new(finish, kernel);
    let finished = destination.finish(writer, ending, stop, finishing);
    let finished = finished.map_err(|error| RecordError::unfinished(status, error))?;
    Ok(Outcome {
        status,
        finished,
        functions_probed,
        modules: module_rows,
        reasons: reasons.into_iter().map(|(r, n)| (r.describe(), n)).collect(),
        refused,
        work,
        locking,
        write_error,
    })
}

/// Functions of the modules whose rewritten text some process has got.
fn functions_probed(modules: &Modules, done: &Done) -> u64 {
    let mapped: HashSet<ModuleIndex> = done.mappings.iter().map(|mapping| mapping.module).collect();
    let got = modules.all().iter().filter(|module| mapped.contains(&module.id));
    got.map(|module| module.plan.functions.len() as u64).sum()
}

/// All tables of a trace but that of calls.
fn tables(options: &Options, mut manifest: Manifest, modules: &Modules, done: Done) -> Finish {
    let (counters, near) = done.counter_rows(modules);
    if near > 0 {
        manifest.notes.push(format!(
            "{near} functions were left in the middle, by an exception, longjmp or exit: counts of \
             their edges after that are too high or too low by as much"
        ));
    }
    let mut finish = Finish {
        mappings: done.mappings,
        processes: done.processes,
        threads: done.threads,
        totals: done.totals,
        user_values: done.user_values,
        counters,
        ..name_tables(manifest, modules)
    };
    match options.mode {
        Mode::Events => finish.open_calls = done.open,
        Mode::Time | Mode::Cpu => {
            finish.manifest.notes.extend(still_open(&done.open, &finish.functions));
        }
        _ => {}
    }
    finish
}

/// A note on calls that had not ended and are added up with those that have.
fn still_open(open: &[OpenCall], functions: &[Function]) -> Option<String> {
    const NAMED: usize = 5;
    let function = |call: &OpenCall| functions.get(call.function.place());
    let mut names: Vec<&str> = open.iter().filter_map(function).map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let others = names.split_off(names.len().min(NAMED)).len();
    let others = if others > 0 { format!(" and {others} others") } else { String::new() };
    let names = names.join(", ");
    let calls = open.len();
    let had = if calls == 1 { "call had" } else { "calls had" };
    (calls > 0)
        .then(|| format!("{calls} {had} not ended, and count up to the end: {names}{others}"))
}

/// Begins to record kernel events.
pub(crate) fn start_kernel(
    options: KernelOptions,
    capture: Capture,
    destination: &Destination,
) -> Result<Running, RecordError> {
    let failed = |error| KernelError::Io { what: "create the spool of kernel events", error };
    let spool = destination.kernel_spool().map_err(failed)?;
    Ok(Running::start(capture, spool, options.ring_bytes)?)
}

/// Notes when the recording ended, and how its ticks become nanoseconds.
pub fn end_clock(manifest: &mut Manifest) -> TickConverter {
    let end = clock::now();
    manifest.clock.end = Some(end);
    if let Some(begin) = manifest.clock.begin {
        manifest.clock.tsc_hz = clock::hertz(begin, end);
    }
    let converter = manifest.clock.converter();
    manifest.duration_ns = converter.since_start_ns(end.tsc);
    converter
}

/// How a program ended, for the manifest.
pub fn exit(status: ExitStatus) -> Exit {
    match status {
        ExitStatus::Code(code) => Exit { code: Some(code), signal: None },
        ExitStatus::Signal { signal, .. } => Exit { code: None, signal: Some(signal) },
    }
}

/// The manifest of a recording that begins now.
pub fn new_manifest(command: &[OsString]) -> Manifest {
    let mut manifest = Manifest {
        fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
        machine: machine::describe(),
        ..Manifest::default()
    };
    begin_clock(&mut manifest);
    manifest
}

/// Notes that the recording begins now.
pub fn begin_clock(manifest: &mut Manifest) {
    let begin = clock::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    manifest.start_unix_ns = unix.as_nanos() as u64;
    manifest.clock = Clock { tsc_hz: 0, tsc_at_start: begin.tsc, begin: Some(begin), end: None };
}

fn begin_manifest(options: &Options) -> Manifest {
    Manifest {
        probe_mode: rows::probe_mode(options.mode),
        min_duration_ns: options.min_duration.map(|least| least.as_nanos() as u64),
        user_fields: options
            .user_probe
            .as_ref()
            .map_or_else(Vec::new, |user_probe| user_probe.fields.clone()),
        probe_cost: cost::measure(options.mode),
        ..new_manifest(&options.command)
    }
}

fn fill_totals(manifest: &mut Manifest, done: &Done) {
    manifest.totals = RunTotals {
        calls: done.calls,
        records: 0,
        lost: done.lost,
        short: done.short,
        unwound_frames: done.unwound_frames,
        unmatched_exits: done.unmatched_exits,
        mirror_overflows: done.mirror_overflows,
        threads: done.threads.len() as u64,
        processes: done.processes.len() as u64,
    };
    if let Some(least) = manifest.min_duration_ns.filter(|_| done.short > 0) {
        let calls = if done.short == 1 { "call" } else { "calls" };
        manifest.notes.push(format!(
            "{} {calls} of less than {} µs left no record, as asked for: they are in counts and times, not in \
             latencies and trees",
            done.short,
            least as f64 / 1e3
        ));
    }
    let mut loss = |reason: &str, count: u64| {
        if count > 0 {
            manifest.losses.push(Loss { reason: reason.to_owned(), count });
        }
    };
    loss("record that could not be written to disk", done.unwritten);
    loss("record of a context switch that found no room", done.switches_lost);
    let threads = match done.limited {
        true => "thread for which the limit on files' sizes (RLIMIT_FSIZE, ulimit -f) left no room",
        false => "thread for which there was no room",
    };
    loss(threads, done.without_slot);
    loss(
        "program with privileges of its own, which went on untraced",
        done.privileged.values().sum(),
    );
    for (path, times) in &done.privileged {
        let times = if *times == 1 { String::new() } else { format!(" {times} times") };
        manifest.notes.push(format!(
            "{} ran{times} unrecorded, and is not in the trace, nor what it started: it has \
             privileges of its own (set-user-ID, set-group-ID, capabilities), which the kernel denies to \
             what an ordinary user traces",
            path.display()
        ));
    }
    for (path, reason) in &done.refused {
        manifest.notes.push(format!("{path} ran without probes: {reason}"));
    }
}

/// The report of unmatched patterns.
fn unmatched_patterns(done: &mut Done, modules: &Modules) -> Vec<String> {
    let mut unmatched = std::mem::take(&mut done.unmatched);
    for module in modules.all() {
        unmatched.meets_functions(&module.image, &module.plan);
    }
    unmatched.notes()
}

/// The report of files whose code is in no known function for the most part.
fn code_in_no_function(modules: &Modules) -> Vec<String> {
    let notes = modules.all().iter().map(|module| {
        let note = module.plan.coverage.note()?;
        Some(format!("{}: {note}", module.path.display()))
    });
    notes.flatten().collect()
}

/// The report of programs that may want to trace others: these have a tracer already, and `ptrace`
/// refuses the other without saying why.
fn could_trace(modules: &Modules) -> Vec<String> {
    let imports = |module: &&modules::Module| {
        module.image.relocs().iter().any(|reloc| reloc.symbol.as_deref() == Some("ptrace"))
    };
    let note = |module: &modules::Module| {
        let program = module.path.display();
        format!("{program} calls ptrace: that fails for what is recorded, which is traced already")
    };
    modules.all().iter().filter(imports).map(note).collect()
}

/// What was asked for of arguments and could not be had.
fn arguments_not_recorded(options: &Options, modules: &Modules) -> Vec<String> {
    let known = modules.all().iter().map(|m| &m.arguments);
    let unknown: Vec<&str> = known.clone().flat_map(|a| &a.unknown).map(String::as_str).collect();
    let mut notes = Vec::new();
    if let [first, rest @ ..] = unknown.as_slice() {
        let others = match rest.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        notes.push(format!(
            "no arguments of {first}{others}: no debug information says what they are; give a \
             prototype, as in --args 'int {first}(const char *, int)'"
        ));
    } else if !options.arguments.is_empty() && known.clone().all(|a| a.classes.is_empty()) {
        notes.push("no function has the name that --args gives".to_owned());
    }
    notes
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    std::fs::File::open(path)
        .and_then(|mut f| io::Read::read_exact(&mut f, &mut magic))
        .is_ok_and(|()| &magic == b"\x7fELF")
}

/// The file that the shell would run for `program`.
fn find_program(program: &OsString) -> Result<PathBuf, RecordError> {
    let not_found =
        |error| RecordError::NotFound { program: program.to_string_lossy().into_owned(), error };
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Err(not_found(io::ErrorKind::IsADirectory.into())),
            // It is not so much as opened: for a FIFO that would wait for a writer.
            Ok(meta) if !meta.is_file() => Err(LiveError::NotExecutable { path }.into()),
            Ok(_) => Ok(path),
            Err(e) => Err(not_found(e)),
        };
    }
    // As execvp.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            not_found(io::Error::new(io::ErrorKind::NotFound, "no program of this name in PATH"))
        })
}

/// Ends this process by `signal`, as the program ended, so that its parent sees the same status. Leaves
/// no core dump of its own.
pub fn die_by(signal: i32) -> ! {
    // SAFETY: plain system calls; the signal's default action is restored, so no handler of ours
    // runs, and it is raised in this thread. If it does not end the process, the exit does.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}
