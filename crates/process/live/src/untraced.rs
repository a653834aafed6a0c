//! Running a program without tracing it: something else, such as the kernel, reports what it does.

use std::io;
use std::time::Duration;

use fettle_types::Pid;
use libc::c_int;

use crate::error::LiveError;
use crate::exit_status::ExitStatus;
use crate::launch::{self, Failure, Launch};
use crate::ptrace;
use crate::signals::{self, JobControl, Ticker};

/// Runs a program. `begin` is called with its number when it has been executed; it may pause its
/// threads, but the program is not waited for meanwhile, and signals are not forwarded. `tick` is
/// called every `period`, with how the program ended once it has, and says whether to stop calling
/// it. Returns how the program ended.
///
/// # Errors
///
/// When the program cannot be run.
pub fn run_untraced(
    launch: &Launch,
    period: Duration,
    begin: &mut dyn FnMut(Pid),
    tick: &mut dyn FnMut(Option<ExitStatus>) -> bool,
) -> Result<ExitStatus, LiveError> {
    match follow(launch, period, begin, tick) {
        Err(Failure::Script(path)) => {
            let shell = launch.through_shell(&path);
            follow(&shell, period, begin, tick).map_err(Failure::into_error)
        }
        Err(Failure::Error(error)) => Err(error),
        Ok(status) => Ok(status),
    }
}

fn follow(
    launch: &Launch,
    period: Duration,
    begin: &mut dyn FnMut(Pid),
    tick: &mut dyn FnMut(Option<ExitStatus>) -> bool,
) -> Result<ExitStatus, Failure> {
    let failed = |action| move |source| Failure::Error(LiveError::Os { action, source });
    let job_control = JobControl::new().map_err(failed("handle the terminal's signals"))?;
    let _ticker = Ticker::new(period).map_err(failed("set a timer"))?;
    let spawned = launch::spawn(launch).map_err(Failure::Error)?;
    let pid = spawned.pid;
    let started = spawned.go().map_err(Failure::Error)?;
    // Waits until the program is executed, or is not.
    let failure = started.failure(launch);
    if failure.is_none() {
        ptrace::await_end(pid);
        begin(pid);
    }
    let status = loop {
        match wait(pid) {
            Ok(ChildEvent::Stopped(signal)) => job_control.program_stopped(signal),
            Ok(ChildEvent::Ended(status)) => break status,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => match ptrace::awaited_end(pid) {
                Some(status) => break status,
                None => return Err(failed("wait for the program")(error)),
            },
        }
        signals::forward(pid);
        tick(None);
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    while !tick(Some(status)) {
        std::thread::sleep(period);
    }
    Ok(status)
}

enum ChildEvent {
    Stopped(c_int),
    Ended(ExitStatus),
}

/// Waits for a report of a child, or a signal.
fn wait(pid: Pid) -> io::Result<ChildEvent> {
    let mut status = 0;
    // SAFETY: the kernel fills a value that we own.
    if unsafe { libc::waitpid(pid.get(), &raw mut status, libc::WUNTRACED) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(match ptrace::end_of(status) {
        Some(end) => ChildEvent::Ended(end),
        None => ChildEvent::Stopped(libc::WSTOPSIG(status)),
    })
}
