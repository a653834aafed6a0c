/* Tasks that run on lent processors when they can, and their children. */
#include <linux/hashtable.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>

#include "fettle_smp.h"

static DEFINE_HASHTABLE(table, 8);
static DEFINE_SPINLOCK(lock);
static u32 count;
static atomic_t nudges;
static struct tracepoint *forks, *exits;

u32 members_count(void)
{
    return READ_ONCE(count);
}

/* The caller has the lock. */
static struct member *find(struct task_struct *task)
{
    struct member *member;
    hash_for_each_possible(table, member, node, (unsigned long)task) {
        if (member->task == task)
            return member;
    }
    return NULL;
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
    struct member *member = container_of(timer, struct member, timer);
    if (!atomic_xchg(&member->is_queued, 1))
        task_work_add(member->task, &member->work, TWA_RESUME);
    return HRTIMER_NORESTART;
}

/* Lets a member that is home go out again after a while. */
void member_again(struct member *member, u64 nanoseconds)
{
    hrtimer_start(&member->timer, ns_to_ktime(nanoseconds), HRTIMER_MODE_REL);
}

static struct member *make(struct task_struct *task, struct membership as)
{
    struct member *member = kzalloc(sizeof *member, GFP_ATOMIC);
    if (!member)
        return NULL;
    init_task_work(&member->work, proxy_work);
    hrtimer_init(&member->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
    member->timer.function = on_timer;
    member->task = task;
    member->cpus = as.cpus;
    member->allowed = as.allowed;
    member->is_mixed = as.is_mixed;
    member->thread = -1;
    member->spins = 1024;
    atomic_set(&member->is_queued, 1);
    return member;
}

static int add(struct task_struct *task, struct membership as, enum task_work_notify_mode mode)
{
    struct member *member = make(task, as);
    unsigned long flags;
    int error = member ? 0 : -ENOMEM;
    spin_lock_irqsave(&lock, flags);
    if (!error && find(task))
        error = -EEXIST;
    if (!error)
        error = task_work_add(task, &member->work, mode);
    if (!error) {
        hash_add(table, &member->node, (unsigned long)task);
        WRITE_ONCE(count, count + 1);
    }
    spin_unlock_irqrestore(&lock, flags);
    if (error)
        kfree(member);
    return error;
}

/* Ends a membership that no other task can see any more, or the task's own. */
void member_drop(struct member *member)
{
    unsigned long flags;
    spin_lock_irqsave(&lock, flags);
    if (!hlist_unhashed(&member->node)) {
        hash_del(&member->node);
        WRITE_ONCE(count, count - 1);
    }
    spin_unlock_irqrestore(&lock, flags);
    if (member->space)
        space_put(member->space);
    kfree_rcu(member, rcu);
}

/* A child goes the way of its parent, before its first instruction. */
static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
    struct member *member;
    struct membership as = {};
    unsigned long flags;
    if (!members_count())
        return;
    spin_lock_irqsave(&lock, flags);
    member = find(parent);
    if (member && !member->stays_home)
        as = (struct membership){member->cpus, member->allowed, member->is_mixed};
    spin_unlock_irqrestore(&lock, flags);
    if (as.cpus && !add(child, as, TWA_NONE))
        set_tsk_thread_flag(child, TIF_NOTIFY_RESUME);
    else if (child->mm)
        futexes_stay_home(child->mm);
}

static void on_exit(void *data, struct task_struct *task)
{
    struct member *member;
    unsigned long flags;
    if (!members_count())
        return;
    spin_lock_irqsave(&lock, flags);
    member = find(task);
    if (member) {
        hash_del(&member->node);
        WRITE_ONCE(count, count - 1);
    }
    spin_unlock_irqrestore(&lock, flags);
    if (!member)
        return;
    hrtimer_cancel(&member->timer);
    member->is_done = true;
    /* A work that is queued still runs, and drops it. */
    if (!atomic_read(&member->is_queued))
        member_drop(member);
}

int members_join(struct task_struct *task, struct membership as)
{
    return add(task, as, TWA_RESUME);
}

static int for_each_task_of(pid_t pid, int (*what)(struct task_struct *task, struct membership as),
                            struct membership as)
{
    struct task_struct *process, *task;
    int error = -ESRCH, done = 0;
    rcu_read_lock();
    process = pid_task(find_vpid(pid), PIDTYPE_TGID);
    if (process && !users_may_move(process)) {
        error = -EPERM;
    } else if (process && process->mm) {
        for_each_thread(process, task) {
            error = what(task, as);
            done += !error;
        }
    }
    rcu_read_unlock();
    return done ? 0 : error;
}

int members_attach(pid_t pid, struct membership as, struct answer *answer)
{
    int error = for_each_task_of(pid, members_join, as);
    if (error)
        say(answer, error == -EEXIST ? "process %d runs on lent processors already" :
            error == -EPERM ? "process %d is another user's" :
            "there is no process %d that could run on lent processors", pid);
    return error;
}

