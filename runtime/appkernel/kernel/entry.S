/* The ways in and out.
 *
 * A program's registers are pushed into its struct thread, not onto a stack: what the processor
 * loads as the stack pointer is the end of that. `gs` is the program's but for the instructions that
 * look up the processor's area. Interrupts are off wherever this kernel runs.
 */
#include "layout.h"

    .macro push_registers
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %rax
    pushq   %r8
    pushq   %r9
    pushq   %r10
    pushq   %r11
    pushq   %rbx
    pushq   %rbp
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    .endm

    .text
/* SYSCALL: rcx is where to go on, r11 the flags. */
    .globl call_entry
    .balign 16
call_entry:
    endbr64
    swapgs
    movq    %rsp, %gs:CPU_CALLER
    movq    %gs:CPU_FRAME, %rsp
    pushq   $0x2b
    pushq   %gs:CPU_CALLER
    pushq   %r11
    pushq   $0x33
    pushq   %rcx
    pushq   $0
    movl    $VECTOR_CALL, 4(%rsp)
    push_registers
    jmp     handle

/* Interrupts and exceptions: 256 entries of 16 bytes. */
    .globl vector_entries
    .balign 16
vector_entries:
    vector = 0
    .rept 256
    .balign 16
    .if !((vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30))
    pushq   $0
    .endif
    movl    $vector, 4(%rsp)
    .if vector == 2
    jmp     ignore
    .elseif (vector == 8) || (vector == 18)
    jmp     hopeless
    .else
    jmp     vectored
    .endif
    vector = vector + 1
    .endr

/* An NMI: nothing here uses one. */
ignore:
    addq    $8, %rsp
    iretq

/* A double fault or a machine check, on a stack of its own: nothing can go on. */
hopeless:
    push_registers
    jmp     broken

vectored:
    push_registers
    testb   $3, REGISTERS_CS(%rsp)
    jz      inside
    swapgs
handle:
    movq    %rsp, %rdi
    movq    %gs:CPU_STACK, %rsp
    swapgs
    cld
    xorl    %ebp, %ebp
    call    trap
    movq    %rax, %rdi

    .globl resume
resume:
    movq    %rdi, %rsp
pop_registers:
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbp
    popq    %rbx
    popq    %r11
    popq    %r10
    popq    %r9
    popq    %r8
    popq    %rax
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    addq    $8, %rsp
    iretq

/* int load_user(u64 address, u32 *value, u32 has_smap): the one place that may fault. */
    .globl load_user
    .balign 16
load_user:
    testl   %edx, %edx
    jz      1f
    stac
1:  xorl    %eax, %eax
may_fault:
    movl    (%rdi), %ecx
    incl    %eax
has_faulted:
    testl   %edx, %edx
    jz      1f
    clac
1:  movl    %ecx, (%rsi)
    ret

/* Interrupts are on where a processor sleeps, and only there. */
inside:
    cmpb    $VECTOR_PAGE_FAULT, REGISTERS_VECTOR(%rsp)
    jne     1f
    cmpq    $may_fault, REGISTERS_IP(%rsp)
    jne     1f
    movq    $has_faulted, REGISTERS_IP(%rsp)
    jmp     pop_registers
1:
    cmpb    $VECTOR_LOWEST, REGISTERS_VECTOR(%rsp)
    jb      broken
    cld
    call    apic_done
    jmp     pop_registers

/* An exception of this kernel's own. */
broken:
    movq    %rsp, %rdi
    andq    $-16, %rsp
    cld
    call    fail
    ud2

    .section .note.GNU-stack, "", @progbits
