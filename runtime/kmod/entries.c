// Jumps from originals to their copies: written and reverted while every processor runs.
//
// text_poke_queue writes a breakpoint first, then the rest, then the first byte, and lets no processor
// execute a mixture; a thread that meets the breakpoint in between does what the jump will do. It asks for
// ascending addresses, which the module writer sees to. One case is not covered by it: where the jump
// replaces several instructions, a thread's PC may be between the first and the last of them, interrupted or
// preempted. There the breakpoint comes alone, then every thread gets the time to leave, then the jump.
#include "kmod.h"

// A jump as if it had so many bytes.
static void encode(u8 *code, const struct patch *patch, int bytes) {
    s32 distance = (s32)(patch->to - patch->at - bytes);
    code[0] = JUMP;
    for (int i = 0; i < 4; i++) code[1 + i] = (u8)(distance >> 8 * i);
}

static int holds(const struct patch *patch, const u8 *code) {
    const volatile u8 *text = (const u8 *)patch->at;
    for (int i = 0; i < JUMP_BYTES; i++)
        if (text[i] != code[i]) return 0;
    return 1;
}

// Breakpoints where threads may stand inside what the jump replaces. Returns how many.
static u64 write_breakpoints(void) {
    const u8 breakpoint = INT3;
    u8 jump[JUMP_BYTES];
    u64 written = 0;
    for (struct patch *patch = patches; patch < patches + facts.patches; patch++) {
        if (!patch->insides || patch->written) continue;
        // The kernel adds the distance to the end of what it writes, which is one byte.
        encode(jump, patch, 1);
        text_poke_queue((void *)patch->at, &breakpoint, 1, jump);
        written++;
    }
    text_poke_finish();
    return written;
}

// Writes all jumps, or none where an original is not as the plan has it.
int write_jumps(struct status *status) {
    u8 jump[JUMP_BYTES];
    u64 start = ktime_get_mono_fast_ns();
    mutex_lock(text_mutex);
    for (struct patch *patch = patches; patch < patches + facts.patches; patch++)
        if (!patch->written && !holds(patch, patch->replaced)) {
            status->taken = patch->at;
            mutex_unlock(text_mutex);
            return -EBUSY;
        }
    if (write_breakpoints()) {
        // Nothing else writes there: a breakpoint of unknown origin is refused by kprobes and ftrace.
        mutex_unlock(text_mutex);
        synchronize_rcu_tasks();
        synchronize_rcu_tasks_rude();
        mutex_lock(text_mutex);
    }
    for (struct patch *patch = patches; patch < patches + facts.patches; patch++) {
        if (patch->written) continue;
        encode(jump, patch, JUMP_BYTES);
        text_poke_queue((void *)patch->at, jump, JUMP_BYTES, jump);
        patch->written = 1;
    }
    text_poke_finish();
    mutex_unlock(text_mutex);
    status->install_ns = ktime_get_mono_fast_ns() - start;
    return 0;
}

// Reverts every jump but those that were written over, by a kprobe for instance: what that one saved of
// the text it will write back.
void take_jumps_back(struct status *status) {
    u8 jump[JUMP_BYTES];
    u64 start = ktime_get_mono_fast_ns();
    status->foreign = 0;
    mutex_lock(text_mutex);
    for (struct patch *patch = patches; patch < patches + facts.patches; patch++) {
        if (!patch->written) continue;
        encode(jump, patch, JUMP_BYTES);
        if (!holds(patch, jump)) {
            status->foreign++;
            continue;
        }
        // A processor that meets the breakpoint on the way still goes to the copy.
        text_poke_queue((void *)patch->at, patch->replaced, JUMP_BYTES, jump);
        patch->written = 0;
    }
    text_poke_finish();
    mutex_unlock(text_mutex);
    status->remove_ns = ktime_get_mono_fast_ns() - start;
}

extern struct status status;

// A thread met a breakpoint that stands alone: it goes where the jump will lead.
int at_breakpoint(struct notifier *self, u64 action, void *die) {
    enum { DIE_INT3 = 2, STOP = 0x8001 };
    (void)self;
    if (action != DIE_INT3) return 0;
    u64 *ip = &FIELD(u64, FIELD(void *, die, facts.die_regs), facts.regs_ip);
    u64 low = 0, high = facts.patches;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (patches[middle].at < *ip - 1)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == facts.patches || patches[low].at != *ip - 1 || !patches[low].insides) return 0;
    *ip = patches[low].to;
    __atomic_fetch_add(&status.trapped, 1, __ATOMIC_RELAXED);
    return STOP;
}
