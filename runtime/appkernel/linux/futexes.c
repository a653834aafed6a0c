/* Private futexes (kernel/futex.c), as Linux sees them.
 *
 * The application kernel answers calls about a space's private futexes while no task can call Linux about them
 * unseen: all tasks that have the address space are out. Tasks that only look at it are counted by Linux like them,
 * so there may be fewer answers than possible, never too many. Before one of them runs its program at home, the
 * answers end, and all who wait are woken: they call again, and wait in Linux.
 * A call about futexes that was forwarded ends waits in the same way, since it may be meant for one of them.
 */
/* Which uses mutexes without including them, from Linux 6.12 on. */
#include <linux/mutex.h>
#include <linux/futex.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>

#include "fettle_smp.h"

bool futexes_keep_waiting; /* for tests: what is to be seen if waits do not end */

/* The caller has the space's lock. */
static void look(struct space *space)
{
    bool is_local = space->out && space->out == atomic_read(&space->notifier.mm->mm_users);
    if (is_local && !LOAD(shared->futexes_are_local[space->index]))
        STORE(shared->futexes_are_local[space->index], 1);
}

/* The caller has the space's lock. */
static void end(struct space *space)
{
    if (READ_ONCE(futexes_keep_waiting))
        return;
    STORE(shared->futexes_are_local[space->index], 0);
    threads_end_waits(space->index, 0);
}

/* The current task has gone out. */
void futexes_out(struct space *space)
{
    unsigned long flags;
    spin_lock_irqsave(&space->lock, flags);
    space->out++;
    look(space);
    spin_unlock_irqrestore(&space->lock, flags);
}

/* The current task goes on at home. */
void futexes_home(struct space *space)
{
    unsigned long flags;
    spin_lock_irqsave(&space->lock, flags);
    end(space);
    space->out--;
    spin_unlock_irqrestore(&space->lock, flags);
}

/* The current task, which is out, ends: it does nothing with futexes that are private. */
void futexes_gone(struct space *space)
{
    unsigned long flags;
    spin_lock_irqsave(&space->lock, flags);
    space->out--;
    spin_unlock_irqrestore(&space->lock, flags);
}

/* Others may have ended since. */
void futexes_look(struct space *space)
{
    unsigned long flags;
    if (LOAD(shared->futexes_are_local[space->index]) ||
        space->out != atomic_read(&space->notifier.mm->mm_users))
        return;
    spin_lock_irqsave(&space->lock, flags);
    look(space);
    spin_unlock_irqrestore(&space->lock, flags);
}

static void end_of(struct space *space)
{
    unsigned long flags;
    spin_lock_irqsave(&space->lock, flags);
    end(space);
    spin_unlock_irqrestore(&space->lock, flags);
}

/* A task that is not out runs its program. */
void futexes_stay_home(struct mm_struct *mm)
{
    spaces_for(mm, end_of);
}

/* How many of the threads that a call meant were woken, with those that waited out. */
static long with_others(const struct pt_regs *regs, long result, u32 others)
{
    long most = (int)regs->dx;
    return result < 0 || result >= most ? result : min_t(long, result + others, most);
}

/* Runs a call about a futex. While one is at hand, which may be a wait in Linux, the application kernel does not
 * answer wakes. The word may be changed by the call, so who waits out looks at it after that. */
long futexes_call(struct space *space, struct pt_regs *regs)
{
    u32 operation = (u32)regs->si & FUTEX_CMD_MASK;
    bool wakes = operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET;
    bool waits = operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET;
    u64 address = regs->di;
    long result;
    if (!(regs->si & FUTEX_PRIVATE_FLAG))
        return symbols_run_call(regs, regs->orig_ax);
    ADD(shared->futex_calls[space->index], 1);
    result = symbols_run_call(regs, regs->orig_ax);
    ADD(shared->futex_calls[space->index], -1);
    if (waits || READ_ONCE(futexes_keep_waiting))
        return result;
    if (wakes)
        return with_others(regs, result, threads_end_waits(space->index, address));
    threads_end_waits(space->index, 0);
    return result;
}
