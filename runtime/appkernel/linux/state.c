/* A program's state on its way between Linux and the application kernel.
 *
 * Registers are in the task's pt_regs, vector state in its FPU buffer, segment bases in its
 * thread struct: where Linux has them for any program that is in the kernel. So whatever Linux does
 * with a program that is home, it does to the program itself. */
#include <asm/fpu/api.h>
#include <asm/fsgsbase.h>
#include <asm/pkru.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>

#include "fettle_smp.h"

#define FLAGS_OF_PROGRAMS                                                                         \
    (X86_EFLAGS_CF | X86_EFLAGS_PF | X86_EFLAGS_AF | X86_EFLAGS_ZF | X86_EFLAGS_SF |              \
     X86_EFLAGS_DF | X86_EFLAGS_OF | X86_EFLAGS_NT | X86_EFLAGS_AC | X86_EFLAGS_ID)

static struct fpstate *buffer(void)
{
    return current->thread.fpu.fpstate;
}

/* Whether the task's vector state fits into a thread. With more (AMX) it stays home. */
bool state_fits(void)
{
    return buffer()->size <= VECTORS_MAX && (buffer()->xfeatures & ~(1ul << 9)) == shared->vectors;
}

/* Puts the vector state into its buffer, from which Linux loads it when the task goes on. */
static void settle_vectors(void)
{
    kernel_fpu_begin();
    kernel_fpu_end();
}

static u64 user_gs_base(void)
{
    u64 base;
    rdmsrl(MSR_KERNEL_GS_BASE, base);
    return base;
}

static void read_bases(struct thread *thread)
{
    preempt_disable();
    thread->fs_base = rdfsbase();
    thread->gs_base = user_gs_base();
    if (shared->has_keys)
        thread->protection_keys = read_pkru();
    preempt_enable();
}

void state_out(struct thread *thread)
{
    const struct pt_regs *regs = current_pt_regs();
    BUILD_BUG_ON(sizeof *regs != sizeof thread->registers);
    memcpy(&thread->registers, regs, sizeof thread->registers);
    thread->registers.cs = __USER_CS;
    thread->registers.ss = __USER_DS;
    thread->registers.flags = (regs->flags & FLAGS_OF_PROGRAMS) | X86_EFLAGS_IF | X86_EFLAGS_FIXED;
    settle_vectors();
    memcpy((u8 *)thread + THREAD_VECTORS, &buffer()->regs, buffer()->size);
    thread->vectors_changed = 1;
    read_bases(thread);
}

void state_registers_home(const struct thread *thread, struct pt_regs *regs)
{
    memcpy(regs, &thread->registers, sizeof *regs);
    regs->cs = __USER_CS;
    regs->ss = __USER_DS;
    regs->orig_ax = -1;
}

/* Rights by protection keys hold for what Linux does in the program's name, too. */
void state_keys_home(struct thread *thread)
{
    if (shared->has_keys && read_pkru() != thread->protection_keys)
        write_pkru(thread->protection_keys);
}

static void write_bases(const struct thread *thread)
{
    preempt_disable();
    if (rdfsbase() != thread->fs_base) {
        wrfsbase(thread->fs_base);
        current->thread.fsbase = thread->fs_base;
    }
    if (user_gs_base() != thread->gs_base) {
        wrmsrl(MSR_KERNEL_GS_BASE, thread->gs_base);
        current->thread.gsbase = thread->gs_base;
    }
    preempt_enable();
}

/* All but the general-purpose registers. */
void state_home(struct thread *thread)
{
    settle_vectors();
    memcpy(&buffer()->regs, (u8 *)thread + THREAD_VECTORS, buffer()->size);
    state_keys_home(thread);
    write_bases(thread);
}
