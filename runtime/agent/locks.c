/* Locks, added up in the thread that takes them.
 *
 * A probe at the entry of each function of locks comes here, and one at its exit if the entry has
 * asked for that. A lock that is free at the entry is counted as taken at once, which costs one
 * call of this code; otherwise the exit says how long it took. What is added up lies in the
 * thread's slot (../locks.h), which no other thread writes. The exception are locks that threads
 * wait for: their holders are in front of the slots, where waiting threads find them.
 *
 * Times are ticks. Free locks are timed only at random intervals, as the clock takes longer than
 * the rest; a time is weighted by the inverse of its probability.
 */

#include "../locks.h"
#include "convoys.h"

/* On average one hold in so many is timed. */
#define TIMED_ONE_IN 32u
/* How many places of a table are searched. */
#define PROBED 32u
#define GUARD_SPINS 1000u
#define SLOTS_LOOKED_AT 512u
#define SITE_NOBODY 0ul
#define SITE_OTHERS 1ul
#define NO_ROW 0xffffffffu
#define ANSWER_OWNER_DIED 130

static inline struct thread_block *own_block(void)
{
    struct thread_block *block;
    __asm__ volatile("movq %%gs:24, %0" : "=r"(block));
    return block;
}

static inline u64 now(void)
{
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
}

static inline char *head(const struct thread_block *b)
{
    return (char *)((u64)b->alive & ~4095ul);
}

static inline struct lock_info *info(const struct thread_block *b)
{
    return (struct lock_info *)(head(b) + HEAD_INFO);
}

static inline struct lock_table *table(struct thread_block *b)
{
    return (struct lock_table *)((char *)b + b->locks);
}

static inline u32 hash(u64 a, u64 b)
{
    return (u32)(((a >> 3) * 0x9e3779b97f4a7c15ul ^ b * 0xc2b2ae3d27d4eb4ful) >> 40);
}

static u32 bucket(u64 ticks)
{
    u32 log2 = ticks ? 64 - (u32)__builtin_clzl(ticks) : 0;
    return log2 < 5 ? 0 : log2 - 5 > 31 ? 31 : log2 - 5;
}

/* The row of a lock and a place that takes it. Locks without room of their own are added up by the
 * place. */
static u32 find_row(struct lock_table *t, u64 lock, u64 site, u32 op)
{
    for (;;) {
        u32 h = hash(lock, site + op);
        for (u32 i = 0; i < PROBED; i++) {
            u32 n = (h + i) % ROWS;
            struct lock_row *row = &t->rows[n];
            if (row->lock == lock && row->site == site && row->op == op)
                return n;
            if (!row->op) {
                row->lock = lock;
                row->site = site;
                row->op = op;
                return n;
            }
        }
        if (!lock)
            break;
        lock = 0;
    }
    t->rows_full++;
    return NO_ROW;
}

/* A lock that is initialised or destroyed again is another one. */
static u64 identity(const struct thread_block *b, u64 lock)
{
    const u16 *generations = (const u16 *)(head(b) + HEAD_GENERATIONS);
    return lock | (u64)generations[hash(lock, 0) % GENERATIONS] << 48;
}

static u64 key_of(const struct thread_block *b, u64 lock)
{
    return lock ^ (u64)b->pid << 47;
}

static struct lock_entry *entries(const struct thread_block *b)
{
    return (struct lock_entry *)(head(b) + HEAD_ENTRIES);
}

/* The entry of a lock that threads wait for, from 1; 0 if there is none. */
static u32 find_entry(const struct thread_block *b, u64 lock, int make)
{
    struct lock_entry *all = entries(b);
    u64 key = key_of(b, lock);
    u32 h = hash(lock, 0);
    for (u32 i = 0; i < PROBED; i++) {
        u32 n = (h + i) % ENTRIES;
        u64 found = *(volatile u64 *)&all[n].key;
        if (found == key)
            return n + 1;
        if (found)
            continue;
        if (!make)
            return 0;
        if (__sync_val_compare_and_swap(&all[n].key, 0, key) == 0 || all[n].key == key)
            return n + 1;
    }
    return 0;
}

