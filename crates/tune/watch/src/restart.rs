//! Threads that begin anew: those of programs that say where (`runtime/sensor/fettle_restart.h`).

use std::path::PathBuf;

use fettle_sensor::{Directory, Sensor};
use fettle_types::{Pid, Tid};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::finding::{Finding, Why};
use crate::proc::Watched;
use crate::threads::mask;

/// By which a thread is asked to begin anew; `FETTLE_RESTART_SIGNAL` of the header. Linux has it and never sends it.
const SIGNAL: Signal = Signal::STKFLT;
/// `PIDFD_THREAD` of `pidfd_open(2)`: a handle of one thread.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// Has the threads of a process begin anew that are called so; where one of them was found to compute, that alone.
/// Says which.
///
/// # Errors
///
/// Why none does.
pub(crate) fn restart(process: &Watched, name: &str, finding: &Finding) -> Result<String, String> {
    let pid = process.id.pid;
    if !catches(pid) {
        return Err(format!(
            "no thread of it can begin anew: it does not catch signal {} (fettle_restart.h)",
            SIGNAL.as_raw()
        ));
    }
    let (files, place) = files(pid, name)?;
    let sensors: Vec<Sensor> = files.iter().filter_map(|path| Sensor::open(path).ok()).collect();
    let living = sensors.iter().filter(|sensor| sensor.is_alive());
    let owners = living.flat_map(Sensor::owners).filter_map(|tid| Tid::try_from(tid).ok());
    let mut threads: Vec<Tid> = owners.filter(|tid| is_of(pid, *tid)).collect();
    if let Why::Spins { tid, .. } = finding.why
        && threads.contains(&tid)
    {
        threads = vec![tid];
    }
    if threads.is_empty() {
        return Err(format!(
            "it has no thread {name} in {}: it was started without FETTLE_SENSORS, or has not come to its FETTLE_RESTARTED",
            place.display()
        ));
    }
    for tid in &threads {
        ask(pid, *tid).map_err(|error| format!("thread {tid} cannot be asked: {error}"))?;
    }
    let shown: Vec<String> = threads.iter().map(ToString::to_string).collect();
    Ok(format!("thread {}", shown.join(", ")))
}

fn files(pid: Pid, name: &str) -> Result<(Vec<PathBuf>, PathBuf), String> {
    let directory = Directory::open_default().map_err(|error| error.to_string())?;
    let own = pid.unsigned();
    let files = directory.files_of(|of, process| of == name && process == own);
    let files = files.map_err(|error| error.to_string())?;
    Ok((files, directory.path().to_owned()))
}

/// Whether a process has a handler for the signal: others it would end.
fn catches(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    mask(&status, "SigCgt:").is_some_and(|mask| mask >> (SIGNAL.as_raw() - 1) & 1 == 1)
}

/// Whether the process has this thread.
fn is_of(pid: Pid, tid: Tid) -> bool {
    std::fs::metadata(format!("/proc/{pid}/task/{tid}")).is_ok()
}

/// By a handle, so that no other thread is meant that has its number by now.
fn ask(pid: Pid, tid: Tid) -> Result<(), String> {
    let number = rustix::process::Pid::from_raw(tid.get()).ok_or("it has no number")?;
    let handle = pidfd_open(number, THREAD).map_err(|error| match error {
        rustix::io::Errno::INVAL => "Linux has handles of threads since 6.9".to_owned(),
        error => error.to_string(),
    })?;
    if !is_of(pid, tid) {
        return Err("it has ended".into());
    }
    pidfd_send_signal(handle, SIGNAL).map_err(|error| error.to_string())
}
