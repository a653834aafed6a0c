//! The tracing thread, as others see it.
//!
//! Only the tracer may stop a thread, so a thread that wants to pause a process that is followed
//! asks the tracer.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use fettle_types::{Pid, Tid};

use crate::error::LiveError;
use crate::signals;
use crate::thread::Thread;

/// Requests to the tracing thread.
pub(crate) enum Ask {
    /// To pause all threads of a process until `go_on` is dropped.
    Stop {
        pid: Pid,
        patience: Duration,
        answer: Sender<Result<Stopped, Stuck>>,
        go_on: Receiver<()>,
    },
    /// To trace another process, too.
    Join { pid: Pid, answer: Sender<Result<(), LiveError>> },
    /// To detach from everything.
    End,
}

/// All threads of a process.
pub(crate) type Stopped = Vec<Thread>;

/// A thread that does not stop; perhaps because it gets no processor.
pub(crate) struct Stuck {
    pub(crate) tid: Tid,
    pub(crate) starved: bool,
    pub(crate) paused_for: Duration,
}

/// The channel to the tracing thread, which pauses processes that it follows.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    asks: Sender<Ask>,
    /// The thread that traces.
    tid: Tid,
}

impl Follower {
    /// For the calling thread, which traces.
    pub(crate) fn of_this_thread() -> (Follower, Receiver<Ask>) {
        let (asks, wanted) = mpsc::channel();
        (Follower { asks, tid: own_tid() }, wanted)
    }

    pub(crate) fn ask(&self, ask: Ask) -> Result<(), mpsc::SendError<Ask>> {
        self.asks.send(ask)?;
        signals::wake(self.tid);
        Ok(())
    }
}

/// The calling thread.
pub(crate) fn own_tid() -> Tid {
    // SAFETY: takes and touches nothing.
    let number = unsafe { libc::gettid() };
    Tid::try_from(number).expect("the kernel numbers threads from 1")
}
