//! The heartbeat that waiting producers check.
//!
//! It comes from a thread of its own. A consumer may be busy for long with what it has read, or be
//! blocked by its own output; producers then wait with it, as at a pipe. A consumer that was killed
//! or stopped has no heartbeat.

use std::mem::{MaybeUninit, offset_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{io, ptr};

use fettle_abi::sensor::{Head, WAIT_LIMIT_NS};

use crate::map::Map;

/// Pause between two signs: so many are missed before producers stop waiting that a machine may be
/// very busy.
const PAUSE: Duration = Duration::from_nanos(WAIT_LIMIT_NS / 100);

const CONSUMER_BEAT: u64 = offset_of!(Head, consumer_beat) as u64;

/// Beats while it exists.
#[derive(Debug)]
pub(crate) struct Heart {
    map: Arc<Map>,
    beating: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Heart {
    /// Says that there is a consumer, and goes on saying so if producers `wait`.
    pub(crate) fn new(map: &Arc<Map>, wait: bool) -> io::Result<Heart> {
        beat(map);
        let mut heart = Heart { map: map.clone(), beating: None };
        if wait {
            let (map, (stop, stopped)) = (map.clone(), channel());
            let thread = Builder::new().name("fettle-sensor".to_owned()).stack_size(1 << 16);
            heart.beating = Some((stop, thread.spawn(move || beat_until(&map, &stopped))?));
        }
        Ok(heart)
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.beating.take() {
            drop(stop);
            let _ = thread.join();
        }
        self.map.u64(CONSUMER_BEAT).store(0, Relaxed);
    }
}

fn beat(map: &Map) {
    let beat = map.u64(CONSUMER_BEAT);
    // 0 means that there is no consumer.
    beat.store(beat.load(Relaxed).wrapping_add(1).max(1), Relaxed);
}

/// Beats until the other end is dropped.
fn beat_until(map: &Map, stopped: &Receiver<()>) {
    leave_signals_to_others();
    while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        beat(map);
    }
}

/// Signals are handled by threads that expect it, but for faults, which are this thread's own.
fn leave_signals_to_others() {
    let mut others = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is ours, and filled before it is changed and read.
    unsafe {
        libc::sigfillset(others.as_mut_ptr());
        libc::sigdelset(others.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, others.as_ptr(), ptr::null_mut());
    }
}
