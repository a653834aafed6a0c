//! Work on a stack of its own size.
//!
//! The stack of a process's first thread is as large as the user's limit (`ulimit -s`). That limit
//! is meant for the program that is run, which inherits it; Fettle's work could overflow it.

use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::ptr;
use std::thread::Builder;

/// The size that the first thread has by default.
const BYTES: usize = 8 << 20;

/// Does `work` in a thread with a stack of the usual size. Signals to the process are delivered to
/// that thread, and interrupt its waits, as they would be to the first one; so nothing has to be
/// set up before.
///
/// Where no thread can be started, `work` is done here.
pub fn on_own_stack<T: Send + 'static>(work: fn() -> T) -> T {
    match Builder::new().name("fettle".to_owned()).stack_size(BYTES).spawn(work) {
        Ok(worker) => {
            hold_signals_back();
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        }
        Err(_) => work(),
    }
}

/// Blocks signals in this thread, so that they are delivered to other threads of the process.
fn hold_signals_back() {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is ours, and filled before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
}
