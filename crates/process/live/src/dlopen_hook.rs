//! dlopen hooks: how a running program reports to its tracer that the loader's list of libraries has
//! changed, without danger to the program when the tracer is gone.
//!
//! Loaders call an empty function (`_dl_debug_state`, the `r_debug` hook) after each change, so that a
//! debugger can put a breakpoint there. A breakpoint that outlives its tracer kills the program, so the
//! function becomes a jump to a *dlopen hook*. The hook's code reads a word of shared memory that says
//! whether a tracer lives (the kernel changes it when the tracer dies, see [`AliveWord`]). If so, it
//! *reports*: it sends its own thread a signal that programs ignore by default, and which we
//! suppress before it is delivered. That is SIGURG, or SIGWINCH if the program handles SIGURG, so
//! that the program sees nothing if the tracer dies just then. (A program that handles both may be
//! given a SIGURG then.)
//! The calls that we want the process to make are in a table of system calls. The hook makes them,
//! reports again, and returns to the loader when the table is empty. It changes no register and no
//! signal mask that the loader could see.

use std::io;

use fettle_types::{Pid, Tid};

use crate::entry::{Entry, Region, region_hash};
use crate::error::LiveError;
use crate::inject::{self, FileMap, PagePatches};
use crate::maps::{self, LiveAddr, Mapping};
use crate::memory::Memory;
use crate::remote::{Call, OPENED, table_call};

// One call of the table takes 64 bytes: number, six arguments, result. A negative number ends it.
core::arch::global_asm!(
    ".pushsection .rodata.fettle_live_dlopen_hook, \"a\", @progbits",
    ".globl fettle_live_dlopen_hook_begin",
    ".hidden fettle_live_dlopen_hook_begin",
    "fettle_live_dlopen_hook_begin:",
    "    endbr64",
    "    pushfq",
    "    push rax",
    "    push rcx",
    "    push rdx",
    "    push rbx",
    "    push rsi",
    "    push rdi",
    "    push r8",
    "    push r9",
    "    push r10",
    "    push r11",
    "    push r12",
    "    push r13",
    "    push r14",
    "    push r15",
    "    push rbp",
    "    sub  rsp, 48",
    "    xor  r15d, r15d",
    // Is the loader done? (RT_CONSISTENT is 0.)
    "    mov  rax, [rip + 90f]",
    "    test rax, rax",
    "    jz   2f",
    "    cmp  dword ptr [rax], 0",
    "    jne  9f",
    // Does a tracer live?
    "2:  mov  rax, [rip + 91f]",
    "    mov  eax, [rax]",
    "    test eax, eax",
    "    jz   8f",
    "    bt   eax, 30", // FUTEX_OWNER_DIED
    "    jc   8f",
    "    test r15d, r15d",
    "    jnz  3f",
    // A signal that the program has no handler for.
    "    mov  ebp, 23", // SIGURG
    "30: mov  eax, 13", // rt_sigaction
    "    mov  edi, ebp",
    "    xor  esi, esi",
    "    lea  rdx, [rsp + 16]",
    "    mov  r10d, 8",
    "    syscall",
    "    cmp  qword ptr [rsp + 16], 1", // SIG_DFL, SIG_IGN
    "    jbe  32f",
    "    cmp  ebp, 28",
    "    je   31f",
    "    mov  ebp, 28", // SIGWINCH
    "    jmp  30b",
    "31: mov  ebp, 23",
    // The signal must not wait behind a mask.
    "32:",
    "    mov  eax, 14", // rt_sigprocmask
    "    xor  edi, edi",
    "    xor  esi, esi",
    "    mov  rdx, rsp",
    "    mov  r10d, 8",
    "    syscall",
    "    mov  r15d, 1",
    "    lea  ecx, [rbp - 1]",
    "    bt   qword ptr [rsp], rcx",
    "    jnc  3f",
    "    mov  r15d, 2",
    "    mov  eax, 1",
    "    shl  rax, cl",
    "    mov  qword ptr [rsp + 8], rax",
    "    mov  eax, 14",
    "    mov  edi, 1", // SIG_UNBLOCK
    "    lea  rsi, [rsp + 8]",
    "    xor  edx, edx",
    "    mov  r10d, 8",
    "    syscall",
    // Report: the thread sends itself the signal.
    "3:  mov  eax, 39", // getpid
    "    syscall",
    "    mov  r14, rax",
    "    mov  eax, 186", // gettid
    "    syscall",
    "    mov  rdi, r14",
    "    mov  rsi, rax",
    "    mov  edx, ebp",
    "    mov  eax, 234", // tgkill
    "    syscall",
    ".globl fettle_live_dlopen_hook_reported",
    ".hidden fettle_live_dlopen_hook_reported",
    "fettle_live_dlopen_hook_reported:",
    "    mov  rbx, [rip + 92f]",
    "    xor  r13d, r13d",
    "4:  mov  rax, [rbx]",
    "    test rax, rax",
    "    js   5f",
    table_call!(),
    "    inc  r13d",
    "    jmp  4b",
    "5:  test r13d, r13d",
    "    jnz  2b",
    // Nothing was asked for: leave.
    "8:  cmp  r15d, 2",
    "    jne  9f",
    "    lea  ecx, [rbp - 1]",
    "    mov  eax, 1",
    "    shl  rax, cl",
    "    mov  qword ptr [rsp + 8], rax",
    "    mov  eax, 14",
    "    xor  edi, edi", // SIG_BLOCK
    "    lea  rsi, [rsp + 8]",
    "    xor  edx, edx",
    "    mov  r10d, 8",
    "    syscall",
    "9:  add  rsp, 48",
    "    pop  rbp",
    "    pop  r15",
    "    pop  r14",
    "    pop  r13",
    "    pop  r12",
    "    pop  r11",
    "    pop  r10",
    "    pop  r9",
    "    pop  r8",
    "    pop  rdi",
    "    pop  rsi",
    "    pop  rbx",
    "    pop  rdx",
    "    pop  rcx",
    "    pop  rax",
    "    popfq",
    "    ret",
    "    .balign 8",
    ".globl fettle_live_dlopen_hook_words",
    ".hidden fettle_live_dlopen_hook_words",
    "fettle_live_dlopen_hook_words:",
    "90: .quad 0", // address of the loader's state
    "91: .quad 0", // address of the word that says whether a tracer lives
    "92: .quad 0", // address of the table
    ".globl fettle_live_dlopen_hook_end",
    ".hidden fettle_live_dlopen_hook_end",
    "fettle_live_dlopen_hook_end:",
    ".popsection",
);