static int guard(struct lock_entry *e)
{
    for (u32 i = 0; i < GUARD_SPINS; i++) {
        if (!*(volatile u32 *)&e->guard && !__sync_lock_test_and_set(&e->guard, 1))
            return 1;
        __asm__ volatile("pause");
    }
    return 0;
}

static void unguard(struct lock_entry *e)
{
    __sync_lock_release(&e->guard);
}

/* While others waited, `site` has held the lock since `mark`: adds the time to its site. */
static void charge(struct lock_entry *e, u64 site, u64 time)
{
    u64 ticks = time - e->mark;
    u32 n = 0;
    if (time <= e->mark)
        return;
    e->mark = time;
    if (site != SITE_NOBODY)
        for (n = 1; n < ENTRY_SITES - 1; n++) {
            if (!e->sites[n].site)
                e->sites[n].site = site;
            if (e->sites[n].site == site)
                break;
        }
    if (n == ENTRY_SITES - 1)
        e->sites[n].site = SITE_OTHERS;
    e->sites[n].ticks += ticks;
}

static u64 site_of(struct lock_table *t, u32 row)
{
    return row == NO_ROW ? SITE_OTHERS : t->rows[row].site;
}

/* The site that holds a lock without waiters until now: of the first thread found that has it. */
static u64 holder(struct thread_block *b, u64 lock)
{
    struct lock_info *i = info(b);
    u64 slots = i->slots_high < SLOTS_LOOKED_AT ? i->slots_high : SLOTS_LOOKED_AT;
    for (u64 slot = 0; slot < slots; slot++) {
        struct thread_block *other =
            (struct thread_block *)(head(b) + i->slots_at + slot * i->stride);
        struct lock_table *t = (struct lock_table *)((char *)other + b->locks);
        if (other->pid != b->pid || other == b)
            continue;
        u64 count = *(volatile u64 *)&t->held_count;
        for (u64 n = 0; n < count && n < HELD_MAX; n++)
            if (t->held[n].lock == lock) {
                u32 row = t->held[n].row;
                return row < ROWS ? t->rows[row].site : SITE_OTHERS;
            }
    }
    return SITE_NOBODY;
}

static void begin_wait(struct thread_block *b, struct pending *p)
{
    p->entry = find_entry(b, p->lock, 1);
    p->start = now();
    if (!p->entry)
        return;
    struct lock_entry *e = &entries(b)[p->entry - 1];
    if (!guard(e)) {
        p->entry = 0;
        return;
    }
    if (!e->waiters) {
        struct convoy *c = convoy_of(head(b), p->entry);
        c->lock = p->lock;
        c->pid = b->pid;
        e->mark = p->start;
        e->holder = holder(b, p->lock);
    } else {
        charge(e, e->holder, p->start);
    }
    e->waiters++;
    u32 queue = e->waiters;
    for (u32 i = 0; i < ENTRY_SITES; i++)
        p->snapshot[i] = e->sites[i].ticks;
    unguard(e);
    if (p->row != NO_ROW) {
        struct lock_row *row = &table(b)->rows[p->row];
        row->queue_sum += queue;
        if (queue > row->queue_max)
            row->queue_max = queue;
    }
}

static void blame(struct lock_table *t, u32 row, u64 site, u64 ticks)
{
    u32 h = hash(row * 8ul, site);
    for (u32 i = 0; i < PROBED; i++) {
        struct blame *one = &t->blames[(h + i) % BLAMES];
        if (!one->count) {
            one->row = row;
            one->holder = site;
        }
        if (one->row == row && one->holder == site) {
            one->count++;
            one->ticks += ticks;
            return;
        }
    }
    t->blames_full++;
}

/* A wait is over; `had` if the thread has the lock now. One whose end was not seen is over when it began, and no holder
   is charged for it. */
