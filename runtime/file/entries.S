/* Entries of the agent of programs that record themselves. All keep every register and the
 * flags, except where they return a result. The table in front is what fettle-instrument reads.
 */
#ifdef FETTLE_OBJECT
        /* In object files the linker finds the entries by name. */
        .globl entry_check_library, entry_before, entry_after
        .hidden entry_check_library, entry_before, entry_after
#define fettle_key fettle_page
#else
        .section .entries, "ax", @progbits
        .globl fettle_entries
fettle_entries:
        .long entry_start - fettle_entries
        .long entry_init - fettle_entries
        .long entry_check - fettle_entries
        .long entry_check_library - fettle_entries
        .long entry_before - fettle_entries
        .long entry_after - fettle_entries
#endif

        .include "save.inc"

        /* Room for the address to go on at, in front of what is saved. */
        .macro save_before_jump
        leaq -8(%rsp), %rsp
        save
        .endm

        /* Goes on there, with the stack as it was: nothing writes to the 128 bytes below it. */
        .macro restore_and_jump
        restore
        leaq 8(%rsp), %rsp
        jmp *-8(%rsp)
        .endm
        .set SAVED_RDX, 48

        .text
#ifndef FETTLE_OBJECT
        /* A program's first instruction: rsp points at the arguments, rdx at what the program
         * shall call when it ends. */
entry_start:
        endbr64
        save_before_jump
        leaq BEHIND+8(%rbp), %rdi
        movq %rdx, %rsi
        leaq entry_end(%rip), %rdx
        call fettle_start
        movq %rax, SAVED_RDX(%rbp)
        movq %rdx, BEHIND(%rbp)
        restore_and_jump

        /* What a program calls when it ends. */
entry_end:
        endbr64
        subq $8, %rsp
        call fettle_end
        addq $8, %rsp
        testq %rax, %rax
        je 1f
        jmp *%rax
1:      ret

        /* A library's first instruction. */
entry_init:
        endbr64
        save_before_jump
        call fettle_init
        testq %rax, %rax
        je 1f
        movq %rax, BEHIND(%rbp)
        restore_and_jump
1:      restore
        leaq 8(%rsp), %rsp
        ret

        /* Called at the entry guard of a function: is the thread block this thread's? Below the
         * return address of the function nothing is in use. The sum of key, thread pointer and
         * owner is zero if it is; `jrcxz` and `lea` do not change the flags. */
entry_check:
        movq %rcx, -16(%rsp)
        movq %rax, -24(%rsp)
        movq fettle_key(%rip), %rcx
        jrcxz 1f
        movq %gs:224, %rax
        leaq (%rcx,%rax), %rcx
        movq %fs:0, %rax
        leaq (%rcx,%rax), %rcx
        jrcxz 2f
1:      call attach
2:      movq -24(%rsp), %rax
        movq -16(%rsp), %rcx
        ret

#endif

        /* The same for a library, which threads may come to that have no block at all. */
entry_check_library:
        movq %rcx, -16(%rsp)
        movq %rax, -24(%rsp)
        movq fettle_key(%rip), %rcx
        jrcxz 1f
        movzbl fettle_data+24(%rip), %ecx
        jrcxz 3f
        rdgsbase %rcx
        jrcxz 1f
3:      movq fettle_key(%rip), %rcx
        movq %gs:224, %rax
        leaq (%rcx,%rax), %rcx
        movq %fs:0, %rax
        leaq (%rcx,%rax), %rcx
        jrcxz 2f
1:      call attach
2:      movq -24(%rsp), %rax
        movq -16(%rsp), %rcx
        ret

attach:
        leaq -128(%rsp), %rsp
        save
        call fettle_attach
        restore
        leaq 128(%rsp), %rsp
        ret

        /* Around a call that forks. */
entry_before:
        save
        call fettle_before_fork
        restore
        ret
entry_after:
        save
        call fettle_after_fork
        restore
        ret

        /* int fettle_spill_entry(position): called by the probes' agent. */
        .globl fettle_spill_entry
        .hidden fettle_spill_entry
fettle_spill_entry:
        endbr64
        jmp fettle_spill
        .section .note.GNU-stack, "", @progbits
