/* Address spaces on lent processors.
 *
 * Each has a top-level page table of its own for each lent processor. The lower half has copies of
 * the entries of Linux's table, so that all tables below are Linux's own; the upper half has only the
 * application kernel. What Linux changes in its tables it reports by its notifier for second users of
 * them (IOMMUs share processes' tables in the same way), before it frees anything, and waits until
 * lent processors have forgotten it. The paper (section 4.1) says that this needs changes of the
 * kernel; it no longer does.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/version.h>

#include "fettle_smp.h"

#define ENTRIES 256 /* of the lower half */
#define ENTRY_SHIFT 39
#define NOT_EXECUTABLE (1ul << 63)
/* A lent processor that does not answer for so many looks is broken. */
#define PATIENCE 4000000000ul

static DEFINE_SPINLOCK(lock);
static struct space *spaces[MAX_SPACES];
u64 spaces_invalidations;
bool spaces_ignore_changes;

/* Linux's entry. With page-table isolation Linux makes user entries of its own table not
 * executable. */
static u64 entry_of(struct mm_struct *mm, u32 i)
{
    unsigned long address = (unsigned long)i << ENTRY_SHIFT;
    pgd_t *pgd = pgd_offset(mm, address);
    p4d_t *p4d;
    if (pgtable_l5_enabled() && (pgd_none(*pgd) || pgd_bad(*pgd)))
        return 0;
    p4d = p4d_offset(pgd, address);
    return p4d_none(*p4d) ? 0 : native_p4d_val(*p4d) & ~NOT_EXECUTABLE;
}

static void copy_entry(struct space *space, struct mm_struct *mm, u32 i)
{
    u64 entry = entry_of(mm, i);
    u32 cpu;
    for (cpu = 0; cpu < MAX_CPUS; cpu++)
        if (space->tables[cpu])
            WRITE_ONCE(space->tables[cpu][i], entry);
}

/* After a fault was handled: the way to the page may be new. */
void space_follow(struct space *space, struct mm_struct *mm, unsigned long address)
{
    unsigned long flags;
    spin_lock_irqsave(&space->lock, flags);
    copy_entry(space, mm, address >> ENTRY_SHIFT);
    spin_unlock_irqrestore(&space->lock, flags);
}

static void wait_for(struct processor *cpu, u64 wanted, u32 space)
{
    u64 looks;
    for (looks = 0; looks < PATIENCE; looks++) {
        if ((s64)(LOAD(cpu->flush_done) - wanted) >= 0 || LOAD(cpu->space) != space + 1)
            return;
        if (LOAD(cpu->failure.is_set) || !LOAD(cpu->is_up))
            return;
        cpu_relax();
    }
    pr_err("processor %u does not answer\n", cpu->number);
}

/* Makes every lent processor that may have translations of the space forget them, and waits. */
void spaces_flush(u32 space)
{
    u64 wanted[MAX_CPUS], asked = 0, rest;
    for (rest = processors_lent(); rest; rest &= rest - 1) {
        u32 index = __builtin_ctzl(rest);
        struct processor *cpu = world_cpu(index);
        if (LOAD(cpu->space) != space + 1)
            continue;
        wanted[index] = ADD(cpu->flush_wanted, 1);
        asked |= 1ul << index;
        processors_poke(index);
    }
    for (rest = asked; rest; rest &= rest - 1) {
        u32 index = __builtin_ctzl(rest);
        wait_for(world_cpu(index), wanted[index], space);
    }
}

static void on_change(struct mmu_notifier *notifier, struct mm_struct *mm, unsigned long start,
                      unsigned long end)
{
    struct space *space = container_of(notifier, struct space, notifier);
    unsigned long flags, first = start >> ENTRY_SHIFT, last = (end - 1) >> ENTRY_SHIFT;
    u32 i;
    if (READ_ONCE(spaces_ignore_changes))
        return;
    spaces_invalidations++;
    spin_lock_irqsave(&space->lock, flags);
    for (i = first; i <= last && i < ENTRIES; i++)
        copy_entry(space, mm, i);
    spin_unlock_irqrestore(&space->lock, flags);
    smp_mb();
    spaces_flush(space->index);
}

