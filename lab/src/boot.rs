//! From the machine's first instruction to Rust, for the boot CPU and for the others.
//!
//! QEMU loads the image by its PVH note and starts it in 32-bit mode, flat, without paging. The other CPUs
//! start in real mode at a page below 1 MiB that [`start_others`] has filled. Both ways enter 64-bit mode with
//! the first four gigabytes mapped as they are, in pages of 2 MiB; [`crate::mem`] makes the tables that stay.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu;

global_asm!(
    r#"
.section .note.pvh,"a",@note
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start

.section .boot,"ax",@progbits
.code32
.global pvh_start
pvh_start:
    cli
    # Virtual time begins, under the lockstep plugin.
    .byte 0x0f, 0x1f, 0x80, 0x58, 0x5e, 0xa5, 0x5a
    mov esp, offset boot_stack_top
    mov [start_info], ebx
    # One entry in the upper tables, and a directory for each gigabyte.
    mov eax, offset boot_pdpt
    or eax, 3
    mov [boot_pml4], eax
    mov eax, offset boot_pd
    or eax, 3
    mov edi, offset boot_pdpt
    mov ecx, 4
2:  mov [edi], eax
    add eax, 0x1000
    add edi, 8
    dec ecx
    jnz 2b
    mov edi, offset boot_pd
    mov eax, 0x83
    mov ecx, 2048
3:  mov [edi], eax
    add eax, 0x200000
    add edi, 8
    dec ecx
    jnz 3b
    lgdt [boot_gdtr]
    # PAE, SSE and its exceptions.
    mov eax, 0x620
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, 0x80010033
    mov cr0, eax
    push 8
    mov eax, offset boot_64
    push eax
    retf
.code64
boot_64:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor ebp, ebp
    mov edi, [start_info]
    call kernel_main
4:  hlt
    jmp 4b

# Copied to 0x8000: the other CPUs start here, in real mode.
.global ap_begin, ap_end
.code16
ap_begin:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66
    lgdt [ap_gdtr_copy]
    mov eax, 0x620
    mov cr4, eax
    .byte 0x66, 0xb8
    .long boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, 0x80010033
    mov cr0, eax
    .byte 0x66, 0xea
    .long ap_64
    .word 8
.balign 8
ap_gdtr:
    .word 23
    .long boot_gdt
ap_end:
.set ap_gdtr_copy, 0x8000 + (ap_gdtr - ap_begin)
.code64
ap_64:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov edi, 1
    lock xadd [next_cpu], edi
    mov eax, edi
    shl eax, 12
    lea rsp, [boot_stack_top + rax]
    xor ebp, ebp
    call other_main
5:  hlt
    jmp 5b

.balign 16
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdtr:
    .word 23
    .long boot_gdt
# An atomic operation on a word that is not aligned would stop all CPUs.
.section .data
.balign 8
.global start_info, next_cpu
start_info: .long 0
next_cpu: .long 1
.section .bss
.balign 4096
.global boot_pml4
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pd: .skip 16384
.skip 16384
boot_stack_top:
.skip 4096 * 16

# What the compiler calls, with no library to have it.
.section .text
.global memcpy, memmove, memset, memcmp, bcmp, strlen, rust_eh_personality, _Unwind_Resume
memcpy:
    mov rax, rdi
    mov rcx, rdx
    rep movsb
    ret
memmove:
    mov rax, rdi
    mov rcx, rdx
    cmp rdi, rsi
    jbe 6f
    lea rdi, [rdi + rcx - 1]
    lea rsi, [rsi + rcx - 1]
    std
    rep movsb
    cld
    ret
6:  rep movsb
    ret
memset:
    mov r8, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
memcmp:
bcmp:
    xor eax, eax
    mov rcx, rdx
    test rcx, rcx
    jz 7f
    repe cmpsb
    je 7f
    movzx eax, byte ptr [rdi - 1]
    movzx ecx, byte ptr [rsi - 1]
    sub ecx, eax
    mov eax, ecx
7:  ret
strlen:
    xor eax, eax
8:  cmp byte ptr [rdi + rax], 0
    je 9f
    inc rax
    jmp 8b
9:  ret
rust_eh_personality:
_Unwind_Resume:
    ud2
"#
);

unsafe extern "C" {
    static ap_begin: u8;
    static ap_end: u8;
}

/// CPUs that run Rust.
pub static STARTED: AtomicU32 = AtomicU32::new(1);

/// Where the other CPUs start: a page below 1 MiB, whose number is the start-up interrupt's vector.
const AP_PAGE: usize = 0x8000;

/// Starts all other CPUs and waits for them, one after the other, so that numbers are theirs by order.
pub fn start_others(count: u32) {
    // SAFETY: the page is ordinary memory that nothing else uses, and the copied bytes are position-independent.
    unsafe {
        let begin = &raw const ap_begin;
        let len = (&raw const ap_end).offset_from(begin) as usize;
        core::ptr::copy_nonoverlapping(begin, AP_PAGE as *mut u8, len);
    }
    for id in 1..count {
        cpu::send_init(id);
        cpu::let_the_host_settle();
        // Intel's manual (volume 3, 8.4.4) waits ten milliseconds here.
        for _ in 0..100_000 {
            core::hint::spin_loop();
        }
        cpu::send_startup(id, (AP_PAGE >> 12) as u32);
        while STARTED.load(Ordering::Acquire) != id + 1 {
            core::hint::spin_loop();
        }
    }
}
