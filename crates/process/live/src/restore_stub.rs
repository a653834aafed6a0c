//! Restore stubs: what restores a thread's state after it made system calls for us, even if Fettle is killed.
//!
//! A living tracer restores the state itself. If Fettle is killed meanwhile, the thread goes on behind the
//! call, and the code there has to do it. A thread that was in a system call, as nearly all threads are that
//! make calls for us, is restored as from a signal handler: `rt_sigreturn` takes registers, flags and the
//! signal mask from a frame at once. A signal that arrives meanwhile therefore interrupts the thread where it
//! was, which matters to handlers that look at the interrupted PC or never return, such as the C library's for
//! cancellation. Of the floating-point state the frame has what calls preserve: control words, and with them
//! the lower halves of vector registers.
//!
//! A thread outside a system call may use all of the floating-point state, which has no room in so small a
//! frame. It is restored by instructions, which leave that state alone: they set the signal mask, then one
//! register after the other. The same holds for threads with a shadow stack, where a frame needs a token of
//! the kernel, and where there is no room for a frame.
//!
//! Neither way needs memory of the thread's own, so its stack may be as small as it likes.

use crate::maps::LiveAddr;
use crate::ptrace::{FloatingPoint, Registers};
use crate::thread::Thread;

/// Room that a restore stub with a frame needs, the call included.
pub(crate) const WITH_FRAME: usize = 880;
/// The same by instructions.
pub(crate) const WITHOUT_FRAME: usize = 240;
/// Length of the instruction that makes the call: it comes first, and the restore stub follows.
pub(crate) const CALL: u64 = 2;

const SYSCALL: [u8; CALL as usize] = [0x0f, 0x05];
/// The begin of a stub with a frame: `lea rsp, [frame]`.
const TO_FRAME: [u8; 7] = [0x48, 0x8d, 0x25, 7, 0, 0, 0];
/// The begin of a stub by instructions: `mov eax, 14`, the number of `rt_sigprocmask`.
const TO_SIGNALS: [u8; 5] = [0xb8, 14, 0, 0, 0];
const RT_SIGRETURN: u8 = 15;
const RESTART_SYSCALL: u64 = 219;

/// The place of a system call with its restore stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// A multiple of 16.
    pub at: LiveAddr,
    /// Its size in bytes.
    pub len: usize,
    /// Whether a frame may be used, if there is room.
    pub frames: bool,
}

/// A system call, and the stub behind it that restores the state of `thread`. `blocked` are the
/// signals that it blocks, `floating` its floating-point state.
pub(crate) fn code(
    place: Place,
    thread: &Thread,
    blocked: u64,
    floating: &FloatingPoint,
) -> Vec<u8> {
    let has_frame = place.frames
        && place.len >= WITH_FRAME
        && thread.is_in_call()
        && !floating.has_protection_keys;
    let code = match has_frame {
        true => by_frame(place.at, &thread.registers, blocked, &floating.legacy),
        false => by_instructions(&thread.registers, blocked),
    };
    assert!(code.len() <= place.len, "code of a known size");
    code
}

/// Whether bytes begin as those that [`code`] makes.
pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    let behind = bytes.strip_prefix(&SYSCALL);
    behind.is_some_and(|behind| behind.starts_with(&TO_FRAME) || behind.starts_with(&TO_SIGNALS))
}

/// How a system call that was interrupted is restarted, if it is: the program counter, and the
/// number of the call.
fn interrupted(registers: &Registers, taken_up_by: u64) -> (u64, u64) {
    let in_call = (registers.orig_rax as i64) >= 0;
    match registers.rax as i64 {
        // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
        -514..=-512 if in_call => (registers.rip - CALL, registers.orig_rax),
        // ERESTART_RESTARTBLOCK
        -516 if in_call => (registers.rip - CALL, taken_up_by),
        _ => (registers.rip, registers.rax),
    }
}

/// By a frame. The kernel forgets how much of a wait is over, so that the wait is restarted in
/// full.
fn by_frame(at: LiveAddr, registers: &Registers, blocked: u64, legacy: &[u8; 512]) -> Vec<u8> {
    const FLAGS: u64 = 1 | 2 | 4; // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
    // No such flags of an alternate stack: the thread keeps the one that it has.
    const NO_STACK: u64 = 4;
    let mut code = SYSCALL.to_vec();
    code.extend_from_slice(&TO_FRAME);
    code.extend_from_slice(&[0xb8, RT_SIGRETURN, 0, 0, 0]); //        mov eax, 15
    code.extend_from_slice(&SYSCALL);
    let r = registers;
    let (rip, rax) = interrupted(r, r.orig_rax);
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let floating = (at.0 + (code.len() + 38 * 8) as u64).next_multiple_of(64);
    // struct ucontext with its struct sigcontext (arch/x86/include/uapi/asm).
    let frame = [
        [FLAGS, 0, 0, NO_STACK, 0].as_slice(),
        &[r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15],
        &[r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, rax, r.rcx, r.rsp, rip, r.eflags],
        &[segments, 0, 0, 0, 0, floating],
        &[0; 8],
        &[blocked],
    ];
    code.extend(frame.into_iter().flatten().flat_map(|word| word.to_le_bytes()));
    code.resize((floating - at.0) as usize, 0);
    code.extend_from_slice(legacy);
    code
}

