// Return-address patching: threads that are inside copies go on in the originals.
//
// Copies have the originals' stack frames, so a return address into a copy and the one into the original
// at the same place are interchangeable. In one short stop of the machine every thread's stack is walked
// and its return addresses are exchanged; of a preempted thread also the interrupted instruction. No
// thread has to leave by itself, so it does not matter how long it sleeps.
#include "kmod.h"

struct pass {
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
        if (original) {
            *slot = original;
            add(&pass->moved, 1);
        } else {
            add(&pass->stuck, 1);
        }
    }
    if (FIELD(u8, state, facts.unwind_error) && mentions_copies(task, from)) add(&pass->stuck, 1);
}

// A dying thread's stack may be gone already. One that runs is the stopper of its processor, which
// walks itself.
static void walk_other(struct pass *pass, u8 *task) {
    if (!FIELD(u32, task, facts.task_stack_refcount) || FIELD(s32, task, facts.task_on_cpu)) return;
    walk(pass, task, FIELD(u64 *, task, facts.task_sp));
}

struct list {
    struct list *next, *previous;
};

static void walk_all(struct pass *pass) {
    u8 *leader = init_task;
    do {
        struct list *threads =
            &FIELD(struct list, FIELD(u8 *, leader, facts.task_signal), facts.signal_thread_head);
        for (struct list *node = threads->next; node != threads; node = node->next)
            walk_other(pass, (u8 *)node - facts.task_thread_node);
        leader = (u8 *)FIELD(struct list, leader, facts.task_tasks).next - facts.task_tasks;
    } while (leader != init_task);
    // Idle threads are in no list. The first processor's is init_task.
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
        walk_all(pass);
        pass->stopped_ns = ktime_get_mono_fast_ns() - start;
    }
    return 0;
}

// Deoptimisation: leads every thread out of copies. What is left of them, by a tracer's hooks or in frames
// that cannot be walked, needs another attempt.
int lead_out(struct status *status) {
    struct pass pass = {0};
    int failed = stop_machine(stopped, &pass, __cpu_online_mask);
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
