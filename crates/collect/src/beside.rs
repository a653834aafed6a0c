//! Recordings of the kernel's events alone: nothing is put into any process, and nobody traces.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fettle_live::{ExitStatus, Launch, LiveError};
use fettle_trace::{Finish, Manifest, ProbeMode, TraceWriter};

use crate::kernel::{KernelOptions, Running};
use crate::lives::Lives;
use crate::record::{self, RecordError};

/// Whose events are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program's that is started, and of all that it begets.
    Command(Vec<OsString>),
    /// Of running processes, their descendants, and what they beget.
    Running(Vec<u32>),
    /// Everybody's.
    System,
}

/// What to record, and for how long.
#[derive(Clone, Debug)]
pub struct KernelRecording {
    /// Whose events.
    pub target: Target,
    /// The trace's folder; it must not exist.
    pub output: PathBuf,
    /// How.
    pub kernel: KernelOptions,
    /// The longest that it goes on, if nobody stops it. A program that was started ends by itself.
    pub duration: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub struct KernelOutcome {
    /// How the program ended, if one was started.
    pub status: Option<ExitStatus>,
    /// The trace's manifest.
    pub manifest: Manifest,
}

/// How often we look whether it is over.
const PERIOD: Duration = Duration::from_millis(10);

/// Records until the program and all that it begot have ended, or until `stop` is set.
///
/// # Errors
///
/// When nothing can be recorded, or the program not be run; then there is no trace.
pub fn record_kernel(
    recording: &KernelRecording,
    stop: &AtomicBool,
) -> Result<KernelOutcome, RecordError> {
    let mut lives = Lives::default();
    if let Target::Running(pids) = &recording.target {
        for pid in pids {
            if !PathBuf::from(format!("/proc/{pid}")).exists() {
                let source = std::io::Error::from_raw_os_error(libc::ESRCH);
                return Err(RecordError::NotFound {
                    program: format!("process {pid}"),
                    error: source,
                });
            }
        }
    }
    let capture = recording.kernel.capture()?;
    let command = match &recording.target {
        Target::Command(command) => command.clone(),
        // As which the report shows it.
        Target::Running(pids) => pids.iter().map(|pid| format!("process {pid}").into()).collect(),
        Target::System => vec!["all processes".into()],
    };
    let mut manifest = record::new_manifest(&command);
    manifest.probe_mode = ProbeMode::None;
    let writer = TraceWriter::create(&recording.output, &manifest)?;
    let running = record::start_kernel(Some(recording.kernel), Some(capture), &recording.output)?;
    let running = running.expect("asked for");
    let status = match follow(recording, &running, &mut lives, stop) {
        Ok(status) => status,
        Err(error) => {
            drop(running.end());
            drop(writer);
            let _ = std::fs::remove_dir_all(&recording.output);
            return Err(error);
        }
    };
    let ended = running.end();
    record::end_clock(&mut manifest);
    manifest.exit = status.map(record::exit);
    let converted = ended.convert(&recording.output, lives, &mut manifest)?;
    let (processes, threads) = converted.lives.tables(manifest.duration_ns);
    manifest.totals.processes = processes.len() as u64;
    manifest.totals.threads = threads.len() as u64;
    let events = converted.events;
    let finish = Finish { manifest, processes, threads, events, ..Finish::default() };
    let manifest = writer.finish(finish, &mut |_, _| {})?;
    Ok(KernelOutcome { status, manifest })
}

fn follow(
    recording: &KernelRecording,
    running: &Running,
    lives: &mut Lives,
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
            let mut tick = |status: Option<ExitStatus>| {
                if status.is_none() {
                    return false;
                }
                // It is no parent any more.
                children.take();
                recording.kernel.system || stopped() || gone()
            };
            let status = fettle_live::run_beside(&launch, PERIOD, &mut tick);
            Ok(Some(status.map_err(not_found)?))
        }
        Target::Running(pids) => {
            for pid in pids {
                for pid in processes.observe_tree(*pid)? {
                    lives.running(pid);
                }
            }
            wait(recording.duration, || stopped() || gone());
            Ok(None)
        }
        Target::System => {
            all_processes().into_iter().for_each(|pid| lives.running(pid));
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
fn all_processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