/* The address space goes: its tables are freed next. */
static void on_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
    struct space *space = container_of(notifier, struct space, notifier);
    unsigned long flags;
    u32 cpu;
    spin_lock_irqsave(&space->lock, flags);
    for (cpu = 0; cpu < MAX_CPUS; cpu++)
        if (space->tables[cpu])
            memset(space->tables[cpu], 0, ENTRIES * sizeof(u64));
    spin_unlock_irqrestore(&space->lock, flags);
    smp_mb();
    spaces_flush(space->index);
}

static struct mmu_notifier *make(struct mm_struct *mm)
{
    struct space *space = kzalloc(sizeof *space, GFP_KERNEL);
    unsigned long flags;
    int index;
    if (!space)
        return ERR_PTR(-ENOMEM);
    spin_lock_init(&space->lock);
    spin_lock_irqsave(&lock, flags);
    for (index = 0; index < MAX_SPACES && spaces[index]; index++)
        ;
    if (index < MAX_SPACES)
        spaces[index] = space;
    spin_unlock_irqrestore(&lock, flags);
    space->index = index;
    if (index < MAX_SPACES) {
        STORE(shared->futexes_are_local[index], 0);
        return &space->notifier;
    }
    kfree(space);
    return ERR_PTR(-EAGAIN);
}

static void unmake(struct mmu_notifier *notifier)
{
    struct space *space = container_of(notifier, struct space, notifier);
    unsigned long flags;
    u32 cpu;
    spaces_flush(space->index);
    for (cpu = 0; cpu < MAX_CPUS; cpu++) {
        shared->spaces[space->index][cpu] = 0;
        free_page((unsigned long)space->tables[cpu]);
    }
    spin_lock_irqsave(&lock, flags);
    spaces[space->index] = NULL;
    spin_unlock_irqrestore(&lock, flags);
    kfree(space);
}

static const struct mmu_notifier_ops operations = {
    .release = on_release,
    .alloc_notifier = make,
    .free_notifier = unmake,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
    .arch_invalidate_secondary_tlbs = on_change,
#else
    .invalidate_range = on_change,
#endif
};

/* The space of an address space, which is made when its first thread goes out. */
struct space *space_get(struct mm_struct *mm)
{
    struct mmu_notifier *notifier = mmu_notifier_get(&operations, mm);
    return IS_ERR(notifier) ? ERR_CAST(notifier) : container_of(notifier, struct space, notifier);
}

void space_put(struct space *space)
{
    mmu_notifier_put(&space->notifier);
}

/* Does something with the space of an address space, if it has one. */
void spaces_for(struct mm_struct *mm, void (*what)(struct space *space))
{
    unsigned long flags;
    int index;
    spin_lock_irqsave(&lock, flags);
    for (index = 0; index < MAX_SPACES; index++)
        if (spaces[index] && spaces[index]->notifier.mm == mm)
            what(spaces[index]);
    spin_unlock_irqrestore(&lock, flags);
}

static int add_table(struct space *space, struct mm_struct *mm, u32 cpu)
{
    u64 *table = (u64 *)get_zeroed_page(GFP_KERNEL);
    unsigned long flags;
    u32 i;
    if (!table)
        return -ENOMEM;
    table[511] = world_top();
    spin_lock_irqsave(&space->lock, flags);
    if (!space->tables[cpu]) {
        for (i = 0; i < ENTRIES; i++)
            table[i] = entry_of(mm, i);
        space->tables[cpu] = table;
        shared->spaces[space->index][cpu] = __pa(table);
        table = NULL;
    }
    spin_unlock_irqrestore(&space->lock, flags);
    free_page((unsigned long)table);
    return 0;
}

/* Sees to it that the space has a table on each of these processors. */
int space_prepare(struct space *space, struct mm_struct *mm, u64 indices)
{
    u64 rest;
    for (rest = indices; rest; rest &= rest - 1) {
        u32 cpu = __builtin_ctzl(rest);
        int error = space->tables[cpu] ? 0 : add_table(space, mm, cpu);
        if (error)
            return error;
    }
    return 0;
}

void spaces_exit(void)
{
    mmu_notifier_synchronize();
}
