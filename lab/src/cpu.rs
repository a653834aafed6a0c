//! What belongs to one CPU: the page that each CPU sees at the same address, descriptor tables, the entry from
//! user mode, the interrupt controller, and the clock that all share.

use core::arch::{asm, global_asm};

use crate::lock::CLASSES;
use crate::thread::NONE;

/// Most CPUs.
pub const MOST: usize = 8;
/// Where every CPU sees its own page: in the last entry of the page directory that containers copy.
pub const LOCAL: usize = 0xbfe0_0000;

/// Where a CPU's time went, in ticks of the clock.
#[derive(Clone, Copy, Default)]
pub struct Times {
    pub user: u64,
    pub kernel: u64,
    pub spinning: u64,
    pub idle: u64,
}

/// What one CPU did with one class of locks.
#[derive(Clone, Copy, Default)]
pub struct LockCounts {
    pub taken: u64,
    pub contended: u64,
    pub spun: u64,
}

/// A CPU's own page. Code reads it without knowing on which CPU it is.
#[repr(C)]
pub struct Local {
    pub id: u32,
    /// The running thread.
    pub current: u32,
    /// The container whose mappings are in this CPU's tables.
    pub container: u32,
    /// Classes of the locks that are held, in order.
    pub held: [u8; 16],
    pub held_count: u32,
    /// How often the giant lock is held: it is recursive.
    pub giant_depth: u32,
    /// The tables of this CPU.
    pub pdpt: usize,
    pub directory: usize,
    pub times: Times,
    /// When the present part of the time began.
    pub since: u64,
    pub locks: [LockCounts; CLASSES],
    /// Supervisor signals: what is done before the kernel is left.
    pub signals: [(u32, u32); 16],
    pub signal_count: u32,
    /// Whether the running thread gives the CPU to those that wait for it.
    pub yields: bool,
    /// When it was loaded.
    pub loaded: u64,
    /// When its clock ticks next.
    pub next_tick: u64,
    pub stack_top: usize,
}

/// This CPU's page.
pub fn local() -> &'static mut Local {
    // SAFETY: `mem::map_local` has mapped a page of this CPU's own there before anything asks for it, and the
    // kernel cannot be interrupted, so that no two references are used at once.
    unsafe { &mut *(LOCAL as *mut Local) }
}

impl Local {
    pub fn new(id: u32) -> Local {
        Local {
            id,
            current: NONE,
            container: NONE,
            held: [0; 16],
            held_count: 0,
            giant_depth: 0,
            pdpt: 0,
            directory: 0,
            times: Times::default(),
            since: 0,
            locks: [LockCounts::default(); CLASSES],
            signals: [(0, 0); 16],
            signal_count: 0,
            yields: false,
            loaded: 0,
            next_tick: 0,
            stack_top: 0,
        }
    }
}

/// Registers of a thread, in the order in which the entry pushes them.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Frame {
    /// SSE and x87.
    pub vector_state: [u64; 64],
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// Code and data segments of user mode.
pub const USER_CODE: u64 = 0x20 | 3;
pub const USER_DATA: u64 = 0x18 | 3;

impl Frame {
    pub const fn empty() -> Frame {
        // SAFETY: all of it is numbers.
        unsafe { core::mem::zeroed() }
    }

    /// The registers of a thread that begins.
    pub fn begin(entry: usize, argument: u64, stack: u64) -> Frame {
        let mut frame = Frame::empty();
        frame.vector_state[0] = 0x037f;
        frame.vector_state[3] = 0x1f80;
        frame.rip = entry as u64;
        frame.rdi = argument;
        // As if it had been called.
        frame.rsp = stack - 8;
        frame.cs = USER_CODE;
        frame.ss = USER_DATA;
        frame.rflags = 0x202;
        frame
    }
}

