//! Threads, processes and containers, and what runs next.
//!
//! A thread in the kernel is never suspended in the middle. A system call that must wait puts the thread on a queue and
//! says so; the context is saved when the call ends, and then the CPU takes another thread. On one CPU nothing comes
//! between the two. On several, another CPU may find the thread on a queue before its context is saved.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{self, Frame, MOST, local, now};
use crate::lock::{BUILD, Build, Class, GIANT, Role, Spin};
use crate::log::{Event, log};
use crate::mem::{PAGE, STACK_TOP, Space, USER};
use crate::timer;

/// No thread, process or container.
pub const NONE: u32 = u32::MAX;
pub const THREADS: usize = 512;
pub const CONTAINERS: usize = 256;
/// Where stacks of further threads begin, and how far apart they are.
const STACKS: usize = USER + 0x40_0000;
const STACK_SIZE: usize = 16 * PAGE;
/// Ticks after which a thread gives its CPU to another that waits for it.
const SLICE: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Free,
    Ready,
    Running,
    /// Waits for something, until [`wake`].
    Blocked,
    /// Gone when the kernel is left.
    Dying,
}

pub struct Thread {
    pub state: State,
    pub container: u32,
    pub cpu: u32,
    /// Whether `frame` is what the thread goes on with.
    pub saved: AtomicBool,
    pub frame: Frame,
    /// What the system call that waited returns.
    pub result: u64,
    pub next: u32,
    /// The semaphore that it waits for.
    pub waits_for: u32,
    /// When it was put into a ready queue.
    pub ready_since: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Free,
    Live,
    /// Its threads die as they leave the kernel, or instead of being loaded.
    Terminating,
}

/// An address space with its threads. The lab has one process in each: its mailbox is the container's.
pub struct Container {
    pub life: Life,
    /// How often the entry has been used: calls that began in an earlier use must not end in a later one.
    pub generation: u32,
    pub space: Space,
    pub threads: u32,
    pub stacks: u32,
    pub lock: Spin,
}

const THREAD: Thread = Thread {
    state: State::Free,
    container: NONE,
    cpu: 0,
    saved: AtomicBool::new(false),
    frame: Frame::empty(),
    result: 0,
    next: NONE,
    waits_for: NONE,
    ready_since: 0,
};
const CONTAINER: Container = Container {
    life: Life::Free,
    generation: 0,
    space: Space::EMPTY,
    threads: 0,
    stacks: 0,
    lock: Spin::new(Class::Tables, Role::Common),
};

static mut THREAD_TABLE: [Thread; THREADS] = [THREAD; THREADS];
static mut CONTAINER_TABLE: [Container; CONTAINERS] = [CONTAINER; CONTAINERS];
/// Protects which entries of both tables are free.
static TABLES: Spin = Spin::new(Class::Tables, Role::Common);

pub fn thread(id: u32) -> &'static mut Thread {
    // SAFETY: an entry is of one CPU at a time: of the one that runs it or that has taken it from a queue.
    unsafe { &mut (*(&raw mut THREAD_TABLE))[id as usize] }
}

pub fn container(id: u32) -> &'static mut Container {
    // SAFETY: what several CPUs change is changed under the container's lock.
    unsafe { &mut (*(&raw mut CONTAINER_TABLE))[id as usize] }
}

/// Threads that are ready, first in, first out. Each CPU has one: a thread stays where it started, unless an
/// idle CPU takes it.
struct Queue {
    lock: Spin,
    first: u32,
    last: u32,
    length: AtomicU32,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }
}

const QUEUE: Queue = Queue {
    lock: Spin::new(Class::Ready, Role::Common),
    first: NONE,
    last: NONE,
    length: AtomicU32::new(0),
};
static mut QUEUES: [Queue; MOST] = [QUEUE; MOST];
/// CPUs that wait for an interrupt.
static IDLE: AtomicU32 = AtomicU32::new(0);
pub static CPUS: AtomicU32 = AtomicU32::new(1);
/// Spins until a context was saved.
pub static UNSAVED_WAITS: AtomicU32 = AtomicU32::new(0);

