//! The entry into the kernel, and system calls.

use core::sync::atomic::Ordering;

use crate::cpu::{self, Frame, local};
use crate::lock::{BUILD, Build, GIANT};
use crate::log::{Event, log};
use crate::thread::{self, NONE, State};
use crate::{db, ipc, mem, sem, timer};

/// What a program may ask for: numbers of system calls.
pub mod number {
    pub const EXIT: u64 = 0;
    pub const SPAWN: u64 = 1;
    pub const SPAWN_THREAD: u64 = 2;
    pub const EXIT_THREAD: u64 = 3;
    pub const YIELD: u64 = 4;
    pub const SEM_SET: u64 = 5;
    pub const SEM_CLAIM: u64 = 6;
    pub const SEM_GIVE: u64 = 7;
    pub const SEND: u64 = 8;
    pub const RECEIVE: u64 = 9;
    pub const DB_READ: u64 = 10;
    pub const DB_UPDATE: u64 = 11;
    pub const TIMED_WORK: u64 = 12;
    pub const SELF: u64 = 13;
    pub const WORK: u64 = 14;
    pub const SHUT_DOWN: u64 = 15;
    pub const BEGIN: u64 = 16;
    pub const LIVE: u64 = 17;
    pub const END: u64 = 18;
    pub const TICK: u64 = 19;
    /// In the log: that of a fault, and its vector added.
    pub const FAULT: u64 = 1000;
}

/// Which lock covers a call in the coarse-grained build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subsystem {
    Ipc,
    DatabaseRead,
    DatabaseWrite,
    /// What its own fine locks cover.
    Common,
    Other,
}

fn subsystem(call: u64) -> Subsystem {
    use number::*;
    match call {
        SEND | RECEIVE => Subsystem::Ipc,
        DB_READ => Subsystem::DatabaseRead,
        DB_UPDATE => Subsystem::DatabaseWrite,
        SEM_SET | SEM_CLAIM | SEM_GIVE | TIMED_WORK | SELF => Subsystem::Common,
        _ => Subsystem::Other,
    }
}

fn enter(of: Subsystem) {
    match (BUILD, of) {
        (Build::Coarse, Subsystem::Ipc) => ipc::SUBSYSTEM.lock(),
        (Build::Coarse, Subsystem::DatabaseRead) => db::SUBSYSTEM.read(),
        (Build::Coarse, Subsystem::DatabaseWrite) => db::SUBSYSTEM.write(),
        (Build::Coarse, Subsystem::Common) => {}
        _ => GIANT.lock(),
    }
}

fn exit(of: Subsystem) {
    match (BUILD, of) {
        (Build::Coarse, Subsystem::Ipc) => ipc::SUBSYSTEM.unlock(),
        (Build::Coarse, Subsystem::DatabaseRead) => db::SUBSYSTEM.read_unlock(),
        (Build::Coarse, Subsystem::DatabaseWrite) => db::SUBSYSTEM.write_unlock(),
        (Build::Coarse, Subsystem::Common) => {}
        _ => GIANT.unlock(),
    }
}

/// Every way from user mode into the kernel comes here.
#[unsafe(no_mangle)]
extern "C" fn kernel_entry(frame: &mut Frame) {
    if frame.cs & 3 == 0 {
        crate::own_the_end();
        crate::say!(
            "lab: fault {} in the kernel at {:#x}, address {:#x}, error {:#x}\n",
            frame.vector,
            frame.rip,
            mem::fault_address(),
            frame.error
        );
        crate::finish(2);
    }
    thread::account_user();
    let here = thread::container(thread::current().container);
    let generation = here.generation;
    let of = if frame.vector == 128 { subsystem(frame.rax) } else { Subsystem::Other };
    // A timer would rarely interrupt the few instructions between a claim and what gives it back. If time slices
    // ended at these calls, most threads would lose their CPU with the semaphore in hand.
    let semaphore = matches!(frame.rax, number::SEM_CLAIM | number::SEM_GIVE);
    let ticks = frame.rax == number::TICK;
    let slice_may_end = match frame.vector {
        128 if ticks => timer::ends_slice(),
        128 => !semaphore,
        _ => true,
    };
    // The giant-locked kernel holds its lock from here until a thread is loaded.
    let call = if frame.vector == 128 { frame.rax } else { number::FAULT + frame.vector };
    log(Event::Call, call as u32, local().current);
    enter(of);
    match frame.vector {
        128 => system_call(frame),
        14 => {
            let address = mem::fault_address();
            let granted = here.lock.with(|| here.space.fault(address));
            if !granted {
                thread::terminate();
            }
        }
        // An illegal instruction or the like.
        _ => thread::terminate(),
    }
    if BUILD == Build::Coarse {
        exit(of);
    }
    timer::run();
    thread::leave(frame, generation, slice_may_end);
    if BUILD != Build::Coarse {
        exit(of);
    }
    log(Event::Leave, local().current, 0);
    thread::account_kernel();
}

fn system_call(frame: &mut Frame) {
    use number::*;
    let (a, b, c) = (frame.rdi, frame.rsi, frame.rdx);
    frame.rax = match frame.rax {
        EXIT => {
            thread::terminate();
            0
        }
        SPAWN => u64::from(thread::spawn(a as usize, b)),
        SPAWN_THREAD => u64::from(thread::spawn_thread(a as usize, b)),
        EXIT_THREAD => {
            thread::exit_thread();
            0
        }
        YIELD => {
            thread::yield_current();
            0
        }
        SEM_SET => {
            sem::set(a, b as i64);
            0
        }
        SEM_CLAIM => {
            sem::claim(a);
            0
        }
        SEM_GIVE => {
            sem::give(a);
            0
        }
        SEND => u64::from(ipc::send(a as u32, b)),
        RECEIVE => ipc::receive().unwrap_or(0),
        DB_READ => db::read(a, c),
        DB_UPDATE => db::update(a, b, c),
        TIMED_WORK => timer::timed_work(a, b),
        SELF => u64::from(thread::current().container),
        WORK => {
            cpu::compute(a);
            0
        }
        END => {
            crate::end();
            0
        }
        TICK => timer::tick(a != 0),
        LIVE => thread::live_containers(),
        BEGIN => {
            crate::begin();
            0
        }
        SHUT_DOWN => {
            crate::own_the_end();
            crate::report(a);
            crate::finish(0)
        }
        _ => u64::MAX,
    };
    if thread::current().state != State::Running && local().current != NONE {
        // The result of a call that waits is what wakes it.
        frame.rax = 0;
    }
}

/// How many CPUs there are.
pub fn cpus() -> u32 {
    thread::CPUS.load(Ordering::Relaxed)
}
