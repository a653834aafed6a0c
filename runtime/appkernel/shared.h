/* What the application kernel and the Linux module say to one another.
 *
 * Both are compiled with this header. They share memory and nothing else: no pointer is in it, only
 * numbers, since each side has addresses of its own. A field says which side writes it. Fields that both
 * sides look at while the other writes are read and written by the atomic functions below.
 */
#ifndef FETTLE_SHARED_H
#define FETTLE_SHARED_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
#endif

#define MAX_CPUS 32
#define MAX_THREADS 256
#define MAX_SPACES 128
#define THREAD_WORDS (MAX_THREADS / 64)

/* The application kernel's own addresses: the last 2 GiB, where Linux's are, too, but in page
 * tables of its own. Each region has one page of page-table entries (2 MiB), threads have two. */
#define AK_IMAGE 0xffffffff80000000
#define AK_SHARED 0xffffffff80200000
#define AK_CPUS 0xffffffff80400000
#define AK_THREADS 0xffffffff80600000
#define AK_APIC 0xffffffff80a00000

#define IMAGE_MAX 0x20000
#define CPU_STRIDE 0x8000
#define THREAD_STRIDE 0x4000
#define THREAD_VECTORS 0x1000 /* where a thread's vector state is */
#define VECTORS_MAX (THREAD_STRIDE - THREAD_VECTORS)

/* Where a processor starts, in real mode. The first MiB is never Linux's memory. */
#define TRAMPOLINE 0x8000

#define VECTOR_CALL 0x100 /* no vector of the processor: a system call */
#define VECTOR_POKE 0xf8  /* Linux wants something */
#define VECTOR_TIMER 0xf9
#define VECTOR_SPURIOUS 0xff

#define IMAGE_MAGIC 0x006c656e72656b61 /* "akernel" */

/* The start of the image. */
struct image_header {
    u64 magic;
    u64 trampoline; /* offset in the image */
    u64 trampoline_size;
    u64 entry; /* address */
    u64 size;  /* with what is zero at the start */
};

/* What the trampoline gets, at its start behind a jump. */
struct trampoline_words {
    u64 jump;
    u64 cr3; /* below 4 GiB */
    u64 stack;
    u64 entry;
    u64 cpu;
};

/* A program's general-purpose registers, in the order of Linux's struct pt_regs. At an entry
 * `original` has the vector in its upper half, and the error code in its lower one. */
struct registers {
    u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
    u64 original;
    u64 ip, cs, flags, sp, ss;
};

/* Which side has a thread. Linux's module takes it from FREE to HOME and READY, the application kernel
 * from READY to RUNNING, WAITING (on a futex) and STOPPED; a STOPPED thread is Linux's again. A WAITING one belongs
 * to the side that takes it out of its space's set, as a READY one to the one that takes it out of a processor's. */
enum thread_state {
    THREAD_FREE,
    THREAD_HOME,
    THREAD_READY,
    THREAD_RUNNING,
    THREAD_STOPPED,
    THREAD_WAITING
};

/* Why a thread stopped. */
enum event {
    EVENT_NONE,
    EVENT_CALL,      /* a system call: the registers say which */
    EVENT_FAULT,     /* a page fault at `address` */
    EVENT_TRAP,      /* another exception: `vector` */
    EVENT_RECALLED,  /* as Linux wished */
    EVENT_PREEMPTED, /* it must be told that another thread had its processor */
    EVENT_MOVED,     /* it is ready, and another processor would be better */
    EVENT_LOST       /* its processor failed */
};

/* One thread out of Linux. Its vector state is THREAD_VECTORS behind it. */
struct thread {
    u64 pad;
    struct registers registers; /* the processor pushes them here: their end is a multiple of 16 */
    u32 state;
    u32 recalled;   /* by Linux: stop */
    u32 wants_bell; /* by Linux: its proxy sleeps */
    u32 event;
    u32 vector;
    u32 error;
    u64 address;
    u64 fs_base, gs_base;
    u64 cpus; /* by Linux: lent processors that it may run on */
    u64 allowed; /* by Linux: those that it may run on if Linux moves it there */
    u32 space;
    u32 cpu; /* the lent processor that it ran on last */
    u32 protection_keys;
    u32 vectors_changed; /* by Linux: load them before it runs */
    u32 answers_locally; /* by Linux: nothing there looks at its calls */
    u32 tells_preemption;
    u32 process, task; /* as getpid and gettid say */
    u64 ran;           /* ticks in user mode */
    u64 since;         /* the tick it was dispatched at; 0 when it does not run */
    u64 calls, local_calls, faults;
    u64 futex; /* the address that it waits at */
    u64 turn;  /* who began to wait first is woken first */
};