fn queue(cpu: u32) -> &'static mut Queue {
    // SAFETY: its lock protects it.
    unsafe { &mut (*(&raw mut QUEUES))[cpu as usize] }
}

/// Whether idle CPUs take threads from others' queues. The giant-locked kernel keeps threads where they are.
const STEALS: bool = matches!(BUILD, Build::Coarse | Build::Fine);

fn enqueue(id: u32) {
    let to = thread(id).cpu;
    log(Event::Ready, id, to);
    let queue = queue(to);
    queue.lock.lock();
    thread(id).ready_since = now();
    thread(id).next = NONE;
    match queue.first {
        NONE => queue.first = id,
        _ => thread(queue.last).next = id,
    }
    queue.last = id;
    queue.length.fetch_add(1, Ordering::Relaxed);
    queue.lock.unlock();
    // The uniprocessor's kernel has no CPU to wake. Without this a job waits for a CPU that waits for an
    // interrupt which nothing sends.
    if cfg!(feature = "race-idle") {
        return;
    }
    let idle = IDLE.load(Ordering::SeqCst);
    let other = match idle & 1 << to {
        0 if STEALS => idle,
        mine => mine,
    };
    if other != 0 && to != local().id || other & !(1 << local().id) != 0 {
        let target = if idle & 1 << to != 0 { to } else { other.trailing_zeros() };
        if target != local().id
            && IDLE.fetch_and(!(1 << target), Ordering::SeqCst) & 1 << target != 0
        {
            cpu::wake(target);
        }
    }
}

fn dequeue(from: u32) -> Option<u32> {
    let queue = queue(from);
    if queue.length.load(Ordering::Relaxed) == 0 {
        return None;
    }
    queue.lock.with(|| {
        let id = queue.first;
        if id == NONE {
            return None;
        }
        queue.first = thread(id).next;
        queue.length.fetch_sub(1, Ordering::Relaxed);
        Some(id)
    })
}

/// A CPU for something new: an idle one, or the one with the shortest queue.
fn choose_cpu() -> u32 {
    let count = CPUS.load(Ordering::Relaxed);
    let idle = IDLE.load(Ordering::Relaxed);
    let load = |cpu: u32| {
        let runs = idle & 1 << cpu == 0;
        queue(cpu).length.load(Ordering::Relaxed) + u32::from(runs)
    };
    (0..count).min_by_key(|&cpu| load(cpu)).unwrap_or(0)
}

fn new_thread(of: u32, entry: usize, argument: u64, stack: usize) -> u32 {
    let id = TABLES.with(|| {
        let free = (0..THREADS as u32).find(|&id| thread(id).state == State::Free);
        let id = free.expect("too many threads");
        thread(id).state = State::Ready;
        id
    });
    let thread = thread(id);
    thread.container = of;
    thread.cpu = choose_cpu();
    thread.frame = Frame::begin(entry, argument, stack as u64);
    thread.result = 0;
    thread.waits_for = NONE;
    thread.saved.store(true, Ordering::Release);
    id
}

/// Starts a process: a container with one thread. Returns the container.
pub fn spawn(entry: usize, argument: u64) -> u32 {
    if cfg!(feature = "race-order") {
        // Where memory is given to a container, its lock is taken first and that of pages second.
        crate::mem::with_pages(|| TABLES.with(|| ()));
    }
    let id = TABLES.with(|| {
        let free = (0..CONTAINERS as u32).find(|&id| container(id).life == Life::Free);
        let id = free.expect("too many containers");
        container(id).life = Life::Live;
        id
    });
    let new = container(id);
    new.generation += 1;
    new.space = Space::new();
    new.threads = 1;
    new.stacks = 0;
    crate::ipc::open(id);
    enqueue(new_thread(id, entry, argument, STACK_TOP));
    id
}

