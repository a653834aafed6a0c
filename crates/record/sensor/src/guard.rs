//! Survives a producer that truncates its file.
//!
//! To touch a mapped page past the end of its file is SIGBUS. As with systemd's journal, the
//! handler puts a page of zeros where the file's was and goes on; the mapping's owner later asks
//! whether that happened. Faults elsewhere go to the handler that was there before.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Most mappings at once.
const GUARDS: usize = 4096;
const PAGE: usize = fettle_types::PAGE as usize;

/// Address range of a mapping. Free if `end` is 0, being changed if `end` is 1.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    hit: AtomicBool,
}

static RANGES: [Range; GUARDS] = [const {
    Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), hit: AtomicBool::new(false) }
}; GUARDS];

/// Keeps faults in a range of addresses from killing the program, while it lives.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards these addresses; `None` if too many are guarded already.
    pub(crate) fn new(start: usize, bytes: usize) -> Option<Guard> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let free = |r: &Range| r.end.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
        let index = RANGES.iter().position(free)?;
        RANGES[index].start.store(start, Relaxed);
        RANGES[index].hit.store(false, Relaxed);
        RANGES[index].end.store(start + bytes, Release);
        Some(Guard(index))
    }

    /// Whether a fault was survived.
    pub(crate) fn was_hit(&self) -> bool {
        RANGES[self.0].hit.load(Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        RANGES[self.0].end.store(0, Release);
    }
}

/// The action before ours; written once, before ours is in force.
static BEFORE: std::sync::OnceLock<libc::sigaction> = std::sync::OnceLock::new();

fn install() {
    // SAFETY: an all-zero sigaction is a valid value (default action, empty mask).
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    ours.sa_sigaction = on_fault as *const () as usize;
    // SAFETY: reads the current action into `before`, which lives.
    unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) };
    let _ = BEFORE.set(before);
    // SAFETY: `on_fault` has the signature that SA_SIGINFO asks for and is async-signal-safe: it
    // uses atomics and system calls only.
    unsafe { libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) };
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler; SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for range in &RANGES {
        let end = range.end.load(Acquire);
        if end > 1 && (range.start.load(Relaxed)..end).contains(&address) {
            range.hit.store(true, Relaxed);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let page = (address & !(PAGE - 1)) as *mut libc::c_void;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: replaces one page of a mapping of ours, which `Map` reaches by atomics only
            // and keeps mapped while its guard lives.
            if unsafe { libc::mmap(page, PAGE, access, flags, -1, 0) } == page {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Does what would have happened without us.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    match before.map(|b| (b.sa_sigaction, b.sa_flags & libc::SA_SIGINFO != 0)) {
        Some((action, true)) if action > libc::SIG_IGN => {
            // SAFETY: the program installed this address with SA_SIGINFO, so it is such a handler.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(action) };
            handler(signal, info, context);
        }
        Some((action, false)) if action > libc::SIG_IGN => {
            // SAFETY: as above, without SA_SIGINFO.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(action) };
            handler(signal);
        }
        _ => {
            // SAFETY: restores the default action; the fault happens again and ends the program.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
