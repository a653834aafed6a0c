/* The agent: the slow paths of probes, inside the observed process.
 *
 * It executes on the program's stack in the middle of the program's functions, so it uses no vector
 * register, no libc, no system call and no memory but the thread block; the entries in entries.S
 * keep every general-purpose register. It is linked to one flat position-independent piece of
 * code that is put in front of a module's rewritten text.
 */

#include "block.h"

#define POLICY_DROP 0
#define POLICY_OVERWRITE 1
#define POLICY_WAIT 2
/* How often a waiting producer checks the consumer's heartbeat before it gives up on it: for about
 * a second. */
#define WAIT_SPINS (1u << 25)
/* Sampling ends at one call in two to this power, if the block says nothing else, and takes so many
 * samples at each step. */
#define INTERVAL_MAX 6
#define SAMPLES_PER_INTERVAL 32
/* Calls of functions that take long are sampled more often, as their few long calls weigh much: on
 * average one call in so many ticks is sampled. */
#define TICKS_PER_SAMPLE 65536
/* A checkpoint frame (mark) is a frame of no function on the call-stack mirror. How often one is
 * left, TICKS_PER_MARK, the collector has to know, too: it comes from crates/base/abi/src/block.rs
 * by way of the build. */
#define MARK 0xffffffffu
/* Calls until the next sample when no samples are wanted. */
#define NEVER 0x7fffffff

static inline volatile struct thread_block *own_block(void)
{
    volatile struct thread_block *block;
    __asm__ volatile("movq %%gs:24, %0" : "=r"(block));
    return block;
}

static inline u64 now(void)
{
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
}

#define CLOCK_TSC 0
#define CLOCK_CPU 1
#define SYS_CLOCK_GETTIME 228
#define CLOCK_THREAD_CPUTIME_ID 3

/* The clock of probes that the agent makes: ticks, or nanoseconds of CPU time. */
static u64 clock(volatile struct thread_block *b)
{
    struct {
        u64 seconds, nanoseconds;
    } time = {0, 0};
    long result = SYS_CLOCK_GETTIME;
    if (b->clock == CLOCK_TSC)
        return now();
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(CLOCK_THREAD_CPUTIME_ID), "S"(&time)
                     : "rcx", "r11", "memory", "cc");
    return time.seconds * 1000000000ul + time.nanoseconds;
}

static inline volatile struct frame *frame_at(volatile struct thread_block *b, u64 used)
{
    return (volatile struct frame *)((volatile char *)b + MIRROR + used);
}

static inline volatile struct accumulator *accumulator(volatile struct thread_block *b, u64 number)
{
    return (volatile struct accumulator *)((volatile char *)b + b->accumulators) + number;
}

/* What the kernel sets in a lock whose owner died (FUTEX_OWNER_DIED). */
#define OWNER_DIED (1u << 30)
/* Frames in use of an orphaned agent: far from both ends of the call-stack mirror. */
#define DESERTED_USED (MIRROR_BYTES / 2)

/* So little room is left on a call-stack mirror that is nearly full. */
#define NEARLY_FULL (1024 * sizeof(struct frame))
/* How many frames are searched at most. */
#define FRAMES_LOOKED_AT 256

/* Is the agent orphaned, its recorder dead? Then threads that start have no block of their own but
 * their parent's (a tracer gives a thread its block), and several use one call-stack mirror at
 * once; so do threads that the tracer has no block for, or never saw (CLONE_UNTRACED). Inlined
 * probes stay safe as long as frames in use are far from both ends: each finds a frame that is not
 * its own and calls the agent. What is recorded has no meaning any more. */
static int deserted(volatile struct thread_block *b)
{
    if (b->mirror_used <= MIRROR_BYTES &&
        (!b->alive || !(b->alive->ended || b->alive->tracer & OWNER_DIED)))
        return 0;
    b->mirror_used = DESERTED_USED;
    if (b->top_stack_pointer)
        b->top_stack_pointer = ~0ul;
    return 1;
}

/* Room for `bytes` at `position`? Returns 1 if it may be stored to. Otherwise the reservation is
 * undone and one record counted as lost. */