static void end_wait(struct thread_block *b, struct pending *p, u64 time, int had)
{
    struct lock_table *t = table(b);
    if (p->row != NO_ROW) {
        struct lock_row *row = &t->rows[p->row];
        u64 ticks = time > p->start ? time - p->start : 0;
        row->waited += ticks;
        if (ticks > row->waited_max)
            row->waited_max = ticks;
        row->waited_log2[bucket(ticks)]++;
    }
    if (!p->entry)
        return;
    struct lock_entry *e = &entries(b)[p->entry - 1];
    u64 passed[ENTRY_SITES], site[ENTRY_SITES];
    if (!guard(e)) {
        /* A thread may not wait for ever for the entry: it gives up its accounting. */
        __sync_fetch_and_sub(&e->waiters, 1);
        return;
    }
    charge(e, e->holder, time);
    if (e->waiters)
        e->waiters--;
    if (had) {
        struct convoy *c = convoy_of(head(b), p->entry);
        e->holder = site_of(t, p->row);
        if (c->now.releases)
            c->now.handed++;
    }
    for (u32 i = 0; i < ENTRY_SITES; i++) {
        passed[i] = e->sites[i].ticks - p->snapshot[i];
        site[i] = e->sites[i].site;
    }
    unguard(e);
    if (p->row != NO_ROW && time > p->start)
        for (u32 i = 0; i < ENTRY_SITES; i++)
            if (passed[i])
                blame(t, p->row, site[i], passed[i]);
}

/* A lock is about to be released: its waiters have waited for this site. */
static void let_go(struct thread_block *b, u64 lock, u64 site)
{
    u32 n = find_entry(b, lock, 0);
    if (!n)
        return;
    struct lock_entry *e = &entries(b)[n - 1];
    struct convoy *c = convoy_of(head(b), n);
    if ((!*(volatile u32 *)&e->waiters && !*(volatile u64 *)&c->now.releases) || !guard(e))
        return;
    if (e->waiters) {
        u64 time = now();
        charge(e, site, time);
        e->holder = SITE_NOBODY;
        convoy_goes_on(c, e->waiters, time, e->sites[0].ticks);
    } else if (c->now.releases) {
        convoy_ends(c);
    }
    unguard(e);
}

static int same_gates(const struct lock_edge *edge, const u64 *gates)
{
    for (u32 i = 0; i < EDGE_GATES; i++)
        if (edge->gates[i] != gates[i])
            return 0;
    return 1;
}

static void add_edge(struct lock_table *t, const struct lock_edge *found)
{
    u32 h = hash(found->outer, found->inner + found->segment * 64ul + found->flags);
    for (u32 i = 0; i < PROBED; i++) {
        struct lock_edge *edge = &t->edges[(h + i) % EDGES];
        if (!edge->count) {
            edge->outer = found->outer;
            edge->inner = found->inner;
            edge->outer_site = found->outer_site;
            edge->inner_site = found->inner_site;
            edge->segment = found->segment;
            edge->flags = found->flags;
            for (u32 g = 0; g < EDGE_GATES; g++)
                edge->gates[g] = found->gates[g];
            edge->count = 1;
            return;
        }
        if (edge->outer == found->outer && edge->inner == found->inner &&
            edge->segment == found->segment && edge->flags == found->flags &&
            same_gates(edge, found->gates)) {
            edge->count++;
            return;
        }
    }
    t->edges_full++;
}

