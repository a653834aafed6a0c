/* The start of the image, and the way of a processor from real mode to `start`. */
#include "layout.h"

    .section .head, "a"
header:
    .quad IMAGE_MAGIC
    .quad trampoline - header
    .quad trampoline_end - trampoline
    .quad start_long
    .quad image_end - header

/* The address that something of the trampoline has once it was copied. */
#define AT(symbol) (TRAMPOLINE + (symbol) - trampoline)

    .balign 16
trampoline:
    .code16
    cli
    jmp     real
    .balign 8
cr3:    .quad 0
stack:  .quad 0
entry:  .quad 0
cpu:    .quad 0
real:
    cld
    xorw    %ax, %ax
    movw    %ax, %ds
    lgdtl   AT(gdt_pointer)
    movl    $0xa0, %eax             /* CR4: PAE, PGE */
    movl    %eax, %cr4
    movl    AT(cr3), %eax
    movl    %eax, %cr3
    movl    $0xc0000080, %ecx       /* EFER: SCE, LME, NXE */
    rdmsr
    orl     $0x901, %eax
    wrmsr
    movl    $0x80050033, %eax       /* CR0: paging, write protection, native FPU errors */
    movl    %eax, %cr0
    ljmpl   $0x10, $AT(long)
    .code64
long:
    movl    $0x18, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    xorl    %eax, %eax
    movl    %eax, %fs
    movl    %eax, %gs
    movq    AT(stack), %rsp
    movq    AT(cpu), %rdi
    movq    AT(entry), %rax
    xorl    %ebp, %ebp
    jmp     *%rax
    .balign 16
gdt:
    .quad 0, 0
    .quad 0x00af9b000000ffff        /* 0x10: code, 64 bit */
    .quad 0x00cf93000000ffff        /* 0x18: data */
gdt_pointer:
    .word gdt_pointer - gdt - 1
    .long AT(gdt)
trampoline_end:

    .text
    .globl start_long
start_long:
    call    start
    ud2

    .section .note.GNU-stack, "", @progbits
