/* Which thread runs.
 *
 * Each lent processor has a set of threads that wait for it. A processor that takes a thread out of
 * a set, by one atomic instruction, has it: there is no lock, and so nothing here that Linux could
 * keep waiting.
 * Threads take turns by their numbers. A processor with nothing to do steals after a while.
 */
#include "kernel.h"

/* Looks before an idle processor steals, and before it leaves the address space it was in last, so
 * that Linux need not tell it about changes. */
#define LOOKS_UNTIL_STEALING 500
#define LOOKS_UNTIL_LEAVING 2000
/* Then it sleeps, and Linux has to interrupt it for a thread. */
#define LOOKS_UNTIL_SLEEPING 20000

static void save_vectors(struct thread *thread)
{
    u8 *area = (u8 *)thread + THREAD_VECTORS;
    u32 low = (u32)shared->vectors, high = (u32)(shared->vectors >> 32);
    if (shared->has_xsaves)
        __asm__ volatile("xsaves64 (%0)" : : "r"(area), "a"(low), "d"(high) : "memory");
    else
        __asm__ volatile("xsave64 (%0)" : : "r"(area), "a"(low), "d"(high) : "memory");
}

static void load_vectors(const struct thread *thread)
{
    const u8 *area = (const u8 *)thread + THREAD_VECTORS;
    u32 low = (u32)shared->vectors, high = (u32)(shared->vectors >> 32);
    if (shared->has_xsaves)
        __asm__ volatile("xrstors64 (%0)" : : "r"(area), "a"(low), "d"(high) : "memory");
    else
        __asm__ volatile("xrstor64 (%0)" : : "r"(area), "a"(low), "d"(high) : "memory");
}

static void save_state(struct thread *thread)
{
    __asm__ volatile("rdfsbase %0" : "=r"(thread->fs_base));
    __asm__ volatile("rdgsbase %0" : "=r"(thread->gs_base));
    if (shared->has_keys)
        __asm__ volatile("rdpkru" : "=a"(thread->protection_keys) : "c"(0) : "rdx");
    save_vectors(thread);
}

static void load_state(struct processor *cpu, struct thread *thread)
{
    u32 owner = index_of(thread) + 1;
    if (cpu->vectors_of != owner || thread->vectors_changed || thread->cpu != cpu->index) {
        load_vectors(thread);
        cpu->vectors_of = owner;
        thread->vectors_changed = 0;
    }
    if (shared->has_keys)
        __asm__ volatile("wrpkru" : : "a"(thread->protection_keys), "c"(0), "d"(0) : "memory");
    __asm__ volatile("wrfsbase %0" : : "r"(thread->fs_base));
    __asm__ volatile("wrgsbase %0" : : "r"(thread->gs_base));
}

/* Does what Linux wants when it changed page tables: forgets all translations. Linux waits, so
 * nothing that runs with interrupts off may wait for Linux. */
void answer_flush(struct processor *cpu)
{
    u64 wanted = LOAD(cpu->flush_wanted);
    if (wanted == cpu->flush_done)
        return;
    write_cr3(cpu->translates);
    cpu->flushes++;
    STORE(cpu->flush_done, wanted);
}

static void leave_space(struct processor *cpu)
{
    if (!cpu->space)
        return;
    cpu->translates = shared->idle_cr3;
    write_cr3(cpu->translates);
    STORE(cpu->space, 0);
}

/* The space is announced before a translation of it can be here: either Linux sees that, and asks
 * for a flush, or what it changed is seen by the loads that follow. */
static void enter_space(struct processor *cpu, u32 space)
{
    u64 cr3 = shared->spaces[space][cpu->index];
    if (cpu->space != space + 1) {
        STORE(cpu->space, space + 1);
        cpu->translates = cr3;
        write_cr3(cr3);
    }
    answer_flush(cpu);
}

int others_wait(const struct processor *cpu)
{
    return !ready_is_empty(shared->ready[cpu->index]);
}

static int steal(struct processor *cpu)
{
    u32 other;
    for (other = 0; other < MAX_CPUS; other++) {
        u64 *set = shared->ready[other];
        int found = other == cpu->index ? -1 : ready_next(set, 0);
        if (found >= 0 && thread_at((u32)found)->cpus >> cpu->index & 1 &&
            ready_claim(set, (u32)found)) {
            cpu->steals++;
            return found;
        }
    }
    return -1;
}

/* Takes a thread to run, if there is one. */
static int claim(struct processor *cpu, u32 last, u64 looks)
{
    u64 *set = shared->ready[cpu->index];
    int found = ready_is_empty(set) ? -1 : ready_next(set, last);
    if (found >= 0)
        return ready_claim(set, (u32)found) ? found : -1;
    return looks >= LOOKS_UNTIL_STEALING && looks % 64 == 0 ? steal(cpu) : -1;
}

