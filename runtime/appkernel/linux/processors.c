/* Processors: taken out of Linux by its own CPU hotplug, started with the application kernel by
 * INIT and SIPI, and brought back the same way. A lent processor has an index here and a number in
 * Linux; `lent` has a bit for each index, `usable` for those on which threads may start. */
#include <asm/apic.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "fettle_smp.h"

#define START_MILLISECONDS 2000

static DEFINE_MUTEX(lock);
static u64 lent, usable;
static u32 number_of[MAX_CPUS]; /* also of those that were lent before; 0 if none was */
static enum cpuhp_state guard;

u64 processors_lent(void)
{
    return LOAD(lent);
}

u64 processors_usable(void)
{
    return LOAD(usable);
}

static int index_of(u32 number)
{
    int index;
    for (index = 0; index < MAX_CPUS; index++)
        if (lent >> index & 1 && number_of[index] == number)
            return index;
    return -1;
}

u64 processors_indices(const struct cpumask *numbers)
{
    u64 bits = 0;
    u32 index;
    for (index = 0; index < MAX_CPUS; index++)
        if (LOAD(lent) >> index & 1 && cpumask_test_cpu(number_of[index], numbers))
            bits |= 1ul << index;
    return bits;
}

void processors_numbers(u64 indices, struct cpumask *numbers)
{
    u32 index;
    cpumask_clear(numbers);
    for (index = 0; index < MAX_CPUS; index++)
        if (LOAD(lent) & indices & 1ul << index)
            cpumask_set_cpu(number_of[index], numbers);
}

static void send(u32 low, u32 apic_number)
{
    unsigned long flags;
    local_irq_save(flags);
    apic->icr_write(low, apic_number);
    local_irq_restore(flags);
    while (!x2apic_mode && apic->read(APIC_ICR) & APIC_ICR_BUSY)
        cpu_relax();
}

void processors_poke(u32 index)
{
    unsigned long flags;
    local_irq_save(flags);
    apic->icr_write(APIC_DM_FIXED | APIC_INT_ASSERT | VECTOR_POKE, world_cpu(index)->apic);
    local_irq_restore(flags);
}

bool processors_failed(u32 index)
{
    return LOAD(world_cpu(index)->failure.is_set);
}

static bool is_idle(u32 index)
{
    return ready_is_empty(shared->ready[index]) && !LOAD(world_cpu(index)->running);
}

/* Where a thread should wait: where it was if that is idle, on another idle one, or where it was. */
u32 processors_choose(u64 allowed, u32 last)
{
    u64 rest;
    bool last_is_allowed = last < MAX_CPUS && allowed >> last & 1;
    if (last_is_allowed && is_idle(last))
        return last;
    for (rest = allowed; rest; rest &= rest - 1)
        if (is_idle(__builtin_ctzl(rest)))
            return __builtin_ctzl(rest);
    return last_is_allowed ? last : __builtin_ctzl(allowed);
}

/* Refuses that anything else brings a lent processor on line: Linux would take it by INIT while it
 * runs. */
static int refuse_lent(unsigned int number)
{
    if (index_of(number) < 0)
        return 0;
    pr_notice("processor %u is lent: `fettle smp give-back` brings it back\n", number);
    return -EBUSY;
}

/* INIT, then SIPI, as the processor's manual has it (Intel SDM 3A, 9.4.4). */
static int start(u32 index, u32 number)
{
    void *low = phys_to_virt(TRAMPOLINE), *saved;
    struct processor *cpu;
    int i, error = world_add_cpu(index);
    if (error)
        return error;
    saved = kmemdup(low, PAGE_SIZE, GFP_KERNEL);
    if (!saved)
        return -ENOMEM;
    cpu = world_cpu(index);
    cpu->number = number;
    cpu->apic = per_cpu(x86_cpu_to_apicid, number);
    world_put_trampoline(low, index);
    wmb();
    send(APIC_INT_LEVELTRIG | APIC_INT_ASSERT | APIC_DM_INIT, cpu->apic);
    mdelay(10);
    send(APIC_INT_LEVELTRIG | APIC_DM_INIT, cpu->apic);
    for (i = 0; i < 2 && !LOAD(cpu->is_up); i++) {
        send(APIC_DM_STARTUP | TRAMPOLINE >> PAGE_SHIFT, cpu->apic);
        udelay(300);
    }
    for (i = 0; i < START_MILLISECONDS && !LOAD(cpu->is_up); i++)
        msleep(1);
    memcpy(low, saved, PAGE_SIZE);
    kfree(saved);
    return LOAD(cpu->is_up) ? 0 : -EIO;
}