global_asm!(
    r#"
.macro entry number, with_error
.global entry_\number
entry_\number:
    .if \with_error == 0
    push 0
    .endif
    push \number
    jmp entry_common
.endm
entry 6, 0
entry 8, 1
entry 13, 1
entry 14, 1
entry 128, 0
entry_common:
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    sub rsp, 512
    fxsave64 [rsp]
    mov rdi, rsp
    cld
    call kernel_entry
.global leave_kernel
leave_kernel:
    fxrstor64 [rsp]
    add rsp, 512
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16
    iretq
# Another CPU says that there is work: waking up is all that is needed.
.global entry_wake
entry_wake:
    push rax
    mov eax, 0xfee000b0
    mov dword ptr [rax], 0
    pop rax
    iretq
"#
);

unsafe extern "C" {
    fn entry_6();
    fn entry_8();
    fn entry_13();
    fn entry_14();
    fn entry_128();
    fn entry_wake();
    fn leave_kernel() -> !;
}

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct TaskState {
    reserved: u32,
    stacks: [u64; 3],
    rest: [u8; 76],
}

const STACK: usize = 32 << 10;

#[repr(C, align(4096))]
struct Tables {
    stack: [u8; STACK],
    gdt: [u64; 7],
    task: TaskState,
}

const TABLES: Tables = Tables {
    stack: [0; STACK],
    gdt: [0; 7],
    task: TaskState { reserved: 0, stacks: [0; 3], rest: [0; 76] },
};

static mut CPUS: [Tables; MOST] = [TABLES; MOST];
static mut IDT: [[u64; 2]; 256] = [[0; 2]; 256];

/// The vector of the interrupt that wakes an idle CPU.
const WAKE: u32 = 0xf0;

fn gate(handler: unsafe extern "C" fn(), user: bool) -> [u64; 2] {
    let address = handler as usize as u64;
    let kind = if user { 0xee00_u64 } else { 0x8e00 };
    let low = (address & 0xffff) | (8 << 16) | (kind << 32) | ((address & 0xffff_0000) << 32);
    [low, address >> 32]
}

/// Fills the table of interrupts, which all CPUs share.
pub fn fill_idt() {
    // SAFETY: only the boot CPU runs yet.
    unsafe {
        let idt = &mut *(&raw mut IDT);
        idt[6] = gate(entry_6, false);
        idt[8] = gate(entry_8, false);
        idt[13] = gate(entry_13, false);
        idt[14] = gate(entry_14, false);
        idt[128] = gate(entry_128, true);
        idt[WAKE as usize] = gate(entry_wake, false);
    }
}

/// Keeps the old interrupt controllers silent: the firmware has left a timer running behind them.
pub fn mask_old_controllers() {
    for port in [0x21_u16, 0xa1] {
        // SAFETY: the mask registers of both controllers.
        unsafe { asm!("out dx, al", in("dx") port, in("al") 0xff_u8) }
    }
}

/// Loads this CPU's tables and switches its interrupt controller on.
pub fn set_up(id: u32) {
    // SAFETY: each CPU loads tables of its own, filled here, and a stack of its own for entries from user mode.
    unsafe {
        let tables = &mut (*(&raw mut CPUS))[id as usize];
        let top = (&raw const tables.stack) as usize + STACK;
        local().stack_top = top;
        tables.task.stacks[0] = top as u64;
        let task = (&raw const tables.task) as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        let low = limit | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56;
        tables.gdt = [
            0,
            0x00af_9b00_0000_ffff,
            0x00cf_9300_0000_ffff,
            0x00cf_f300_0000_ffff,
            0x00af_fb00_0000_ffff,
            low,
            task >> 32,
        ];
        let gdt = Pointer { limit: 55, base: (&raw const tables.gdt) as u64 };
        let idt = Pointer { limit: 4095, base: (&raw const IDT) as u64 };
        asm!("lgdt [{}]", in(reg) &gdt);
        asm!("lidt [{}]", in(reg) &idt);
        asm!("ltr {0:x}", in(reg) 0x28_u16);
    }
    // Spurious-interrupt vector register: on, vector 255.
    write_apic(0xf0, 0x1ff);
}

