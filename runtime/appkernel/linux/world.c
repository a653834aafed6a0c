/* The application kernel's memory: its image, what is shared, one area per processor and thread,
 * and the page tables of the kernel half, in which there is nothing else. Not a page of Linux is in
 * them, so neither a wild pointer there nor a leak by speculation reaches Linux, and no change of
 * Linux's own mappings concerns them. */
#include <asm/apic.h>
#include <asm/msr.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "fettle_smp.h"

#define PRESENT 1ul
#define WRITABLE 2ul
#define UNCACHED 0x18ul
#define HUGE 0x80ul
#define NOT_EXECUTABLE (1ul << 63)

#define REGIONS 6 /* pages of entries: image, shared, processors, threads, threads, controller */
#define SHARED_ORDER get_order(sizeof(struct shared))
#define CPU_ORDER 3
#define THREAD_ORDER 2

extern const u8 fettle_image[], fettle_image_end[];

struct shared *shared;
static u64 *upper, *middle, *entries[REGIONS]; /* three levels of page tables */
static u64 *idle_table, *boot_table, *boot_upper, *boot_middle;
static void *image;
static struct processor *cpus[MAX_CPUS];
static struct thread *threads[MAX_THREADS];

static u64 *new_table(void)
{
    return (u64 *)get_zeroed_page(GFP_KERNEL | GFP_DMA32);
}

static void map(u64 address, phys_addr_t physical, u64 pages, u64 flags)
{
    u64 i;
    for (i = 0; i < pages; i++, address += PAGE_SIZE, physical += PAGE_SIZE)
        entries[(address - AK_IMAGE) >> 21][address >> 12 & 511] = physical | PRESENT | flags;
}

static bool make_tables(void)
{
    int i;
    upper = new_table();
    middle = new_table();
    idle_table = new_table();
    boot_table = new_table();
    boot_upper = new_table();
    boot_middle = new_table();
    if (!upper || !middle || !idle_table || !boot_table || !boot_upper || !boot_middle)
        return false;
    for (i = 0; i < REGIONS; i++) {
        entries[i] = new_table();
        if (!entries[i])
            return false;
        middle[i] = __pa(entries[i]) | PRESENT | WRITABLE;
    }
    upper[510] = __pa(middle) | PRESENT | WRITABLE;
    idle_table[511] = boot_table[511] = world_top();
    /* The trampoline runs where it lies for a moment: the first 2 MiB as they are. */
    boot_table[0] = __pa(boot_upper) | PRESENT | WRITABLE;
    boot_upper[0] = __pa(boot_middle) | PRESENT | WRITABLE;
    boot_middle[0] = PRESENT | WRITABLE | HUGE;
    return true;
}

u64 world_top(void)
{
    return __pa(upper) | PRESENT | WRITABLE;
}

u64 world_boot_cr3(void)
{
    return __pa(boot_table);
}

static const struct image_header *header(void)
{
    return (const struct image_header *)fettle_image;
}

u64 world_entry(void)
{
    return header()->entry;
}

static bool put_image(void)
{
    size_t size = PAGE_ALIGN(fettle_image_end - fettle_image);
    if (header()->magic != IMAGE_MAGIC || size > IMAGE_MAX || header()->size > size)
        return false;
    image = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(size));
    if (!image)
        return false;
    memcpy(image, fettle_image, fettle_image_end - fettle_image);
    map(AK_IMAGE, __pa(image), size >> PAGE_SHIFT, 0);
    return true;
}

void world_put_trampoline(void *low, u32 index)
{
    struct trampoline_words *words = low;
    memcpy(low, fettle_image + header()->trampoline, header()->trampoline_size);
    words->cr3 = world_boot_cr3();
    words->stack = cpus[index]->stack;
    words->entry = world_entry();
    words->cpu = AK_CPUS + (u64)index * CPU_STRIDE;
}

static u64 read_xcr0(void)
{
    u32 low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (u64)high << 32 | low;
}

