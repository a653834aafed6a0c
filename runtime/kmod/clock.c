// Virtual time: a thread's clock that stops while it does not run, and while an interrupt has its
// processor. As the paper on kernel instruction caches (2001, section 4) has it, a switch-out stops it and a
// switch-in starts it again, on whatever processor.
//
// Each processor keeps a base, by which the time-stamp counter is ahead of the virtual time of the thread that
// runs there. Copies read both (crates/kernel/emit). Here the base is set anew when another thread begins to run,
// and when an interrupt ends, so that virtual time goes on from where it stood. A thread's virtual time begins
// anywhere: only differences within one thread count.
#include "kmod.h"

enum { DEEPEST = 4 };

// In each processor's own memory. The module writer gives it VIRTUAL_WORDS (crates/kernel/kernel-live).
struct clock {
    u64 base;
    u64 interrupts;   // ticks in interrupts
    u64 depth;        // of interrupts in interrupts
    u64 at[DEEPEST];  // the virtual time when each began
};
extern struct clock cpu_clock;  // an offset in each processor's own memory

// A thread that has stopped running, and its virtual time then. One that was made where a dead one lay goes on
// with its time, which is as good as any other.
struct away {
    u8 *task;
    u64 at;
};

static struct away *away;
static u64 mask, threads, lost;

static u64 ticks(void) { return __builtin_ia32_rdtsc(); }

static struct clock *own_clock(void) {
    u8 *own;
    asm volatile("movq %%gs:this_cpu_off, %0" : "=r"(own));
    return (struct clock *)(own + (u64)&cpu_clock);
}

// Where a thread is noted; null where it is not, and there is no place or none is wanted.
static struct away *place_of(u8 *task, int is_wanted) {
    u64 at = ((u64)task >> 6) * 0x9e3779b97f4a7c15 >> 32;
    for (;; at++) {
        struct away *place = &away[at & mask];
        u8 *there = __atomic_load_n(&place->task, __ATOMIC_RELAXED);
        if (there == task) return place;
        if (there) continue;
        if (!is_wanted) return 0;
        if (__atomic_load_n(&threads, __ATOMIC_RELAXED) > mask / 2) {
            __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
            return 0;
        }
        // Another processor may take it for another thread.
        if (__atomic_compare_exchange_n(&place->task, &there, task, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
            return place;
        }
        if (there == task) return place;
    }
}

// The tracepoint sched_switch: the scheduler is about to switch, and interrupts are off.
static void on_switch(void *data, u8 preempts, u8 *previous, u8 *next) {
    (void)data, (void)preempts;
    struct clock *clock = own_clock();
    u64 now = ticks();
    struct away *place = place_of(previous, 1);
    if (place) place->at = now - clock->base;
    place = place_of(next, 0);
    if (place) clock->base = now - place->at;
    clock->depth = 0;
}

// Tracepoints at the begin and end of interrupts. An interrupt in here finds what it needs: it leaves the base as
// it should be, and what it writes lies above.
static void on_interrupt(void *data) {
    (void)data;
    struct clock *clock = own_clock();
    u64 depth = clock->depth;
    if (depth < DEEPEST) clock->at[depth] = ticks() - clock->base;
    __atomic_store_n(&clock->depth, depth + 1, __ATOMIC_RELEASE);
}

static void on_interrupt_end(void *data) {
    (void)data;
    struct clock *clock = own_clock();
    u64 depth = clock->depth;
    // It began before anybody looked.
    if (!depth) return;
    if (depth <= DEEPEST) {
        u64 now = ticks(), at = clock->at[depth - 1];
        clock->interrupts += now - clock->base - at;
        clock->base = now - at;
    }
    __atomic_store_n(&clock->depth, depth - 1, __ATOMIC_RELEASE);
}

static void *const probes[] = {on_switch, on_interrupt, on_interrupt_end};

static void *probe_of(u64 number) { return probes[number ? 1 + (number - 1) % 2 : 0]; }

static void unregister(u64 count) {
    while (count--)
        if (facts.tracepoints[count])
            tracepoint_probe_unregister((void *)facts.tracepoints[count], probe_of(count), 0);
    // Who is in a probe does not sleep.
    synchronize_rcu();
    vfree(away);
    away = 0;
}

int start_clock(void) {
    if (!facts.open || away) return 0;
    if (!facts.tracepoints[0]) return -ENOENT;
    // Threads that end leave their places to those that are made where they lay, so it takes few more than there are at once.
    u64 places = 32768;
    while (places < 16 * (u64)(u32)nr_threads) places *= 2;
    away = vmalloc(places * sizeof(struct away));
    if (!away) return -ENOMEM;
    for (u64 i = 0; i < places; i++) away[i] = (struct away){0};
    mask = places - 1;
    threads = lost = 0;
    for (u64 i = 0; i < TRACEPOINTS; i++) {
        if (!facts.tracepoints[i]) continue;
        int failed = tracepoint_probe_register((void *)facts.tracepoints[i], probe_of(i), 0);
        if (!failed) continue;
        unregister(i);
        return failed;
    }
    return 0;
}

void stop_clock(void) {
    if (away) unregister(TRACEPOINTS);
}

static void add_to(s32 place, u64 amount) {
    u8 *own = (u8 *)own_clock() - (u64)&cpu_clock;
    u64 *counter = place < 0 ? &shared_counters[~place] : (u64 *)(own + (u64)cpu_counters) + place;
    __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

// A thread is deoptimised in a copy at this place. If a call is open there nothing else will take its time.
void end_call(u8 *task, int runs_here, u64 address) {
    if (!away) return;
    u32 at = (u32)(address - (u64)text_begin);
    u64 low = 0, high = facts.open;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (open_spans[middle].to <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == facts.open || at < open_spans[low].from) return;
    const struct open_span *span = &open_spans[low];
    u64 now = ticks(), own = now - own_clock()->base;
    if (!runs_here) {
        struct away *place = place_of(task, 0);
        if (!place) {
            __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
            return;
        }
        own = place->at;
    }
    add_to(span->deoptimised, 1);
    add_to(span->ticks, now);
    add_to(span->virtual_ticks, own);
}

// Since the clock was started: ticks in interrupts, and threads whose time is not known.
void read_clock(struct status *status) {
    status->lost_threads = lost;
    status->interrupt_ticks = 0;
    for (u32 processor = 0; processor < nr_cpu_ids; processor++)
        if (((u64 *)__cpu_possible_mask)[processor / 64] >> processor % 64 & 1)
            status->interrupt_ticks +=
                ((struct clock *)(__per_cpu_offset[processor] + (u64)&cpu_clock))->interrupts;
}