static int room(volatile struct thread_block *b, u64 position, u64 bytes)
{
    u64 size = 1ul << b->ring.capacity_log2;
    u64 beat = b->ring.consumer_beat;
    if (deserted(b)) {
        b->ring.lost++;
        return 0;
    }
    for (u32 spins = 0;; spins++) {
        u64 limit = b->ring.consumed + size;
        if (position + bytes <= limit) {
            b->ring.limit = limit;
            return 1;
        }
        int given_up = beat == b->ring.dead_beat || spins >= WAIT_SPINS;
        if (b->ring.policy != POLICY_WAIT || given_up) {
            /* A consumer that was given up on is not waited for again until its beat changes. */
            b->ring.dead_beat = beat;
            /* Undone only if no signal handler reserved after us; it has found the ring full too,
             * or there is room now. */
            u64 expected = position + bytes;
            u64 was = expected;
            __asm__ volatile("cmpxchgq %2, %1"
                             : "+a"(was), "+m"(b->ring.reserved)
                             : "r"(position)
                             : "memory", "cc");
            if (was == expected) {
                b->ring.lost++;
                return 0;
            }
        }
        __asm__ volatile("pause");
        if (b->ring.consumer_beat != beat) {
            beat = b->ring.consumer_beat;
            spins = 0;
        }
    }
}

/* Room for a record at `position`? */
int fettle_ring(u64 position)
{
    volatile struct thread_block *b = own_block();
    /* A program that records itself has no consumer: its own agent makes room. */
    if (b->spill)
        return ((int (*)(u64))b->spill)(position);
    return room(b, position, 16);
}

static void record(volatile struct thread_block *b, u64 number, u64 start, u64 ticks)
{
    u64 position = 16;
    __asm__ volatile("xaddq %0, %1" : "+r"(position), "+m"(b->ring.reserved) : : "memory", "cc");
    if (position >= b->ring.limit && !fettle_ring(position))
        return;
    u64 index = position & ((1ul << b->ring.capacity_log2) - 1);
    volatile u64 *words = (volatile u64 *)((volatile char *)b + RING + index);
    u64 id = number / 4095 * 4096 + number % 4095 + 1;
    words[0] = start << 12 | id >> 12;
    words[1] = ticks << 12 | (id & 0xfff);
}

/* Ends the activation on top of the call-stack mirror, which `caller` has called. */
static void close_top(volatile struct thread_block *b, u64 time, volatile struct frame *caller)
{
    volatile struct frame *top = frame_at(b, b->mirror_used - sizeof(struct frame));
    /* A forked child has its parent's frames, but its CPU time begins at zero. */
    u64 ticks = time > top->start ? time - top->start : 0;
    u64 number = top->function;
    volatile struct accumulator *a = accumulator(b, number);
    caller->child_ticks += ticks;
    caller->children++;
    a->total_ticks += ticks;
    /* What executes on another stack is not within it. */
    a->self_ticks += ticks > top->child_ticks ? ticks - top->child_ticks : 0;
    a->children += top->children;
    a->below += b->ended - top->ended_before;
    b->ended++;
    if (b->records)
        record(b, number, top->start, ticks);
    b->mirror_used -= sizeof(struct frame);
}

/* Ends the activation on top of the call-stack mirror, which ended without an exit: by `end` at the
 * latest. Returns when the one below it ended at the latest: before a later activation began where
 * its own stack frame was. It may have been long ago, if the function that caught the exception has
 * no probes. */
static u64 leave_top(volatile struct thread_block *b, u64 end)
{
    volatile struct frame *top = frame_at(b, b->mirror_used - sizeof(struct frame));
    u64 before = top->stack_pointer >= top[-1].stack_pointer ? top->start : end;
    /* An activation that was unwound before is not its caller. */
    volatile struct frame *lowest = frame_at(b, 0), *caller = top - 1;
    for (u32 i = 0; caller > lowest && caller->stack_pointer <= top->stack_pointer; caller--)
        if (++i == FRAMES_LOOKED_AT)
            break;
    accumulator(b, top->function)->calls++;
    close_top(b, end, caller);
    b->unwound_frames++;
    return before;
}

/* Was one of the newest activations unwound, although its frame is there? Then a later one began at
 * a stack pointer that is no lower. */
static int left_near_top(volatile struct thread_block *b)
{
    volatile struct frame *f = frame_at(b, b->mirror_used - sizeof(struct frame));
    for (u32 i = 0; i < FRAMES_LOOKED_AT; i++, f--)
        if (f[0].stack_pointer >= f[-1].stack_pointer)
            return 1;
    return 0;
}

