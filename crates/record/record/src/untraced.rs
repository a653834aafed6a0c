//! Untraced recordings, of the kernel's events alone: nothing is put into any process, and no process is
//! traced.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fettle_live::{ExitStatus, Launch, LiveError};
use fettle_trace::{Finish, ProbeMode};
use fettle_types::Pid;

use crate::ending::Ending;
use crate::error::RecordError;
use crate::kernel::{KernelOptions, Running};
use crate::process_table::ProcessTable;
use crate::record;
use crate::relay::{Destination, Finished, Remote};
use crate::session::Outliving;

/// Whose events are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program's that is started, and its descendants'.
    Command(Vec<OsString>),
    /// Those of running processes, and of their descendants, present and future.
    Running(Vec<Pid>),
    /// Those of all processes.
    System,
}

/// What to record, and for how long.
#[derive(Clone, Debug)]
pub struct KernelRecording {
    /// Whose events.
    pub target: Target,
    /// The trace's folder; it must not exist.
    pub output: PathBuf,
    /// The machine on which the trace is made, if it is another one; then the folder holds what is
    /// on its way.
    pub remote: Option<Remote>,
    /// How.
    pub kernel: KernelOptions,
    /// The longest that it goes on, if it is not stopped. A program that was started ends by itself.
    pub duration: Option<Duration>,
    /// What becomes of processes that outlive the program that was started.
    pub outliving: Outliving,
}

/// What came of it.
#[derive(Debug)]
pub struct KernelOutcome {
    /// How the program ended, if one was started.
    pub status: Option<ExitStatus>,
    /// What became of the trace.
    pub finished: Finished,
}

/// What reads from a program ends right after it, although Fettle does not wait for that: it is recorded
/// for so much longer.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How often Fettle checks whether it is over.
const PERIOD: Duration = Duration::from_millis(10);

/// Records until the program has ended, or also all of its descendants, or until `stop` is set. For
/// processes that run already, `begun` is called once nothing that they do from then on is missed.
///
/// # Errors
///
/// When nothing can be recorded, or the program not be run; then there is no trace.
pub fn record_kernel(
    recording: &KernelRecording,
    stop: &AtomicBool,
    begun: &mut dyn FnMut(),
) -> Result<KernelOutcome, RecordError> {
    let mut process_table = ProcessTable::default();
    if let Target::Running(pids) = &recording.target {
        for pid in pids {
            if !PathBuf::from(format!("/proc/{pid}")).exists() {
                return Err(RecordError::NoProcess(*pid));
            }
        }
    }
    let capture = recording.kernel.capture_untraced()?;
    let command = match &recording.target {
        Target::Command(command) => command.clone(),
        // As which the report shows it.
        Target::Running(pids) => pids.iter().map(|pid| shown(*pid).into()).collect(),
        Target::System => vec!["all processes".into()],
    };
    let mut manifest = record::new_manifest(&command);
    manifest.probe_mode = ProbeMode::None;
    let (destination, mut writer) =
        Destination::create(&recording.output, recording.remote.as_ref(), &manifest)?;
    let running = match record::start_kernel(recording.kernel, capture, &destination) {
        Ok(running) => running,
        Err(error) => {
            destination.give_up(writer);
            return Err(error);
        }
    };
    // Should the recording be cut off, or be read before its end: the processes that were there before
    // it.
    let mut known = |process_table: &ProcessTable| {
        let (processes, threads) = process_table.so_far();
        let manifest = manifest.clone();
        writer.checkpoint(&Finish { manifest, processes, threads, ..Finish::default() })?;
        begun();
        Ok(())
    };
    let status = match follow(recording, &running, &mut process_table, &mut known, stop) {
        Ok(status) => status,
        Err(error) => {
            drop(running.end());
            destination.give_up(writer);
            return Err(error);
        }
    };
    let mut kernel = running.end().known(process_table);
    if recording.remote.is_some() {
        kernel.pack();
    }
    record::end_clock(&mut manifest);
    manifest.exit = status.map(record::exit);
    let ending = Ending::new(Finish { manifest, ..Finish::default() }, Some(kernel));
    let finished = destination.finish(writer, ending, stop, &mut |_, _| {});
    let finished = finished.map_err(|error| RecordError::unfinished(status, error))?;
    Ok(KernelOutcome { status, finished })
}

/// A process by its program and number.
fn shown(pid: Pid) -> String {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    match program.as_deref().and_then(Path::file_name) {
        Some(name) => format!("{} ({pid})", name.to_string_lossy()),
        // A thread of the kernel, or one that may not be looked at.
        None => format!("process {pid}"),
    }
}

fn follow(
    recording: &KernelRecording,
    running: &Running,
    process_table: &mut ProcessTable,
    known: &mut dyn FnMut(&ProcessTable) -> Result<(), fettle_trace::Error>,
    stop: &AtomicBool,
) -> Result<Option<ExitStatus>, RecordError> {
    let processes = running.processes();
    let stopped = || stop.load(Ordering::Relaxed);
    let gone = || -> bool { processes.none_left().unwrap_or(true) };
    match &recording.target {
        Target::Command(command) => {
            let mut words = command.iter().cloned();
            let launch = Launch::new(words.next().expect("a program"), words);
            let mut children = match recording.kernel.system {
                true => None,
                false => Some(processes.observe_children()?),
            };
            let mut ended = None;
            let mut reported = false;
            let mut tick = |status: Option<ExitStatus>| {
                if status.is_none() {
                    return false;
                }
                // It is no parent any more.
                children.take();
                if recording.kernel.system || stopped() || gone() {
                    return true;
                }
                let ended = ended.get_or_insert_with(Instant::now);
                if ended.elapsed() < LAST_WORDS {
                    return false;
                }
                if !std::mem::replace(&mut reported, true) {
                    recording.outliving.notify("the program", "what it started runs on");
                }
                !recording.outliving.recorded
            };
            let status = fettle_live::run_untraced(&launch, PERIOD, &mut |_| (), &mut tick);
            Ok(Some(status.map_err(not_found)?))
        }
        Target::Running(pids) => {
            for pid in pids {
                for pid in processes.observe_tree(*pid)? {
                    process_table.running(pid);
                }
            }
            known(process_table)?;
            wait(recording.duration, || stopped() || gone());
            Ok(None)
        }
        Target::System => {
            all_processes().into_iter().for_each(|pid| process_table.running(pid));
            known(process_table)?;
            wait(recording.duration, stopped);
            Ok(None)
        }
    }
}

fn not_found(error: LiveError) -> RecordError {
    match error {
        LiveError::NotFound { program } => RecordError::NotFound {
            program: program.to_string_lossy().into_owned(),
            error: std::io::ErrorKind::NotFound.into(),
        },
        error => error.into(),
    }
}

fn wait(duration: Option<Duration>, mut over: impl FnMut() -> bool) {
    let start = Instant::now();
    while !over() && duration.is_none_or(|duration| start.elapsed() < duration) {
        std::thread::sleep(PERIOD);
    }
}

/// Processes that run now.
fn all_processes() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
