//! Messages: each process has a mailbox.

use crate::cpu::{self, local};
use crate::lock::{Class, Role, Spin};
use crate::thread::{self, CONTAINERS, NONE};

const LENGTH: usize = 64;
/// What sending costs besides the queue: checks, and the copy of a message of a real size.
const WORK: u64 = 300;

struct Mailbox {
    lock: Spin,
    open: bool,
    messages: [u64; LENGTH],
    first: usize,
    count: usize,
    waiting: u32,
}

const MAILBOX: Mailbox = Mailbox {
    lock: Spin::new(Class::Mailbox, Role::Object),
    open: false,
    messages: [0; LENGTH],
    first: 0,
    count: 0,
    waiting: NONE,
};
static mut TABLE: [Mailbox; CONTAINERS] = [MAILBOX; CONTAINERS];
/// The subsystem's lock: held over a whole kernel call.
pub static SUBSYSTEM: Spin = Spin::new(Class::Ipc, Role::Subsystem);

fn mailbox(of: u32) -> &'static mut Mailbox {
    // SAFETY: protected by its lock, or by the subsystem's.
    unsafe { &mut (*(&raw mut TABLE))[of as usize % CONTAINERS] }
}

pub fn open(of: u32) {
    let mailbox = mailbox(of);
    SUBSYSTEM.lock();
    mailbox.lock.with(|| {
        (mailbox.open, mailbox.first, mailbox.count, mailbox.waiting) = (true, 0, 0, NONE);
    });
    SUBSYSTEM.unlock();
}

pub fn close(of: u32) {
    let mailbox = mailbox(of);
    SUBSYSTEM.lock();
    mailbox.lock.with(|| mailbox.open = false);
    SUBSYSTEM.unlock();
}

/// Sends a message. Whether there was room for it.
pub fn send(to: u32, message: u64) -> bool {
    let mailbox = mailbox(to);
    mailbox.lock.lock();
    cpu::compute(WORK);
    let waiting = core::mem::replace(&mut mailbox.waiting, NONE);
    let fits = mailbox.open && mailbox.count < LENGTH;
    if waiting == NONE && fits {
        mailbox.messages[(mailbox.first + mailbox.count) % LENGTH] = message;
        mailbox.count += 1;
    }
    mailbox.lock.unlock();
    if waiting != NONE {
        thread::wake(waiting, message);
    }
    fits || waiting != NONE
}

/// The next message of the running thread's process, or nothing, and the thread waits for one.
pub fn receive() -> Option<u64> {
    let mailbox = mailbox(thread::current().container);
    mailbox.lock.lock();
    let message = (mailbox.count > 0).then(|| {
        let message = mailbox.messages[mailbox.first];
        mailbox.first = (mailbox.first + 1) % LENGTH;
        mailbox.count -= 1;
        message
    });
    if message.is_none() {
        mailbox.waiting = local().current;
        thread::block_current();
    }
    mailbox.lock.unlock();
    message
}