/* The call-stack mirror is nearly full of activations that were unwound long ago: the functions
 * that caught the exceptions have no probes. Drops all that the stack pointer of a later one shows
 * to be over; their time is not known. A thread with several stacks may lose frames that are still
 * needed; otherwise it would soon record nothing. */
static void drop_left(volatile struct thread_block *b)
{
    u64 used = b->mirror_used, kept = used, lowest = 0;
    /* Those that stay are moved to the upper end first, in order. */
    for (u64 at = used - sizeof(struct frame); at >= sizeof(struct frame); at -= sizeof(struct frame)) {
        volatile struct frame *f = frame_at(b, at);
        if (f->stack_pointer > lowest) {
            lowest = f->stack_pointer;
            kept -= sizeof(struct frame);
            *frame_at(b, kept) = *f;
        } else {
            accumulator(b, f->function)->calls++;
            b->unwound_frames++;
        }
    }
    u64 to = sizeof(struct frame);
    for (; kept < used; kept += sizeof(struct frame), to += sizeof(struct frame))
        *frame_at(b, to) = *frame_at(b, kept);
    b->mirror_used = to;
}

/* A call finds no room on the call-stack mirror. It is not measured, but those that follow may be. */
void fettle_full(void)
{
    volatile struct thread_block *b = own_block();
    if (deserted(b))
        return;
    b->mirror_overflows++;
    if (left_near_top(b))
        drop_left(b);
}

/* An exit of the function `number`, whose stack pointer at entry was `stack_pointer`, found another
 * frame on top. Frames above its own ended without an exit. Returns 1 if its own is on top now. If
 * a coroutine is resumed whose frames were taken to be unwound, another function's may be in place
 * of its own. */
int fettle_exit(u64 stack_pointer, u64 time, u32 number)
{
    volatile struct thread_block *b = own_block();
    if (deserted(b))
        return 0;
    if (b->mirror_used > MIRROR_BYTES - NEARLY_FULL && left_near_top(b))
        drop_left(b);
    u64 used = b->mirror_used;
    u64 found = 0;
    u32 outer = 0;
    /* Activations with a higher stack pointer called this one, except a few on another stack, and
     * have not ended. */
    for (u64 at = used; at >= 2 * sizeof(struct frame) && outer < FRAMES_LOOKED_AT;
         at -= sizeof(struct frame)) {
        volatile struct frame *f = frame_at(b, at - sizeof(struct frame));
        u64 other = f->stack_pointer;
        if (other == stack_pointer && f->function == number) {
            found = at;
            break;
        }
        outer += other > stack_pointer;
    }
    if (!found) {
        b->unmatched_exits++;
        return 0;
    }
    while (b->mirror_used > found)
        time = leave_top(b, time);
    return 1;
}

/* Control may have come here by an exception or `longjmp`: activations whose stack pointers are
 * below `stack_pointer` are over. */
void fettle_left(u64 stack_pointer)
{
    volatile struct thread_block *b = own_block();
    if (deserted(b))
        return;
    u64 time = clock(b);
    if (b->top_stack_pointer) {
        /* Sampling: the calls are counted already, and their time is not used. */
        u64 used = b->mirror_used;
        while (used >= 2 * sizeof(struct frame) &&
               frame_at(b, used - sizeof(struct frame))->stack_pointer < stack_pointer) {
            used -= sizeof(struct frame);
            b->unwound_frames += frame_at(b, used)->function != MARK;
        }
        b->mirror_used = used;
        b->top_stack_pointer = used >= 2 * sizeof(struct frame)
                                   ? frame_at(b, used - sizeof(struct frame))->stack_pointer
                                   : ~0ul;
        return;
    }
    while (b->mirror_used >= 2 * sizeof(struct frame) &&
           frame_at(b, b->mirror_used - sizeof(struct frame))->stack_pointer < stack_pointer)
        time = leave_top(b, time);
}

/* Sampling: a call to be timed begins. The first calls of a function are all timed; then, with
 * every so many samples, the interval doubles if calls of the function are short, so that
 * a rare function is known as well as a frequent one. Intervals are random around their mean, so
 * that no regular pattern of calls hides from them. */