/* The thread asks for a lock, and will wait for it if necessary, while it holds others. */
static void order(struct thread_block *b, u64 lock, u64 site, u32 mode)
{
    struct lock_table *t = table(b);
    u64 count = t->held_count < HELD_MAX ? t->held_count : HELD_MAX;
    struct lock_edge edge;
    for (u64 n = 0; n < count; n++)
        if (t->held[n].lock == lock)
            return;
    edge.inner = identity(b, lock);
    edge.inner_site = site;
    edge.segment = (u32)t->segment;
    for (u64 n = 0; n < count; n++) {
        struct held *outer = &t->held[n];
        u32 gates = 0;
        if (outer->mode & MODE_SEMAPHORE)
            continue;
        edge.outer = identity(b, outer->lock);
        edge.outer_site = site_of(t, outer->row);
        edge.flags = (outer->mode & MODE_SHARED ? EDGE_OUTER_SHARED : 0) |
                     (mode & MODE_SHARED ? EDGE_INNER_SHARED : 0);
        for (u64 m = 0; m < count; m++) {
            if (m == n || t->held[m].mode & MODE_SEMAPHORE)
                continue;
            if (gates == EDGE_GATES) {
                edge.flags |= EDGE_MORE_GATES;
                break;
            }
            /* Locks lie at multiples of four. */
            edge.gates[gates++] = identity(b, t->held[m].lock) | (t->held[m].mode & MODE_SHARED);
        }
        while (gates < EDGE_GATES)
            edge.gates[gates++] = 0;
        add_edge(t, &edge);
    }
}

/* Is this hold to be timed? How many it then stands for. */
static u16 timed(struct thread_block *b, struct lock_table *t)
{
    if (t->countdown) {
        t->countdown--;
        return 0;
    }
    u64 x = b->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b->random = x;
    /* Uniform on 0 .. 2*(n-1): one in n on average. */
    t->countdown = (x >> 32) % (2 * TIMED_ONE_IN - 1);
    return TIMED_ONE_IN;
}

static void hold(struct thread_block *b, u64 lock, u32 row, u32 mode, u64 start, u16 weight)
{
    struct lock_table *t = table(b);
    u64 n = t->held_count;
    if (mode & MODE_SEMAPHORE)
        for (u64 i = 0; i < n && i < HELD_MAX; i++)
            if (t->held[i].lock == lock) {
                t->held[i].start = start;
                t->held[i].weight = weight;
                t->held[i].row = row;
                return;
            }
    if (n >= HELD_MAX) {
        t->held_full++;
        return;
    }
    struct held *h = &t->held[n];
    h->lock = lock;
    h->row = row;
    h->mode = (u16)mode;
    h->weight = weight;
    h->start = start;
    *(volatile u64 *)&t->held_count = n + 1;
}

/* The thread releases a lock, as a rule the last that it has taken. */
static void release(struct thread_block *b, u64 lock, u64 site, int posted)
{
    struct lock_table *t = table(b);
    u64 n = t->held_count < HELD_MAX ? t->held_count : HELD_MAX;
    while (n && t->held[n - 1].lock != lock)
        n--;
    if (!n) {
        if (!posted)
            t->unmatched++;
        let_go(b, lock, site);
        return;
    }
    struct held *h = &t->held[n - 1];
    u32 row = h->row;
    u16 weight = h->weight;
    u64 start = h->start;
    for (; n < t->held_count; n++)
        t->held[n - 1] = t->held[n];
    *(volatile u64 *)&t->held_count = t->held_count - 1;
    if (row == NO_ROW)
        return;
    if (weight) {
        u64 ticks = now() - start;
        struct lock_row *r = &t->rows[row];
        r->held += ticks * weight;
        r->held_timed += weight;
        r->held_log2[bucket(ticks)] += weight;
        if (ticks > r->held_max)
            r->held_max = ticks;
    }
    let_go(b, lock, t->rows[row].site);
}

/* A word of a lock as the C library has it in memory. */
static inline u32 word(u64 lock, u32 n)
{
    return ((volatile u32 *)lock)[n];
}

