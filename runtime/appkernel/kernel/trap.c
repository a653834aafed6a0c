/* What a program, Linux or the timer wants of a lent processor. Whatever is not answered here
 * becomes an event of the thread, which its proxy in Linux handles. */
#include "kernel.h"
#include "layout.h"

static struct registers *give_away(struct processor *cpu, struct thread *thread, enum event event)
{
    u32 index = index_of(thread);
    stop(cpu, thread, event);
    cpu->running = index + 1; /* turns go on behind it */
    return next_thread(cpu);
}

static struct registers *on_call(struct processor *cpu, struct thread *thread)
{
    u32 index = index_of(thread);
    u64 number = thread->registers.ax;
    switch (answer_locally(cpu, thread)) {
    case ANSWER_GIVEN:
        if (others_wait(cpu)) {
            if (number == CALL_SCHED_YIELD)
                return yield(cpu, thread);
            apic_arm(cpu, cpu->slice);
        }
        return &thread->registers;
    case ANSWER_LATER:
        cpu->running = index + 1;
        return next_thread(cpu);
    default:
        break;
    }
    cpu->calls++;
    thread->calls++;
    return give_away(cpu, thread, EVENT_CALL);
}

static struct registers *on_fault(struct processor *cpu, struct thread *thread)
{
    __asm__ volatile("movq %%cr2, %0" : "=r"(thread->address));
    thread->error = (u32)thread->registers.original;
    cpu->faults++;
    thread->faults++;
    return give_away(cpu, thread, EVENT_FAULT);
}

/* Linux changed page tables, wants the thread back, or has given another one. */
static struct registers *on_poke(struct processor *cpu, struct thread *thread)
{
    apic_done();
    cpu->pokes++;
    answer_flush(cpu);
    if (LOAD(thread->recalled) || LOAD(cpu->leave)) {
        note(cpu, NOTE_RECALLED, index_of(thread), 0);
        return give_away(cpu, thread, EVENT_RECALLED);
    }
    if (others_wait(cpu))
        apic_arm(cpu, cpu->slice);
    return &thread->registers;
}

static struct registers *on_timer(struct processor *cpu, struct thread *thread)
{
    apic_done();
    cpu->ticks++;
    cpu->is_armed = 0;
    if (!others_wait(cpu))
        return &thread->registers;
    if (thread->tells_preemption)
        return give_away(cpu, thread, EVENT_PREEMPTED);
    return yield(cpu, thread);
}

struct registers *trap(struct registers *registers)
{
    struct processor *cpu = own_cpu();
    struct thread *thread = running(cpu);
    u32 vector = (u32)(registers->original >> 32);
    switch (vector) {
    case VECTOR_CALL:
        return on_call(cpu, thread);
    case VECTOR_PAGE_FAULT:
        return on_fault(cpu, thread);
    case VECTOR_POKE:
        return on_poke(cpu, thread);
    case VECTOR_TIMER:
        return on_timer(cpu, thread);
    case VECTOR_SPURIOUS:
        return registers;
    default:
        cpu->traps++;
        thread->vector = vector;
        thread->error = (u32)registers->original;
        return give_away(cpu, thread, EVENT_TRAP);
    }
}

/* This kernel's own mistake, or the hardware's. The processor says so and stops; its thread, if it
 * had one, is lost. */
void fail(struct registers *registers)
{
    struct processor *cpu = own_cpu();
    struct failure *failure = &cpu->failure;
    failure->vector = registers->original >> 32;
    failure->error = (u32)registers->original;
    failure->ip = registers->ip;
    failure->sp = registers->sp;
    __asm__ volatile("movq %%cr2, %0" : "=r"(failure->address));
    note(cpu, NOTE_FAILURE, failure->vector, failure->ip);
    STORE(failure->is_set, 1);
    if (cpu->running) {
        struct thread *thread = running(cpu);
        thread->since = 0;
        stop(cpu, thread, EVENT_LOST);
    }
    halt();
}
