/* What a task does while its program is out.
 *
 * The task itself is the proxy. It waits in the kernel, on its way back to user mode: in a task
 * work, which Linux runs there. Its registers on the kernel stack are the program's. When the lent
 * processor has a system call, the proxy puts the registers where Linux looks for them and runs the
 * call: Linux cannot tell that it did not come by the SYSCALL instruction. When something else than a
 * call or an ordinary page fault is the matter (a signal, a debugger, an exception, a filter on
 * calls) the program comes home: the work ends, Linux goes on as it would with any task that returns
 * to user mode, and a moment later a timer has it go out again.
 */
#include <linux/entry-common.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/rseq.h>
#include <linux/sched/cputime.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>

#include "fettle_smp.h"

/* How long a program stays home after something that Linux had to do there. */
#define SOON 50000ull
#define LATER 10000000ull

/* CPU time that is reported at a time, at least. */
#define REPORTED_NS 20000ull

#define SPINS_LEAST 64
#define SPINS_MOST 8192

#define BREAKPOINT 3
#define SIZE_OF_SYSCALL 2
#define SIZE_OF_INT3 1

enum outcome {
    OUT,     /* goes on on a lent processor */
    HOME,    /* Linux has something to do with it; out again soon */
    BUSY,    /* Linux has more to do with it than it has itself; out again after a while */
    PAUSED,  /* other works of the task first */
    NEW,     /* another program: out again at once */
    GONE     /* the task ended */
};

/* Waits until the thread stops. False if it has to be recalled first. It looks for a while before it sleeps, unless
 * another task wants this processor: a proxy that looks on would keep others' calls waiting. */
static bool wait_for(struct member *member, struct thread *thread)
{
    bool stopped = false;
    u32 i;
    for (i = 0; i < member->spins; i++) {
        if (LOAD(thread->state) == THREAD_STOPPED) {
            member->spins = min_t(u32, member->spins * 2, SPINS_MOST);
            return true;
        }
        if (!single_task_running() || signal_pending(current))
            break;
        cpu_relax();
    }
    member->spins = max_t(u32, member->spins / 2, SPINS_LEAST);
    STORE(thread->wants_bell, 1);
    for (;;) {
        set_current_state(TASK_INTERRUPTIBLE);
        stopped = LOAD(thread->state) == THREAD_STOPPED;
        if (stopped || signal_pending(current) || LOAD(thread->recalled))
            break;
        schedule();
    }
    __set_current_state(TASK_RUNNING);
    STORE(thread->wants_bell, 0);
    return stopped;
}

/* Reports to Linux the CPU time that the program had elsewhere, at once or when it is worth a report: that
 * takes longer than a short call. */
static void account(struct member *member, const struct thread *thread, u64 least_ns)
{
    u64 ticks = thread->ran - member->counted, nanoseconds;
    if (ticks < least_ns * (tsc_khz / 1000) / 1000 || !ticks)
        return;
    nanoseconds = mul_u64_u64_div_u64(ticks, 1000000, tsc_khz);
    member->counted = thread->ran;
    local_irq_disable();
    current->se.sum_exec_runtime += nanoseconds;
    local_irq_enable();
    if (symbols_account_user_time)
        symbols_account_user_time(current, nanoseconds);
}

#ifdef CONFIG_RSEQ
static bool has_rseq(void)
{
    return current->rseq != NULL;
}

/* Whether the program is in the middle of a restartable sequence. */
static bool in_sequence(void)
{
    u64 sequence = 0;
    return has_rseq() && (get_user(sequence, (u64 __user *)&current->rseq->rseq_cs) || sequence);
}

static bool report_number(u32 number)
{
    return !put_user(number, &current->rseq->cpu_id_start) && !put_user(number, &current->rseq->cpu_id);
}
#else
static bool has_rseq(void)
{
    return false;
}

static bool in_sequence(void)
{
    return false;
}

static bool report_number(u32 number)
{
    return true;
}
#endif

/* A program that knows on which processor it is (by rseq) gets one processor for a while, and learns
 * which. Others may be moved by the application kernel. */
static u64 processors_for(struct member *member, struct thread *thread)
{
    u64 allowed = member->cpus & processors_usable();
    u32 index;
    thread->allowed = allowed;
    if (allowed & ~member->avoided)
        allowed &= ~member->avoided;
    member->avoided = 0;
    thread->tells_preemption = has_rseq();
    if (!allowed || !thread->tells_preemption)
        return allowed;
    index = processors_choose(allowed, member->last_cpu);
    if (index != member->last_cpu && !report_number(world_cpu(index)->number))
        return 0;
    member->last_cpu = index;
    return 1ul << index;
}