unsafe extern "C" {
    static fettle_live_dlopen_hook_begin: u8;
    static fettle_live_dlopen_hook_reported: u8;
    static fettle_live_dlopen_hook_words: u8;
    static fettle_live_dlopen_hook_end: u8;
}

/// A dlopen hook in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlopenHook {
    /// Where its code lies; it behaves as an empty function.
    pub code: LiveAddr,
    /// Where its table lies: [`DlopenHook::TABLE_LEN`] bytes that the process may write.
    pub table: LiveAddr,
    /// The [`AliveWord`] as the process sees it.
    pub alive: LiveAddr,
    /// A 32-bit word of the loader that is 0 when its list of libraries is whole.
    pub state: Option<LiveAddr>,
}

impl DlopenHook {
    /// Bytes of table; must be zero at first but for the first 8 bytes, which must be 0xff.
    pub const TABLE_LEN: u64 = 4 * 4096;
    /// At most so many requests can be answered at once.
    pub const REQUESTS: usize = 48;
    const SCRATCH: u64 = 64 * (4 * DlopenHook::REQUESTS as u64 + 1);

    /// The machine code.
    pub fn code(&self) -> Vec<u8> {
        // SAFETY: the symbols lie in this order in the one section above, which is constant and
        // lives as long as the program.
        let (mut code, words) = unsafe {
            let begin = &raw const fettle_live_dlopen_hook_begin;
            let len = (&raw const fettle_live_dlopen_hook_end).offset_from_unsigned(begin);
            let words = (&raw const fettle_live_dlopen_hook_words).offset_from_unsigned(begin);
            (std::slice::from_raw_parts(begin, len).to_vec(), words)
        };
        let values = [self.state.unwrap_or_default(), self.alive, self.table];
        for (i, value) in values.into_iter().enumerate() {
            code[words + i * 8..][..8].copy_from_slice(&value.0.to_le_bytes());
        }
        code
    }

    /// The PC of a thread that has reported.
    pub fn hook_address(&self) -> LiveAddr {
        // SAFETY: both symbols lie in the one section above.
        let offset = unsafe {
            (&raw const fettle_live_dlopen_hook_reported)
                .offset_from_unsigned(&raw const fettle_live_dlopen_hook_begin)
        };
        self.code.offset(offset as u64)
    }

    /// The first bytes of a table without calls.
    pub fn empty_table() -> [u8; 8] {
        [0xff; 8]
    }
}

/// What a process is asked to do at its dlopen hook.
#[derive(Clone, Debug)]
pub enum Request {
    /// Map a file of ours.
    Map(FileMap),
    /// Map memory of its own, all zeros.
    Give(Region),
    /// Unmap memory: address and length.
    Unmap(LiveAddr, u64),
}

/// A thread that has reported; the others of its process run.
#[derive(Debug)]
pub struct HookStop {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    pub(crate) memory: Memory,
}