/// Goes to user mode with these registers, from a stack that is empty otherwise.
pub fn enter_user(frame: &Frame) -> ! {
    // SAFETY: `leave_kernel` takes what the stack pointer points to for a frame, and the stack of this CPU's
    // entries is unused: nothing has entered yet.
    unsafe {
        let place = (local().stack_top - size_of::<Frame>()) as *mut Frame;
        *place = *frame;
        asm!("mov rsp, {}", "jmp {}", in(reg) place, sym leave_kernel, options(noreturn));
    }
}

fn write_apic(register: usize, value: u32) {
    // SAFETY: the local interrupt controller's registers are mapped where they are.
    unsafe { ((0xfee0_0000 + register) as *mut u32).write_volatile(value) }
}

fn send(to: u32, command: u32) {
    write_apic(0x310, to << 24);
    write_apic(0x300, command);
}

pub fn send_init(to: u32) {
    send(to, 0x4500);
}

pub fn send_startup(to: u32, page: u32) {
    send(to, 0x4600 | page);
    say_woken(to);
}

/// Wakes a CPU that waits for interrupts.
pub fn wake(to: u32) {
    send(to, 0x4000 | WAKE);
    say_woken(to);
}

/// Under the lockstep plugin, gives the other CPU's thread of the host time to come to rest after a reset: until then
/// it would not hear the start-up interrupt.
pub fn let_the_host_settle() {
    // SAFETY: a long form of `nop`.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x59, 0x5e, 0xa5, 0x5a") }
}

/// An instruction that does nothing, by which the lockstep plugin knows that this CPU has woken another one:
/// when the interrupt arrives is then a matter of virtual time, not of the host. The other CPU's number is in the
/// instruction, for plugins read no registers.
fn say_woken(to: u32) {
    macro_rules! mark {
        ($number:literal) => {
            // SAFETY: a long form of `nop`.
            unsafe { asm!(concat!(".byte 0x0f, 0x1f, 0x80, ", $number, ", 0x5e, 0xa5, 0x5a")) }
        };
    }
    match to {
        0 => mark!("0x50"),
        1 => mark!("0x51"),
        2 => mark!("0x52"),
        3 => mark!("0x53"),
        4 => mark!("0x54"),
        5 => mark!("0x55"),
        6 => mark!("0x56"),
        _ => mark!("0x57"),
    }
}

/// Waits for an interrupt. None is lost between the check before and this: they are off until here.
pub fn wait_for_interrupt() {
    // SAFETY: the only interrupt is the one that wakes, whose entry changes nothing.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Starts the clock that all CPUs share (HPET).
pub fn start_clock() {
    // SAFETY: the timer's registers are mapped where they are. Bit 0 lets the main counter run, from zero.
    unsafe {
        (0xfed0_0010 as *mut u64).write_volatile(0);
        (0xfed0_00f0 as *mut u64).write_volatile(0);
        (0xfed0_0010 as *mut u64).write_volatile(1);
    }
}

/// The shared clock, in ticks. Under the lockstep plugin one tick is one instruction.
pub fn now() -> u64 {
    // SAFETY: the main counter's register.
    unsafe { (0xfed0_00f0 as *const u64).read_volatile() }
}

/// Ends the machine with a status: 0 is success.
pub fn power_off(status: u32) -> ! {
    // QEMU's debug exit device ends with twice the value, plus one.
    // SAFETY: a port that only that device has.
    unsafe { asm!("out dx, eax", in("dx") 0xf4_u16, in("eax") status + 0x10) }
    loop {
        core::hint::spin_loop();
    }
}

/// The console: a port of QEMU's.
pub fn print(text: &str) {
    for byte in text.bytes() {
        // SAFETY: a port that only the debug console has.
        unsafe { asm!("out dx, al", in("dx") 0xe9_u16, in("al") byte) }
    }
}

/// Does nothing for so many iterations, which costs four instructions each.
pub fn compute(iterations: u64) {
    for i in 0..iterations {
        core::hint::black_box(i);
    }
}