/* The same index for the same processor, whenever it is lent: threads remember them. */
static int free_index(u32 number)
{
    int index;
    for (index = 0; index < MAX_CPUS; index++)
        if (!(lent >> index & 1) && number_of[index] == number)
            return index;
    for (index = 0; index < MAX_CPUS; index++)
        if (!number_of[index])
            return index;
    return ffz(lent);
}

static int lend_one(u32 number, struct answer *answer)
{
    int error, index = free_index(number);
    if (index >= MAX_CPUS) {
        say(answer, "at most %d processors can be lent", MAX_CPUS);
        return -ENOSPC;
    }
    error = remove_cpu(number);
    if (error) {
        say(answer, "Linux does not let go of processor %u (error %d)", number, -error);
        return error;
    }
    number_of[index] = number;
    error = start(index, number);
    if (error) {
        say(answer, "processor %u does not start the application kernel (error %d)", number,
            -error);
        send(APIC_INT_LEVELTRIG | APIC_INT_ASSERT | APIC_DM_INIT, per_cpu(x86_cpu_to_apicid, number));
        add_cpu(number);
        return error;
    }
    STORE(lent, lent | 1ul << index);
    STORE(usable, usable | 1ul << index);
    STORE(shared->cpus_up, usable);
    return 0;
}

static int may_lend(const struct cpumask *wanted, struct answer *answer)
{
    u32 number;
    for_each_cpu(number, wanted) {
        if (number == 0 || !cpu_possible(number) || !cpu_present(number)) {
            say(answer, number ? "there is no processor %u" :
                "processor %u cannot be lent: Linux starts and stops the others from it", number);
            return -EINVAL;
        }
        if (index_of(number) >= 0) {
            say(answer, "processor %u is lent already", number);
            return -EALREADY;
        }
        if (!cpu_online(number)) {
            say(answer, "processor %u is off line; another user may have it", number);
            return -EBUSY;
        }
    }
    return cpumask_empty(wanted) ? -EINVAL : 0;
}

static void give_back_one(u32 index)
{
    struct processor *cpu = world_cpu(index);
    u32 number = number_of[index];
    int error, i;
    STORE(cpu->leave, 1);
    processors_poke(index);
    for (i = 0; i < 1000 && LOAD(cpu->is_up) && !processors_failed(index); i++)
        msleep(1);
    STORE(lent, lent & ~(1ul << index)); /* the guard lets it go */
    error = add_cpu(number);
    if (error)
        pr_err("Linux does not bring processor %u on line again (error %d)\n", number, -error);
}

static void give_back(u64 indices)
{
    u64 rest;
    int i;
    STORE(usable, usable & ~indices);
    STORE(shared->cpus_up, usable);
    for (i = 0; threads_on(indices) && i < 10000; i++) {
        threads_recall(indices);
        msleep(1);
    }
    for (rest = indices; rest; rest &= rest - 1)
        give_back_one(__builtin_ctzl(rest));
}

int processors_lend(const struct cpumask *wanted, struct answer *answer)
{
    u32 number;
    u64 before;
    int error;
    mutex_lock(&lock);
    before = lent;
    error = may_lend(wanted, answer);
    for_each_cpu(number, wanted) {
        if (!error)
            error = lend_one(number, answer);
    }
    if (error)
        give_back(lent & ~before);
    mutex_unlock(&lock);
    return error;
}

int processors_give_back(const struct cpumask *wanted, struct answer *answer)
{
    u32 number;
    u64 indices = 0;
    mutex_lock(&lock);
    for_each_cpu(number, wanted) {
        if (index_of(number) < 0) {
            say(answer, "processor %u is not lent", number);
            mutex_unlock(&lock);
            return -EINVAL;
        }
        indices |= 1ul << index_of(number);
    }
    give_back(indices);
    mutex_unlock(&lock);
    return 0;
}

/* Before Linux stops for good: no processor may run on in memory that another kernel will have.
 * May be called from a panic, so it waits for nothing. */
void processors_stop_all(void)
{
    u64 rest;
    for (rest = LOAD(lent); rest; rest &= rest - 1) {
        u32 index = __builtin_ctzl(rest);
        apic->icr_write(APIC_INT_LEVELTRIG | APIC_INT_ASSERT | APIC_DM_INIT, world_cpu(index)->apic);
        STORE(world_cpu(index)->is_up, 0); /* or what is left of Linux would wait for it */
    }
}

int processors_init(void)
{
    int state = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "fettle-smp:lent", refuse_lent, NULL);
    if (state < 0)
        return state;
    guard = state;
    return 0;
}

void processors_exit(void)
{
    mutex_lock(&lock);
    give_back(lent);
    mutex_unlock(&lock);
    cpuhp_remove_state_nocalls(guard);
}