impl HookStop {
    pub(crate) fn look(pid: Pid, tid: Tid) -> Result<HookStop, LiveError> {
        let memory = Memory::open(pid).map_err(|source| LiveError::Ptrace {
            action: "open the memory",
            pid,
            source,
        })?;
        Ok(HookStop { pid, tid, memory })
    }

    /// What is mapped in the process now.
    pub fn maps(&self) -> io::Result<Vec<Mapping>> {
        maps::of_process(self.pid)
    }

    /// Reads memory of the process.
    pub fn read(&self, address: LiveAddr, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_exact(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads as much as is mapped there, up to `len` bytes.
    pub fn read_some(&self, address: LiveAddr, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let count = self.memory.read_some(address, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes bytes, into read-only memory too; all of them or none. Other threads run meanwhile.
    ///
    /// # Errors
    ///
    /// When something cannot be written; then all is as it was.
    pub fn write(&self, writes: &[(LiveAddr, Vec<u8>)]) -> Result<(), LiveError> {
        PagePatches::new(writes).apply(&self.memory).map(|_| ())
    }

    /// The entry for the log before a region is unmapped.
    pub fn unmapping(&self, region: &Region) -> Entry {
        Entry::Unmapping(region.at, region_hash(region, |at, len| self.read_some(at, len)))
    }

    /// Puts requests into the table; gives the calls that will be made.
    pub(crate) fn ask(
        &self,
        dlopen_hook: &DlopenHook,
        requests: &[Request],
    ) -> Result<Asked, LiveError> {
        assert!(requests.len() <= DlopenHook::REQUESTS, "a session asks for less at once");
        let mut calls = Vec::new();
        let mut scratch = Vec::new();
        let mut of_request = Vec::new();
        for request in requests {
            match request {
                Request::Map(map) => {
                    let Some(path) = inject::visible_path(self.pid, map.raw_fd()) else {
                        of_request.push(None);
                        continue;
                    };
                    let writable = map.shared && map.prot.write;
                    let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
                    let flags = (access | libc::O_CLOEXEC) as u64;
                    let at = dlopen_hook.table.offset(DlopenHook::SCRATCH + scratch.len() as u64);
                    let open = "open one of our files";
                    calls.push(Call::new(open, libc::SYS_open, &[at.0, flags]));
                    scratch.extend(path.as_bytes());
                    scratch.push(0);
                    of_request.push(Some(calls.len()));
                    inject::push_maps(&mut calls, std::slice::from_ref(map), OPENED);
                }
                Request::Give(region) => {
                    of_request.push(Some(calls.len()));
                    let arguments = region.mmap_arguments();
                    let map = Call::new("map memory", libc::SYS_mmap, &arguments);
                    calls.push(map.about(region.at.0));
                }
                Request::Unmap(at, len) => {
                    of_request.push(Some(calls.len()));
                    let unmap = Call::new("unmap our file", libc::SYS_munmap, &[at.0, *len]);
                    calls.push(unmap.about(at.0));
                }
            }
        }
        assert!(
            DlopenHook::SCRATCH + scratch.len() as u64 <= DlopenHook::TABLE_LEN,
            "paths are short"
        );
        // Scratch first: the table counts as soon as its first number is there.
        self.memory.write(dlopen_hook.table.offset(DlopenHook::SCRATCH), &scratch)?;
        let mut table = Vec::new();
        for call in &calls {
            table.extend(call.number.to_le_bytes());
            call.arguments.iter().for_each(|argument| table.extend(argument.to_le_bytes()));
            table.extend(i64::MIN.to_le_bytes());
        }
        table.extend(DlopenHook::empty_table());
        self.memory.write(dlopen_hook.table, &table)?;
        Ok(Asked { calls, of_request })
    }

    /// The results of the requests; leaves an empty table.
    pub(crate) fn answers(
        &self,
        dlopen_hook: &DlopenHook,
        asked: &Asked,
    ) -> Result<Vec<Result<(), LiveError>>, LiveError> {
        let table = self.memory.read(dlopen_hook.table, asked.calls.len() * 64)?;
        self.memory.write(dlopen_hook.table, &DlopenHook::empty_table())?;
        let outcome = |index: &Option<usize>| {
            let pid = self.pid;
            let Some(index) = *index else {
                let what = "it cannot see our files";
                return Err(LiveError::Injection { pid, what });
            };
            let result_of = |index: usize| {
                i64::from_le_bytes(table[index * 64 + 56..][..8].try_into().expect("8"))
            };
            // A file that was not opened could not be mapped: that error says nothing new.
            let opening = index.checked_sub(1).filter(|before| {
                asked.calls[*before].number == libc::SYS_open && result_of(*before) < 0
            });
            let address = asked.calls[index].about;
            let index = opening.unwrap_or(index);
            let (call, result) = (&asked.calls[index], result_of(index));
            let code = match result {
                code if code < 0 => -code as i32,
                // Kernels before 4.17 do not know MAP_FIXED_NOREPLACE and map elsewhere.
                at if call.number == libc::SYS_mmap && at as u64 != call.about => libc::EEXIST,
                _ => return Ok(()),
            };
            let source = io::Error::from_raw_os_error(code);
            Err(LiveError::Remote { action: call.action, pid, address, source })
        };
        Ok(asked.of_request.iter().map(outcome).collect())
    }
}

/// Calls that a process makes for us at its dlopen hook.
pub(crate) struct Asked {
    calls: Vec<Call>,
    /// For each request, which call it depends on.
    of_request: Vec<Option<usize>>,
}

impl Asked {
    /// Whether there is anything to do in the process.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }
}

/// A word of shared memory that says whether the thread that set it lives. When the thread ends,
/// however it ends, the kernel sets bit 30 of it before it detaches what the thread traces: for the
/// kernel the word is a robust futex whose owner never unlocked it (see `set_robust_list(2)`).
#[derive(Debug)]
pub struct AliveWord {
    word: *mut u32,
    head: *mut RobustHead,
    before: (*mut libc::c_void, usize),
}

#[repr(C)]
#[derive(Debug)]
struct RobustHead {
    list: *mut RobustHead,
    futex_offset: libc::c_long,
    pending: *mut RobustHead,
    /// The one entry of the list: its only field, the next one, is the head again.
    entry: *mut RobustHead,
}

impl AliveWord {
    /// Says that the calling thread lives. One of a thread at a time.
    ///
    /// # Safety
    ///
    /// `word` is aligned, mapped, and stays so until the value is dropped or the thread has ended.
    /// The thread uses no other robust locks (of the C library's, none that a process shares)
    /// until then.
    pub unsafe fn set(word: *mut u32) -> io::Result<AliveWord> {
        let mut before = (std::ptr::null_mut(), 0usize);
        // SAFETY: the kernel fills two values that we own.
        let got = unsafe {
            libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before.0, &raw mut before.1)
        };
        if got == -1 {
            return Err(io::Error::last_os_error());
        }
        let head = Box::into_raw(Box::new(RobustHead {
            list: std::ptr::null_mut(),
            futex_offset: 0,
            pending: std::ptr::null_mut(),
            entry: std::ptr::null_mut(),
        }));
        // SAFETY: the box was just made. `gettid` touches no memory. The word is the caller's to
        // give. The kernel reads the head only when this thread ends, and it lives until `drop`.
        unsafe {
            let entry = (&raw mut (*head).entry).cast::<RobustHead>();
            (*head).entry = head;
            (*head).list = entry;
            (*head).futex_offset = (word as isize).wrapping_sub(entry as isize) as libc::c_long;
            let size = 3 * size_of::<usize>();
            if libc::syscall(libc::SYS_set_robust_list, head, size) == -1 {
                let error = io::Error::last_os_error();
                drop(Box::from_raw(head));
                return Err(error);
            }
            let tid = libc::syscall(libc::SYS_gettid) as u32;
            std::sync::atomic::AtomicU32::from_ptr(word)
                .store(tid, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(AliveWord { word, head, before })
    }

    /// Says that there is no tracer any more.
    pub fn clear(&self) {
        // SAFETY: `set`'s caller keeps the word mapped.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.word) };
        word.store(0, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Drop for AliveWord {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: puts back what the C library had set for this thread (the type is not `Send`),
        // after which the kernel has no pointer to our head.
        unsafe {
            libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1);
            drop(Box::from_raw(self.head));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_small_and_filled_in() {
        let dlopen_hook = DlopenHook {
            code: LiveAddr(0x1000),
            table: LiveAddr(0x1122_3344),
            alive: LiveAddr(0x5566_7788),
            state: None,
        };
        let code = dlopen_hook.code();
        assert!(code.len() < 1024);
        assert_eq!(code[code.len() - 8..], 0x1122_3344u64.to_le_bytes());
        let library_event = (dlopen_hook.hook_address().0 - 0x1000) as usize;
        assert_eq!(&code[library_event - 2..library_event], &[0x0f, 0x05], "syscall");
    }

    #[test]
    fn the_kernel_tells_of_a_death() {
        let word = std::ptr::from_mut::<u32>(Box::leak(Box::new(0u32))) as usize;
        let thread = std::thread::spawn(move || {
            // SAFETY: the word is leaked.
            std::mem::forget(unsafe { AliveWord::set(word as *mut u32) }.unwrap());
        });
        thread.join().unwrap();
        // `join` may return shortly before the kernel has removed the thread.
        for _ in 0..1000 {
            // SAFETY: the word is leaked.
            let now = unsafe { std::sync::atomic::AtomicU32::from_ptr(word as *mut u32) }
                .load(std::sync::atomic::Ordering::SeqCst);
            if now & 1 << 30 != 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the word was left as it was");
    }
}
