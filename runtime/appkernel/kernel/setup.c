/* A processor on its way up: descriptor tables, control registers, and then the first thread.
 *
 * Control registers are those of a processor that Linux runs, but for process-context identifiers
 * and 57-bit addresses, which this kernel does without.
 */
#include "kernel.h"
#include "layout.h"

#define OFFSET(type, field) __builtin_offsetof(type, field)
_Static_assert(OFFSET(struct processor, frame) == CPU_FRAME, "entry.S");
_Static_assert(OFFSET(struct processor, caller) == CPU_CALLER, "entry.S");
_Static_assert(OFFSET(struct processor, stack) == CPU_STACK, "entry.S");
_Static_assert(OFFSET(struct registers, cs) == REGISTERS_CS, "entry.S");
_Static_assert(OFFSET(struct registers, ip) == REGISTERS_IP, "entry.S");
_Static_assert(OFFSET(struct registers, original) + 4 == REGISTERS_VECTOR, "entry.S");
_Static_assert(VECTOR_POKE >= VECTOR_LOWEST && VECTOR_TIMER >= VECTOR_LOWEST, "entry.S");
_Static_assert(sizeof(struct registers) == 168, "as struct pt_regs");
_Static_assert((OFFSET(struct thread, registers) + sizeof(struct registers)) % 16 == 0,
               "the processor pushes at multiples of 16");
_Static_assert(sizeof(struct processor) <= 0x1000, "its page");
_Static_assert(sizeof(struct thread) <= THREAD_VECTORS, "its page");

#define MSR_APIC_BASE 0x1b
#define MSR_PAT 0x277
#define MSR_XSS 0xda0
#define MSR_EFER 0xc0000080
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_FMASK 0xc0000084
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102
#define MSR_TSC_AUX 0xc0000103

/* Pages of a processor's area. */
#define PAGE_IDT 1
#define PAGE_STACK_DOUBLE_FAULT 2
#define PAGE_STACK_NMI 3
#define PAGE_STACK_CHECK 4

struct gate {
    u16 offset_low, selector;
    u8 stack, kind;
    u16 offset_middle;
    u32 offset_high, zero;
};

struct pointer {
    u16 limit;
    u64 base;
} __attribute__((packed));

static u64 page_of(const struct processor *cpu, u32 page)
{
    return (u64)cpu + page * 0x1000ul;
}

/* Stacks of their own for what may come at any moment. */
static u8 stack_of(u32 vector)
{
    return vector == 8 ? 1 : vector == 2 ? 2 : vector == 18 ? 3 : 0;
}

static void load_idt(struct processor *cpu)
{
    struct gate *gates = (struct gate *)page_of(cpu, PAGE_IDT);
    struct pointer pointer = {0xfff, (u64)gates};
    u32 vector;
    for (vector = 0; vector < 256; vector++) {
        u64 entry = (u64)vector_entries[vector];
        /* INT3 and INTO may be used by programs. */
        u8 level = vector == 3 || vector == 4 ? 0x60 : 0;
        gates[vector] = (struct gate){
            .offset_low = (u16)entry,
            .selector = 0x10,
            .stack = stack_of(vector),
            .kind = 0x8e | level,
            .offset_middle = (u16)(entry >> 16),
            .offset_high = (u32)(entry >> 32),
        };
    }
    __asm__ volatile("lidt %0" : : "m"(pointer));
}

/* Selectors are Linux's: programs and signal frames have them in their hands. */
static void load_gdt(struct processor *cpu)
{
    u64 tss = (u64)cpu->tss;
    struct pointer pointer = {sizeof cpu->gdt - 1, (u64)cpu->gdt};
    cpu->gdt[2] = 0x00af9b000000ffff;
    cpu->gdt[3] = 0x00cf93000000ffff;
    cpu->gdt[4] = 0x00cffb000000ffff;
    cpu->gdt[5] = 0x00cff3000000ffff;
    cpu->gdt[6] = 0x00affb000000ffff;
    cpu->gdt[8] = 0x67 | (tss & 0xffffff) << 16 | 0x89ul << 40 | (tss >> 24 & 0xff) << 56;
    cpu->gdt[9] = tss >> 32;
    /* Where Linux's getcpu looks. */
    cpu->gdt[15] = 0x0000f50000000000 | cpu->number;
    __asm__ volatile("lgdt %0" : : "m"(pointer));
    __asm__ volatile("pushq $0x10\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "lretq\n"
                     "1:\tmovl $0x18, %%eax\n\t"
                     "movl %%eax, %%ss\n\t"
                     "movl %%eax, %%ds\n\t"
                     "movl %%eax, %%es"
                     :
                     :
                     : "rax", "memory");
}

static void load_tss(struct processor *cpu)
{
    *(u64 *)(cpu->tss + 36) = page_of(cpu, PAGE_STACK_DOUBLE_FAULT + 1);
    *(u64 *)(cpu->tss + 44) = page_of(cpu, PAGE_STACK_NMI + 1);
    *(u64 *)(cpu->tss + 52) = page_of(cpu, PAGE_STACK_CHECK + 1);
    *(u16 *)(cpu->tss + 102) = 104;
    __asm__ volatile("ltr %w0" : : "r"(0x40));
}

static void load_control(struct processor *cpu)
{
    __asm__ volatile("movq %0, %%cr4" : : "r"(shared->cr4));
    __asm__ volatile("movq %0, %%cr0" : : "r"(shared->cr0));
    __asm__ volatile("xsetbv" : : "c"(0), "a"((u32)shared->xcr0), "d"((u32)(shared->xcr0 >> 32)));
    if (shared->has_xsaves)
        write_msr(MSR_XSS, shared->xss);
    write_msr(MSR_EFER, shared->efer);
    write_msr(MSR_PAT, shared->pat);
    write_msr(MSR_STAR, 0x23ul << 48 | 0x10ul << 32);
    write_msr(MSR_LSTAR, (u64)call_entry);
    write_msr(MSR_FMASK, 0x257fd5);
    write_msr(MSR_FS_BASE, 0);
    write_msr(MSR_GS_BASE, 0);
    write_msr(MSR_KERNEL_GS_BASE, (u64)cpu);
    if (shared->has_tsc_aux)
        write_msr(MSR_TSC_AUX, cpu->number);
    if (shared->has_x2apic)
        write_msr(MSR_APIC_BASE, read_msr(MSR_APIC_BASE) | 0xc00);
}

void start(struct processor *cpu)
{
    load_gdt(cpu);
    load_idt(cpu);
    load_tss(cpu);
    load_control(cpu);
    cpu->translates = shared->idle_cr3;
    write_cr3(shared->idle_cr3);
    apic_start(cpu);
    note(cpu, NOTE_UP, cpu->apic, cpu->number);
    STORE(cpu->is_up, 1);
    resume(next_thread(cpu));
}
