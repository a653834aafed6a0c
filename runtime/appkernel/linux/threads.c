/* The application kernel's threads, and the tasks that are their proxies. */
#include <linux/delay.h>
#include <linux/spinlock.h>

#include "fettle_smp.h"

static DEFINE_SPINLOCK(lock);
static struct task_struct *proxies[MAX_THREADS];

/* A thread for a task, or an error. */
int thread_take(struct task_struct *task)
{
    unsigned long flags;
    int index;
    spin_lock_irqsave(&lock, flags);
    for (index = 0; index < MAX_THREADS && proxies[index]; index++)
        ;
    if (index < MAX_THREADS)
        proxies[index] = task;
    spin_unlock_irqrestore(&lock, flags);
    if (index == MAX_THREADS)
        return -EAGAIN;
    if (world_add_thread(index)) {
        thread_free(index);
        return -ENOMEM;
    }
    memset(world_thread(index), 0, sizeof(struct thread));
    world_thread(index)->state = THREAD_HOME;
    return index;
}

void thread_free(u32 index)
{
    unsigned long flags;
    if (world_thread(index))
        STORE(world_thread(index)->state, THREAD_FREE);
    spin_lock_irqsave(&lock, flags);
    proxies[index] = NULL;
    spin_unlock_irqrestore(&lock, flags);
}

void thread_wake(u32 index)
{
    unsigned long flags;
    spin_lock_irqsave(&lock, flags);
    if (index < MAX_THREADS && proxies[index])
        wake_up_process(proxies[index]);
    spin_unlock_irqrestore(&lock, flags);
}

/* A processor that is busy with another thread must know that it has to share its time, and one that sleeps has
 * to wake. */
static void poke_if_needed(u32 cpu)
{
    if (LOAD(world_cpu(cpu)->running) || LOAD(world_cpu(cpu)->sleeps))
        processors_poke(cpu);
}

static void make_ready(u32 index, u32 cpu)
{
    STORE(world_thread(index)->state, THREAD_READY);
    ready_set(shared->ready[cpu], index);
    poke_if_needed(cpu);
}

/* Lets a thread run on the processor that has least to do of those that it may run on. False if
 * none of them is lent any more: under the lock, which `threads_recall` takes, too, after Linux has
 * decided to have a processor back. */
bool thread_start(u32 index, u64 cpus)
{
    struct thread *thread = world_thread(index);
    unsigned long flags;
    u32 cpu = 0;
    spin_lock_irqsave(&lock, flags);
    cpus &= processors_usable();
    if (cpus) {
        cpu = processors_choose(cpus, thread->cpu);
        thread->cpus = cpus;
        STORE(thread->state, THREAD_READY);
        ready_set(shared->ready[cpu], index);
    }
    spin_unlock_irqrestore(&lock, flags);
    if (cpus)
        poke_if_needed(cpu);
    return cpus != 0;
}

static bool take_from_ready(u32 index)
{
    u32 cpu;
    for (cpu = 0; cpu < MAX_CPUS; cpu++)
        if (ready_claim(shared->ready[cpu], index))
            return true;
    return false;
}

static bool take_from_waiting(u32 index)
{
    return ready_claim(shared->waiting[world_thread(index)->space], index);
}

/* Ends the waits of a space's threads, at one address or (0) at all, and says how many. For them it is a wake without a cause. */
u32 threads_end_waits(u32 space, u64 address)
{
    u32 word, ended = 0;
    for (word = 0; word < THREAD_WORDS; word++) {
        u64 bits = LOAD(shared->waiting[space][word]);
        for (; bits; bits &= bits - 1) {
            u32 index = word * 64 + __builtin_ctzl(bits);
            struct thread *thread = world_thread(index);
            if (address && thread->futex != address)
                continue;
            if (take_from_waiting(index)) {
                thread->registers.ax = 0;
                make_ready(index, processors_choose(thread->cpus, thread->cpu));
                ended++;
            }
        }
    }
    return ended;
}

static void poke_runner(u32 index)
{
    u64 lent = processors_lent();
    for (; lent; lent &= lent - 1) {
        u32 cpu = __builtin_ctzl(lent);
        if (LOAD(world_cpu(cpu)->running) == index + 1)
            processors_poke(cpu);
    }
}

/* Gets a thread back, wherever it is. The application kernel answers at once: it waits for
 * nothing. */
void thread_recall(u32 index)
{
    struct thread *thread = world_thread(index);
    u64 looks;
    STORE(thread->recalled, 1);
    for (looks = 0; LOAD(thread->state) != THREAD_STOPPED; looks++) {
        if (take_from_waiting(index)) {
            thread->event = EVENT_CALL; /* Linux does what it does with a wait that is disturbed */
            STORE(thread->state, THREAD_STOPPED);
            break;
        }
        if (take_from_ready(index)) {
            thread->event = EVENT_RECALLED;
            STORE(thread->state, THREAD_STOPPED);
            break;
        }
        if (looks % 4096 == 0)
            poke_runner(index);
        cpu_relax();
        if (looks % 65536 == 65535)
            cond_resched();
    }
    STORE(thread->recalled, 0);
}

static bool is_out(const struct thread *thread, u64 cpus)
{
    u32 state = thread ? LOAD(thread->state) : THREAD_FREE;
    return (state == THREAD_READY || state == THREAD_RUNNING || state == THREAD_WAITING) &&
           thread->cpus & cpus;
}

/* Makes the proxies of threads that may be on these processors bring them home. */
void threads_recall(u64 cpus)
{
    unsigned long flags;
    u32 index;
    spin_lock_irqsave(&lock, flags);
    for (index = 0; index < MAX_THREADS; index++) {
        if (is_out(world_thread(index), cpus)) {
            STORE(world_thread(index)->recalled, 1);
            if (proxies[index])
                wake_up_process(proxies[index]);
        }
    }
    spin_unlock_irqrestore(&lock, flags);
}

bool threads_on(u64 cpus)
{
    u32 index;
    for (index = 0; index < MAX_THREADS; index++)
        if (is_out(world_thread(index), cpus))
            return true;
    return false;
}
