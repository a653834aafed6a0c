/* System calls that need more than to be run. */
#include <asm/unistd.h>
#include <linux/pid.h>
#include <linux/uaccess.h>

#include "fettle_smp.h"

/* CALL_WHOLE: Linux reads or writes more of the program than its general-purpose registers.
 * CALL_LAST: never returns. CALL_OURS: about processors, of which Linux knows only its own, and futexes. */
enum call_kind call_kind(u64 number)
{
    switch (number) {
    case __NR_clone:
    case __NR_clone3:
    case __NR_fork:
    case __NR_vfork:
    case __NR_execve:
    case __NR_execveat:
    case __NR_rt_sigreturn:
    case __NR_arch_prctl:
        return CALL_WHOLE;
    case __NR_exit:
    case __NR_exit_group:
        return CALL_LAST;
    case __NR_sched_getaffinity:
    case __NR_sched_setaffinity:
    case __NR_membarrier:
    case __NR_futex:
        return CALL_OURS;
    default:
        return CALL_PLAIN;
    }
}

static bool is_about_self(struct pt_regs *regs)
{
    return regs->di == 0 || regs->di == task_pid_vnr(current);
}

/* Processors that a member may run on are the lent ones. */
static long get_affinity(struct member *member, struct pt_regs *regs)
{
    unsigned long bytes = min_t(unsigned long, regs->si, cpumask_size());
    cpumask_var_t numbers;
    long result = -EFAULT;
    if (!is_about_self(regs))
        return symbols_run_call(regs, regs->orig_ax);
    if (regs->si * BITS_PER_BYTE < nr_cpu_ids || regs->si & (sizeof(long) - 1))
        return -EINVAL;
    if (!alloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    processors_numbers(member->cpus, numbers);
    if (!copy_to_user((void __user *)regs->dx, cpumask_bits(numbers), bytes))
        result = bytes;
    free_cpumask_var(numbers);
    return result;
}

/* A program that asks for lent processors gets them; one that asks for others goes home. */
static long set_affinity(struct member *member, struct pt_regs *regs)
{
    unsigned long bytes = min_t(unsigned long, regs->si, cpumask_size());
    cpumask_var_t numbers;
    long result = 0;
    u64 cpus;
    if (!is_about_self(regs))
        return symbols_run_call(regs, regs->orig_ax);
    if (!zalloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    if (copy_from_user(cpumask_bits(numbers), (void __user *)regs->dx, bytes)) {
        free_cpumask_var(numbers);
        return -EFAULT;
    }
    cpus = processors_indices(numbers) & member->allowed;
    if (cpus) {
        member->cpus = cpus;
    } else {
        result = symbols_run_call(regs, regs->orig_ax);
        member->stays_home = result == 0;
    }
    free_cpumask_var(numbers);
    return result;
}

/* Linux does not interrupt processors that it does not know. */
static long barrier_everywhere(struct member *member, struct pt_regs *regs)
{
    long result = symbols_run_call(regs, regs->orig_ax);
    if (result == 0)
        spaces_flush(member->space->index);
    return result;
}

long call_ours(struct member *member, struct pt_regs *regs)
{
    switch (regs->orig_ax) {
    case __NR_futex:
        return futexes_call(member->space, regs);
    case __NR_sched_getaffinity:
        return get_affinity(member, regs);
    case __NR_sched_setaffinity:
        return set_affinity(member, regs);
    default:
        return barrier_everywhere(member, regs);
    }
}