void fettle_sample_entry(u64 stack_pointer, u64 number)
{
    struct thread_block *b = (struct thread_block *)own_block();
    struct accumulator *a = (struct accumulator *)accumulator(b, number);
    /* The interval's logarithm in the lowest byte, samples taken at it in the next, and in the
     * upper half the calls from the last sample to this one. */
    u32 state = a->interval;
    u32 interval = state & 31;
    u32 samples = state >> 8 & 0xff;
    u64 weight = 1ul << interval;
    u32 next = 1;
    if (deserted(b)) {
        a->countdown = NEVER;
        return;
    }
    a->calls += state >> 16 ? state >> 16 : 1;
    if (samples < SAMPLES_PER_INTERVAL) {
        samples++;
    } else {
        samples = 0;
        u64 paid = a->total_ticks / a->calls << interval;
        if (paid < TICKS_PER_SAMPLE && interval < (b->interval_max ? b->interval_max : INTERVAL_MAX))
            interval++;
        else if (paid > 4 * TICKS_PER_SAMPLE && interval > 0)
            interval--;
    }
    if (interval > 0) {
        u64 x = b->random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        b->random = x;
        /* Uniform on 1 .. 2*interval-1: the mean is the interval. */
        next = 1 + (u32)((x >> 32) * ((2u << interval) - 1) >> 32);
    }
    /* The countdown is below zero here; calls between samples are counted at the next. */
    a->countdown = next - 1;
    a->interval = next << 16 | samples << 8 | interval;
    u64 used = b->mirror_used;
    if (used > MIRROR_BYTES - sizeof(struct frame)) {
        b->mirror_overflows++;
        return;
    }
    volatile struct frame *f = frame_at(b, used);
    *(volatile u64 *)&b->mirror_used = used + sizeof(struct frame);
    f->stack_pointer = stack_pointer;
    f->child_ticks = 0;
    f->function = number;
    f->children = weight;
    *(volatile u64 *)&b->top_stack_pointer = stack_pointer;
    /* The clock is read before the call's own work begins, and (entries.S) after it has ended. */
    u64 start = now();
    __asm__ volatile("lfence" : : : "memory");
    f->start = start;
}

/* Records a call that stands for `weight` calls, or (0) only for itself, or only if the frame that
 * goes on at `weight`, an address, was its own; and its caller: the caller's time without its
 * callees follows from that. */
static void sample_record(volatile struct thread_block *b, u64 number, u64 weight,
                          u64 stack_pointer, u64 start, u64 ticks)
{
    u64 position = 32;
    __asm__ volatile("xaddq %0, %1" : "+r"(position), "+m"(b->ring.reserved) : : "memory", "cc");
    /* A program that records itself makes room for whole pairs: all positions are multiples. */
    if (position + 16 >= b->ring.limit && b->spill) {
        if (!((int (*)(u64))b->spill)(position))
            return;
    } else if (position + 16 >= b->ring.limit) {
        /* Two records or none: the first of a pair that has no room is left as a gap. */
        b->ring.limit = b->ring.consumed + (1ul << b->ring.capacity_log2);
        if (position + 32 > b->ring.limit) {
            b->ring.lost++;
            __asm__ volatile("subq $32, %0" : "+m"(b->ring.reserved) : : "memory", "cc");
            return;
        }
    }
    u64 index = position & ((1ul << b->ring.capacity_log2) - 1);
    volatile u64 *words = (volatile u64 *)((volatile char *)b + RING + index);
    u64 id = number / 4095 * 4096 + number % 4095 + 1;
    words[0] = start << 12 | id >> 12;
    words[1] = ticks << 12 | (id & 0xfff);
    words[2] = *(u64 *)stack_pointer;
    words[3] = weight << 12 | 0xfff;
}

/* Leaves a checkpoint frame: every activation whose stack pointer is `stack_pointer` or above is in
 * progress since `time`, or longer if there is an older one. The word below is the return address
 * in the activation that contains it. */
static void mark(volatile struct thread_block *b, u64 stack_pointer, u64 time)
{
    u64 used = b->mirror_used;
    volatile struct frame *top = frame_at(b, used - sizeof(struct frame));
    if (used > MIRROR_BYTES - sizeof(struct frame) ||
        (top->function == MARK && top->stack_pointer <= stack_pointer))
        return;
    b->mirror_used = used + sizeof(struct frame);
    top[1].stack_pointer = stack_pointer;
    top[1].start = time;
    top[1].child_ticks = *(u64 *)(stack_pointer - 8);
    top[1].function = MARK;
}