static void set_frame(struct processor *cpu, struct thread *thread)
{
    cpu->frame = (u64)&thread->registers + sizeof thread->registers;
    *(u64 *)(cpu->tss + 4) = cpu->frame;
}

/* Makes a claimed thread the running one; 0 if Linux wants it back. */
static int dispatch(struct processor *cpu, struct thread *thread)
{
    STORE(thread->state, THREAD_RUNNING);
    STORE(cpu->running, index_of(thread) + 1);
    if (LOAD(thread->recalled)) {
        stop(cpu, thread, EVENT_RECALLED);
        return 0;
    }
    enter_space(cpu, thread->space);
    load_state(cpu, thread);
    set_frame(cpu, thread);
    apic_arm(cpu, others_wait(cpu) ? cpu->slice : 0);
    thread->cpu = cpu->index;
    cpu->switches++;
    thread->since = now();
    return 1;
}

static void park(struct processor *cpu)
{
    leave_space(cpu);
    apic_arm(cpu, 0);
    note(cpu, NOTE_LEFT, 0, 0);
    STORE(cpu->is_up, 0);
    halt();
}

/* Sleeps until Linux has something. It is announced first: either Linux sees it, or the look that
 * follows sees what Linux has. */
static void sleep(struct processor *cpu)
{
    STORE(cpu->sleeps, 1);
    if (!others_wait(cpu) && !LOAD(cpu->leave))
        __asm__ volatile("sti; hlt; cli" : : : "memory");
    STORE(cpu->sleeps, 0);
}

/* Waits until there is a thread to run. Nothing of it waits for Linux: it looks again and again. */
struct registers *next_thread(struct processor *cpu)
{
    u32 last = cpu->running ? cpu->running - 1 : MAX_THREADS - 1;
    u64 looks, since = now();
    STORE(cpu->running, 0);
    for (looks = 0;; looks++) {
        int found;
        answer_flush(cpu);
        if (LOAD(cpu->leave))
            park(cpu);
        found = claim(cpu, last, looks);
        if (found >= 0 && dispatch(cpu, thread_at((u32)found))) {
            cpu->idle += now() - since;
            return &thread_at((u32)found)->registers;
        }
        if (looks == LOOKS_UNTIL_LEAVING)
            leave_space(cpu);
        if (looks >= LOOKS_UNTIL_SLEEPING && !LOAD(shared->polls))
            sleep(cpu);
        relax();
    }
}

static void ring(struct thread *thread)
{
    u32 index = index_of(thread);
    ready_set(shared->bells, index);
    ADD(shared->bells_rung, 1);
    apic_send(shared->bell_apic, shared->bell_vector);
}

void off_processor(struct thread *thread)
{
    if (thread->since)
        thread->ran += now() - thread->since;
    thread->since = 0;
    save_state(thread);
}

/* Gives a thread to Linux. */
void stop(struct processor *cpu, struct thread *thread, enum event event)
{
    if (thread->since)
        off_processor(thread);
    thread->event = event;
    STORE(cpu->running, 0);
    STORE(thread->state, THREAD_STOPPED);
    if (LOAD(thread->wants_bell))
        ring(thread);
}

static int anyone_idles(u64 allowed)
{
    u32 i;
    for (i = 0; i < MAX_CPUS; i++)
        if (shared->cpus_up & allowed & 1ul << i && !LOAD(cpu_at(i)->running) && !others_wait(cpu_at(i)))
            return 1;
    return 0;
}

/* Lets a thread go on whose wait is over: where it was, if that is not busy. Linux finds a better place. */
void wake(struct processor *cpu, struct thread *thread)
{
    struct processor *target = cpu_at(thread->cpu);
    u32 index = index_of(thread);
    thread->registers.ax = 0;
    if (LOAD(target->running) && anyone_idles(thread->allowed)) {
        thread->event = EVENT_MOVED;
        STORE(thread->state, THREAD_STOPPED);
        if (LOAD(thread->wants_bell))
            ring(thread);
        return;
    }
    STORE(thread->state, THREAD_READY);
    ready_set(shared->ready[target->index], index);
    if (target != cpu && (LOAD(target->running) || LOAD(target->sleeps)))
        apic_send(target->apic, VECTOR_POKE);
}

/* Another thread's turn. */
struct registers *yield(struct processor *cpu, struct thread *thread)
{
    u32 index = index_of(thread);
    off_processor(thread);
    STORE(thread->state, THREAD_READY);
    ready_set(shared->ready[cpu->index], index);
    return next_thread(cpu);
}
