/* What threads leave of locks, as in crates/base/abi/src/locking.rs, offset by offset. */
#ifndef FETTLE_LOCKS_H
#define FETTLE_LOCKS_H

#include "block.h"

/* What a probed function does (crates/base/abi/src/locking.rs). */
enum op {
    OP_NONE,
    OP_MUTEX_LOCK,
    OP_MUTEX_TRY,
    OP_MUTEX_TIMED,
    OP_MUTEX_UNLOCK,
    OP_READ_LOCK,
    OP_READ_TRY,
    OP_READ_TIMED,
    OP_WRITE_LOCK,
    OP_WRITE_TRY,
    OP_WRITE_TIMED,
    OP_RW_UNLOCK,
    OP_SPIN_LOCK,
    OP_SPIN_TRY,
    OP_SPIN_UNLOCK,
    OP_SEM_WAIT,
    OP_SEM_TRY,
    OP_SEM_TIMED,
    OP_SEM_POST,
    OP_COND_WAIT,
    OP_COND_SIGNAL,
    OP_BARRIER,
    OP_INIT,
    OP_DESTROY,
    OP_CREATE,
    OP_JOIN,
    OP_SLOW,
};
/* The function is musl's, whose locks lie in memory in another way. */
#define OP_MUSL 0x80u

/* In front of the slots. */
#define HEAD_INFO 128ul
#define HEAD_OPS (1ul << 20)
#define HEAD_GENERATIONS (2ul << 20)
#define HEAD_ENTRIES (3ul << 20)
#define HEAD_CONVOYS (6ul << 20)
#define GENERATIONS 65536u
#define ENTRIES 8192u
#define ENTRY_SITES 14u
#define QUEUES 16u

struct lock_info {
    u64 stride;
    u64 slots_at;
    u64 slots_high;
    u64 table_at;
};

struct site_ticks {
    u64 site;
    u64 ticks;
};

/* A lock that threads have waited for: who held it while others waited, and for how long. */
struct lock_entry {
    u64 key;
    u32 guard;
    u32 waiters;
    u64 mark;
    u64 holder;
    struct site_ticks sites[ENTRY_SITES];
};

/* Stretches of a lock: at each release within one a thread waits. By the number of the lock's entry. */
struct stretch {
    u64 releases;
    /* Threads that had waited and got it. */
    u64 handed;
    u64 ticks;
    /* Of those, while no thread held it. */
    u64 passing;
    /* Releases by how many waited; the last for all that are more. */
    u32 queues[QUEUES];
};

struct convoy {
    u64 lock;
    u32 pid;
    u32 stretches;
    u64 since;
    u64 passing_before;
    /* The one that goes on, and all before it that were long enough. */
    struct stretch now;
    struct stretch all;
    u64 pad[4];
};

/* A lock that a thread has. */
struct held {
    u64 lock;
    u64 start;
    u64 pad;
    u32 row;
    u16 weight;
    u16 mode;
};
#define MODE_SHARED 1u
#define MODE_SEMAPHORE 2u

/* A call whose end matters. */
struct pending {
    u64 lock;
    u64 site;
    u64 stack_pointer;
    u64 start;
    u64 object;
    u32 op;
    u32 entry;
    u32 contended;
    u32 row;
    u64 snapshot[ENTRY_SITES];
};

struct thread_event {
    u32 kind;
    u32 segment;
    u64 object;
    u64 time;
};

struct lock_row {
    u64 lock;
    u64 site;
    u32 op;
    u32 queue_max;
    u64 acquired;
    u64 contended;
    u64 failed;
    u64 waited;
    u64 waited_max;
    u64 held;
    u64 held_timed;
    u64 held_max;
    u64 queue_sum;
    u32 waited_log2[32];
    u32 held_log2[32];
    u64 pad[4];
};

#define EDGE_GATES 6u
struct lock_edge {
    u64 outer;
    u64 inner;
    u64 outer_site;
    u64 inner_site;
    u32 segment;
    u32 flags;
    u64 count;
    u64 gates[EDGE_GATES];
    u64 pad[4];
};
#define EDGE_OUTER_SHARED 1u
#define EDGE_INNER_SHARED 2u
#define EDGE_MORE_GATES 4u

struct blame {
    u32 row;
    u32 count;
    u64 holder;
    u64 ticks;
    u64 pad;
};

#define HELD_MAX 64u
#define EVENTS_MAX 1024u
#define ROWS 4096u
#define EDGES 2048u
#define BLAMES 2048u

struct lock_table {
    u64 busy;
    u64 held_count;
    u64 segment;
    u64 self;
    u64 missed;
    u64 rows_full;
    u64 edges_full;
    u64 held_full;
    u64 unmatched;
    u64 blames_full;
    u64 countdown;
    u64 events_count;
    u64 unseen;
    u64 pad[3];
    struct pending pending;
    u64 pad1[27];
    struct held held[HELD_MAX];
    u64 pad2[192];
    struct thread_event events[EVENTS_MAX];
    struct blame blames[BLAMES];
    struct lock_edge edges[EDGES];
    struct lock_row rows[ROWS];
};

_Static_assert(sizeof(struct lock_entry) == 256, "abi");
_Static_assert(sizeof(struct convoy) == 256, "abi");
_Static_assert(sizeof(struct held) == 32, "abi");
_Static_assert(sizeof(struct pending) == 168, "abi");
_Static_assert(sizeof(struct lock_row) == 384, "abi");
_Static_assert(sizeof(struct lock_edge) == 128, "abi");
_Static_assert(sizeof(struct blame) == 32, "abi");
_Static_assert(__builtin_offsetof(struct lock_table, pending) == 128, "abi");
_Static_assert(__builtin_offsetof(struct lock_table, held) == 512, "abi");
_Static_assert(__builtin_offsetof(struct lock_table, events) == 4096, "abi");
_Static_assert(__builtin_offsetof(struct lock_table, blames) == 4096 + 24 * EVENTS_MAX, "abi");

_Static_assert(sizeof(struct lock_table) == 1929216, "abi");

#endif
