/* fettle.h: commit events of your own C or C++ program to Fettle's sensors.
 *
 *     #include "fettle.h"
 *
 *     FETTLE_LIST(requests, "web.request", 7, 1, FETTLE_DROP);   // once, at file scope
 *     FETTLE_HISTOGRAM(sizes, "web.size", 7, 2);
 *
 *     FETTLE_COMMIT(requests, 1, url, bytes);                    // event number 1, two words
 *     FETTLE_RECORD(sizes, bytes);
 *
 * This is all: there is no library, nothing to start, nothing to end. Without FETTLE_SENSORS in
 * the environment each of these is one branch. With FETTLE_SENSORS=1 the first use makes a file
 * in $XDG_RUNTIME_DIR/fettle (or /dev/shm/fettle-UID), with FETTLE_SENSORS=/path in that folder,
 * and `fettle sensors read web.request` reads it. Everything here may be used in signal handlers,
 * including the first use, and never changes errno.
 *
 * The idea. A sensor is shared memory; each thread owns a slot of it, so plain instructions do,
 * and a single instruction is as good as a lock against the thread's own signal handlers. A list's
 * slot is a ring of cells. To commit is to move `reserved` by one `cmpxchg` without lock prefix
 * (reserve first), then to store the payload, then the mark (store second). A program that is
 * killed between two of these instructions leaves a cell without mark, which the consumer counts
 * as lost. docs/internals/sensors.md has the whole protocol.
 *
 * All that a thread needs to find its slot lies in memory that a fork wipes (MADV_WIPEONFORK, or a
 * callback of the C library where the kernel has no such thing), so a child finds zeros where `slot` was, and takes the slow path to sensors of its own.
 *
 * C99 or C++11 with GNU extensions' keywords (gcc, clang), x86-64 Linux. System calls are made
 * directly: that keeps errno, needs no feature macros, and is safe in signal handlers.
 *
 * Apache-2.0 OR MIT.
 */
#ifndef FETTLE_H
#define FETTLE_H

#if !defined(__x86_64__) || !defined(__linux__)
#error "fettle.h knows x86-64 Linux only"
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ layouts (crates/base/abi) ---- */

#define FETTLE_MAGIC UINT64_C(0x0100454c54544546)
#define FETTLE_VERSION 1
#define FETTLE_VERSION_MIN 1
#define FETTLE_SLOTS 4096
#define FETTLE_SLOTS_MAX 256
#define FETTLE_NAME_BYTES 64
#define FETTLE_DEFAULT_SLOTS 65
#define FETTLE_DEFAULT_CELL_LOG2 5
#define FETTLE_DEFAULT_RING_LOG2 18
#define FETTLE_WAIT_LIMIT_NS UINT64_C(2000000000)
#define FETTLE_MAKING_LIMIT_NS UINT64_C(100000000)
#define FETTLE_LIST_RING 4096
#define FETTLE_SUB_BITS 3
#define FETTLE_BUCKETS 496

enum fettle_kind {
    FETTLE_KIND_SCALAR = 1,
    FETTLE_KIND_LIST = 2,
    FETTLE_KIND_HISTOGRAM = 3,
    FETTLE_KIND_KNOB = 4 /* fettle_knob.h */
};

/* What a list does when its ring is full. */
enum fettle_policy {
    FETTLE_DROP = 0,      /* count the event as lost and go on */
    FETTLE_OVERWRITE = 1, /* go on over the oldest: a flight recorder */
    FETTLE_WAIT = 2       /* wait for the consumer, unless there is none */
};

enum fettle_mark {
    FETTLE_MARK_WORDS = 1,
    FETTLE_MARK_EVENT = 8,
    FETTLE_MARK_LAP = 24,
    FETTLE_MARK_THREAD = 40,
    FETTLE_MARK_CLAIMED = 63
};

struct fettle_head {
    uint64_t magic;
    uint32_t version, version_min;
    uint32_t kind, policy;
    uint32_t major, minor;
    uint32_t instance, pid;
    uint64_t start_time;
    uint64_t tsc_at_open, monotonic_ns_at_open, realtime_ns_at_open;
    uint32_t slots, cell_log2, ring_log2, clock;
    char name[FETTLE_NAME_BYTES];
    uint64_t pad1[5];
    uint64_t level, lost_opening; /* written by the producer */
    uint64_t pad2[6];
    uint64_t consumer_beat, lost_reported; /* written by the consumer */
    uint64_t pad3[94];
    uint32_t owners[FETTLE_SLOTS_MAX];
} __attribute__((aligned(64)));

struct fettle_cursors {
    uint64_t reserved, limit, lost; /* written by the producer */
    uint32_t policy, capacity_log2;
    uint64_t pad0[4];
    uint64_t consumed, consumer_beat; /* written by the consumer */
    uint64_t pad1[6];
} __attribute__((aligned(64)));

struct fettle_list_slot {
    struct fettle_cursors cursors;
    uint64_t settled, pad0[7];
    uint64_t missed, pad1[7];
} __attribute__((aligned(64)));

struct fettle_scalar_slot {
    uint64_t sum, pad[7];
} __attribute__((aligned(64)));

