/* The thread block and what lies behind it, as in crates/base/abi, offset by offset. */
#ifndef FETTLE_BLOCK_H
#define FETTLE_BLOCK_H

typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct ring_cursors {
    u64 reserved;
    u64 limit;
    u64 lost;
    u32 policy;
    u32 capacity_log2;
    u64 dead_beat;
    u64 pad0[3];
    u64 consumed;
    u64 consumer_beat;
    u64 pad1[6];
};

struct alive {
    u32 tracer;
    u32 ended;
};

struct thread_block {
    u64 magic;
    u32 version;
    u32 slot;
    u32 pid;
    u32 tid;
    u64 address;
    u64 mirror_used;
    u64 unmatched_exits;
    u64 unwound_frames;
    u64 mirror_overflows;
    struct ring_cursors ring;
    u64 random;
    u64 accumulators;
    u64 records;
    u64 top_stack_pointer;
    u64 owner;
    u64 spill;
    u64 clock;
    const volatile struct alive *alive;
    u64 ended;
    u64 interval_max;
    u64 locks;
    u64 pad[5];
};

struct frame {
    u64 start;
    u64 stack_pointer;
    u64 child_ticks;
    u32 function;
    u32 children;
    u64 ended_before;
};

struct accumulator {
    u64 calls;
    u64 total_ticks;
    u64 self_ticks;
    u32 countdown;
    u32 interval;
    u64 children;
    u64 below;
};

_Static_assert(sizeof(struct ring_cursors) == 128, "abi");
_Static_assert(sizeof(struct thread_block) == 320, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, ring) == 64, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, random) == 192, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, owner) == 224, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, alive) == 248, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, ended) == 256, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, interval_max) == 264, "abi");
_Static_assert(__builtin_offsetof(struct thread_block, locks) == 272, "abi");
_Static_assert(sizeof(struct frame) == 40, "abi");
_Static_assert(sizeof(struct accumulator) == 48, "abi");

#define MIRROR 0x1000ul
#define MIRROR_BYTES (5ul << 20)
#define RING (MIRROR + MIRROR_BYTES + 0x1000)

#endif