/* What a processor that Linux runs has in its control registers. */
static void copy_control(void)
{
    u64 value;
    shared->cr0 = read_cr0() & ~X86_CR0_TS;
    shared->cr4 = (__read_cr4() & ~(X86_CR4_PCIDE | X86_CR4_LA57)) | X86_CR4_FSGSBASE;
#ifdef X86_CR4_CET
    shared->cr4 &= ~X86_CR4_CET;
#endif
    rdmsrl(MSR_EFER, value);
    shared->efer = value;
    rdmsrl(MSR_IA32_CR_PAT, value);
    shared->pat = value;
    shared->xcr0 = read_xcr0();
    shared->has_xsaves = boot_cpu_has(X86_FEATURE_XSAVES);
    if (shared->has_xsaves)
        rdmsrl(MSR_IA32_XSS, shared->xss);
    shared->has_x2apic = x2apic_mode;
    shared->has_keys = boot_cpu_has(X86_FEATURE_OSPKE);
    shared->has_tsc_aux = boot_cpu_has(X86_FEATURE_RDTSCP) || boot_cpu_has(X86_FEATURE_RDPID);
    shared->has_smap = boot_cpu_has(X86_FEATURE_SMAP);
    /* Protection keys have a register of their own in Linux's eyes, too. */
    shared->vectors = current->thread.fpu.fpstate->xfeatures & ~(1ul << 9);
    shared->tsc_khz = tsc_khz;
    shared->idle_cr3 = __pa(idle_table);
}

static int put_shared(void)
{
    shared = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, SHARED_ORDER);
    if (!shared)
        return -ENOMEM;
    map(AK_SHARED, __pa(shared), PAGE_ALIGN(sizeof *shared) >> PAGE_SHIFT,
        WRITABLE | NOT_EXECUTABLE);
    copy_control();
    if (!x2apic_mode) {
        rdmsrl(MSR_IA32_APICBASE, shared->notes[0].a);
        map(AK_APIC, shared->notes[0].a & MSR_IA32_APICBASE_BASE, 1,
            WRITABLE | NOT_EXECUTABLE | UNCACHED);
        shared->notes[0].a = 0;
    }
    return 0;
}

int world_init(void)
{
    if (!make_tables())
        return -ENOMEM;
    if (!put_image()) {
        pr_err("the application kernel's image is damaged or too large\n");
        return -ENOEXEC;
    }
    return put_shared();
}

struct processor *world_cpu(u32 index)
{
    return cpus[index];
}

struct thread *world_thread(u32 index)
{
    return threads[index];
}

/* The areas of processors and threads are kept until the module goes. */
int world_add_cpu(u32 index)
{
    u64 address = AK_CPUS + (u64)index * CPU_STRIDE;
    void *area = cpus[index];
    if (!area)
        area = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, CPU_ORDER);
    if (!area)
        return -ENOMEM;
    memset(area, 0, CPU_STRIDE);
    cpus[index] = area;
    cpus[index]->index = index;
    cpus[index]->stack = address + CPU_STRIDE - 64;
    map(address, __pa(area), CPU_STRIDE >> PAGE_SHIFT, WRITABLE | NOT_EXECUTABLE);
    return 0;
}

int world_add_thread(u32 index)
{
    void *area;
    if (threads[index])
        return 0;
    area = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, THREAD_ORDER);
    if (!area)
        return -ENOMEM;
    map(AK_THREADS + (u64)index * THREAD_STRIDE, __pa(area), THREAD_STRIDE >> PAGE_SHIFT,
        WRITABLE | NOT_EXECUTABLE);
    WRITE_ONCE(threads[index], area);
    return 0;
}

static void free_table(u64 *table)
{
    free_page((unsigned long)table);
}

void world_exit(void)
{
    int i;
    for (i = 0; i < MAX_CPUS; i++)
        free_pages((unsigned long)cpus[i], CPU_ORDER);
    for (i = 0; i < MAX_THREADS; i++)
        free_pages((unsigned long)threads[i], THREAD_ORDER);
    for (i = 0; i < REGIONS; i++)
        free_table(entries[i]);
    free_table(upper);
    free_table(middle);
    free_table(idle_table);
    free_table(boot_table);
    free_table(boot_upper);
    free_table(boot_middle);
    free_pages((unsigned long)shared, SHARED_ORDER);
    free_pages((unsigned long)image, get_order(PAGE_ALIGN(fettle_image_end - fettle_image)));
}