/// Starts another thread in the running thread's container.
pub fn spawn_thread(entry: usize, argument: u64) -> u32 {
    let of = current().container;
    let here = container(of);
    here.lock.lock();
    here.threads += 1;
    here.stacks += 1;
    let stack = STACKS + here.stacks as usize * STACK_SIZE;
    here.lock.unlock();
    let id = new_thread(of, entry, argument, stack);
    enqueue(id);
    id
}

pub fn current() -> &'static mut Thread {
    thread(local().current)
}

/// Says that the running thread waits. Its context is saved when the kernel is left.
pub fn block_current() {
    let current = current();
    log(Event::Block, local().current, 0);
    current.saved.store(false, Ordering::Relaxed);
    current.state = State::Blocked;
}

/// Makes a blocked thread ready. What it waited for is the result of its call.
pub fn wake(id: u32, result: u64) {
    let thread = thread(id);
    thread.result = result;
    thread.waits_for = NONE;
    thread.state = State::Ready;
    enqueue(id);
}

/// Gives the CPU to those that wait for it.
pub fn yield_current() {
    let current = current();
    current.saved.store(false, Ordering::Relaxed);
    current.result = 0;
    current.state = State::Ready;
    local().yields = true;
}

/// Ends the running thread's container.
pub fn terminate() {
    let id = current().container;
    let here = container(id);
    current().state = State::Dying;
    if cfg!(feature = "race-termination") {
        // As on one CPU, where no other thread of it can be in the kernel.
        here.life = Life::Free;
        here.space.release();
        local().container = NONE;
        log(Event::Reclaim, id, here.generation);
        for other in 0..THREADS as u32 {
            let blocked = thread(other).state == State::Blocked && thread(other).container == id;
            if blocked {
                thread(other).state = State::Free;
            }
        }
        return;
    }
    here.lock.lock();
    here.life = Life::Terminating;
    here.lock.unlock();
    // Those that wait will never be woken by what they wait for.
    for other in 0..THREADS as u32 {
        let waits = thread(other).container == id && thread(other).state == State::Blocked;
        if waits && crate::sem::forget(other) {
            wake(other, 0);
        }
    }
}

/// How many containers there are that are not gone.
pub fn live_containers() -> u64 {
    (0..CONTAINERS as u32).filter(|&id| container(id).life != Life::Free).count() as u64
}

/// Ends the running thread.
pub fn exit_thread() {
    current().state = State::Dying;
}

/// Takes a thread out of its container, which goes with its last one.
fn bury(id: u32) {
    let of = thread(id).container;
    thread(id).state = State::Free;
    let here = container(of);
    here.lock.lock();
    here.threads -= 1;
    let last = here.threads == 0;
    here.lock.unlock();
    if last {
        crate::ipc::close(of);
        here.space.release();
        local().container = NONE;
        log(Event::Reclaim, of, here.generation);
        here.life = Life::Free;
    }
}

/// Stops because something that must hold does not. What follows in the log says why.
pub fn failed(what: &str, id: u32) -> ! {
    log(Event::Failed, id, 0);
    crate::own_the_end();
    crate::say!("lab: failed: {what} ({id})\n");
    crate::finish(1)
}

/// What happens between a kernel call's work and user mode: the running thread goes on, or another one.
///
/// `slice_may_end` says whether this is a place where a thread may lose its CPU.
pub fn leave(frame: &mut Frame, generation: u32, slice_may_end: bool) {
    let local = local();
    if local.current != NONE {
        let current = current();
        let here = container(current.container);
        if here.generation != generation || here.life == Life::Free && current.state != State::Dying
        {
            failed("a kernel call ends in a container that is gone", current.container);
        }
        if here.life == Life::Terminating && current.state == State::Running {
            current.state = State::Dying;
        }
        match current.state {
            // There is no interrupt for it: a time slice ends where the kernel is left.
            State::Running
                if !slice_may_end || now() - local.loaded < SLICE || queue(local.id).is_empty() =>
            {
                return;
            }
            State::Running => {
                yield_current();
                current.result = frame.rax;
                save(frame);
            }
            State::Dying if cfg!(feature = "race-termination") && here.life == Life::Free => {
                current.state = State::Free;
            }
            State::Dying => bury(local.current),
            // Blocked, or ready again by another CPU's doing.
            _ => save(frame),
        }
        local.current = NONE;
    }
    dispatch(frame);
}

