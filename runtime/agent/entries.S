/* Entries of the agent. A probe pushes its operands and calls; every register is preserved, and the
 * zero flag is the result where there is one. The table in front is what fettle-rewrite reads:
 * offsets of the entries from the table.
 */
        .section .entries, "ax", @progbits
        .globl fettle_entries
fettle_entries:
        .long entry_exit - fettle_entries
        .long entry_left - fettle_entries
        .long entry_ring - fettle_entries
        .long entry_sample_entry - fettle_entries
        .long entry_sample_exit - fettle_entries
        .long entry_enter - fettle_entries
        .long entry_leave - fettle_entries
        .long fettle_text_read - fettle_entries
        .long fettle_text_fault - fettle_entries
        .long entry_own - fettle_entries
        .long entry_own_vectors - fettle_entries
        .long entry_full - fettle_entries
        .long entry_lock_enter - fettle_entries
        .long entry_lock_leave - fettle_entries
        .long fettle_end - fettle_entries

        .include "save.inc"

        .text
        /* [rsp+8]: number of the function; [rsp+16]: bytes that the probe pushed; rax: time. ZF: the
         * frame was found. */
entry_exit:
        save_registers
        movl SAVED+8(%rbp), %edx
        movslq SAVED+16(%rbp), %rdi
        leaq SAVED+24(%rbp,%rdi), %rdi
        movq %rax, %rsi
        call fettle_exit
        cmpl $1, %eax
        restore_registers
        ret $16

entry_left:
        save
        leaq BEHIND+8(%rbp), %rdi
        call fettle_left
        restore
        ret

        /* [rsp+8]: position. ZF: it may be stored to. */
entry_ring:
        save_registers
        movq SAVED+8(%rbp), %rdi
        call fettle_ring
        cmpl $1, %eax
        restore_registers
        ret $8

entry_full:
        save_registers
        call fettle_full
        restore_registers
        ret

        /* [rsp+8]: number of the function; [rsp+16]: bytes that the probe pushed. */
entry_sample_entry:
        save_registers
        movl SAVED+8(%rbp), %esi
        movslq SAVED+16(%rbp), %rdi
        leaq SAVED+24(%rbp,%rdi), %rdi
        call fettle_sample_entry
        restore_registers
        ret $16

        /* [rsp+8]: number of the function; [rsp+16]: bytes that the probe pushed. */
entry_sample_exit:
        save_registers
        lfence
        rdtsc
        shlq $32, %rdx
        orq %rdx, %rax
        movl SAVED+8(%rbp), %edx
        movslq SAVED+16(%rbp), %rdi
        leaq SAVED+24(%rbp,%rdi), %rdi
        movq %rax, %rsi
        call fettle_sample_exit
        restore_registers
        ret $16

        /* Arguments in vector registers, as far as they are recorded; C code writes none. */
        .macro vectors
        subq $64, %rsp
        movq %xmm0, (%rsp)
        movq %xmm1, 8(%rsp)
        movq %xmm2, 16(%rsp)
        movq %xmm3, 24(%rsp)
        movq %xmm4, 32(%rsp)
        movq %xmm5, 40(%rsp)
        movq %xmm6, 48(%rsp)
        movq %xmm7, 56(%rsp)
        .endm

        /* [rsp+8]: number of the function; [rsp+16]: what to record of its arguments. */
entry_enter:
        save
        vectors
        movq %rsp, %rcx
        leaq BEHIND+24(%rbp), %rdi
        movl BEHIND+8(%rbp), %esi
        movl BEHIND+16(%rbp), %edx
        movq %rbp, %r8
        call fettle_enter
        restore
        ret $16

        /* [rsp+8]: number of the function; [rsp+16]: what to record of its result. */
entry_leave:
        save
        vectors
        movq %rsp, %rcx
        leaq BEHIND+24(%rbp), %rdi
        movl BEHIND+8(%rbp), %esi
        movl BEHIND+16(%rbp), %edx
        movq %rbp, %r8
        call fettle_leave
        restore
        ret $16

        /* [rsp+8]: number of the function; [rsp+16]: which function of the user probe. */
        .macro own vectors
        save
        .if \vectors
        subq $512, %rsp
        fxsave64 (%rsp)
        .endif
        leaq BEHIND+24(%rbp), %rdi
        movl BEHIND+8(%rbp), %esi
        movl BEHIND+16(%rbp), %edx
        movq %rbp, %rcx
        call fettle_own
        .if \vectors
        fxrstor64 (%rsp)
        .endif
        restore
        ret $16
        .endm

entry_own:
        own vectors=0

        /* The same around code that writes vector registers: their lower halves, as code for any
         * processor does. */
entry_own_vectors:
        own vectors=1

        /* [rsp+8]: number of the function. The flags are kept without `pushfq`, which takes longer
         * than all the rest; the direction flag is clear at functions' entries. */
entry_lock_enter:
        pushq %rax
        lahf
        seto %al
        pushq %rax
        pushq %rcx
        pushq %rdx
        pushq %rsi
        pushq %rdi
        pushq %r8
        movl 64(%rsp), %esi
        movq 72(%rsp), %rdx
        call fettle_lock_fast
        testl %eax, %eax
        jz 1f
2:      popq %r8
        popq %rdi
        popq %rsi
        popq %rdx
        popq %rcx
        popq %rax
        addb $0x7f, %al
        sahf
        popq %rax
        ret $8
1:      pushq %rbp
        pushq %r9
        pushq %r10
        pushq %r11
        movq %rsp, %rbp
        andq $-16, %rsp
        /* The arguments, in memory in order. */
        pushq 48(%rbp)
        pushq 40(%rbp)
        movq %rsp, %rdx
        movl 96(%rbp), %esi
        leaq 104(%rbp), %rdi
        call fettle_lock_enter
        movq %rbp, %rsp
        popq %r11
        popq %r10
        popq %r9
        popq %rbp
        jmp 2b

        /* [rsp+8]: number of the function; [rsp+16]: bytes that the probe pushed. */
entry_lock_leave:
        save_registers
        movslq SAVED+16(%rbp), %rdi
        leaq SAVED+24(%rbp,%rdi), %rdi
        movq %rax, %rsi
        call fettle_lock_leave
        restore_registers
        ret $16

        /* u32 fettle_text(const char *at, char *to). The one instruction of the agent that touches
         * memory of the program's choice; the tracer resumes a thread behind its faults. */
        .globl fettle_text
fettle_text:
        xorl %eax, %eax
fettle_text_read:
        movzbl (%rdi,%rax), %ecx
        testb %cl, %cl
        jz 1f
        movb %cl, (%rsi,%rax)
        incl %eax
        cmpl $64, %eax
        jb fettle_text_read
1:      ret
fettle_text_fault:
        movl $65, %eax
        ret

        .section .end, "ax", @progbits
fettle_end:
        .section .note.GNU-stack, "", @progbits