struct fettle_histogram_slot {
    uint64_t sum, pad0[7];
    uint64_t buckets[FETTLE_BUCKETS];
    uint64_t pad1[8];
} __attribute__((aligned(64)));

/* ----------------------------------------------------------------- what you declare --------- */

/* A thread's way to its slot. */
struct fettle_writer {
    char *slot;          /* NULL: take the slow path */
    uint64_t mask;       /* place in the ring of a position */
    uint64_t cell_bytes;
    uint64_t mark;       /* the part of marks that never changes */
    uint32_t ring_log2, payload_words;
    char *any_slot;      /* the slot, also when it is the shared one */
    uint64_t stuck_at;   /* `consumed` + 1 of a ring that its consumer cannot empty */
    uint64_t pad;
};

/* What a process keeps about a sensor: wiped by fork, then one writer to each slot. */
struct fettle_process {
    char *base; /* NULL: this is a child that has not made its own sensor yet */
    uint64_t dead_beat; /* beat of a consumer that was found dead */
    uint64_t pad[6];
};

/* What a thread keeps about a sensor. */
struct fettle_thread {
    struct fettle_writer *writer;
    uint32_t tid;
    uint32_t claiming; /* the slot that it is about to claim */
};

/* One sensor. */
struct fettle_sensor {
    const char *name;
    uint32_t major, minor, instance;
    uint32_t kind, policy, slots, cell_log2, ring_log2;
    uint32_t state; /* FETTLE__UNOPENED, _ON, _OFF, or the thread that is opening it */
    uint64_t lost_opening;
    struct fettle_process *process;
};

static struct fettle_writer fettle__none __attribute__((unused)) = {0, 0, 0, 0, 0, 0, 0, 0, 0};

/* Defines a sensor with all that can be chosen: `cell_log2` for events longer than two words
 * (cells hold 16 to 256 bytes; timestamp and mark take 16), `ring_log2` for each thread's ring
 * (12 to 30), `slots` for the threads that get one of their own, plus one. With 1 slot all threads
 * share one ring. */
#define FETTLE_DEFINE(id, name, major, minor, instance, kind, policy, slots, cell_log2, ring_log2) \
    struct fettle_sensor id = {name,  major,     minor,     instance, kind, policy,                \
                               slots, cell_log2, ring_log2, 0,        0,    NULL};                 \
    __thread struct fettle_thread id##_thread = {&fettle__none, 0, 0}

/* Defines a list of events with up to two words. */
#define FETTLE_LIST(id, name, major, minor, policy)                                  \
    FETTLE_DEFINE(id, name, major, minor, 0, FETTLE_KIND_LIST, policy,               \
                  FETTLE_DEFAULT_SLOTS, FETTLE_DEFAULT_CELL_LOG2, FETTLE_DEFAULT_RING_LOG2)

/* Defines a list whose threads share one ring. */
#define FETTLE_SHARED_LIST(id, name, major, minor, policy)                           \
    FETTLE_DEFINE(id, name, major, minor, 0, FETTLE_KIND_LIST, policy, 1,            \
                  FETTLE_DEFAULT_CELL_LOG2, FETTLE_DEFAULT_RING_LOG2)

/* Defines a scalar. */
#define FETTLE_SCALAR(id, name, major, minor) \
    FETTLE_DEFINE(id, name, major, minor, 0, FETTLE_KIND_SCALAR, 0, FETTLE_DEFAULT_SLOTS, 0, 0)

/* Defines a histogram. */
#define FETTLE_HISTOGRAM(id, name, major, minor) \
    FETTLE_DEFINE(id, name, major, minor, 0, FETTLE_KIND_HISTOGRAM, 0, FETTLE_DEFAULT_SLOTS, 0, 0)

/* Declares a sensor that another file defines. */
#define FETTLE_EXTERN(id)           \
    extern struct fettle_sensor id; \
    extern __thread struct fettle_thread id##_thread

/* ----------------------------------------------------------------- what you do -------------- */

/* Commits an event: its number (0 to 65535) and up to six words. */
#define FETTLE_COMMIT(id, ...) \
    FETTLE__CAT(FETTLE__COMMIT, FETTLE__COUNT(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0, 0))(id, __VA_ARGS__)

/* Commits an event whose `n` words lie in an array. Words that the cell has no room for are cut. */
#define FETTLE_COMMIT_WORDS(id, event, words, n) fettle_commit(&id, &id##_thread, event, words, n)

/* Adds to a scalar; `delta` may be negative. */
#define FETTLE_ADD(id, delta) fettle_add(&id, &id##_thread, (uint64_t)(delta))

/* Sets a scalar's level. Its value is the level plus all that was added. */
#define FETTLE_SET(id, value) fettle_set(&id, &id##_thread, (uint64_t)(value))

/* Counts a value in a histogram. */
#define FETTLE_RECORD(id, value) fettle_record(&id, &id##_thread, (uint64_t)(value))

/* Tests define this to interrupt or kill a commit between any two of its steps. */
#ifndef FETTLE_INJECT
#define FETTLE_INJECT(point) ((void)0)
#endif