/* Sampling: the frame on top of the call-stack mirror is not deeper than this exit's. */
void fettle_sample_exit(u64 stack_pointer, u64 time, u64 number)
{
    volatile struct thread_block *b = own_block();
    volatile struct frame *lowest = frame_at(b, 0);
    u64 weight = 0, start = 0, others = 0, marked = 0, in = 0, used;
    if (deserted(b))
        return;
    for (used = b->mirror_used; used >= 2 * sizeof(struct frame); used -= sizeof(struct frame)) {
        volatile struct frame *f = frame_at(b, used - sizeof(struct frame));
        if (f->stack_pointer > stack_pointer)
            break;
        if (f->function == MARK) {
            marked = f->start;
            in = f->child_ticks;
        } else if (f->stack_pointer == stack_pointer) {
            number = f->function;
            weight = f->children;
            start = f->start;
        } else {
            others++;
        }
    }
    if (!start && !marked)
        return;
    /* Frames above its own ended without an exit; their time is not known well enough to stand for
     * many calls. */
    b->unwound_frames += others;
    b->mirror_used = used;
    if (start)
        accumulator(b, number)->total_ticks += (time - start) * weight;
    /* Whether few calls that take most of the time are sampled is chance: they are found by
     * checkpoint frames, all of them, and stand for themselves. When they began is known to half
     * the time between checkpoints. A call that is not timed is certain only if the checkpoint is
     * in its own frame: code without probes may have returned past the checkpoint, and called only
     * then. */
    int is_long = time - (start ? start : marked) >= TICKS_PER_MARK;
    if (is_long)
        weight = start ? 0 : in;
    if (!start)
        start = marked - TICKS_PER_MARK / 2;
    if (weight || is_long)
        sample_record(b, number, weight, stack_pointer, start, time - start);
    /* The caller goes on. */
    if (marked)
        mark(b, stack_pointer + 8, marked);
    if (time - lowest->start >= TICKS_PER_MARK) {
        lowest->start = time;
        mark(b, stack_pointer + 8, time);
    }
    used = b->mirror_used;
    b->top_stack_pointer = used >= 2 * sizeof(struct frame)
                               ? frame_at(b, used - sizeof(struct frame))->stack_pointer
                               : ~0ul;
}

/* The function's registers as fettle_enter and fettle_leave get them (entries.S). */
struct registers {
    u64 r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp;
};

/* How a value is read (crates/binary/rewrite/src/arguments.rs). */
#define CLASS_INTEGER 1
#define CLASS_TEXT 2
#define CLASS_FLOAT 3
#define ARGUMENTS_MAX 15

/* Cells that values take in the ring (crates/base/abi/src/record.rs). */
#define CELL_HEAD 1
#define CELL_VALUE 2
#define CELL_TEXT 3
#define RESULT 255
#define TEXT_MAX 64
#define TEXT_FAULT (TEXT_MAX + 1)

struct value {
    u64 bits;
    u32 index;
    u32 text;
};

static void cell(volatile struct thread_block *b, u64 *position, u64 payload, u64 kind, u64 index,
                 u64 number)
{
    u64 at = *position & ((1ul << b->ring.capacity_log2) - 1);
    volatile u64 *words = (volatile u64 *)((volatile char *)b + RING + at);
    words[0] = payload;
    words[1] = (kind | index << 4 | number << 12) << 12;
    *position += 16;
}

/* Bytes of the text at `at`, TEXT_MAX at most; TEXT_FAULT if there is no memory. The tracer sends a
 * fault in fettle_text to fettle_text_fault (entries.S). */
u32 fettle_text(const char *at, char *to);

/* Writes values to the ring, behind a head that says which call they are of. The head is stored
 * last. */