/* What the processor's last words were. */
struct failure {
    u64 is_set;
    u64 vector, error, ip, address, sp;
};

/* One lent processor, at the start of its area. Its stacks are in the same area, so that the
 * address of either leads here. entry.S knows the first three. */
struct processor {
    u64 frame;  /* end of the running thread's registers */
    u64 caller; /* a program's stack pointer, for a moment */
    u64 stack;
    u32 index;
    u32 number; /* Linux's number of it */
    u32 apic;
    u32 is_up;
    u32 leave; /* by Linux: stop for good */
    u32 running; /* thread + 1 */
    u32 space;   /* space + 1 whose translations it may have */
    u32 vectors_of; /* thread + 1 whose vector state it has */
    u32 is_armed;   /* its timer */
    u32 sleeps;     /* until an interrupt comes */
    u64 flush_wanted; /* by Linux */
    u64 flush_done;
    u64 translates; /* CR3 */
    u64 slice;      /* timer ticks */
    u64 calls, local_calls, faults, traps, pokes, ticks, switches, flushes, steals;
    u64 idle, busy_since;
    struct failure failure;
    u64 gdt[18];
    u8 tss[112];
};

/* An entry of the log. */
struct note {
    u64 tick;
    u32 cpu;
    u32 what;
    u64 a, b;
};

enum note_kind { NOTE_NONE, NOTE_UP, NOTE_LEFT, NOTE_FAILURE, NOTE_RECALLED };

#define MAX_NOTES 512

struct shared {
    /* Written once by Linux. */
    u64 cr0, cr4, efer, pat, xcr0, xss, vectors, tsc_khz;
    u64 idle_cr3;
    u32 has_xsaves, has_x2apic, has_keys, has_tsc_aux, has_smap;
    u32 bell_vector, bell_apic;
    u32 polls; /* processors never sleep */
    u64 cpus_up; /* lent processors that run this, by index */
    /* Threads whose proxies want to be woken. */
    u64 bells[THREAD_WORDS];
    u64 bells_rung;
    u64 notes_written;
    struct note notes[MAX_NOTES];
    /* Threads that wait for a lent processor, by processor. */
    u64 ready[MAX_CPUS][THREAD_WORDS];
    /* CR3 of each space on each lent processor. */
    u64 spaces[MAX_SPACES][MAX_CPUS];
    /* Private futexes, by space. By Linux: whether all threads of the space are out, so that none can call
     * Linux about a futex but through its proxy; and how many such calls Linux has at hand. */
    u32 futexes_are_local[MAX_SPACES];
    u32 futex_calls[MAX_SPACES];
    u64 waiting[MAX_SPACES][THREAD_WORDS];
    u64 futex_turns;
};

/* A uniprocessor kernel's own atomic functions lock nothing: these do. */
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define TAKE(place) __atomic_exchange_n(&(place), 0, __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_add_fetch(&(place), (value), __ATOMIC_SEQ_CST)

static inline void ready_set(u64 *words, u32 thread)
{
    __atomic_fetch_or(&words[thread / 64], 1ul << (thread % 64), __ATOMIC_SEQ_CST);
}

/* Takes a thread out of a ready set; the caller that gets 1 has it. */
static inline int ready_claim(u64 *words, u32 thread)
{
    u64 bit = 1ul << (thread % 64);
    return (__atomic_fetch_and(&words[thread / 64], ~bit, __ATOMIC_SEQ_CST) & bit) != 0;
}

static inline int ready_is_empty(const u64 *words)
{
    u64 all = 0;
    u32 word;
    for (word = 0; word < THREAD_WORDS; word++)
        all |= __atomic_load_n(&words[word], __ATOMIC_ACQUIRE);
    return all == 0;
}

/* The first thread of the set behind `last`, round and round, or -1. */
static inline int ready_next(const u64 *words, u32 last)
{
    u32 i, word, start = (last + 1) % MAX_THREADS;
    for (i = 0; i <= THREAD_WORDS; i++) {
        u64 bits;
        word = (start / 64 + i) % THREAD_WORDS;
        bits = __atomic_load_n(&words[word], __ATOMIC_ACQUIRE);
        if (i == 0)
            bits &= ~0ul << (start % 64);
        if (bits)
            return (int)(word * 64 + (u32)__builtin_ctzl(bits));
    }
    return -1;
}

#endif