#define FETTLE__CAT(a, b) FETTLE__CAT_(a, b)
#define FETTLE__CAT_(a, b) a##b
#define FETTLE__COUNT(e, a, b, c, d, f, g, n, ...) n
#define FETTLE__W(word) ((uint64_t)(word))
#define FETTLE__WORDS(id, event, n, ...)                                \
    do {                                                                \
        const uint64_t fettle__words[] = {__VA_ARGS__};                 \
        fettle_commit(&id, &id##_thread, (event), fettle__words, n);    \
    } while (0)
#define FETTLE__COMMIT0(id, e) FETTLE__WORDS(id, e, 0, 0)
#define FETTLE__COMMIT1(id, e, a) FETTLE__WORDS(id, e, 1, FETTLE__W(a))
#define FETTLE__COMMIT2(id, e, a, b) FETTLE__WORDS(id, e, 2, FETTLE__W(a), FETTLE__W(b))
#define FETTLE__COMMIT3(id, e, a, b, c) \
    FETTLE__WORDS(id, e, 3, FETTLE__W(a), FETTLE__W(b), FETTLE__W(c))
#define FETTLE__COMMIT4(id, e, a, b, c, d) \
    FETTLE__WORDS(id, e, 4, FETTLE__W(a), FETTLE__W(b), FETTLE__W(c), FETTLE__W(d))
#define FETTLE__COMMIT5(id, e, a, b, c, d, f) \
    FETTLE__WORDS(id, e, 5, FETTLE__W(a), FETTLE__W(b), FETTLE__W(c), FETTLE__W(d), FETTLE__W(f))
#define FETTLE__COMMIT6(id, e, a, b, c, d, f, g)                                            \
    FETTLE__WORDS(id, e, 6, FETTLE__W(a), FETTLE__W(b), FETTLE__W(c), FETTLE__W(d),         \
                  FETTLE__W(f), FETTLE__W(g))

/* ----------------------------------------------------------------- words in memory ---------- */

#define FETTLE__NOWHERE UINT64_MAX
#define FETTLE__COLD static __attribute__((noinline, cold, unused))

static inline uint64_t fettle__load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

static inline void fettle__store(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

/* One instruction: whole for the thread's own signal handlers, not for other threads. */
static inline void fettle__add_local(uint64_t *p, uint64_t v) {
    __asm__ __volatile__("addq %1, %0" : "+m"(*p) : "er"(v) : "cc");
}

/* Likewise: stores `to` if `*p` is `*from`, else loads `*from`. Returns whether it stored. */
static inline int fettle__cas_local(uint64_t *p, uint64_t *from, uint64_t to) {
    int stored;
    __asm__ __volatile__("cmpxchgq %3, %1"
                         : "=@cce"(stored), "+m"(*p), "+a"(*from)
                         : "r"(to)
                         : "memory");
    return stored;
}

/* ----------------------------------------------------------------- system calls ------------- */

enum {
    FETTLE__READ = 0, FETTLE__OPEN = 2, FETTLE__CLOSE = 3, FETTLE__FSTAT = 5, FETTLE__MMAP = 9,
    FETTLE__MADVISE = 28, FETTLE__NANOSLEEP = 35, FETTLE__GETPID = 39, FETTLE__FTRUNCATE = 77,
    FETTLE__MKDIR = 83, FETTLE__GETUID = 102, FETTLE__GETGID = 104, FETTLE__GETEUID = 107,
    FETTLE__GETEGID = 108, FETTLE__GETTID = 186, FETTLE__CLOCK_GETTIME = 228, FETTLE__TGKILL = 234,
    FETTLE__OPENAT = 257, FETTLE__UNLINKAT = 263, FETTLE__FALLOCATE = 285
};

static inline long fettle__sys(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
    return result;
}

static inline long fettle__sys3(long number, long a, long b, long c) {
    return fettle__sys(number, a, b, c, 0, 0, 0);
}

static inline uint32_t fettle__tid(void) { return (uint32_t)fettle__sys3(FETTLE__GETTID, 0, 0, 0); }

static inline uint64_t fettle__clock(long clock) {
    int64_t t[2] = {0, 0};
    fettle__sys3(FETTLE__CLOCK_GETTIME, clock, (long)t, 0);
    return (uint64_t)t[0] * 1000000000u + (uint64_t)t[1];
}

static inline void fettle__sleep(long ns) {
    int64_t t[2] = {0, 0};
    t[1] = ns;
    fettle__sys3(FETTLE__NANOSLEEP, (long)t, 0, 0);
}

/* Whether this process has that thread. */
static inline int fettle__thread_lives(uint32_t tid) {
    long pid = fettle__sys3(FETTLE__GETPID, 0, 0, 0);
    return fettle__sys3(FETTLE__TGKILL, pid, (long)tid, 0) != -3 /* ESRCH */;
}

/* ----------------------------------------------------------------- making a sensor ---------- */

#define FETTLE__UNOPENED 0u
#define FETTLE__ON 1u
#define FETTLE__OFF 2u
#define FETTLE__OPENING(tid) ((tid) << 2 | 3u)

struct fettle__text { char bytes[512]; size_t length; };

static inline void fettle__append(struct fettle__text *t, const char *s) {
    while (*s != '\0' && t->length < sizeof t->bytes - 1) t->bytes[t->length++] = *s++;
    t->bytes[t->length] = '\0';
}

static inline void fettle__append_number(struct fettle__text *t, uint64_t n, unsigned base) {
    char digits[24];
    size_t i = sizeof digits - 1;
    digits[i] = '\0';
    do digits[--i] = "0123456789abcdef"[n % base]; while ((n /= base) != 0);
    fettle__append(t, digits + i);
}

/* When this process started, in ticks since boot; 0 if unknown. */
FETTLE__COLD uint64_t fettle__start_time(void) {
    char text[1024];
    long fd = fettle__sys3(FETTLE__OPEN, (long)"/proc/self/stat", 02000000 /* O_CLOEXEC */, 0);
    long length = fd < 0 ? 0 : fettle__sys3(FETTLE__READ, fd, (long)text, sizeof text - 1);
    uint64_t start = 0;
    int field = 2; /* the second ends with the last parenthesis, whatever the program's name */
    long i = length - 1;
    if (fd >= 0) fettle__sys3(FETTLE__CLOSE, fd, 0, 0);
    while (i >= 0 && text[i] != ')') i--;
    if (i < 0) return 0;
    for (; i < length && field < 22; i++) field += text[i] == ' ';
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        start = start * 10 + (uint64_t)(text[i] - '0');
    return start;
}

/* Opens the sensor directory if FETTLE_SENSORS asks for one and it is ours alone; else < 0. */
FETTLE__COLD long fettle__open_directory(void) {
    const char *wish = getenv("FETTLE_SENSORS");
    const char *run = getenv("XDG_RUNTIME_DIR");
    struct fettle__text path = {{0}, 0};
    uint64_t st[18] = {0}; /* struct stat; [3] holds mode and uid */
    long uid = fettle__sys3(FETTLE__GETEUID, 0, 0, 0), fd;
    if (wish == NULL || wish[0] == '\0' || (wish[0] == '0' && wish[1] == '\0')) return -1;
    /* A set-user-id program does not do what its environment says. */
    if (uid != fettle__sys3(FETTLE__GETUID, 0, 0, 0)) return -1;
    if (fettle__sys3(FETTLE__GETGID, 0, 0, 0) != fettle__sys3(FETTLE__GETEGID, 0, 0, 0)) return -1;
    if (wish[0] == '/') {
        fettle__append(&path, wish);
    } else if (run != NULL && run[0] == '/') {
        fettle__append(&path, run);
        fettle__append(&path, "/fettle");
    } else {
        fettle__append(&path, "/dev/shm/fettle-");
        fettle__append_number(&path, (uint64_t)uid, 10);
    }
    fettle__sys3(FETTLE__MKDIR, (long)path.bytes, 0700, 0);
    fd = fettle__sys3(FETTLE__OPEN, (long)path.bytes, 02600000 /* CLOEXEC NOFOLLOW DIRECTORY */, 0);
    if (fd < 0) return -1;
    if (fettle__sys3(FETTLE__FSTAT, fd, (long)st, 0) == 0 && (long)(st[3] >> 32) == uid &&
        (st[3] & 077) == 0)
        return fd;
    fettle__sys3(FETTLE__CLOSE, fd, 0, 0);
    return -1;
}

static inline uint64_t fettle__slot_bytes(const struct fettle_sensor *s) {
    if (s->kind == FETTLE_KIND_LIST) return FETTLE_LIST_RING + (UINT64_C(1) << s->ring_log2);
    if (s->kind == FETTLE_KIND_SCALAR) return sizeof(struct fettle_scalar_slot);
    if (s->kind == FETTLE_KIND_KNOB) return FETTLE_SLOTS; /* a page */
    return sizeof(struct fettle_histogram_slot);
}

static inline char *fettle__slot(const struct fettle_sensor *s, char *base, uint32_t index) {
    return base + FETTLE_SLOTS + index * fettle__slot_bytes(s);
}

static inline struct fettle_writer *fettle__writers(struct fettle_process *p) {
    return (struct fettle_writer *)(void *)(p + 1);
}

static inline int fettle__is_error(long result) { return result < 0 && result > -4096; }

/* Takes memory for these bytes now, so that a full disk is found here and not by a SIGBUS. */
static inline long fettle__populate(char *from, uint64_t bytes) {
    uint64_t start = (uint64_t)from & ~UINT64_C(4095);
    uint64_t end = ((uint64_t)from + bytes + 4095) & ~UINT64_C(4095);
    return fettle__sys3(FETTLE__MADVISE, (long)start, (long)(end - start), 23 /* POPULATE_WRITE */);
}

/* Where the kernel does not wipe memory on a fork (gVisor), the C library calls back in the child. That
 * does not see children of plain `clone`, which would go on in their parent's slots: then there must be
 * no sensor at all, and the same where the C library has no such callback. */
#ifdef __cplusplus
extern "C" {
#endif
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)
    __attribute__((weak));
extern void *__dso_handle __attribute__((weak, visibility("hidden")));
#ifdef __cplusplus
}
#endif

#define FETTLE__WIPED 64
static struct {
    char *at;
    size_t bytes;
} fettle__wiped[FETTLE__WIPED];
static uint32_t fettle__wiped_count;

static inline void fettle__wipe(void) {
    uint32_t i, count = __atomic_load_n(&fettle__wiped_count, __ATOMIC_ACQUIRE);
    for (i = 0; i < count && i < FETTLE__WIPED; i++)
        __builtin_memset(fettle__wiped[i].at, 0, fettle__wiped[i].bytes);
}

/* Has zeros in this memory in the child of a fork; returns whether that is so. */
FETTLE__COLD int fettle__wipe_on_fork(char *at, size_t bytes) {
    uint32_t i;
    if (fettle__sys3(FETTLE__MADVISE, (long)at, (long)bytes, 18 /* WIPEONFORK */) == 0) return 1;
    if (__register_atfork == NULL) return 0;
    i = __atomic_fetch_add(&fettle__wiped_count, 1, __ATOMIC_ACQ_REL);
    if (i >= FETTLE__WIPED) return 0;
    fettle__wiped[i].bytes = bytes;
    fettle__wiped[i].at = at;
    return i != 0 || __register_atfork(NULL, NULL, fettle__wipe, &__dso_handle) == 0;
}

/* Fills in a writer; doing it twice, as when a signal handler interrupts it, does no harm. */
static inline void fettle__fill_writer(const struct fettle_sensor *s, struct fettle_process *p,
                                       uint32_t index, uint32_t tid) {
    struct fettle_writer *w = fettle__writers(p) + index;
    w->any_slot = fettle__slot(s, p->base, index);
    if (s->kind == FETTLE_KIND_LIST) {
        struct fettle_list_slot *slot = (struct fettle_list_slot *)(void *)w->any_slot;
        w->cell_bytes = UINT64_C(1) << s->cell_log2;
        w->mask = (UINT64_C(1) << s->ring_log2) - w->cell_bytes;
        w->ring_log2 = s->ring_log2;
        w->payload_words = (uint32_t)(w->cell_bytes / 8 - 2);
        w->mark = (uint64_t)tid << FETTLE_MARK_THREAD | 1;
        slot->cursors.policy = s->policy;
        slot->cursors.capacity_log2 = s->ring_log2;
        if (s->policy == FETTLE_OVERWRITE) fettle__store(&slot->cursors.limit, UINT64_MAX);
        fettle__store(&slot->settled, index == 0 ? 0 : fettle__load(&slot->cursors.reserved));
    }
    if (index != 0) __atomic_store_n(&w->slot, w->any_slot, __ATOMIC_RELEASE);
}

/* Makes a sensor's file in a directory, and its name; < 0 if that is not to be. */
FETTLE__COLD long fettle__create(long dir, const struct fettle_sensor *s, struct fettle__text *name) {
    name->length = 0;
    fettle__append(name, s->name);
    fettle__append(name, ".");
    fettle__append_number(name, (uint64_t)fettle__sys3(FETTLE__GETPID, 0, 0, 0), 10);
    fettle__append(name, ".");
    fettle__append_number(name, __builtin_ia32_rdtsc(), 16);
    return fettle__sys(FETTLE__OPENAT, dir, (long)name->bytes, 02400302 /* RDWR CREAT EXCL NOFOLLOW
                       CLOEXEC */, 0600, 0, 0);
}

/* Fills in a head, all but the magic number, which says that all the rest is there. */
FETTLE__COLD void fettle__fill_head(struct fettle_head *head, const struct fettle_sensor *s) {
    size_t i;
    head->version = FETTLE_VERSION;
    head->version_min = FETTLE_VERSION_MIN;
    head->kind = s->kind;
    head->policy = s->policy;
    head->major = s->major;
    head->minor = s->minor;
    head->instance = s->instance;
    head->pid = (uint32_t)fettle__sys3(FETTLE__GETPID, 0, 0, 0);
    head->start_time = fettle__start_time();
    head->tsc_at_open = __builtin_ia32_rdtsc();
    head->monotonic_ns_at_open = fettle__clock(1);
    head->realtime_ns_at_open = fettle__clock(0);
    head->slots = s->slots;
    head->cell_log2 = s->cell_log2;
    head->ring_log2 = s->ring_log2;
    for (i = 0; s->name[i] != '\0' && i < FETTLE_NAME_BYTES - 1; i++) head->name[i] = s->name[i];
}

/* Makes this process's file and memory of a sensor; returns NULL if that is not to be. */
FETTLE__COLD struct fettle_process *fettle__make(const struct fettle_sensor *s) {
    long dir = fettle__open_directory(), fd, base = -1, memory = -1, populated;
    uint64_t bytes = (FETTLE_SLOTS + s->slots * fettle__slot_bytes(s) + 4095) & ~UINT64_C(4095);
    size_t private_bytes = sizeof(struct fettle_process) + s->slots * sizeof(struct fettle_writer);
    struct fettle__text name = {{0}, 0};
    struct fettle_head *head;
    struct fettle_process *process;
    if (dir < 0) return NULL;
    fd = fettle__create(dir, s, &name);
    if (fd >= 0 && fettle__sys3(FETTLE__FTRUNCATE, fd, (long)bytes, 0) == 0) {
        base = fettle__sys(FETTLE__MMAP, 0, (long)bytes, 3, 1 /* SHARED */, fd, 0);
        memory = fettle__sys(FETTLE__MMAP, 0, (long)private_bytes, 3, 0x22 /* PRIVATE ANON */, -1, 0);
    }
    if (fd >= 0 && !fettle__is_error(base) && !fettle__is_error(memory) &&
        fettle__wipe_on_fork((char *)memory, (private_bytes + 4095) & ~(size_t)4095)) {
        populated = fettle__populate((char *)base, FETTLE_SLOTS + fettle__slot_bytes(s));
        /* Kernels before 5.14 cannot populate: take memory for the whole file. */
        if (populated == -22) populated = fettle__sys(FETTLE__FALLOCATE, fd, 0, 0, (long)bytes, 0, 0);
    } else {
        populated = -1;
    }
    if (populated != 0 && fd >= 0) fettle__sys3(FETTLE__UNLINKAT, dir, (long)name.bytes, 0);
    if (fd >= 0) fettle__sys3(FETTLE__CLOSE, fd, 0, 0);
    fettle__sys3(FETTLE__CLOSE, dir, 0, 0);
    if (populated != 0) return NULL;

    process = (struct fettle_process *)memory;
    process->base = (char *)base;
    head = (struct fettle_head *)base;
    fettle__fill_head(head, s);
    fettle__fill_writer(s, process, 0, 0);
    fettle__store(&head->magic, FETTLE_MAGIC);
    return process;
}

/* The calling thread's writer: of its own slot, or of the shared one if all have living owners. */
FETTLE__COLD struct fettle_writer *fettle__claim(const struct fettle_sensor *s,
                                                 struct fettle_process *p,
                                                 struct fettle_thread *mine) {
    struct fettle_head *head = (struct fettle_head *)(void *)p->base;
    uint32_t tid = mine->tid, i, owner;
    int dead; /* first look for free slots, then for those of dead threads */
    for (dead = 0; dead < 2; dead++)
        for (i = 1; i < s->slots; i++) {
            owner = __atomic_load_n(&head->owners[i], __ATOMIC_ACQUIRE);
            /* Ours already, if we are a signal handler that interrupted this very loop. A slot that
             * merely has our id was left by a thread that had it before, and others may be about
             * to claim it. */
            int ours = owner == tid && mine->claiming == i;
            if (!ours && owner != 0 && (!dead || owner == tid || fettle__thread_lives(owner)))
                continue;
            if (owner == 0) {
                long error = fettle__populate(fettle__slot(s, p->base, i), fettle__slot_bytes(s));
                if (error != 0 && error != -22) return fettle__writers(p);
            }
            __atomic_store_n(&mine->claiming, i, __ATOMIC_RELAXED);
            if (!ours && !__atomic_compare_exchange_n(&head->owners[i], &owner, tid, 0,
                                                      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                continue;
            fettle__fill_writer(s, p, i, tid);
            return fettle__writers(p) + i;
        }
    return fettle__writers(p);
}

/* The calling thread's writer, after making the sensor and claiming a slot where that is still to
 * be done; NULL if the sensor is off. */
FETTLE__COLD struct fettle_writer *fettle__writer(struct fettle_sensor *s,
                                                  struct fettle_thread *mine) {
    uint32_t tid;
    unsigned turns = 0;
    for (;;) {
        uint32_t state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
        if (state == FETTLE__OFF) return NULL;
        if (state == FETTLE__ON) {
            struct fettle_process *p = s->process;
            if (p->base != NULL) {
                struct fettle_writer *all = fettle__writers(p);
                if (mine->writer < all || mine->writer >= all + s->slots) {
                    mine->tid = fettle__tid();
                    mine->writer = fettle__claim(s, p, mine);
                }
                return mine->writer;
            }
        }
        tid = fettle__tid();
        if ((state & 3) == FETTLE__OPENING(0) && fettle__thread_lives(state >> 2)) {
            /* Wait for the other thread; not if it is this thread, interrupted by a signal handler, and
             * not for ever, as a handler may have left the making by siglongjmp. */
            if (state != FETTLE__OPENING(tid) && turns++ < FETTLE_MAKING_LIMIT_NS / 20000) {
                fettle__sleep(20000);
                continue;
            }
            __atomic_fetch_add(&s->lost_opening, 1, __ATOMIC_RELAXED);
            return NULL;
        }
        if (__atomic_compare_exchange_n(&s->state, &state, FETTLE__OPENING(tid), 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            struct fettle_process *p = fettle__make(s);
            FETTLE_INJECT(6); /* made, not yet on */
            s->process = p;
            __atomic_store_n(&s->state, p == NULL ? FETTLE__OFF : FETTLE__ON, __ATOMIC_RELEASE);
            if (p != NULL)
                __atomic_fetch_add(&((struct fettle_head *)(void *)p->base)->lost_opening,
                                   __atomic_exchange_n(&s->lost_opening, 0, __ATOMIC_RELAXED),
                                   __ATOMIC_RELAXED);
        }
    }
}

/* ----------------------------------------------------------------- lists -------------------- */

/* Waits until the consumer made room in a full ring. Returns 0 if it will not: there is none, it
 * gave no sign of life for FETTLE_WAIT_LIMIT_NS, or it came by twice and could take nothing. */
FETTLE__COLD int fettle__wait(struct fettle_process *p, struct fettle_writer *w) {
    struct fettle_head *head = (struct fettle_head *)(void *)p->base;
    struct fettle_cursors *c = (struct fettle_cursors *)(void *)w->any_slot;
    uint64_t visits = fettle__load(&c->consumer_beat), consumed = fettle__load(&c->consumed);
    uint64_t beat = fettle__load(&head->consumer_beat), since = fettle__clock(1), seen;
    unsigned turns = 0;
    if (beat == fettle__load(&p->dead_beat) || consumed + 1 == fettle__load(&w->stuck_at)) return 0;
    for (;;) {
        uint64_t now = fettle__load(&head->consumer_beat);
        if (now == 0) return 0;
        if (now != beat) {
            beat = now;
            since = fettle__clock(1);
        } else if (turns >= 64 && fettle__clock(1) - since > FETTLE_WAIT_LIMIT_NS) {
            fettle__store(&p->dead_beat, beat);
            return 0;
        }
        seen = fettle__load(&c->consumer_beat);
        if (fettle__load(&c->consumed) != consumed) return 1;
        if (seen - visits >= 2) {
            fettle__store(&w->stuck_at, consumed + 1);
            return 0;
        }
        if (turns++ < 64) __builtin_ia32_pause();
        else fettle__sleep(20000);
    }
}

/* Claims a cell for a record of lap `lap`, where rings are overwritten: other writers may be a lap
 * further when the writer stores, if it was switched out or a signal handler filled the ring.
 * Returns 0 if the cell is a later record's, or another writer is at it: then this record is one of
 * those that were overwritten. A writer that dies while it has a claim leaves the cell unusable. */
static inline int fettle__claim_cell(uint64_t *mark, uint64_t lap, int shared) {
    uint64_t seen = fettle__load(mark);
    uint64_t claimed = UINT64_C(1) << FETTLE_MARK_CLAIMED | lap << FETTLE_MARK_LAP;
    do {
        if (seen >> FETTLE_MARK_CLAIMED != 0) return 0;
        if ((int16_t)(uint16_t)((seen >> FETTLE_MARK_LAP) - lap) > 0) return 0;
    } while (!(shared ? __atomic_compare_exchange_n(mark, &seen, claimed, 0, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_ACQUIRE)
                      : fettle__cas_local(mark, &seen, claimed)));
    return 1;
}

/* Stores a record to the cell at position `at`; `n` is at most what the cell has room for. */
static inline void fettle__fill_cell(const struct fettle_writer *w, char *slot, uint64_t at,
                                     uint64_t mark, uint64_t now, uint32_t event,
                                     const uint64_t *words, unsigned n, int overwrites) {
    uint64_t *cell = (uint64_t *)(void *)(slot + FETTLE_LIST_RING + (at & w->mask));
    uint64_t lap = at >> w->ring_log2 & 0xffff;
    unsigned i;
    FETTLE_INJECT(3); /* reserved, nothing stored */
    if (overwrites && !fettle__claim_cell(&cell[1 + w->payload_words], lap, w->slot == NULL)) return;
    __atomic_store_n(&cell[0], now, __ATOMIC_RELAXED);
    for (i = 0; i < n; i++) __atomic_store_n(&cell[1 + i], words[i], __ATOMIC_RELAXED);
    FETTLE_INJECT(4); /* payload stored, not yet marked */
    mark |= lap << FETTLE_MARK_LAP;
    mark |= (uint64_t)(event & 0xffff) << FETTLE_MARK_EVENT | (uint64_t)n << FETTLE_MARK_WORDS;
    fettle__store(&cell[1 + w->payload_words], mark);
    FETTLE_INJECT(5); /* committed */
}

/* Commits where the fast path cannot: first event, full ring, shared ring, child of a fork. */
FETTLE__COLD void fettle__commit_slow(struct fettle_sensor *s, struct fettle_thread *mine,
                                      uint64_t now, uint32_t event, const uint64_t *words,
                                      unsigned n) {
    struct fettle_writer *w = fettle__writer(s, mine);
    struct fettle_cursors *c;
    uint64_t at, next, room, mark;
    int shared;
    if (w == NULL) return;
    c = (struct fettle_cursors *)(void *)w->any_slot;
    shared = w->slot == NULL;
    mark = (uint64_t)mine->tid << FETTLE_MARK_THREAD | 1;
    at = fettle__load(&c->reserved);
    for (;;) {
        next = at + w->cell_bytes;
        if (next > fettle__load(&c->limit)) {
            room = fettle__load(&c->consumed) + (UINT64_C(1) << w->ring_log2);
            if (next > room) {
                if (s->policy == FETTLE_WAIT && fettle__wait(s->process, w)) {
                    at = fettle__load(&c->reserved);
                    continue;
                }
                if (shared) __atomic_fetch_add(&c->lost, 1, __ATOMIC_RELAXED);
                else fettle__add_local(&c->lost, 1);
                return;
            }
            fettle__store(&c->limit, room);
        }
        FETTLE_INJECT(2); /* room found, not reserved */
        if (shared ? __atomic_compare_exchange_n(&c->reserved, &at, next, 0, __ATOMIC_ACQ_REL,
                                                 __ATOMIC_ACQUIRE)
                   : fettle__cas_local(&c->reserved, &at, next))
            break;
    }
    if (n > w->payload_words) n = w->payload_words;
    fettle__fill_cell(w, w->any_slot, at, mark, now, event, words, n,
                      s->policy == FETTLE_OVERWRITE);
}

/* Commits an event with `n` words to a list. */
static inline void fettle_commit(struct fettle_sensor *s, struct fettle_thread *mine,
                                 uint32_t event, const uint64_t *words, unsigned n) {
    uint64_t now, at, cell_bytes, limit;
    struct fettle_writer *w;
    struct fettle_cursors *c;
    if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) == FETTLE__OFF) return;
    now = __builtin_ia32_rdtsc();
    w = mine->writer;
    c = (struct fettle_cursors *)(void *)__atomic_load_n(&w->slot, __ATOMIC_RELAXED);
    FETTLE_INJECT(1); /* nothing done but the time taken */
    if (__builtin_expect(c == NULL || n > w->payload_words, 0)) goto slow;
    cell_bytes = w->cell_bytes;
    at = fettle__load(&c->reserved);
    do {
        limit = fettle__load(&c->limit);
        if (__builtin_expect(at + cell_bytes > limit, 0)) goto slow;
        FETTLE_INJECT(2); /* room found, not reserved */
    } while (__builtin_expect(!fettle__cas_local(&c->reserved, &at, at + cell_bytes), 0));
    fettle__fill_cell(w, (char *)c, at, w->mark, now, event, words, n, limit == UINT64_MAX);
    return;
slow:
    fettle__commit_slow(s, mine, now, event, words, n);
}

/* ----------------------------------------------------------------- scalars, histograms ------ */

FETTLE__COLD void fettle__add_slow(struct fettle_sensor *s, struct fettle_thread *mine,
                                   uint64_t delta) {
    struct fettle_writer *w = fettle__writer(s, mine);
    if (w != NULL) __atomic_fetch_add((uint64_t *)(void *)w->any_slot, delta, __ATOMIC_RELAXED);
}

/* Adds to a scalar. */
static inline void fettle_add(struct fettle_sensor *s, struct fettle_thread *mine,
                              uint64_t delta) {
    char *slot;
    if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) == FETTLE__OFF) return;
    slot = __atomic_load_n(&mine->writer->slot, __ATOMIC_RELAXED);
    if (__builtin_expect(slot != NULL, 1)) fettle__add_local((uint64_t *)(void *)slot, delta);
    else fettle__add_slow(s, mine, delta);
}

