/* The local interrupt controller: interrupts to Linux, and the timer that ends time slices. */
#include "kernel.h"

#define APIC_EOI 0x0b0
#define APIC_TASK_PRIORITY 0x080
#define APIC_SPURIOUS 0x0f0
#define APIC_COMMAND 0x300
#define APIC_COMMAND_HIGH 0x310
#define APIC_TIMER 0x320
#define APIC_THERMAL 0x330
#define APIC_PERFORMANCE 0x340
#define APIC_LINT0 0x350
#define APIC_LINT1 0x360
#define APIC_ERROR 0x370
#define APIC_INITIAL 0x380
#define APIC_CURRENT 0x390
#define APIC_DIVIDE 0x3e0

#define MASKED 0x10000
#define MSR_X2APIC 0x800
#define SLICE_MILLISECONDS 4

static void write_apic(u32 reg, u32 value)
{
    if (shared->has_x2apic)
        write_msr(MSR_X2APIC + (reg >> 4), value);
    else
        *(volatile u32 *)(AK_APIC + reg) = value;
}

static u32 read_apic(u32 reg)
{
    if (shared->has_x2apic)
        return (u32)read_msr(MSR_X2APIC + (reg >> 4));
    return *(volatile u32 *)(AK_APIC + reg);
}

/* How many ticks of the timer a time slice has, by the time-stamp counter. */
static u64 measure_slice(void)
{
    u64 end;
    write_apic(APIC_DIVIDE, 3); /* by 16 */
    write_apic(APIC_INITIAL, 0xffffffff);
    end = now() + shared->tsc_khz;
    while (now() < end)
        relax();
    end = 0xffffffff - read_apic(APIC_CURRENT);
    write_apic(APIC_INITIAL, 0);
    return end * SLICE_MILLISECONDS;
}

void apic_start(struct processor *cpu)
{
    write_apic(APIC_SPURIOUS, 0x100 | VECTOR_SPURIOUS);
    write_apic(APIC_TASK_PRIORITY, 0);
    write_apic(APIC_TIMER, MASKED);
    write_apic(APIC_THERMAL, MASKED);
    write_apic(APIC_PERFORMANCE, MASKED);
    write_apic(APIC_LINT0, MASKED);
    write_apic(APIC_LINT1, MASKED);
    write_apic(APIC_ERROR, MASKED);
    cpu->slice = measure_slice();
    write_apic(APIC_TIMER, VECTOR_TIMER);
}

void apic_done(void)
{
    write_apic(APIC_EOI, 0);
}

/* Arms the timer once; 0 disarms it. */
void apic_arm(struct processor *cpu, u64 ticks)
{
    if (!ticks && !cpu->is_armed)
        return;
    cpu->is_armed = ticks != 0;
    write_apic(APIC_INITIAL, (u32)ticks);
}

void apic_send(u32 apic, u32 vector)
{
    if (shared->has_x2apic) {
        __asm__ volatile("mfence; lfence" : : : "memory");
        write_msr(MSR_X2APIC + (APIC_COMMAND >> 4), (u64)apic << 32 | 0x4000 | vector);
        return;
    }
    while (read_apic(APIC_COMMAND) & 0x1000)
        relax();
    write_apic(APIC_COMMAND_HIGH, apic << 24);
    write_apic(APIC_COMMAND, 0x4000 | vector);
}
