//! Running a program without tracing it: it is left alone altogether, and somebody else, such as
//! the kernel, tells what it does.

use std::io;
use std::time::Duration;

use libc::c_int;

use crate::error::LiveError;
use crate::events::ExitStatus;
use crate::launch::{self, Failure, Launch};
use crate::signals::{self, JobControl, Ticker};

/// Runs a program. `tick` is called every `period`, with how the program ended once it has, and
/// says whether that is all. Answers how the program ended.
///
/// # Errors
///
/// When the program cannot be run.
pub fn run_beside(
    launch: &Launch,
    period: Duration,
    tick: &mut dyn FnMut(Option<ExitStatus>) -> bool,
) -> Result<ExitStatus, LiveError> {
    match follow(launch, period, tick) {
        Err(Failure::Script(path)) => match follow(&launch.through_shell(&path), period, tick) {
            Err(Failure::Script(path)) => Err(LiveError::Format { path }),
            Err(Failure::Error(error)) => Err(error),
            Ok(status) => Ok(status),
        },
        Err(Failure::Error(error)) => Err(error),
        Ok(status) => Ok(status),
    }
}

fn follow(
    launch: &Launch,
    period: Duration,
    tick: &mut dyn FnMut(Option<ExitStatus>) -> bool,
) -> Result<ExitStatus, Failure> {
    let failed = |action| move |source| Failure::Error(LiveError::Os { action, source });
    let job_control = JobControl::new().map_err(failed("handle the terminal's signals"))?;
    let _ticker = Ticker::new(period).map_err(failed("set a timer"))?;
    let spawned = launch::spawn(launch).map_err(Failure::Error)?;
    let pid = spawned.pid;
    let started = spawned.go().map_err(Failure::Error)?;
    let status = loop {
        match wait(pid) {
            Ok(News::Stopped(signal)) => job_control.program_stopped(signal),
            Ok(News::Ended(status)) => break status,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(failed("wait for the program")(error)),
        }
        signals::forward(pid);
        tick(None);
    };
    if let Some(failure) = started.failure(launch) {
        return Err(failure);
    }
    while !tick(Some(status)) {
        std::thread::sleep(period);
    }
    Ok(status)
}

enum News {
    Stopped(c_int),
    Ended(ExitStatus),
}

/// Waits for news of a child, or a signal.
fn wait(pid: i32) -> io::Result<News> {
    let mut status = 0;
    // SAFETY: the kernel fills a value that we own.
    if unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFSTOPPED(status) {
        News::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFEXITED(status) {
        News::Ended(ExitStatus::Code(libc::WEXITSTATUS(status)))
    } else {
        let (signal, core) = (libc::WTERMSIG(status), libc::WCOREDUMP(status));
        News::Ended(ExitStatus::Signal { signal, core })
    })
}
