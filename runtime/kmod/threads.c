// Return-address patching: threads that are inside copies go on in the originals.
//
// Copies have the originals' stack frames, so a return address into a copy and the one into the original
// at the same place are interchangeable. In one short stop of the machine every thread's return addresses
// are exchanged; of a preempted thread also the interrupted instruction. No thread has to leave by itself,
// so it does not matter how long it sleeps.
//
// Most threads sleep, and the stack of a thread that has not run since cannot have changed. So stacks are
// walked before the stop, while everything runs, and in the stop only those of threads that ran meanwhile.
#include "kmod.h"

// A return address into a copy, and what belongs there.
struct slot {
    u64 *at, original;
};

// A thread that did not run when its stack was walked.
struct known {
    u8 *task;
    u64 started, switches;  // the same thread, and it has not run since, if these are the same
    u64 first, slots;
};

struct survey {
    struct known *known;  // found by the thread's address; null where there is no memory
    u64 mask, threads;
    struct slot *slots;
    u64 used, most;
};

struct pass {
    struct survey *survey;
    u32 stops;  // return addresses are exchanged, not only found
    u32 taken;  // one processor walks the threads that do not run
    u64 tasks, moved, hooked, stuck, stopped_ns;
};

#define UNWIND_STATE_WORDS 128  // the module writer checks that it suffices
#define STACK_BYTES 16384

static u8 *current_task_of_this_processor(void) {
    u8 *task;
    asm volatile("movq %%gs:current_offset, %0" : "=r"(task));
    return task;
}

static int is_copy(u64 address) {
    // A return address behind the last instruction belongs to that one.
    return address >= (u64)text_begin && address <= (u64)text_end;
}

