//! System calls, all safe in signal handlers.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// An open file; closed when dropped.
pub(crate) struct Fd(i32);

impl Fd {
    fn new(fd: i32) -> Option<Fd> {
        if fd < 0 { None } else { Some(Fd(fd)) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and open.
        unsafe { libc::close(self.0) };
    }
}

/// Puts `errno` back when dropped: a commit may interrupt code that is about to read it.
pub(crate) struct KeepErrno(i32);

impl KeepErrno {
    pub(crate) fn new() -> KeepErrno {
        // SAFETY: the address of this thread's errno is always valid.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The time-stamp counter.
#[inline]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: an unprivileged instruction that touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// This process.
pub(crate) fn pid() -> u32 {
    std::process::id()
}

/// This thread. Asks the kernel: after a fork, what we knew is wrong.
pub(crate) fn tid() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// The user whose rights we have.
pub(crate) fn uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Whether this is a set-user-id or set-group-id program, which does not do what its environment
/// says.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: none of these has preconditions.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Whether this process has that thread.
pub(crate) fn thread_lives(tid: u32) -> bool {
    // SAFETY: signal 0 is none: this only asks.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid(), tid, 0) };
    sent == 0 || errno() != libc::ESRCH
}

/// A clock's time.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `now`, which lives.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps for less than a second.
pub(crate) fn sleep_ns(ns: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: reads `time`, which lives.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

/// A variable of the environment.
pub(crate) fn environment(name: &'static CStr) -> Option<&'static CStr> {
    // SAFETY: `name` is zero-terminated. The value is used at once; a program that changes its
    // environment while other threads run is at fault already.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: not null, and getenv's values are zero-terminated.
    if value.is_null() { None } else { Some(unsafe { CStr::from_ptr(value) }) }
}

/// Opens a folder, which is made if there is none, if it is ours and others may not enter it.
pub(crate) fn open_directory(path: &CStr) -> Option<Fd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `path` is zero-terminated.
    let fd = unsafe {
        libc::mkdir(path.as_ptr(), 0o700);
        Fd::new(libc::open(path.as_ptr(), flags))?
    };
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open; writes to `stat`, which lives.
    if unsafe { libc::fstat(fd.0, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat succeeded and filled it in.
    let stat = unsafe { stat.assume_init() };
    if stat.st_uid == uid() && stat.st_mode & 0o077 == 0 { Some(fd) } else { None }
}

/// Makes a file that did not exist.
pub(crate) fn create(directory: &Fd, name: &CStr) -> Option<Fd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `name` is zero-terminated, the descriptor open.
    Fd::new(unsafe { libc::openat(directory.0, name.as_ptr(), flags, 0o600) })
}

/// Deletes a file.
pub(crate) fn unlink(directory: &Fd, name: &CStr) {
    // SAFETY: `name` is zero-terminated, the descriptor open.
    unsafe { libc::unlinkat(directory.0, name.as_ptr(), 0) };
}

/// Reads the start of a file.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: `path` is zero-terminated.
    let fd = Fd::new(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    // SAFETY: writes to `buffer`, at most its length.
    let read = unsafe { libc::read(fd.0, buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.get(..usize::try_from(read).ok()?)
}

/// Gives a new file this size and maps it.
pub(crate) fn map_file(file: &Fd, bytes: u64) -> Option<*mut u8> {
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.0, bytes as i64) } != 0 {
        return None;
    }
    map(bytes as usize, libc::MAP_SHARED, file.0)
}

/// Maps zeros that are zeros again in the child of a fork.
pub(crate) fn map_wiped(bytes: usize) -> Option<*mut u8> {
    let start = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: a mapping of ours that is not used yet.
    let advised = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_WIPEONFORK) };
    if advised == 0 || wipe_by_callback(start, bytes) { Some(start) } else { None }
}

/// Maps a page of a file over a page of ours.
///
/// # Safety
///
/// Nothing but atomics may reach the page, and its contents must stay what they mean.
pub(crate) unsafe fn map_over(file: &Fd, offset: u64, page: *mut c_void) -> Option<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: by this function's contract.
    let mapped = unsafe { libc::mmap(page, 4096, access, flags, file.0, offset as i64) };
    (mapped == page).then_some(())
}

/// Puts a page of this process's own in a page's place, which begins with this word.
///
/// # Safety
///
/// As for [`map_over`].
pub(crate) unsafe fn renew_page(page: *mut c_void, first: u64) {
    let Some(fresh) = map(4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) else { return };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: `fresh` is a page of ours that nothing else knows; the rest by this function's contract. One step
    // replaces the page.
    unsafe {
        fresh.cast::<u64>().write(first);
        libc::mremap(fresh.cast(), 4096, 4096, flags, page);
    }
}

/// Has the C library call this in the child of every fork.
pub(crate) fn at_fork_in_child(callback: extern "C" fn()) -> bool {
    // SAFETY: the callback may run in the child of a process with threads, by its contract.
    unsafe { libc::pthread_atfork(None, None, Some(callback)) == 0 }
}

/// More memory than that is not wiped by callbacks.
const WIPED_MAX: usize = 64;
static WIPED: [(AtomicPtr<u8>, AtomicUsize); WIPED_MAX] =
    [const { (AtomicPtr::new(std::ptr::null_mut()), AtomicUsize::new(0)) }; WIPED_MAX];
static WIPED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Where the kernel does not wipe memory on a fork (gVisor), the C library calls back in the child.
fn wipe_by_callback(start: *mut u8, bytes: usize) -> bool {
    let at = WIPED_COUNT.fetch_add(1, Ordering::AcqRel);
    let Some((place, size)) = WIPED.get(at) else { return false };
    size.store(bytes, Ordering::Relaxed);
    place.store(start, Ordering::Release);
    // SAFETY: the callback may run in the child of a process with threads: it only stores.
    at != 0 || unsafe { libc::pthread_atfork(None, None, Some(wipe)) } == 0
}

extern "C" fn wipe() {
    for (place, size) in &WIPED {
        let start = place.load(Ordering::Acquire);
        if !start.is_null() {
            // SAFETY: a mapping of ours of this size, which is never unmapped; the child has one thread.
            unsafe { start.write_bytes(0, size.load(Ordering::Relaxed)) };
        }
    }
}

fn map(bytes: usize, flags: i32, fd: i32) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if start == libc::MAP_FAILED { None } else { Some(start.cast()) }
}

/// Takes memory for these bytes now, so that a full disk is found here and not by a SIGBUS.
/// Kernels before 5.14 cannot, and say nothing ([`can_populate`]).
pub(crate) fn populate(start: *mut u8, bytes: u64) -> bool {
    let first = start as usize & !4095;
    let end = (start as usize + bytes as usize).next_multiple_of(4096);
    advise_populate(first as *mut c_void, end - first) || errno() == libc::EINVAL
}

/// Whether this kernel can [`populate`].
pub(crate) fn can_populate() -> bool {
    advise_populate(std::ptr::null_mut(), 0)
}

fn advise_populate(start: *mut c_void, bytes: usize) -> bool {
    // SAFETY: populating changes no contents; without bytes it only asks.
    unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) == 0 }
}

/// Takes memory for a whole file.
pub(crate) fn allocate(file: &Fd, bytes: u64) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::fallocate(file.0, 0, 0, bytes as i64) == 0 }
}

fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}