/* Is the lock taken, so that the thread will wait? `op` without the library. */
static int taken(u32 op, int musl, u64 lock)
{
    switch (op) {
    case OP_MUTEX_LOCK:
    case OP_MUTEX_TIMED:
        return (word(lock, musl ? 1 : 0) & 0x7fffffffu) != 0;
    case OP_READ_LOCK:
    case OP_READ_TIMED:
        /* glibc: a writer has both bits, of the phase and of the lock. */
        return musl ? (word(lock, 0) & 0x7fffffffu) == 0x7fffffffu : (word(lock, 0) & 3u) == 3u;
    case OP_WRITE_LOCK:
    case OP_WRITE_TIMED:
        return musl ? (word(lock, 0) & 0x7fffffffu) != 0 : (word(lock, 0) & ~5u) != 0;
    case OP_SPIN_LOCK:
        return musl ? word(lock, 0) != 0 : word(lock, 0) != 1;
    case OP_SEM_WAIT:
    case OP_SEM_TIMED:
        return (int)word(lock, 0) <= 0;
    default:
        return 1;
    }
}

/* A recursive lock of a mutex by its owner does not wait. */
static int is_own(u32 op, int musl, u64 lock, const struct thread_block *b)
{
    if (op != OP_MUTEX_LOCK && op != OP_MUTEX_TIMED)
        return 0;
    return musl ? (word(lock, 1) & 0x3fffffffu) == b->tid : word(lock, 2) == b->tid;
}

static u32 mode_of(u32 op)
{
    if (op >= OP_READ_LOCK && op <= OP_READ_TIMED)
        return MODE_SHARED;
    if (op >= OP_SEM_WAIT && op <= OP_SEM_TIMED)
        return MODE_SEMAPHORE;
    return 0;
}

/* May wait without a timeout, so that the order of locks matters. */
static int waits(u32 op)
{
    return op == OP_MUTEX_LOCK || op == OP_READ_LOCK || op == OP_WRITE_LOCK || op == OP_SPIN_LOCK;
}

static void report_event(struct lock_table *t, u32 kind, u64 object, u64 time)
{
    if (t->events_count < EVENTS_MAX) {
        struct thread_event *e = &t->events[t->events_count];
        e->kind = kind;
        e->segment = (u32)t->segment;
        e->object = object;
        e->time = time;
    }
    t->events_count++;
    t->segment++;
}

static void forget(struct thread_block *b, struct lock_table *t)
{
    t->pending.op = OP_NONE;
    b->top_stack_pointer = ~0ul;
}

/* The call returns this: it has done what it was asked for, or not. */
static void finish(struct thread_block *b, struct lock_table *t, u32 answer, int seen)
{
    struct pending *p = &t->pending;
    u32 op = p->op;
    u32 mode = mode_of(op);
    u32 row = p->row;
    int had = answer == 0 || answer == ANSWER_OWNER_DIED;
    forget(b, t);
    switch (op) {
    case OP_CREATE:
        if (had)
            report_event(t, OP_CREATE, *(volatile u64 *)p->lock, p->start);
        return;
    case OP_JOIN:
        if (had)
            report_event(t, OP_JOIN, p->lock, now());
        return;
    case OP_COND_WAIT: {
        u64 time = now();
        if (row != NO_ROW) {
            struct lock_row *r = &t->rows[row];
            u64 ticks = time - p->start;
            r->acquired++;
            r->contended++;
            r->failed += !had;
            r->waited += ticks;
            if (ticks > r->waited_max)
                r->waited_max = ticks;
            r->waited_log2[bucket(ticks)]++;
        }
        u32 back = find_row(t, p->object, p->site, OP_MUTEX_LOCK);
        hold(b, p->object, back, 0, time, 1);
        return;
    }
    case OP_BARRIER:
    case OP_SLOW:
        if (row != NO_ROW)
            t->rows[row].acquired++;
        if (row != NO_ROW)
            t->rows[row].contended++;
        end_wait(b, p, now(), 0);
        return;
    }
    if (row != NO_ROW) {
        struct lock_row *r = &t->rows[row];
        r->acquired += had;
        r->failed += !had;
        r->contended += p->contended;
    }
    u64 start = 0;
    u16 weight = 0;
    if (p->contended) {
        start = now();
        weight = 1;
        end_wait(b, p, seen ? start : p->start, had);
    } else if (had && (weight = timed(b, t))) {
        start = now();
    }
    if (had)
        hold(b, p->lock, row, mode, start, weight);
}