/* Sets a scalar's level. */
static inline void fettle_set(struct fettle_sensor *s, struct fettle_thread *mine,
                              uint64_t value) {
    if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) == FETTLE__OFF) return;
    if (__builtin_expect(__atomic_load_n(&mine->writer->slot, __ATOMIC_RELAXED) == NULL, 0) &&
        fettle__writer(s, mine) == NULL)
        return;
    fettle__store(&((struct fettle_head *)(void *)s->process->base)->level, value);
}

/* The bucket that counts `value`. */
static inline unsigned fettle_bucket(uint64_t value) {
    unsigned exponent;
    if (value < 1u << FETTLE_SUB_BITS) return (unsigned)value;
    exponent = 63u - (unsigned)__builtin_clzll(value);
    return (exponent - FETTLE_SUB_BITS + 1) << FETTLE_SUB_BITS |
           ((unsigned)(value >> (exponent - FETTLE_SUB_BITS)) & ((1u << FETTLE_SUB_BITS) - 1));
}

FETTLE__COLD void fettle__record_slow(struct fettle_sensor *s, struct fettle_thread *mine,
                                      uint64_t value) {
    struct fettle_writer *w = fettle__writer(s, mine);
    struct fettle_histogram_slot *h;
    if (w == NULL) return;
    h = (struct fettle_histogram_slot *)(void *)w->any_slot;
    __atomic_fetch_add(&h->buckets[fettle_bucket(value)], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&h->sum, value, __ATOMIC_RELAXED);
}

/* Counts a value in a histogram. */
static inline void fettle_record(struct fettle_sensor *s, struct fettle_thread *mine,
                                 uint64_t value) {
    struct fettle_histogram_slot *h;
    if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) == FETTLE__OFF) return;
    h = (struct fettle_histogram_slot *)(void *)__atomic_load_n(&mine->writer->slot, __ATOMIC_RELAXED);
    if (__builtin_expect(h == NULL, 0)) {
        fettle__record_slow(s, mine, value);
        return;
    }
    fettle__add_local(&h->buckets[fettle_bucket(value)], 1);
    fettle__add_local(&h->sum, value);
}

#endif