static u64 leave_values(volatile struct thread_block *b, u64 number, const struct value *values,
                        u32 count, u64 start)
{
    u64 cells = 1 + count;
    char text[TEXT_MAX] __attribute__((aligned(8)));
    for (u32 i = 0; i < count; i++)
        if (values[i].text && values[i].bits)
            cells += TEXT_MAX / 8;
    u64 position = cells * 16;
    __asm__ volatile("xaddq %0, %1" : "+r"(position), "+m"(b->ring.reserved) : : "memory", "cc");
    if (position + cells * 16 > b->ring.limit && !room(b, position, cells * 16))
        return start ? start : clock(b);
    u64 head = position;
    position += 16;
    for (u32 i = 0; i < count; i++) {
        cell(b, &position, values[i].bits, CELL_VALUE, values[i].index, number);
        if (!values[i].text || !values[i].bits)
            continue;
        for (u32 at = 0; at < TEXT_MAX; at += 8)
            *(volatile u64 *)(text + at) = 0;
        u32 length = fettle_text((const char *)values[i].bits, text);
        for (u32 at = 0; at < TEXT_MAX; at += 8) {
            u32 left = length > TEXT_MAX ? 15 : at >= length ? 0 : length - at > 8 ? 9 : length - at;
            cell(b, &position, *(u64 *)(text + at), CELL_TEXT, left, number);
        }
    }
    if (!start)
        start = clock(b);
    cell(b, &head, start, CELL_HEAD, 0, number);
    return start;
}

/* A call begins. `classes` says what to record of its arguments. */
void fettle_enter(u64 stack_pointer, u64 number, u32 classes, const u64 *vectors,
                  const struct registers *registers)
{
    volatile struct thread_block *b = own_block();
    if (deserted(b))
        return;
    u64 used = b->mirror_used;
    if (used > MIRROR_BYTES - sizeof(struct frame)) {
        fettle_full();
        return;
    }
    volatile struct frame *f = frame_at(b, used);
    b->mirror_used = used + sizeof(struct frame);
    f->stack_pointer = stack_pointer;
    f->child_ticks = 0;
    f->function = number;
    f->children = 0;
    f->ended_before = b->ended;
    classes >>= 2;
    if (!classes) {
        f->start = clock(b);
        return;
    }
    const u64 integers[6] = {registers->rdi, registers->rsi, registers->rdx,
                             registers->rcx, registers->r8,  registers->r9};
    const u64 *stack = (const u64 *)stack_pointer + 1;
    struct value values[ARGUMENTS_MAX];
    u32 integer = 0, vector = 0, count = 0;
    for (; classes; classes >>= 2, count++) {
        u32 class = classes & 3;
        values[count].index = count;
        values[count].text = class == CLASS_TEXT;
        if (class == CLASS_FLOAT)
            values[count].bits = vector < 8 ? vectors[vector++] : *stack++;
        else
            values[count].bits = integer < 6 ? integers[integer++] : *stack++;
    }
    f->start = leave_values(b, number, values, count, 0);
}

/* A call ends. `class` says what to record of its result. */
void fettle_leave(u64 stack_pointer, u32 number, u32 class, const u64 *vectors,
                  const struct registers *registers)
{
    volatile struct thread_block *b = own_block();
    u64 time = clock(b);
    if (!fettle_exit(stack_pointer, time, number))
        return;
    volatile struct frame *top = frame_at(b, b->mirror_used - sizeof(struct frame));
    if (class) {
        struct value value = {
            .bits = class == CLASS_FLOAT ? vectors[0] : registers->rax,
            .index = RESULT,
            .text = class == CLASS_TEXT,
        };
        leave_values(b, number, &value, 1, top->start);
    }
    accumulator(b, number)->calls++;
    close_top(b, time, frame_at(b, b->mirror_used - 2 * sizeof(struct frame)));
}

/* The argument that a user probe gets of a call (runtime/probe/fettle_probe.h). */
struct call {
    u64 argument[6];
    u64 result;
    const u64 *stack;
    u64 moment;
};

extern const char fettle_entries[] __attribute__((visibility("hidden")));

/* Runs a function of the user probe. `told` has its distance from the agent in the low 28 bits, and
 * `moment` above (runtime/probe/fettle_probe.h). */
void fettle_own(u64 stack_pointer, u64 number, u32 reported, const struct registers *r)
{
    u64 moment = reported >> 28;
    const u64 *stack = (const u64 *)stack_pointer;
    struct call call = {.stack = stack, .moment = moment};
    if (moment == 0) {
        call.argument[0] = r->rdi;
        call.argument[1] = r->rsi;
        call.argument[2] = r->rdx;
        call.argument[3] = r->rcx;
        call.argument[4] = r->r8;
        call.argument[5] = r->r9;
    } else if (moment == 1) {
        call.result = r->rax;
    }
    void (*function)(volatile struct accumulator *, const struct call *) =
        (void *)(fettle_entries + (reported & 0xfffffff));
    function(accumulator(own_block(), number), &call);
}