/// By instructions.
fn by_instructions(registers: &Registers, blocked: u64) -> Vec<u8> {
    let (rip, rax) = interrupted(registers, RESTART_SYSCALL);
    let mut code = [SYSCALL.as_slice(), &TO_SIGNALS].concat();
    code.extend_from_slice(&[
        0xbf, 2, 0, 0, 0, //                         mov edi, 2       SIG_SETMASK
        0x48, 0x8d, 0x35, 0, 0, 0, 0, //             lea rsi, [mask]
        0x31, 0xd2, //                               xor edx, edx
        0x41, 0xba, 8, 0, 0, 0, //                   mov r10d, 8
        0x0f, 0x05, //                               syscall
    ]);
    const MASK_FIELD: usize = 15;
    // Flags: `add` makes the overflow flag what it was, `sahf` the others.
    let overflow = registers.eflags & 0x800 != 0;
    code.extend_from_slice(&[
        0xb0,
        if overflow { 0x7f } else { 0 }, //    mov al, 0x7f or 0
        0x04,
        1, //                                  add al, 1
        0xb4,
        registers.eflags as u8, //             mov ah, flags
        0x9e,                   //                                     sahf
    ]);
    let values = [
        (3, registers.rbx),
        (1, registers.rcx),
        (2, registers.rdx),
        (6, registers.rsi),
        (7, registers.rdi),
        (5, registers.rbp),
        (8, registers.r8),
        (9, registers.r9),
        (10, registers.r10),
        (11, registers.r11),
        (12, registers.r12),
        (13, registers.r13),
        (14, registers.r14),
        (15, registers.r15),
        (0, rax),
    ];
    for (number, value) in values {
        // mov register, value
        code.extend_from_slice(&[0x48 | number >> 3, 0xb8 | number & 7]);
        code.extend_from_slice(&value.to_le_bytes());
    }
    code.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
    code.extend_from_slice(&rip.to_le_bytes());
    let to_mask = (code.len() - (MASK_FIELD + 4)) as u32;
    code[MASK_FIELD..MASK_FIELD + 4].copy_from_slice(&to_mask.to_le_bytes());
    code.extend_from_slice(&blocked.to_le_bytes());
    code
}

#[cfg(test)]
mod tests {
    use std::arch::asm;
    use std::mem;
    use std::time::Instant;

    use super::*;
    use crate::follower::own_tid;

    /// A thread in system call `number` (none if it is below zero) that has returned `rax`.
    fn thread(number: i64, rax: i64) -> Thread {
        // SAFETY: integers, for which zero is a value.
        let mut registers: Registers = unsafe { mem::zeroed() };
        registers.rip = 0x4000;
        (registers.orig_rax, registers.rax) = (number as u64, rax as u64);
        Thread::standing(own_tid(), registers, Instant::now())
    }

    fn floating(has_protection_keys: bool) -> FloatingPoint {
        FloatingPoint { legacy: [0; 512], has_protection_keys }
    }

    const PLACE: Place = Place { at: LiveAddr(0x10010), len: WITH_FRAME, frames: true };

    #[test]
    fn frames_are_for_system_calls_where_there_is_room() {
        let in_call = thread(7, -514);
        let has_frame = |place, thread: &Thread, keys| {
            let code = code(place, thread, 0, &floating(keys));
            assert!(is_ours(&code));
            code.len() > WITHOUT_FRAME
        };
        assert!(has_frame(PLACE, &in_call, false));
        assert!(!has_frame(PLACE, &in_call, true));
        assert!(!has_frame(PLACE, &thread(-1, 5), false));
        assert!(!has_frame(Place { len: WITHOUT_FRAME, ..PLACE }, &in_call, false));
        assert!(!has_frame(Place { frames: false, ..PLACE }, &in_call, false));
    }

    #[test]
    fn interrupted_calls_are_made_again() {
        let taken_up = |number, rax| interrupted(&thread(number, rax).registers, 219);
        assert_eq!(taken_up(7, -516), (0x3ffe, 219));
        assert_eq!(taken_up(0, -512), (0x3ffe, 0));
        assert_eq!(taken_up(-1, -512), (0x4000, -512i64 as u64));
        assert_eq!(taken_up(7, 5), (0x4000, 5));
    }

