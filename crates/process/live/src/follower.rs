//! The thread that traces, for those that want something of it.
//!
//! Only the thread that traces may stop a thread, so who wants a process that is followed to stand
//! still asks that one.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::error::LiveError;
use crate::signals;
use crate::thread::Thread;

/// What is wanted of the thread that traces.
pub(crate) enum Ask {
    /// That all threads of a process are paused until `go_on` is dropped.
    Stop {
        pid: i32,
        patience: Duration,
        answer: Sender<Result<Stopped, Stuck>>,
        go_on: Receiver<()>,
    },
    /// That it traces another process, too.
    Join { pid: i32, answer: Sender<Result<(), LiveError>> },
    /// The tracer was asked to detach from everything.
    End,
}

/// All threads of a process.
pub(crate) type Stopped = Vec<Thread>;

/// A thread that does not stop; perhaps because it gets no processor.
pub(crate) struct Stuck {
    pub(crate) tid: i32,
    pub(crate) starved: bool,
    pub(crate) stood: Duration,
}

/// The channel to the tracing thread, which pauses processes that it follows.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    asks: Sender<Ask>,
    /// The thread that traces.
    tid: i32,
}

impl Follower {
    /// The calling thread is the one that traces.
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

pub(crate) fn own_tid() -> i32 {
    // SAFETY: takes and touches nothing.
    unsafe { libc::gettid() }
}
