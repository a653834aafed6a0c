//! Programs for user mode. They are functions of the image: the code of all programs is mapped in every container, at
//! the same addresses. What a program may touch is its stack, its container's memory and constants.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::call::number::*;
use crate::cpu::compute;
use crate::heap;

/// What init is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Load {
    /// Two loops that call the kernel for a third of their time.
    Loops,
    /// Two loops in user mode alone, while the clock of each CPU ticks at the same moments (table 3.1).
    Ticks,
    /// The same with clocks that tick evenly apart.
    Staggered,
    /// Calls that create processes and update the database (figure 4.6).
    Processes,
    /// Calls by threads of one container, with the locked heap (figure 4.7, left).
    LockedHeap,
    /// The same with the lock-free heap (figure 4.7, right).
    FreeHeap,
    /// Everything at once, for races.
    Stress,
}

pub fn call(number: u64, a: u64, b: u64, c: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps all registers but the result's.
    unsafe {
        asm!("int 0x80", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c)
    }
    result
}

/// Where a program begins.
pub fn at(program: extern "C" fn(u64) -> !) -> u64 {
    program as usize as u64
}

fn exit() -> ! {
    loop {
        call(EXIT, 0, 0, 0);
    }
}

fn exit_thread() -> ! {
    loop {
        call(EXIT_THREAD, 0, 0, 0);
    }
}

/// The first program. Its argument: the load, and how much of it.
pub extern "C" fn init(argument: u64) -> ! {
    let me = call(SELF, 0, 0, 0);
    let size = argument >> 8;
    call(BEGIN, 0, 0, 0);
    let answers = match argument as u8 {
        load if load == Load::Loops as u8 => {
            call(SPAWN, at(loops), me | size << 16, 0);
            call(SPAWN, at(loops), me | size << 16, 0);
            2
        }
        load if load == Load::Ticks as u8 || load == Load::Staggered as u8 => {
            let staggered = u64::from(load == Load::Staggered as u8);
            for _ in 0..2 {
                call(SPAWN, at(ticking), me | size << 16 | staggered << 48, 0);
            }
            2
        }
        load if load == Load::Processes as u8 => {
            for _ in 0..GENERATORS {
                call(SPAWN, at(generator), me | (size / GENERATORS) << 16, 0);
            }
            GENERATORS
        }
        load if load == Load::Stress as u8 => {
            for n in 0..size {
                call(SPAWN, at(stress), me | n << 16, 0);
            }
            call(SPAWN, at(ball), me | size << 16, 0);
            size + 1
        }
        load => {
            let free = u64::from(load == Load::FreeHeap as u8);
            call(SPAWN, at(machine), me | size << 16 | free << 48, 0);
            1
        }
    };
    for _ in 0..answers {
        call(RECEIVE, 0, 0, 0);
    }
    call(END, 0, 0, 0);
    // A thread that has answered may not be gone yet.
    while call(LIVE, 0, 0, 0) > 1 {
        call(YIELD, 0, 0, 0);
    }
    call(SHUT_DOWN, size, 0, 0);
    exit()
}

/// Two of these run beside each other: on one CPU 64 parts of user mode and 36 of the kernel, in pieces of
/// irregular length. Regular ones would find a rhythm in which no thread ever waits.
extern "C" fn loops(argument: u64) -> ! {
    let mut random = argument | 1;
    for _ in 0..argument >> 16 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        compute((random >> 33) % 1280);
        call(WORK, (random >> 13) % 580, 0, 0);
    }
    call(SEND, argument & 0xffff, 1, 0);
    exit()
}

/// Computes in user mode, thousands of iterations, and calls nothing. What takes it into the kernel is the clock.
extern "C" fn ticking(argument: u64) -> ! {
    let (parent, staggered) = (argument & 0xffff, argument >> 48);
    let mut left = (argument >> 16 & 0xffff_ffff) * 1000;
    while left > 0 {
        // An iteration is four instructions, and an instruction a tick.
        let until_tick = call(TICK, staggered, 0, 0) / 4;
        compute(until_tick.min(left));
        left -= until_tick.min(left);
    }
    call(SEND, parent, 1, 0);
    exit()
}

const GENERATORS: u64 = 4;
/// Calls that a generator has under way.
const WINDOW: u64 = 4;

/// A static process: creates a dynamic one for each call, and waits for its answer.
extern "C" fn generator(argument: u64) -> ! {
    let me = call(SELF, 0, 0, 0);
    let mut left = argument >> 16;
    let mut under_way = 0;
    while left > 0 || under_way > 0 {
        while left > 0 && under_way < WINDOW {
            call(SPAWN, at(one_call), me | left << 16, 0);
            left -= 1;
            under_way += 1;
        }
        call(RECEIVE, 0, 0, 0);
        under_way -= 1;
    }
    call(SEND, argument & 0xffff, 1, 0);
    exit()
}