static u64 original_of(u64 address) {
    u32 at = (u32)(address - (u64)text_begin);
    u64 low = 0, high = facts.origins;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (origins[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < facts.origins && origins[low].at == at ? (u64)(s64)origins[low].original : 0;
}

static void add(u64 *counter, u64 amount) {
    __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

// Any word in what an unwinder could not walk may be a return address.
static int mentions_copies(u8 *task, u64 *from) {
    u64 *end = (u64 *)(FIELD(u64, task, facts.task_stack) + STACK_BYTES);
    for (u64 *word = from; word < end; word++)
        if (is_copy(*word)) return 1;
    return 0;
}

// Where a thread is noted, or would be.
static struct known *place_of(struct survey *survey, u8 *task) {
    u64 at = ((u64)task >> 6) * 0x9e3779b97f4a7c15 >> 32;
    while (survey->known[at & survey->mask].task && survey->known[at & survey->mask].task != task) at++;
    return &survey->known[at & survey->mask];
}

static u64 switches_of(u8 *task) {
    return __atomic_load_n(&FIELD(u64, task, facts.task_nvcsw), __ATOMIC_ACQUIRE) +
           __atomic_load_n(&FIELD(u64, task, facts.task_nivcsw), __ATOMIC_ACQUIRE);
}

static void exchange(u8 *task, u64 *slot, u64 original) {
    end_call(task, task == current_task_of_this_processor(), *slot);
    *slot = original;
}

static void found(struct pass *pass, u8 *task, u64 *slot, u64 original) {
    struct survey *survey = pass->survey;
    add(&pass->moved, 1);
    if (pass->stops)
        exchange(task, slot, original);
    else if (survey->used < survey->most)
        survey->slots[survey->used++] = (struct slot){slot, original};
    else
        pass->stuck++;
}

// `from`: where the walk begins, for the thread that runs here its own frame.
static void walk(struct pass *pass, u8 *task, u64 *from) {
    u64 state[UNWIND_STATE_WORDS];
    for (int i = 0; i < UNWIND_STATE_WORDS; i++) state[i] = 0;
    add(&pass->tasks, 1);
    // state->stack_info.type, which comes first, is 0 at the end.
    for (__unwind_start(state, task, 0, from); FIELD(u32, state, 0); unwind_next_frame(state)) {
        u64 *slot = unwind_get_return_address_ptr(state);
        if (!slot) continue;
        if (!is_copy(*slot)) {
            // A tracer's trampoline stands in the slot, and the tracer keeps the return address.
            u64 meant = unwind_get_return_address(state);
            if (meant != *slot && is_copy(meant)) add(&pass->hooked, 1);
            continue;
        }
        u64 original = original_of(*slot);
        if (original)
            found(pass, task, slot, original);
        else
            add(&pass->stuck, 1);
    }
    if (FIELD(u8, state, facts.unwind_error) && mentions_copies(task, from)) add(&pass->stuck, 1);
}

// What is noted of a thread, if it has not run since.
static struct known *known_of(struct survey *survey, u8 *task) {
    if (!survey->known) return 0;
    struct known *known = place_of(survey, task);
    int same = known->task && known->started == FIELD(u64, task, facts.task_start_time) &&
               known->switches == switches_of(task);
    return same ? known : 0;
}

// Notes what a walk finds of a thread that does not run. It may begin to run meanwhile, and what was found is
// of no use then; it may even die, but its stack is held. All that is not plain is left to the stop.
static void survey_one(struct pass *pass, u8 *task) {
    struct survey *survey = pass->survey;
    u64 started = FIELD(u64, task, facts.task_start_time), switches = switches_of(task), first = survey->used;
    u64 odd = pass->hooked + pass->stuck;
    u32 *holders = &FIELD(u32, task, facts.task_stack_refcount), held = __atomic_load_n(holders, __ATOMIC_RELAXED);
    if (__atomic_load_n(&FIELD(s32, task, facts.task_on_cpu), __ATOMIC_ACQUIRE)) return;
    if (survey->threads > survey->mask / 2 || known_of(survey, task)) return;
    do
        if (!held) return;
    while (!__atomic_compare_exchange_n(holders, &held, held + 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    walk(pass, task, FIELD(u64 *, task, facts.task_sp));
    put_task_stack(task);
    struct known *known = place_of(survey, task);
    survey->threads += !known->task;
    if (pass->hooked + pass->stuck != odd) {
        survey->used = first;
        switches = ~0ul;  // never the same
    }
    *known = (struct known){task, started, switches, first, survey->used - first};
}

// Whether the thread's stack is as it was when it was walked before the stop; exchanges its return addresses then.
static int exchange_known(struct pass *pass, u8 *task) {
    struct known *known = known_of(pass->survey, task);
    if (!known) return 0;
    struct slot *slots = pass->survey->slots + known->first;
    for (u64 i = 0; i < known->slots; i++) exchange(task, slots[i].at, slots[i].original);
    add(&pass->tasks, 1);
    add(&pass->moved, known->slots);
    return 1;
}

// A dying thread's stack may be gone already. One that runs is the stopper of its processor, which
// walks itself.
static void walk_other(struct pass *pass, u8 *task) {
    if (!pass->stops) {
        survey_one(pass, task);
        return;
    }
    if (!FIELD(u32, task, facts.task_stack_refcount) || FIELD(s32, task, facts.task_on_cpu)) return;
    if (!exchange_known(pass, task)) walk(pass, task, FIELD(u64 *, task, facts.task_sp));
}

struct list {
    struct list *next, *previous;
};

static void walk_listed(struct pass *pass) {
    u8 *leader = init_task;
    do {
        struct list *threads =
            &FIELD(struct list, FIELD(u8 *, leader, facts.task_signal), facts.signal_thread_head);
        for (struct list *node = threads->next; node != threads; node = node->next)
            walk_other(pass, (u8 *)node - facts.task_thread_node);
        leader = (u8 *)FIELD(struct list, leader, facts.task_tasks).next - facts.task_tasks;
    } while (leader != init_task);
}

// Idle threads are in no list. The first processor's is init_task.
static void walk_idle(struct pass *pass) {
    for (u32 processor = 0; processor < nr_cpu_ids; processor++) {
        if (!(((u64 *)__cpu_possible_mask)[processor / 64] >> processor % 64 & 1)) continue;
        u8 *idle = idle_task((int)processor);
        if (idle && idle != init_task) walk_other(pass, idle);
    }
}

static int stopped(void *argument) {
    struct pass *pass = argument;
    u64 start = ktime_get_mono_fast_ns();
    walk(pass, current_task_of_this_processor(), __builtin_frame_address(0));
    if (!__atomic_exchange_n(&pass->taken, 1, __ATOMIC_RELAXED)) {
        walk_listed(pass);
        walk_idle(pass);
        pass->stopped_ns = ktime_get_mono_fast_ns() - start;
    }
    return 0;
}

// Walks the stacks of threads that do not run, as far as there is room for `threads` of them, and again those of
// threads that ran meanwhile, until they are few.
static void look_around(struct survey *survey, u64 threads) {
    enum { FEW = 32, TIMES = 5 };
    u64 places = 64;
    while (places < 2 * threads) places *= 2;
    survey->mask = places - 1;
    survey->most = 4 * places;
    survey->slots = vmalloc(survey->most * sizeof(struct slot));
    survey->known = survey->slots ? vmalloc(places * sizeof(struct known)) : 0;
    if (!survey->known) return;
    for (u64 i = 0; i < places; i++) survey->known[i].task = 0;
    struct pass pass = {.survey = survey, .tasks = ~0ul};
    for (int i = 0; i < TIMES && pass.tasks > FEW; i++) {
        pass.tasks = 0;
        __rcu_read_lock();
        walk_listed(&pass);
        __rcu_read_unlock();
    }
}

// Deoptimisation: leads every thread out of copies. What is left of them, by a tracer's hooks or in frames
// that cannot be walked, needs another attempt.
int lead_out(struct status *status) {
    struct survey survey = {0};
    struct pass pass = {.survey = &survey, .stops = 1};
    look_around(&survey, (u64)(u32)nr_threads + 64);
    int failed = stop_machine(stopped, &pass, __cpu_online_mask);
    vfree(survey.known);
    vfree(survey.slots);
    if (failed) return failed;
    status->tasks = pass.tasks;
    status->moved = pass.moved;
    status->hooked = pass.hooked;
    status->stuck = pass.stuck;
    status->stopped_ns = pass.stopped_ns;
    if (pass.hooked || pass.stuck) return -EAGAIN;
    // Threads on their way out of the world are in no list any more; these wait for them, and for
    // everything that was interrupted.
    synchronize_rcu_tasks();
    synchronize_rcu_tasks_rude();
    return 0;
}