static int leave(struct task_struct *task, struct membership as)
{
    struct member *member;
    unsigned long flags;
    spin_lock_irqsave(&lock, flags);
    member = find(task);
    if (member) {
        int thread = READ_ONCE(member->thread);
        member->stays_home = true;
        if (thread >= 0) {
            STORE(world_thread(thread)->recalled, 1);
            thread_wake(thread);
        }
    }
    spin_unlock_irqrestore(&lock, flags);
    return member ? 0 : -ESRCH;
}

int members_leave(pid_t pid, struct answer *answer)
{
    int error = for_each_task_of(pid, leave, (struct membership){});
    if (error)
        say(answer, error == -EPERM ? "process %d is another user's" :
            "process %d does not run on lent processors", pid);
    return error;
}

static const char *name_of(const struct thread *thread)
{
    switch (thread ? LOAD(thread->state) : THREAD_HOME) {
    case THREAD_HOME:
    case THREAD_FREE:
        return "home";
    case THREAD_RUNNING:
        return "running";
    case THREAD_READY:
        return "ready";
    case THREAD_WAITING:
        return "waiting";
    default:
        return "in Linux";
    }
}

void members_say(struct answer *answer)
{
    struct member *member;
    unsigned long flags;
    const char *separator = "";
    int bucket;
    spin_lock_irqsave(&lock, flags);
    hash_for_each(table, bucket, member, node) {
        int index = READ_ONCE(member->thread);
        struct thread *thread = index < 0 ? NULL : world_thread(index);
        bool runs = thread && LOAD(thread->state) == THREAD_RUNNING;
        u64 ran = thread ? thread->ran : 0;
        if (runs && thread->since)
            ran += rdtsc() - thread->since;
        say(answer, "%s{\"pid\":%d,\"tid\":%d,\"state\":\"%s\",\"processor\":%d,\"ran_ns\":%llu,"
            "\"calls\":%llu,\"local_calls\":%llu,\"faults\":%llu}",
            separator, task_tgid_nr(member->task), task_pid_nr(member->task),
            name_of(thread),
            thread && thread->cpu < MAX_CPUS ? (int)world_cpu(thread->cpu)->number : -1,
            mul_u64_u64_div_u64(ran, 1000000, tsc_khz), thread ? thread->calls : 0,
            thread ? thread->local_calls : 0, thread ? thread->faults : 0);
        separator = ",";
    }
    spin_unlock_irqrestore(&lock, flags);
}

static void note_tracepoint(struct tracepoint *tracepoint, void *data)
{
    if (!strcmp(tracepoint->name, "sched_process_fork"))
        forks = tracepoint;
    if (!strcmp(tracepoint->name, "sched_process_exit"))
        exits = tracepoint;
}

int members_init(void)
{
    int error;
    for_each_kernel_tracepoint(note_tracepoint, NULL);
    if (!forks || !exits) {
        pr_err("this kernel has no tracepoints for forks and exits\n");
        return -ENOENT;
    }
    error = tracepoint_probe_register(exits, on_exit, NULL);
    if (error)
        return error;
    error = tracepoint_probe_register(forks, on_fork, NULL);
    if (error)
        tracepoint_probe_unregister(exits, on_exit, NULL);
    return error;
}

/* Members that sleep in Linux, in a call of theirs, are woken as for a signal: the call is restarted
 * when they have dropped their membership. */
static void on_nudge(struct callback_head *work)
{
    kfree(work);
    atomic_dec(&nudges);
}

/* The caller has the lock. */
static void nudge(struct member *member)
{
    struct callback_head *work = member->is_nudged ? NULL : kmalloc(sizeof *work, GFP_ATOMIC);
    if (!work)
        return;
    member->is_nudged = true;
    init_task_work(work, on_nudge);
    atomic_inc(&nudges);
    if (task_work_add(member->task, work, TWA_SIGNAL))
        on_nudge(work);
}

static void wake_all(void)
{
    struct member *member;
    unsigned long flags;
    int bucket;
    spin_lock_irqsave(&lock, flags);
    hash_for_each(table, bucket, member, node)
        nudge(member);
    spin_unlock_irqrestore(&lock, flags);
}

/* No member may be left: processors_exit has brought all of them home, and with no processor a member
 * that is home drops itself. */
void members_exit(void)
{
    tracepoint_probe_unregister(forks, on_fork, NULL);
    while (members_count() || atomic_read(&nudges)) {
        wake_all();
        schedule_timeout_uninterruptible(HZ / 20);
    }
    tracepoint_probe_unregister(exits, on_exit, NULL);
    tracepoint_synchronize_unregister();
    synchronize_rcu_tasks();
    rcu_barrier();
}
