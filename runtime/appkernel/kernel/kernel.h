/* What the parts of the application kernel know of one another. */
#ifndef FETTLE_KERNEL_H
#define FETTLE_KERNEL_H

#include "../shared.h"

#define shared ((struct shared *)AK_SHARED)

static inline struct thread *thread_at(u32 index)
{
    return (struct thread *)(AK_THREADS + (u64)index * THREAD_STRIDE);
}

static inline u32 index_of(const struct thread *thread)
{
    return (u32)(((u64)thread - AK_THREADS) / THREAD_STRIDE);
}

static inline struct processor *cpu_at(u32 index)
{
    return (struct processor *)(AK_CPUS + (u64)index * CPU_STRIDE);
}

/* The processor that this runs on: its stacks are in its area. */
static inline struct processor *own_cpu(void)
{
    u64 sp;
    __asm__("movq %%rsp, %0" : "=r"(sp));
    return (struct processor *)(sp & ~(u64)(CPU_STRIDE - 1));
}

static inline struct thread *running(const struct processor *cpu)
{
    return thread_at(cpu->running - 1);
}

/* setup.c */
__attribute__((noreturn)) void start(struct processor *cpu);

/* trap.c: both give the registers to go on with. */
struct registers *trap(struct registers *registers);
__attribute__((noreturn)) void fail(struct registers *registers);

/* schedule.c */
struct registers *next_thread(struct processor *cpu);
void stop(struct processor *cpu, struct thread *thread, enum event event);
struct registers *yield(struct processor *cpu, struct thread *thread);
void off_processor(struct thread *thread);
void wake(struct processor *cpu, struct thread *thread);
void answer_flush(struct processor *cpu);
int others_wait(const struct processor *cpu);

#define CALL_SCHED_YIELD 24

/* local.c: what became of a call. */
enum answer {
    ANSWER_NONE, /* it is Linux's */
    ANSWER_GIVEN,
    ANSWER_LATER /* the thread waits, and is not this processor's any more */
};
enum answer answer_locally(struct processor *cpu, struct thread *thread);

/* futex.c */
enum answer futex(struct processor *cpu, struct thread *thread);

/* apic.c */
void apic_start(struct processor *cpu);
void apic_done(void);
void apic_send(u32 apic, u32 vector);
void apic_arm(struct processor *cpu, u64 ticks);

/* log.c */
void note(struct processor *cpu, enum note_kind what, u64 a, u64 b);

/* entry.S */
__attribute__((noreturn)) void resume(struct registers *registers);
void call_entry(void);
/* Reads a program's word; 0 if it has no translation now. */
int load_user(u64 address, u32 *value, u32 has_smap);
extern const u8 vector_entries[256][16];

static inline void relax(void)
{
    __builtin_ia32_pause();
}

static inline u64 now(void)
{
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
}

static inline void write_msr(u32 msr, u64 value)
{
    __asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)value), "d"((u32)(value >> 32)) : "memory");
}

static inline u64 read_msr(u32 msr)
{
    u32 low, high;
    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
    return (u64)high << 32 | low;
}

static inline void write_cr3(u64 value)
{
    __asm__ volatile("movq %0, %%cr3" : : "r"(value) : "memory");
}

__attribute__((noreturn)) static inline void halt(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

#endif