/// A dynamic process: one telephone call. It looks up who pays, computes, and writes that down.
extern "C" fn one_call(argument: u64) -> ! {
    let (parent, number) = (argument & 0xffff, argument >> 16);
    let key = number * 7 + parent * 13;
    call(DB_READ, key, 0, 1500);
    compute(4200);
    // A little of the heap beside the stack.
    touch(crate::mem::STACK_TOP + 64);
    call(DB_UPDATE, key, 1, 1500);
    call(SEND, parent, number, 0);
    exit()
}

fn touch(address: usize) {
    // SAFETY: the container's own memory, which a fault provides.
    unsafe { (address as *mut u64).write_volatile(1) }
}

/// Threads of a virtual machine.
const THREADS: u64 = 8;
/// Semaphore that the last thread gives.
const DONE: u64 = 2;

/// One container with several threads and a heap that they share.
extern "C" fn machine(argument: u64) -> ! {
    let (parent, size, free) = (argument & 0xffff, argument >> 16 & 0xffff_ffff, argument >> 48);
    call(SEM_SET, heap::SEMAPHORE, 1, 0);
    call(SEM_SET, DONE, 0, 0);
    heap::set_up();
    for n in 0..THREADS {
        call(SPAWN_THREAD, at(thread), n | (size / THREADS) << 8 | free << 48, 0);
    }
    for _ in 0..THREADS {
        call(SEM_CLAIM, DONE, 0, 0);
    }
    call(SEND, parent, 1, 0);
    exit()
}

extern "C" fn thread(argument: u64) -> ! {
    let (me, calls, free) = (argument & 0xff, argument >> 8 & 0xff_ffff_ffff, argument >> 48 != 0);
    for n in 0..calls {
        for _ in 0..6 {
            let object = heap::allocate(me, free);
            // SAFETY: the object is this thread's.
            unsafe { (object as *mut u64).write_volatile(n) }
            compute(420);
            heap::free(object, free);
        }
        call(DB_UPDATE, me * 31 + n, 1, 200);
    }
    call(SEM_GIVE, DONE, 0, 0);
    exit_thread()
}

/// A container that ends in all ways: while threads of it are in the kernel, wait, and have timers.
extern "C" fn stress(argument: u64) -> ! {
    let (parent, number) = (argument & 0xffff, argument >> 16);
    let semaphore = 8 + number % 48;
    call(SEM_SET, semaphore, 0, 0);
    touch(WORD);
    call(SPAWN_THREAD, at(helper), semaphore, 0);
    for n in 0..6 {
        call(TIMED_WORK, 400 + 300 * (number % 4), 900, 0);
        call(SEM_CLAIM, semaphore, 0, 0);
        call(DB_UPDATE, number * 3 + n, 1, 50);
    }
    call(SEND, parent, number, 0);
    match number % 3 {
        // SAFETY: the instruction that is none: the kernel ends the container.
        0 => unsafe { asm!("ud2") },
        1 => touch(0x7000_0000),
        _ => {}
    }
    exit()
}

/// A word of the container that its threads share.
const WORD: usize = crate::mem::USER + 0x80_0000;

extern "C" fn helper(semaphore: u64) -> ! {
    // SAFETY: the container's own memory.
    let word = unsafe { &*(WORD as *const AtomicU64) };
    loop {
        call(SEM_GIVE, semaphore, 0, 0);
        word.fetch_add(1, Ordering::Relaxed);
        call(WORK, 700, 0, 0);
    }
}

/// Semaphores of two threads that wait for each other in turns.
const THERE: u64 = 60;
const BACK: u64 = 61;

/// Plays with a second thread: each blocks when the other is about to wake it.
extern "C" fn ball(argument: u64) -> ! {
    call(SEM_SET, THERE, 0, 0);
    call(SEM_SET, BACK, 0, 0);
    let rounds = (argument >> 16) * 20;
    call(SPAWN_THREAD, at(racket), rounds, 0);
    for _ in 0..rounds {
        call(SEM_GIVE, THERE, 0, 0);
        call(SEM_CLAIM, BACK, 0, 0);
    }
    call(SEND, argument & 0xffff, 1, 0);
    exit()
}

extern "C" fn racket(rounds: u64) -> ! {
    for _ in 0..rounds {
        call(SEM_CLAIM, THERE, 0, 0);
        call(SEM_GIVE, BACK, 0, 0);
    }
    exit_thread()
}