static void expect(struct thread_block *b, struct pending *p, u64 stack_pointer, u32 op)
{
    p->stack_pointer = stack_pointer;
    p->op = op;
    b->top_stack_pointer = stack_pointer;
}

/* A call is in progress. Is the new one part of it, or did the other end without an exit? */
static int nested(struct thread_block *b, struct lock_table *t, u64 stack_pointer, u64 lock)
{
    struct pending *p = &t->pending;
    int inside = stack_pointer < p->stack_pointer;
    switch (p->op) {
    case OP_COND_WAIT:
    case OP_BARRIER:
    case OP_CREATE:
    case OP_JOIN:
    case OP_SLOW:
        if (inside)
            return 1;
        /* glibc's `pthread_join` goes on in another function: its end is not seen. */
        if (p->op == OP_JOIN)
            report_event(t, OP_JOIN, p->lock, now());
        forget(b, t);
        return 0;
    }
    if (stack_pointer <= p->stack_pointer && p->lock == lock)
        return 1;
    /* It went on in a function without probes, and is done by now. */
    t->unseen++;
    if (p->op == OP_MUTEX_TRY || p->op == OP_READ_TRY || p->op == OP_WRITE_TRY ||
        p->op == OP_SPIN_TRY || p->op == OP_SEM_TRY || p->op == OP_MUTEX_TIMED ||
        p->op == OP_READ_TIMED || p->op == OP_WRITE_TIMED || p->op == OP_SEM_TIMED)
        finish(b, t, 1, 0);
    else
        finish(b, t, 0, 0);
    return 0;
}

static void enter(struct thread_block *b, struct lock_table *t, u64 stack_pointer, u32 code,
                  const u64 *arguments)
{
    u32 op = code & ~OP_MUSL;
    int musl = (code & OP_MUSL) != 0;
    u64 lock = arguments[0];
    u64 site = *(u64 *)stack_pointer;
    struct pending *p = &t->pending;
    if (!t->self)
        __asm__ volatile("movq %%fs:0, %0" : "=r"(t->self));
    if (p->op && nested(b, t, stack_pointer, lock))
        return;
    switch (op) {
    case OP_MUTEX_UNLOCK:
    case OP_RW_UNLOCK:
    case OP_SPIN_UNLOCK:
        release(b, lock, site, 0);
        return;
    case OP_SEM_POST:
        release(b, lock, site, 1);
        return;
    case OP_COND_SIGNAL:
    case OP_INIT:
    case OP_DESTROY: {
        u32 row = find_row(t, lock, site, op);
        if (row != NO_ROW)
            t->rows[row].acquired++;
        if (op != OP_COND_SIGNAL) {
            u16 *generations = (u16 *)(head(b) + HEAD_GENERATIONS);
            __sync_fetch_and_add(&generations[hash(lock, 0) % GENERATIONS], 1);
        }
        return;
    }
    case OP_CREATE:
    case OP_JOIN:
        p->lock = lock;
        p->start = now();
        expect(b, p, stack_pointer, op);
        return;
    case OP_COND_WAIT:
        p->lock = lock;
        p->object = arguments[1];
        p->site = site;
        p->row = find_row(t, lock, site, op);
        release(b, p->object, site, 0);
        order(b, p->object, site, 0);
        p->start = now();
        expect(b, p, stack_pointer, op);
        return;
    case OP_BARRIER:
    case OP_SLOW:
        p->lock = lock;
        p->site = site;
        p->row = find_row(t, lock, site, op);
        p->contended = 1;
        begin_wait(b, p);
        expect(b, p, stack_pointer, op);
        return;
    }
    u32 row = find_row(t, lock, site, op);
    if (t->held_count && waits(op))
        order(b, lock, site, mode_of(op));
    int is_taken = taken(op, musl, lock);
    if (!is_taken && !musl) {
        u16 weight = timed(b, t);
        if (row != NO_ROW)
            t->rows[row].acquired++;
        hold(b, lock, row, mode_of(op), weight ? now() : 0, weight);
        return;
    }
    p->lock = lock;
    p->site = site;
    p->row = row;
    p->contended = op != OP_MUTEX_TRY && op != OP_READ_TRY && op != OP_WRITE_TRY &&
                   op != OP_SPIN_TRY && op != OP_SEM_TRY && is_taken &&
                   !is_own(op, musl, lock, b);
    p->start = 0;
    p->entry = 0;
    if (p->contended)
        begin_wait(b, p);
    expect(b, p, stack_pointer, op);
}