/* Whether anything (a filter, a tracer, the audit) looks at the task's calls. */
static bool calls_are_watched(void)
{
    return READ_ONCE(current_thread_info()->syscall_work) & SYSCALL_WORK_ENTER;
}

static enum outcome come_home(struct thread *thread)
{
    state_registers_home(thread, current_pt_regs());
    state_home(thread);
    return HOME;
}

/* For what the instruction at hand does to Linux. The program must not go out again before it was
 * executed, or it would come home with it for ever. */
static enum outcome come_home_for(struct member *member, struct thread *thread)
{
    member->unfinished = thread->registers.ip;
    member->delay = SOON;
    return come_home(thread);
}

static bool has_not_moved(struct member *member)
{
    const struct pt_regs *regs = current_pt_regs();
    if (member->unfinished == regs->ip && (long)regs->orig_ax == -1)
        return true;
    member->unfinished = 0;
    return false;
}

/* After a call: is there something that Linux does on the way to user mode? */
static enum outcome after_call(struct member *member, struct thread *thread, enum call_kind kind)
{
    struct pt_regs *regs = current_pt_regs();
    bool restarts = (long)regs->ax <= -512 && (long)regs->ax >= -516;
    if (current->mm != member->space->notifier.mm)
        return NEW;
    if (signal_pending(current) || restarts || member->stays_home) {
        if (restarts)
            set_thread_flag(TIF_SIGPENDING);
        if (kind != CALL_WHOLE)
            state_home(thread);
        return HOME;
    }
    if (kind == CALL_WHOLE)
        state_out(thread);
    thread->registers.ax = regs->ax;
    return task_work_pending(current) ? PAUSED : OUT;
}

static enum outcome on_call(struct member *member, struct thread *thread)
{
    struct pt_regs *regs = current_pt_regs();
    u64 number = thread->registers.ax;
    enum call_kind kind = call_kind(number);
    if (calls_are_watched()) {
        thread->registers.ip -= SIZE_OF_SYSCALL;
        return come_home_for(member, thread);
    }
    state_registers_home(thread, regs);
    state_keys_home(thread);
    if (kind == CALL_WHOLE)
        state_home(thread);
    regs->orig_ax = number;
    regs->ax = -ENOSYS;
    if (kind == CALL_LAST) {
        account(member, thread, 0);
        futexes_gone(member->space);
        thread_free(member->thread);
        member->thread = -1;
        symbols_run_call(regs, number);
        return GONE; /* not reached */
    }
    regs->ax = kind == CALL_OURS ? call_ours(member, regs) : symbols_run_call(regs, number);
    return after_call(member, thread, kind);
}

static enum outcome on_event(struct member *member, struct thread *thread)
{
    switch (thread->event) {
    case EVENT_CALL:
        return on_call(member, thread);
    case EVENT_FAULT:
        if (in_sequence())
            return come_home(thread);
        if (fault_handle(member, thread))
            return come_home_for(member, thread);
        return task_work_pending(current) ? PAUSED : OUT;
    case EVENT_TRAP:
        if (thread->vector == BREAKPOINT)
            thread->registers.ip -= SIZE_OF_INT3;
        return come_home_for(member, thread);
    case EVENT_PREEMPTED:
        return in_sequence() ? come_home(thread) : OUT;
    case EVENT_MOVED:
        /* Its processor is busy, although it may not look so a moment later: who woke it may wait for it. */
        member->avoided = 1ul << thread->cpu;
        thread->cpu = member->last_cpu = MAX_CPUS;
        return OUT;
    case EVENT_LOST:
        pr_err("%s[%d] is killed: its processor failed\n", current->comm, current->pid);
        send_sig(SIGKILL, current, 1);
        return HOME;
    default:
        return come_home(thread);
    }
}

/* Handles an event, and counts the time that it takes Linux but for what it sleeps. */
static enum outcome serve(struct member *member, struct thread *thread)
{
    u64 since = rdtsc();
    unsigned long sleeps = current->nvcsw + current->nivcsw;
    enum outcome outcome = on_event(member, thread);
    if (sleeps == current->nvcsw + current->nivcsw)
        member->balance.served += rdtsc() - since;
    if (outcome != OUT || !member->is_mixed || !balance_is_kernel_bound(&member->balance, thread))
        return outcome;
    member->delay = balance_stay(&member->balance);
    come_home(thread);
    return BUSY;
}