    /// The result of a test of a restore stub.
    #[derive(Debug, PartialEq)]
    struct Found {
        general: [u64; 6],
        blocked: u64,
        control: u32,
    }

    /// Runs a restore stub in this very thread, which has other signals blocked and other values in
    /// its registers: it resumes behind the jump there.
    fn try_out(with_frame: bool) -> Found {
        let memory = Memory::new();
        let mut thread = thread(39, 11);
        let (usr1, mut own) = (1u64 << (libc::SIGUSR1 - 1), 0u64);
        block(libc::SIG_BLOCK, 0, &mut own);
        let wanted = own | usr1;
        // A legacy area with MXCSR at 24: round to nothing but zero.
        let mut floating = floating(!with_frame);
        floating.legacy[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        floating.legacy[24..28].copy_from_slice(&0x7f80u32.to_le_bytes());
        let r = &mut thread.registers;
        (r.r12, r.r13, r.r14, r.r15, r.r8) = (12, 13, 14, 15, 8);
        (r.cs, r.ss, r.eflags) = (0x33, 0x2b, 0x202);
        let place = Place { at: LiveAddr(memory.0 as u64), ..PLACE };
        let mut general = [0; 6];
        let mut control = 0u32;
        let registers = &raw mut thread.registers;
        // SAFETY: the code is written for the registers of this very place, which it leads to; it keeps
        // the stack, and what it changes is named. The last argument of `fill` stands for what it needs.
        unsafe {
            let fill =
                Fill { memory: &memory, place, thread: &thread, wanted, floating: &floating };
            asm!(
                "push rbx",
                "push rbp",
                "lea  rax, [rip + 2f]",
                "mov  [rdi + {rip}], rax",
                "mov  [rdi + {rsp}], rsp",
                "mov  [rdi + {rbx}], rbx",
                "mov  [rdi + {rbp}], rbp",
                "mov  rbx, rsp",
                "and  rsp, -16",
                "mov  rdi, rsi",
                "call {fill}",
                "mov  rsp, rbx",
                "mov  r12d, 1",
                "mov  r15d, 1",
                "jmp  rax",
                "2:",
                "pop  rbp",
                "pop  rbx",
                rip = const mem::offset_of!(Registers, rip),
                rsp = const mem::offset_of!(Registers, rsp),
                rbx = const mem::offset_of!(Registers, rbx),
                rbp = const mem::offset_of!(Registers, rbp),
                fill = sym fill_in,
                inout("rdi") registers => _,
                inout("rsi") &raw const fill => _,
                out("rax") general[0],
                out("r8") general[1],
                out("r12") general[2],
                out("r13") general[3],
                out("r14") general[4],
                out("r15") general[5],
                clobber_abi("sysv64"),
            );
            asm!("stmxcsr [{}]", in(reg) &raw mut control);
            asm!("ldmxcsr [{}]", in(reg) &0x1f80u32);
        }
        let mut blocked = 0;
        block(libc::SIG_SETMASK, own, &mut blocked);
        Found { general, blocked: blocked ^ own, control }
    }

    struct Fill<'a> {
        memory: &'a Memory,
        place: Place,
        thread: &'a Thread,
        wanted: u64,
        floating: &'a FloatingPoint,
    }

    /// Writes the restore stub, and returns its address.
    extern "sysv64" fn fill_in(fill: &Fill<'_>) -> u64 {
        let code = code(fill.place, fill.thread, fill.wanted, fill.floating);
        // SAFETY: the memory is ours, and large enough.
        unsafe { fill.memory.0.copy_from(code.as_ptr(), code.len()) };
        fill.place.at.0 + CALL
    }

    /// Changes the blocked signals, and gives those before.
    fn block(how: i32, signals: u64, before: &mut u64) {
        // SAFETY: two sets of the kernel's size that live here.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const signals, before, 8) };
        assert_eq!(result, 0);
    }

    /// A page that can be written to and executed.
    struct Memory(*mut u8);

    impl Memory {
        fn new() -> Memory {
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: new memory.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Memory(at.cast())
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: ours, and nothing is in it any more.
            unsafe { libc::munmap(self.0.cast(), 4096) };
        }
    }

    #[test]
    fn a_thread_is_given_everything_back() {
        let usr1 = 1 << (libc::SIGUSR1 - 1);
        let general = [11, 8, 12, 13, 14, 15];
        let found = Found { general, blocked: usr1, control: 0x7f80 };
        assert_eq!(try_out(true), found);
        // Instructions do not change the floating-point state.
        assert_eq!(try_out(false), Found { control: 0x1f80, ..found });
    }
}