/// Saves the running thread's context. From then on it may run elsewhere.
fn save(frame: &Frame) {
    let local = local();
    let id = local.current;
    thread(id).frame = *frame;
    thread(id).saved.store(true, Ordering::Release);
    if core::mem::take(&mut local.yields) {
        enqueue(id);
    }
}

/// Loads what runs next, and waits if there is nothing.
pub fn dispatch(frame: &mut Frame) {
    loop {
        GIANT.lock();
        let next = next();
        GIANT.unlock();
        let Some(id) = next else {
            idle();
            continue;
        };
        let thread = thread(id);
        if container(thread.container).life != Life::Live {
            wait_until_saved(id);
            bury(id);
            continue;
        }
        // An idle CPU looks into all queues first, and is woken when something is put into one.
        let waited = now().saturating_sub(thread.ready_since);
        if STEALS && waited > SLICE && IDLE.load(Ordering::SeqCst) & !(1 << local().id) != 0 {
            failed("a thread was ready for long, and a CPU was idle", id);
        }
        wait_until_saved(id);
        log(Event::Load, id, thread.cpu);
        *frame = thread.frame;
        frame.rax = thread.result;
        thread.state = State::Running;
        thread.cpu = local().id;
        local().current = id;
        local().loaded = now();
        // Its memory may have grown on another CPU since this one had it.
        local().container = thread.container;
        let here = container(thread.container);
        here.lock.with(|| here.space.load());
        return;
    }
}

fn wait_until_saved(id: u32) {
    if thread(id).saved.load(Ordering::Acquire) {
        return;
    }
    if cfg!(feature = "race-context") {
        failed("a thread is loaded before its context was saved", id);
    }
    UNSAVED_WAITS.fetch_add(1, Ordering::Relaxed);
    while !thread(id).saved.load(Ordering::Acquire) {
        spin_loop();
    }
}

fn next() -> Option<u32> {
    let me = local().id;
    dequeue(me).or_else(|| {
        let count = CPUS.load(Ordering::Relaxed);
        let others = if STEALS { 1..count } else { 1..1 };
        others.into_iter().find_map(|n| dequeue((me + n) % count))
    })
}

/// Waits until there may be something to do.
fn idle() {
    let local = local();
    let bit = 1 << local.id;
    let depth = local.giant_depth;
    for _ in 0..depth {
        GIANT.unlock();
    }
    account_kernel();
    let nothing = || {
        let count = CPUS.load(Ordering::Relaxed);
        let reachable = |cpu: u32| cpu == local.id || STEALS;
        !(0..count).any(|cpu| reachable(cpu) && queue(cpu).length.load(Ordering::SeqCst) > 0)
    };
    if timer::pending() {
        spin_loop();
        timer::run();
    } else if cfg!(feature = "race-idle") {
        // As on one CPU: whatever makes a thread ready is an interrupt.
        IDLE.fetch_or(bit, Ordering::SeqCst);
        log(Event::Idle, 0, 0);
        cpu::wait_for_interrupt();
    } else {
        IDLE.fetch_or(bit, Ordering::SeqCst);
        if nothing() {
            log(Event::Idle, 0, 0);
            cpu::wait_for_interrupt();
        }
        IDLE.fetch_and(!bit, Ordering::SeqCst);
    }
    let time = now();
    local.times.idle += time - local.since;
    local.since = time;
    for _ in 0..depth {
        GIANT.lock();
    }
}

/// Adds what has passed since the last account to the kernel's time. Spinning is counted apart.
pub fn account_kernel() {
    let local = local();
    let time = now();
    local.times.kernel += time - local.since;
    local.since = time;
}

pub fn account_user() {
    let local = local();
    let time = now();
    local.times.user += time - local.since;
    local.since = time;
}