static enum outcome stay_out(struct member *member)
{
    struct thread *thread = world_thread(member->thread);
    enum outcome outcome = OUT;
    while (outcome == OUT) {
        thread->answers_locally = !calls_are_watched();
        futexes_look(member->space);
        if (!thread_start(member->thread, processors_for(member, thread)))
            return come_home(thread);
        if (!wait_for(member, thread))
            thread_recall(member->thread);
        account(member, thread, REPORTED_NS);
        outcome = serve(member, thread);
        cond_resched();
    }
    return outcome;
}

static bool has_breakpoints(void)
{
    int i;
    for (i = 0; i < HBP_NUM; i++)
        if (current->thread.ptrace_bps[i])
            return true;
    return false;
}

/* Whether a program must never go out: what a lent processor has no state for. */
static bool cannot_go_out(void)
{
#ifdef CONFIG_X86_USER_SHADOW_STACK
    if (current->thread.features)
        return true;
#endif
    return !user_64bit_mode(current_pt_regs()) || !state_fits();
}

/* Whether Linux has something to do with the program first. A task under a tracer runs its works in
 * the middle of system calls, too, where there is nothing that could go out. */
static bool should_wait(void)
{
    return signal_pending(current) || current->ptrace || current_pt_regs()->flags & X86_EFLAGS_TF ||
           test_thread_flag(TIF_SINGLESTEP) || has_breakpoints();
}

static int prepare_space(struct member *member)
{
    struct space *space = member->space;
    if (space && space->notifier.mm != current->mm) {
        space_put(space);
        space = NULL;
    }
    if (!space)
        space = space_get(current->mm);
    member->space = IS_ERR(space) ? NULL : space;
    return IS_ERR(space) ? PTR_ERR(space)
                         : space_prepare(space, current->mm, processors_usable());
}

static int go_out(struct member *member)
{
    struct thread *thread;
    int error = prepare_space(member), index;
    if (error)
        return error;
    index = thread_take(current);
    if (index < 0)
        return index;
    thread = world_thread(index);
    thread->space = member->space->index;
    thread->cpu = member->last_cpu = MAX_CPUS;
    thread->process = task_tgid_vnr(current);
    thread->task = task_pid_vnr(current);
    member->counted = 0;
    member->thread = index;
    state_out(thread);
    futexes_out(member->space);
    balance_begin(&member->balance, thread);
    return 0;
}

static enum outcome outing(struct member *member)
{
    enum outcome outcome;
    if (member->thread < 0 && (should_wait() || go_out(member))) {
        futexes_stay_home(current->mm);
        return HOME;
    }
    outcome = stay_out(member);
    if (outcome == PAUSED || outcome == GONE)
        return outcome;
    account(member, world_thread(member->thread), 0);
    futexes_home(member->space);
    thread_free(member->thread);
    member->thread = -1;
#ifdef CONFIG_RSEQ
    /* On the way to user mode Linux tells it which processor it is on, and aborts a sequence. */
    rseq_preempt(current);
#endif
    return outcome;
}

void proxy_work(struct callback_head *work)
{
    struct member *member = container_of(work, struct member, work);
    enum outcome outcome = NEW;
    if (work->next && !(current->flags & PF_EXITING)) {
        /* Works behind this one would wait for as long as the program is out. */
        task_work_add(current, work, TWA_RESUME);
        return;
    }
    atomic_set(&member->is_queued, 0);
    if (current->flags & PF_EXITING) {
        if (member->is_done)
            member_drop(member);
        return;
    }
    if (has_not_moved(member)) {
        member->delay = min(member->delay * 2, LATER);
        member_again(member, member->delay);
        return;
    }
    while (outcome == NEW && !member->stays_home && processors_usable() & member->cpus) {
        if (member->thread < 0 && cannot_go_out())
            member->stays_home = true;
        else
            outcome = outing(member);
    }
    if (outcome == NEW)
        futexes_stay_home(current->mm);
    if (outcome == PAUSED) {
        atomic_set(&member->is_queued, 1);
        task_work_add(current, work, TWA_RESUME);
    } else if (outcome == GONE) {
        return;
    } else if (member->stays_home || !(processors_usable() & member->cpus)) {
        member_drop(member);
    } else if (outcome == BUSY) {
        member_again(member, member->delay);
    } else {
        member_again(member, signal_pending(current) || !should_wait() ? SOON : LATER);
    }
}