/* The two most frequent calls: a free mutex is locked, and one without waiters is unlocked. Returns
 * 0 where there is more to do, with nothing done. It calls nothing and is short, so that the entry
 * need not save what it does not use. */
int fettle_lock_fast(u64 lock, u64 number, u64 site)
{
    struct thread_block *b = own_block();
    const char *front = head(b);
    if (!b->locks || ((const struct alive *)front)->ended)
        return 0;
    struct lock_table *t = table(b);
    u32 op = ((const unsigned char *)(front + HEAD_OPS))[number];
    u64 count = t->held_count;
    if (t->busy | t->pending.op)
        return 0;
    if (op == OP_MUTEX_LOCK) {
        if (count | word(lock, 0) || !t->countdown)
            return 0;
        u32 n = hash(lock, site + op) % ROWS;
        struct lock_row *row = &t->rows[n];
        if (row->lock != lock || row->site != site || row->op != op)
            return 0;
        *(volatile u64 *)&t->busy = 1;
        t->countdown--;
        row->acquired++;
        t->held[0].lock = lock;
        t->held[0].row = n;
        t->held[0].weight = 0;
        t->held[0].mode = 0;
        *(volatile u64 *)&t->held_count = 1;
        *(volatile u64 *)&t->busy = 0;
        return 1;
    }
    if (op == OP_MUTEX_UNLOCK && count == 1 && t->held[0].lock == lock && !t->held[0].weight) {
        const struct lock_entry *e =
            (const struct lock_entry *)(front + HEAD_ENTRIES) + hash(lock, 0) % ENTRIES;
        if (e->key && (e->key != key_of(b, lock) || *(const volatile u32 *)&e->waiters))
            return 0;
        *(volatile u64 *)&t->held_count = 0;
        return 1;
    }
    return 0;
}

static int unusable(struct thread_block *b)
{
    return !b->alive || b->alive->ended || !b->locks;
}

/* A call of a function of locks begins. `arguments` are its first two. */
void fettle_lock_enter(u64 stack_pointer, u64 number, const u64 *arguments)
{
    struct thread_block *b = own_block();
    if (unusable(b))
        return;
    struct lock_table *t = table(b);
    u32 code = ((const unsigned char *)(head(b) + HEAD_OPS))[number];
    if (!code)
        return;
    /* A signal handler may interrupt this code while it changes the tables. */
    if (t->busy) {
        t->missed++;
        return;
    }
    *(volatile u64 *)&t->busy = 1;
    enter(b, t, stack_pointer, code, arguments);
    *(volatile u64 *)&t->busy = 0;
}

/* A call of such a function returns, and the entry of one has asked for that. */
void fettle_lock_leave(u64 stack_pointer, u64 answer)
{
    struct thread_block *b = own_block();
    if (unusable(b)) {
        b->top_stack_pointer = ~0ul;
        return;
    }
    struct lock_table *t = table(b);
    if (t->busy || !t->pending.op || t->pending.stack_pointer != stack_pointer)
        return;
    *(volatile u64 *)&t->busy = 1;
    finish(b, t, (u32)answer, 1);
    *(volatile u64 *)&t->busy = 0;
}
