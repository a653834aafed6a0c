//! A small kernel for one and for several CPUs: see README.md beside it.
//!
//! Start with `boot.rs` for the first instructions, here for what happens then, `call.rs` for the way into the kernel,
//! `thread.rs` for what runs, and `lock.rs` for the four ways to lock all of it.
#![no_std]
#![no_main]

mod boot;
mod call;
mod cpu;
mod db;
mod heap;
mod ipc;
mod lock;
mod log;
mod mem;
mod sem;
mod thread;
mod timer;
mod user;

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cpu::{Frame, Local, MOST, local};
use user::Load;

/// The console as a sink for formatted text.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        cpu::print(text);
        Ok(())
    }
}

/// Prints to the console.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write as _;
        let _ = write!($crate::Console, $($text)*);
    }};
}

/// Values of the command line: `load=processes size=400 cpus=4 log=1`.
struct Wishes {
    load: Load,
    size: u64,
    cpus: u32,
    log: bool,
}

/// Reads the command line that QEMU has put into memory.
///
/// # Safety
/// `start_info` is the address of the structure that Xen's PVH protocol defines.
unsafe fn wishes(start_info: usize) -> Wishes {
    let mut wishes = Wishes { load: Load::Processes, size: 400, cpus: 1, log: false };
    // SAFETY: the text's address is at offset 24, and zero ends the text.
    let text = unsafe {
        let address = *((start_info + 24) as *const u64) as *const u8;
        let len = (0..1024).find(|&at| *address.add(at) == 0).unwrap_or(0);
        core::str::from_utf8(core::slice::from_raw_parts(address, len)).unwrap_or("")
    };
    for (key, value) in text.split_ascii_whitespace().filter_map(|word| word.split_once('=')) {
        match (key, value) {
            ("load", "loops") => wishes.load = Load::Loops,
            ("load", "ticks") => wishes.load = Load::Ticks,
            ("load", "staggered") => wishes.load = Load::Staggered,
            ("load", "processes") => wishes.load = Load::Processes,
            ("load", "locked-heap") => wishes.load = Load::LockedHeap,
            ("load", "free-heap") => wishes.load = Load::FreeHeap,
            ("load", "stress") => wishes.load = Load::Stress,
            ("size", number) => wishes.size = number.parse().unwrap_or(wishes.size),
            ("cpus", number) => wishes.cpus = number.parse().unwrap_or(1),
            ("log", "1") => wishes.log = true,
            // QEMU may add words of its own.
            _ => {}
        }
    }
    wishes.cpus =
        wishes.cpus.clamp(1, if lock::BUILD == lock::Build::Up { 1 } else { MOST as u32 });
    wishes
}

static WRITES_LOG: AtomicBool = AtomicBool::new(false);
static GO: AtomicBool = AtomicBool::new(false);

/// The boot CPU comes here.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u32) -> ! {
    // SAFETY: the boot protocol gives this address, and memory is mapped where it is.
    let wishes = unsafe { wishes(start_info as usize) };
    mem::fill(mem::END);
    cpu::fill_idt();
    cpu::mask_old_controllers();
    cpu::start_clock();
    mem::set_up(0);
    boot::start_others(wishes.cpus);
    thread::CPUS.store(wishes.cpus, Ordering::Release);
    if wishes.cpus > 1 || wishes.log {
        lock::switch_on();
    }
    if wishes.log {
        WRITES_LOG.store(true, Ordering::Relaxed);
        log::switch_on();
    }
    thread::spawn(user::at(user::init) as usize, wishes.load as u64 | wishes.size << 8);
    GO.store(true, Ordering::Release);
    run()
}

/// The other CPUs come here, one after the other.
#[unsafe(no_mangle)]
extern "C" fn other_main(id: u32) -> ! {
    mem::set_up(id);
    boot::STARTED.fetch_add(1, Ordering::Release);
    while !GO.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    run()
}

/// Loads the first thread of this CPU. From then on the kernel is entered by interrupts only.
fn run() -> ! {
    let mut frame = Frame::empty();
    local().since = cpu::now();
    thread::dispatch(&mut frame);
    thread::account_kernel();
    cpu::enter_user(&frame)
}

static BEGAN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
static PAGES: AtomicU64 = AtomicU64::new(0);
static LOCALS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The load begins: what came before does not count.
pub fn begin() {
    BEGAN.store(cpu::now(), Ordering::Relaxed);
    PAGES.store(mem::FREE_PAGES.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The load has ended: its time is what counts.
pub fn end() {
    ENDED.store(cpu::now(), Ordering::Relaxed);
}

/// Other CPUs' own pages: where they are in memory.
pub fn remember_local(id: u32, page: usize) {
    LOCALS[id as usize].store(page as u64, Ordering::Release);
}

/// Says what the load took. Lines are `key value…`, for programs.
pub fn report(size: u64) {
    let time = ENDED.load(Ordering::Relaxed) - BEGAN.load(Ordering::Relaxed);
    say!("lab: build {:?} cpus {} size {size} ticks {time}\n", lock::BUILD, call::cpus());
    for id in 0..call::cpus() {
        // SAFETY: the page is mapped where it is; the others may still count, which changes nothing that matters.
        let other = unsafe { &*(LOCALS[id as usize].load(Ordering::Acquire) as *const Local) };
        let times = other.times;
        say!(
            "cpu {id} user {} kernel {} spinning {} idle {}\n",
            times.user,
            times.kernel.saturating_sub(times.spinning),
            times.spinning,
            times.idle
        );
        for (class, counts) in other.locks.iter().enumerate().filter(|(_, counts)| counts.taken > 0)
        {
            say!(
                "lock {id} {} taken {} contended {} spun {}\n",
                lock::NAMES[class],
                counts.taken,
                counts.contended,
                counts.spun
            );
        }
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    say!("semaphores claims {} blocked {}\n", count(&sem::CLAIMS[0]), count(&sem::CLAIMS[1]));
    say!("spurious directory {} page {}\n", count(&mem::SPURIOUS[0]), count(&mem::SPURIOUS[1]));
    say!("unsaved waits {}\n", thread::UNSAVED_WAITS.load(Ordering::Relaxed));
    say!("order violations {}\n", lock::VIOLATIONS.load(Ordering::Relaxed));
    say!("database sum {}\n", db::sum());
    let before = count(&PAGES);
    say!("pages missing {}\n", before as i64 - count(&mem::FREE_PAGES) as i64);
}

static FINISHES: AtomicU32 = AtomicU32::new(0);

/// Has this CPU be the one that ends the machine, with the console to itself. Another that comes later stays here.
pub fn own_the_end() {
    if FINISHES.fetch_add(1, Ordering::SeqCst) > 0 {
        loop {
            core::hint::spin_loop();
        }
    }
}

/// Ends the machine, with the log if there is one. [`own_the_end`] comes before.
pub fn finish(status: u32) -> ! {
    if WRITES_LOG.load(Ordering::Relaxed) {
        log::switch_off();
        log::print();
    }
    cpu::power_off(status)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    own_the_end();
    say!("lab: {info}\n");
    finish(3)
}
