/* The agent of programs that record themselves: what `fettle instrument` puts into a file together with
 * the rewritten text, in place of a tracer and a collector.
 *
 * Unless it is asked to record (FETTLE_RECORD names a folder) the program runs its original text.
 * Otherwise each thread that comes to a probed function gets a thread block in a file of its own,
 * DIR/slots/PID.TID.N.slot, and a thread empties its full ring into PID.TID.N.calls itself. The
 * files are all that is left of a process that is killed; `fettle report` makes a trace of them.
 *
 * In programs that are linked from instrumented object files the same agent is a part of the
 * program (FETTLE_OBJECT) and finds the rewritten text by the program's notes; see objects.h.
 *
 * Freestanding: no libc, no vector register, system calls by hand. Descriptors are closed at
 * once, so that the program finds the numbers it expects.
 */

#include "block.h"

typedef unsigned char u8;

#define BLOCK_MAGIC 0x0100454c54544546ul /* "FETTLE\0\1" */
#define BLOCK_VERSION 1
#define RING_LOG2 18
#define RING_BYTES (1ul << RING_LOG2)
/* Makes the sum of thread pointers and owners never zero by chance. */
#define KEY 0x5eed5eed00000001ul
#define NO_SLOT 0xffffffffu
#define FORKS 32
#define LIVE 128
#define PATH 2048

/* At offset 512 of a slot: what the block does not say. */
struct slot_note {
    u64 start_tsc, start_monotonic_ns;
    u64 process_tsc;   /* start of the process, which with the pid names it */
    u64 forked;        /* the nth frame that its parent was in begins at this and n; 0: none */
};

/* A file NAME.note for every module of every process. */
struct note {
    u64 magic;
    u32 version, kind; /* 1: a module begins; 2: a forked child */
    u32 pid, parent;
    u64 tsc, monotonic_ns, unix_ns;
    u64 end_tsc, end_monotonic_ns;
    u64 map_id, bias;
    u64 process_tsc;
    u8 boot_id[40];
    u32 path_len, command_len;
};
#define NOTE_MAGIC 0x45544f4e54544546ul /* "FETTNOTE" */

struct data {
    /* Filled in by fettle-instrument. */
    u64 magic;
    u64 version;
    u64 original;       /* link address of what ran first */
    u64 fsgsbase;
    u64 data_at;        /* link address of this */
    u64 has_original;
    u64 writes_at, writes;
    u64 relocs_at, relocs;
    u64 ranges_at, ranges;
    u64 constants_at, constants_len;
    u64 map_id, map_at, map_len;
    u64 slot_size, accumulators, records;
    u64 reserve_at, reserve_len;
    u64 is_library;
    u64 timed;
    u64 samples, clock; /* top_stack_pointer is in use; what the block's clock is to be */
    /* State. */
    u64 bias, fini, on, pid, process_tsc;
    u64 dropped_threads;
    u64 limited;        /* a limit on files' sizes left no room for a thread */
    u64 no_gs;          /* the kernel does not set the gs base (gVisor) */
    char dir[PATH];
    char note[256];
    struct { u64 owner, at, len; } forks[FORKS];
    struct { u64 address; u64 tid; } live[LIVE];
};
_Static_assert(__builtin_offsetof(struct data, fsgsbase) == 24, "entries.S");
_Static_assert(sizeof(struct data) <= 0x2000, "two pages");
#define DATA_LEN 0x4000ul

#ifdef FETTLE_OBJECT
struct data fettle_data;
/* A page of its own, which a fork wipes. */
struct page { volatile u64 key; u64 rest[511]; } __attribute__((aligned(4096)));
struct page fettle_page;
#define fettle_key fettle_page.key
#else
extern struct data fettle_data __attribute__((visibility("hidden")));
extern volatile u64 fettle_key __attribute__((visibility("hidden")));
extern u64 fettle_early[] __attribute__((visibility("hidden")));
#endif
extern int fettle_spill_entry(u64) __attribute__((visibility("hidden")));

enum {
    SYS_read = 0, SYS_write = 1, SYS_open = 2, SYS_close = 3, SYS_mmap = 9, SYS_mprotect = 10,
    SYS_munmap = 11, SYS_sigprocmask = 14, SYS_pread = 17, SYS_pwrite = 18, SYS_access = 21,
    SYS_mincore = 27, SYS_madvise = 28, SYS_getpid = 39, SYS_ftruncate = 77,
    SYS_getcwd = 79, SYS_mkdir = 83, SYS_unlink = 87, SYS_getppid = 110, SYS_sigtimedwait = 128,
    SYS_prctl = 158,
    SYS_arch_prctl = 158, SYS_gettid = 186, SYS_clock_gettime = 228, SYS_tgkill = 234,
    SYS_fallocate = 285,
};
#define EEXIST 17
#define EFBIG 27
#define ENOSPC 28
#define ESRCH 3
#define O_CLOEXEC 02000000
#define O_CREAT 0100
#define O_EXCL 0200

static long call6(long n, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
    long r;
    register u64 r10 __asm__("r10") = d;
    register u64 r8 __asm__("r8") = e;
    register u64 r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#define call(n, a, b, c) call6(n, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)

/* GCC makes calls of these. */
void *memset(void *to, int c, u64 n)
{
    for (u64 i = 0; i < n; i++)
        ((volatile u8 *)to)[i] = (u8)c;
    return to;
}
void *memcpy(void *to, const void *from, u64 n)
{
    void *r = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    return r;
}

static u64 length(const char *s)
{
    u64 n = 0;
    while (s[n])
        n++;
    return n;
}

static u64 now(void)
{
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
}

static u64 clock_ns(int clock)
{
    long time[2] = { 0, 0 };
    call(SYS_clock_gettime, clock, time, 0);
    return (u64)time[0] * 1000000000ul + (u64)time[1];
}

static u64 thread_pointer(void)
{
    u64 p;
    __asm__ volatile("movq %%fs:0, %0" : "=r"(p));
    return p;
}

static u64 block_signals(void)
{
    u64 all = ~0ul, old = 0;
    call6(SYS_sigprocmask, 2, (u64)&all, (u64)&old, 8, 0, 0);
    return old;
}

static void restore_signals(u64 old)
{
    call6(SYS_sigprocmask, 2, (u64)&old, 0, 8, 0, 0);
}

/* A call that makes a file longer. Where a limit on files' sizes (RLIMIT_FSIZE) forbids that, the
 * kernel sends SIGXFSZ, too, which the program must not see. Signals are blocked. */
static long lengthen(long n, u64 a, u64 b, u64 c, u64 d)
{
    long r = call6(n, a, b, c, d, 0, 0);
    if (r == -EFBIG) {
        u64 sent = 1ul << 24; /* SIGXFSZ is 25 */
        long at_once[2] = { 0, 0 };
        call6(SYS_sigtimedwait, (u64)&sent, 0, (u64)at_once, 8, 0, 0);
    }
    return r;
}

static char *put(char *to, const char *text)
{
    while (*text)
        *to++ = *text++;
    *to = 0;
    return to;
}

static char *put_number(char *to, u64 n)
{
    char digits[24];
    int k = 0;
    do
        digits[k++] = (char)('0' + n % 10);
    while (n /= 10);
    while (k)
        *to++ = digits[--k];
    *to = 0;
    return to;
}

static char *put_hex(char *to, u64 n)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[n >> shift & 15];
    *to = 0;
    return to;
}

static void say(const char *what)
{
    char line[PATH + 256];
    char *end = put(line, "fettle: not recording: ");
    end = put(end, what);
    end = put(end, " ");
    end = put(end, fettle_data.dir);
    end = put(end, "\n");
    call(SYS_write, 2, line, end - line);
}

static u64 gs_base(void)
{
    u64 base = 0;
    call(SYS_arch_prctl, 0x1004, &base, 0);
    return base;
}

/* The thread block at this thread's gs base, if there is one there; it may be another thread's. */
static struct thread_block *block_at_gs(void)
{
    u64 base = gs_base();
    u8 resident;
    if (!base || base & 0xfff || call(SYS_mincore, base, 4096, &resident) != 0)
        return 0;
    struct thread_block *b = (struct thread_block *)base;
    return b->magic == BLOCK_MAGIC && b->version == BLOCK_VERSION && b->address == base ? b : 0;
}

static char *slot_path(char *to, u64 pid, u64 tid, u64 n)
{
    to = put(to, fettle_data.dir);
    to = put(to, "/slots/");
    to = put_number(to, pid);
    to = put(to, ".");
    to = put_number(to, tid);
    to = put(to, ".");
    return put_number(to, n);
}

/* The tid of an entry while it is being removed. */
#define FORGETTING (~0ul)

/* Forgets the block of a thread that has ended. Other threads may do the same at once, and a late
 * one would find a new thread's block at the address: so the entry is claimed first, and then
 * checked once more. */
static void forget_ended(u64 pid, u64 *tid, u64 *address)
{
    u64 ended = *(volatile u64 *)tid;
    if (!ended || ended == FORGETTING || call(SYS_tgkill, pid, ended, 0) != -ESRCH ||
        !__sync_bool_compare_and_swap(tid, ended, FORGETTING))
        return;
    if (*address && call(SYS_tgkill, pid, ended, 0) == -ESRCH) {
        call(SYS_munmap, *address, fettle_data.slot_size, 0);
        *address = 0;
        ended = 0;
    }
    __sync_lock_test_and_set(tid, ended);
}

/* Notes a thread's block, and forgets those of threads that have ended if there is no room. */
static void remember(u64 pid, u64 tid, u64 address)
{
    struct data *d = &fettle_data;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < LIVE; i++) {
            if (__sync_bool_compare_and_swap(&d->live[i].tid, 0, tid)) {
                d->live[i].address = address;
                return;
            }
        }
        for (int i = 0; i < LIVE; i++)
            forget_ended(pid, &d->live[i].tid, &d->live[i].address);
    }
}

/* A block for this thread in a file of its own; 0 if there can be none. */
static struct thread_block *claim(u64 pid, u64 tid, u32 *number)
{
    struct data *d = &fettle_data;
    char path[PATH + 128];
    long fd = -1;
    for (u32 n = 0; n < 100000; n++) {
        put(slot_path(path, pid, tid, n), ".slot");
        fd = call(SYS_open, path, 2 | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        *number = n;
        if (fd != -EEXIST)
            break;
    }
    if (fd < 0)
        return 0;
    long bad = lengthen(SYS_ftruncate, (u64)fd, d->slot_size, 0, 0);
    d->limited |= bad == -EFBIG;
    /* Disk space for what is written first: a full disk must not end the program. */
    u64 head = d->timed ? MIRROR + (64 << 10) : MIRROR;
    if (!bad && call6(SYS_fallocate, (u64)fd, 0, 0, head, 0, 0) == -ENOSPC)
        bad = 1;
    if (!bad && (d->records || d->samples)
        && call6(SYS_fallocate, (u64)fd, 0, RING, RING_BYTES, 0, 0) == -ENOSPC)
        bad = 1;
    if (!bad && d->reserve_len
        && call6(SYS_fallocate, (u64)fd, 0, d->reserve_at, d->reserve_len, 0, 0) == -ENOSPC)
        bad = 1;
    long at = bad ? -1 : call6(SYS_mmap, 0, d->slot_size, 3, 0x4001, (u64)fd, 0);
    call(SYS_close, fd, 0, 0);
    if (at < 0 && at > -4096) {
        call(SYS_unlink, path, 0, 0);
        return 0;
    }
    call(SYS_madvise, at, d->slot_size, 16 /* DONTDUMP */);
    /* Nothing is in the file yet. The kernel's read-ahead at each first touch, some megabytes on
     * some disks, would be zeros that it has to make. */
    call(SYS_madvise, at, d->slot_size, 1 /* RANDOM */);
    remember(pid, tid, (u64)at);
    return (struct thread_block *)at;
}

/* Restarts the frames that a forked child has from its parent: the time before is the parent's.
 * Calls are counted where they end, and these end in the parent, too; so each counts one less here.
 * The collector knows those that are still open by where they begin, and counts them again. */
static u64 begin_frames(struct thread_block *b)
{
    struct frame *frames = (struct frame *)((u8 *)b + MIRROR);
    struct accumulator *accumulators = (struct accumulator *)((u8 *)b + b->accumulators);
    u64 begin = b->clock ? clock_ns(3) : now();
    for (u64 i = 1; i < b->mirror_used / sizeof *frames; i++) {
        struct frame *f = &frames[i];
        /* Callers begin before those that they call. */
        *f = (struct frame){ begin + i, f->stack_pointer, 0, f->function, 0, b->ended };
        accumulators[f->function].calls--;
    }
    return begin;
}

/* The same of sampled calls and checkpoint frames: they are counted where they begin. */
static void begin_samples(struct thread_block *b)
{
    struct frame *frames = (struct frame *)((u8 *)b + MIRROR);
    u64 used = b->mirror_used / sizeof *frames, begin = now();
    for (u64 i = 0; i < used; i++)
        frames[i].start = begin;
    b->top_stack_pointer = used > 1 ? frames[used - 1].stack_pointer : ~0ul;
}

/* Gives this thread a block of its own, with the frames of `frames` if there are any. */
static int give_block(u64 pid, u64 tid, const u8 *frames, u64 used, int must)
{
    struct data *d = &fettle_data;
    u32 number = NO_SLOT;
    struct thread_block *b = claim(pid, tid, &number);
    if (!b) {
        if (!must)
            return 0;
        /* The program goes on; this thread writes to memory that is never read. */
        d->dropped_threads++;
        long at = call6(SYS_mmap, 0, d->slot_size, 3, 0x4022, ~0ul, 0);
        if (at < 0 && at > -4096)
            return 0;
        b = (struct thread_block *)at;
        number = NO_SLOT;
    }
    b->version = BLOCK_VERSION;
    b->slot = number;
    b->pid = (u32)pid;
    b->tid = (u32)tid;
    b->address = (u64)b;
    b->ring.limit = RING_BYTES;
    b->ring.capacity_log2 = RING_LOG2;
    b->random = KEY ^ tid << 20 ^ now();
    b->accumulators = d->accumulators;
    b->records = d->records;
    b->owner = 0 - (thread_pointer() + KEY);
    b->spill = (u64)&fettle_spill_entry;
    b->clock = d->clock;
    b->mirror_used = sizeof(struct frame);
    if (used > sizeof(struct frame) && used <= MIRROR_BYTES) {
        memcpy((u8 *)b + MIRROR, frames, used);
        /* The callers' time with this process's callees is counted from zero. */
        b->mirror_used = used / sizeof(struct frame) * sizeof(struct frame);
        b->ended = ((struct frame *)((u8 *)b + MIRROR))->ended_before;
    }
    struct slot_note *note = (struct slot_note *)((u8 *)b + 512);
    if (d->samples)
        begin_samples(b);
    else
        note->forked = begin_frames(b);
    note->start_tsc = now();
    note->start_monotonic_ns = clock_ns(1);
    note->process_tsc = d->process_tsc;
    b->magic = BLOCK_MAGIC;
    if (call(SYS_arch_prctl, 0x1001, b, 0) == 0)
        return 1;
    d->no_gs = 1;
    return 0;
}

static void write_note(u32 kind, u64 pid, const char *path, u64 path_len)
{
    struct data *d = &fettle_data;
    char name[PATH + 128];
    long fd = -1;
    for (u32 n = 0; n < 1000; n++) {
        char *end = put(name, d->dir);
        end = put(end, "/slots/");
        char *from = end;
        end = put_number(end, pid);
        end = put(end, ".");
        end = put_hex(end, d->map_id);
        end = put(end, ".");
        end = put_number(end, n);
        put(end, ".note");
        fd = call(SYS_open, name, 1 | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            put(d->note, from);
        if (fd != -EEXIST)
            break;
    }
    if (fd < 0)
        return;
    struct note n;
    memset(&n, 0, sizeof n);
    n.magic = NOTE_MAGIC;
    n.version = 1;
    n.kind = kind;
    n.pid = (u32)pid;
    n.parent = (u32)call(SYS_getppid, 0, 0, 0);
    n.monotonic_ns = clock_ns(1);
    n.tsc = now();
    n.unix_ns = clock_ns(0);
    n.map_id = d->map_id;
    n.bias = d->bias;
    n.process_tsc = d->process_tsc;
    long boot = call(SYS_open, "/proc/sys/kernel/random/boot_id", O_CLOEXEC, 0);
    if (boot >= 0) {
        call(SYS_read, boot, n.boot_id, 36);
        call(SYS_close, boot, 0, 0);
    }
    char command[2048];
    long got = 0;
    long line = call(SYS_open, "/proc/self/cmdline", O_CLOEXEC, 0);
    if (line >= 0) {
        got = call(SYS_read, line, command, sizeof command);
        call(SYS_close, line, 0, 0);
    }
    n.path_len = (u32)path_len;
    n.command_len = got > 0 ? (u32)got : 0;
    call(SYS_write, fd, &n, sizeof n);
    call(SYS_write, fd, path, path_len);
    if (got > 0)
        call(SYS_write, fd, command, got);
    call(SYS_close, fd, 0, 0);
}

/* The path of the file that this code was mapped from. */
static u64 own_path(char *path, u64 room)
{
    char buffer[6144];
    u64 have = 0, at = (u64)&fettle_data;
    long fd = call(SYS_open, "/proc/self/maps", O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    u64 found = 0;
    while (!found) {
        long got = call(SYS_read, fd, buffer + have, sizeof buffer - have);
        if (got <= 0)
            break;
        have += (u64)got;
        u64 line = 0;
        for (u64 i = 0; i < have && !found; i++) {
            if (buffer[i] != '\n')
                continue;
            u64 value[2] = { 0, 0 };
            u64 k = line;
            for (int w = 0; w < 2; w++, k++) {
                for (; k < i; k++) {
                    char c = buffer[k];
                    if (c >= '0' && c <= '9')
                        value[w] = value[w] << 4 | (u64)(c - '0');
                    else if (c >= 'a' && c <= 'f')
                        value[w] = value[w] << 4 | (u64)(c - 'a' + 10);
                    else
                        break;
                }
            }
            if (value[0] <= at && at < value[1]) {
                while (k < i && buffer[k] != '/')
                    k++;
                u64 n = i - k < room ? i - k : room;
                memcpy(path, buffer + k, n);
                found = n ? n : 1;
            }
            line = i + 1;
        }
        have -= line;
        for (u64 i = 0; i < have; i++)
            buffer[i] = buffer[line + i];
    }
    call(SYS_close, fd, 0, 0);
    return found;
}

#ifdef FETTLE_OBJECT
#include "objects.h"
#else
/* Copies the file's map of functions next to the slots, so that a trace needs no other file. */
static void copy_map(void)
{
    struct data *d = &fettle_data;
    char path[PATH + 128];
    put(put_hex(put(put(path, d->dir), "/slots/"), d->map_id), ".map");
    long out = call(SYS_open, path, 1 | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out < 0)
        return;
    u64 at = d->map_at + d->bias, left = d->map_len;
    while (left) {
        long done = call(SYS_write, out, at, left);
        if (done <= 0)
            break;
        at += (u64)done;
        left -= (u64)done;
    }
    call(SYS_close, out, 0, 0);
}

struct range { u64 start, len, prot; };
struct patch { u64 at; u8 bytes[8]; };

static int protect(int writable)
{
    struct data *d = &fettle_data;
    struct range *r = (struct range *)(d->ranges_at + d->bias);
    for (u64 i = 0; i < d->ranges; i++) {
        u64 prot = writable ? 3 : r[i].prot;
        if (call(SYS_mprotect, r[i].start + d->bias, r[i].len, prot) != 0)
            return 0;
    }
    return 1;
}

/* Patches the original text so that it leads to the rewritten text. */
static int apply(void)
{
    struct data *d = &fettle_data;
    if (d->relocs) {
        u64 at = d->constants_at + d->bias;
        if (call(SYS_mprotect, at, d->constants_len, 3) != 0)
            return 0;
        u64 *relocs = (u64 *)(d->relocs_at + d->bias);
        for (u64 i = 0; i < d->relocs; i++)
            *(u64 *)(relocs[i] + d->bias) += d->bias;
        call(SYS_mprotect, at, d->constants_len, 1);
    }
    if (!protect(1)) {
        protect(0);
        return 0;
    }
    struct patch *p = (struct patch *)(d->writes_at + d->bias);
    for (u64 i = 0; i < d->writes; i++) {
        volatile u8 *to = (u8 *)(p[i].at + d->bias);
        for (int k = 0; k < 5; k++)
            to[k] = p[i].bytes[k];
    }
    protect(0);
    return 1;
}

/* The data is in the segment of the code, for every segment of its own would cost the file a
 * program header; a run that is recorded makes it writable. */
static int open_data(void)
{
    struct data *d = &fettle_data;
    if (call(SYS_mprotect, d, DATA_LEN, 3) != 0)
        return 0;
    d->bias = (u64)d - d->data_at;
    return 1;
}

/* Whether the file is still as fettle-instrument made it. */
static int is_whole(void)
{
    struct data *d = &fettle_data;
    u64 *seal = (u64 *)(d->writes_at + d->bias) - 2;
    if (seal[0] == d->magic && seal[1] == d->map_id)
        return 1;
    say("the file was changed after it was instrumented; wanted in");
    return 0;
}
#endif

static int set_up(const char *dir, int fsgsbase)
{
    struct data *d = &fettle_data;
    char path[PATH + 128];
    u64 used = 0;
    if (!open_data()) {
        say("this system forbids to write to the agent's data; wanted in");
        return 0;
    }
    if (dir[0] != '/') {
        long n = call(SYS_getcwd, d->dir, PATH / 2, 0);
        if (n > 0) {
            used = (u64)n - 1;
            d->dir[used++] = '/';
        }
    }
    if (used + length(dir) + 64 > PATH) {
        d->dir[0] = 0;
        say("the folder's name is too long");
        return 0;
    }
    put(d->dir + used, dir);
    d->fsgsbase = (u64)fsgsbase;
    if (!is_whole())
        return 0;
    call(SYS_mkdir, d->dir, 0777, 0);
    put(put(path, d->dir), "/manifest.json");
    if (call(SYS_access, path, 0, 0) == 0) {
        say("there is a trace already in");
        return 0;
    }
    put(put(path, d->dir), "/slots");
    call(SYS_mkdir, path, 0777, 0);
    if (call(SYS_access, path, 2, 0) != 0) {
        say("cannot write to");
        return 0;
    }
#ifndef FETTLE_OBJECT
    u64 fs = 0;
    call(SYS_arch_prctl, 0x1003, &fs, 0);
    if (!fs) {
        /* A static program has no thread pointer yet; it sets its own later. */
        fettle_early[0] = (u64)fettle_early;
        fettle_early[2] = (u64)fettle_early;
        call(SYS_arch_prctl, 0x1002, fettle_early, 0);
    }
#endif
    call6(SYS_mmap, (u64)&fettle_key, 4096, 3, 0x32, ~0ul, 0);
    call(SYS_madvise, &fettle_key, 4096, 18 /* WIPEONFORK */);
    u64 pid = (u64)call(SYS_getpid, 0, 0, 0), tid = (u64)call(SYS_gettid, 0, 0, 0);
    struct thread_block *b = block_at_gs();
    if (b && b->pid == pid && (!b->top_stack_pointer != !d->samples || b->clock != d->clock)) {
        say("another module of this process measures something else; wanted in");
        return 0;
    }
    if (b && b->pid == pid) {
        d->process_tsc = ((struct slot_note *)((u8 *)b + 512))->process_tsc;
    } else {
        d->process_tsc = now();
        if (!give_block(pid, tid, 0, 0, 0)) {
            say(d->no_gs ? "this kernel sets no gs base, by which probes find their memory (gVisor: "
                           "use fettle record there); wanted in"
                : d->limited ? "the limit on files' sizes (RLIMIT_FSIZE, ulimit -f) is too low for"
                           : "no room, or no right to write, in");
            return 0;
        }
    }
    if (!apply()) {
        say("this system forbids changing code; wanted in");
        return 0;
    }
    d->pid = pid;
    fettle_key = KEY;
    u64 n = own_path(path, PATH - 1);
    path[n] = 0;
    write_note(1, pid, path, n);
    copy_map();
    d->on = 1;
    return 1;
}

void fettle_before_fork(void) __attribute__((visibility("hidden")));
void fettle_after_fork(void) __attribute__((visibility("hidden")));
#include "forks.h"

static const char *wanted(const char *entry)
{
    const char *name = "FETTLE_RECORD=";
    while (*name)
        if (*entry++ != *name++)
            return 0;
    return *entry ? entry : 0;
}

#ifndef FETTLE_OBJECT
static u64 original(void)
{
    struct data *d = &fettle_data;
    return d->has_original ? (u64)d - d->data_at + d->original : 0;
}

/* What the program is to call when it ends, and its original entry point. */
struct start { u64 fini, original; };

struct start fettle_start(u64 *stack, u64 fini, u64 end)
{
    struct start start = { fini, original() };
    char **environment = (char **)(stack + stack[0] + 2);
    const char *dir = 0;
    for (; *environment; environment++)
        if (!dir)
            dir = wanted(*environment);
    if (!dir)
        return start;
    /* A program with more privileges than its user does not write where the user says. */
    u64 phdrs = 0, count = 0;
    for (u64 *aux = (u64 *)(environment + 1); aux[0]; aux += 2) {
        if (aux[0] == 23 && aux[1])
            return start;
        if (aux[0] == 3)
            phdrs = aux[1];
        if (aux[0] == 5)
            count = aux[1];
    }
    u64 signals = block_signals();
    int on = set_up(dir, 0);
    restore_signals(signals);
    if (on) {
        fettle_data.fini = fini;
        start.fini = end;
        ask_libc((const struct phdr *)phdrs, phdrs ? count : 0);
    }
    return start;
}
#endif

static void write_end(void)
{
    struct data *d = &fettle_data;
    if (d->on && (u64)call(SYS_getpid, 0, 0, 0) == d->pid && d->note[0]) {
        char path[PATH + 512];
        put(put(put(path, d->dir), "/slots/"), d->note);
        u64 signals = block_signals();
        long fd = call(SYS_open, path, 1 | O_CLOEXEC, 0);
        if (fd >= 0) {
            u64 end[2] = { now(), clock_ns(1) };
            call6(SYS_pwrite, (u64)fd, (u64)end, 16, __builtin_offsetof(struct note, end_tsc), 0, 0);
            call(SYS_close, fd, 0, 0);
        }
        restore_signals(signals);
    }
}

/* A library reads the environment from the kernel: not every loader passes it. */
static void start_library(void)
{
    u64 room = 1 << 20;
    u64 aux[2];
    int secure = 0, fsgsbase = 0;
    long fd = call(SYS_open, "/proc/self/auxv", O_CLOEXEC, 0);
    if (fd >= 0) {
        while (call(SYS_read, fd, aux, 16) == 16 && aux[0]) {
            if (aux[0] == 23 && aux[1])
                secure = 1;
            if (aux[0] == 26 && aux[1] & 2)
                fsgsbase = 1;
        }
        call(SYS_close, fd, 0, 0);
    }
    fd = secure ? -1 : call(SYS_open, "/proc/self/environ", O_CLOEXEC, 0);
    long at = fd < 0 ? -1 : call6(SYS_mmap, 0, room, 3, 0x22, ~0ul, 0);
    if (at > 0) {
        u64 have = 0;
        long got;
        while (have < room - 1
               && (got = call(SYS_read, fd, at + (long)have, room - 1 - have)) > 0)
            have += (u64)got;
        const char *dir = 0;
        for (u64 i = 0; i < have && !dir; i += length((char *)at + i) + 1)
            dir = wanted((char *)at + i);
        if (dir) {
            u64 signals = block_signals();
            set_up(dir, fsgsbase);
            restore_signals(signals);
        }
        call(SYS_munmap, at, room, 0);
    }
    if (fd >= 0)
        call(SYS_close, fd, 0, 0);
}

#ifdef FETTLE_OBJECT
/* The first of the constructors, and the last of the destructors. */
static void object_start(void)
{
    if (locate())
        start_library();
    if (fettle_data.on)
        ask_libc();
}

static void object_end(void)
{
    if (fettle_data.has_original)
        write_end();
}

__attribute__((used, section(".init_array"))) static void (*const at_start)(void) = object_start;
__attribute__((used, section(".fini_array"))) static void (*const at_end)(void) = object_end;
#else
/* Returns the library's own first instruction, if it has any. */
u64 fettle_init(void)
{
    start_library();
    return original();
}

u64 fettle_end(void)
{
    write_end();
    return fettle_data.fini;
}
#endif

/* A thread came to an entry guard with a block that is not its own, or after a fork. */
void fettle_attach(void)
{
    struct data *d = &fettle_data;
    u64 signals = block_signals();
    u64 pid = (u64)call(SYS_getpid, 0, 0, 0), tid = (u64)call(SYS_gettid, 0, 0, 0);
    u64 me = thread_pointer();
    const u8 *frames = 0;
    u64 used = 0;
    if (!fettle_key) {
        fettle_key = KEY;
        if (d->pid != pid) {
            d->pid = pid;
            memset(d->live, 0, sizeof d->live);
            d->process_tsc = now();
            for (int i = 0; i < FORKS; i++) {
                if (d->forks[i].owner == me) {
                    frames = (u8 *)d->forks[i].at;
                    used = d->forks[i].len;
                } else {
                    d->forks[i].owner = 0;
                }
            }
            write_note(2, pid, "", 0);
        }
    }
    struct thread_block *b = block_at_gs();
    if (b && b->pid == pid && b->tid == tid)
        b->owner = 0 - (me + KEY);
    else
        give_block(pid, tid, frames, used, 1);
    restore_signals(signals);
}

/* The child's frames are copied now: the parent's change as soon as it returns. */
void fettle_before_fork(void)
{
    struct data *d = &fettle_data;
    struct thread_block *b;
    u64 me = thread_pointer();
    __asm__ volatile("movq %%gs:24, %0" : "=r"(b));
    u64 used = b->mirror_used;
    if (used > MIRROR_BYTES)
        return;
    /* The call around a fork in rewritten text and libc's handler may both report the same fork. */
    for (int i = 0; i < FORKS; i++)
        if (d->forks[i].owner == me)
            return;
    for (int i = 0; i < FORKS; i++) {
        if (!__sync_bool_compare_and_swap(&d->forks[i].owner, 0, me))
            continue;
        long at = call6(SYS_mmap, 0, used, 3, 0x22, ~0ul, 0);
        if (at < 0 && at > -4096) {
            d->forks[i].owner = 0;
            return;
        }
        memcpy((void *)at, (u8 *)b + MIRROR, used);
        /* The lowest frame is of no function: it says how many calls had ended. */
        ((struct frame *)at)->ended_before = b->ended;
        d->forks[i].len = used;
        d->forks[i].at = (u64)at;
        return;
    }
}

void fettle_after_fork(void)
{
    struct data *d = &fettle_data;
    u64 me = thread_pointer();
    if (!fettle_key)
        fettle_attach();
    for (int i = 0; i < FORKS; i++) {
        if (d->forks[i].owner == me) {
            call(SYS_munmap, d->forks[i].at, d->forks[i].len, 0);
            d->forks[i].owner = 0;
            return;
        }
    }
}

/* The ring is full: its records are written to the file at the offset that is their position.
 * Returns 1 if the record at `position` may be stored. */
int fettle_spill(u64 position)
{
    struct thread_block *b;
    __asm__ volatile("movq %%gs:24, %0" : "=r"(b));
    u64 signals = block_signals();
    int room = 1;
    u64 consumed = b->ring.consumed;
    if (position < consumed) {
        /* A signal handler found the ring full after us and wrote our reservation, too. */
        room = 0;
    } else if (position + 16 > consumed + RING_BYTES) {
        u8 *ring = (u8 *)b + RING;
        long fd = -1;
        if (b->slot != NO_SLOT) {
            char path[PATH + 128];
            put(slot_path(path, b->pid, b->tid, b->slot), ".calls");
            fd = call(SYS_open, path, 1 | O_CREAT | O_CLOEXEC, 0666);
        }
        int failed = fd < 0;
        u64 at = consumed, end = position;
        if (end - at > RING_BYTES)
            at = end - RING_BYTES;
        while (at < end && !failed) {
            u64 index = at & (RING_BYTES - 1);
            u64 n = end - at < RING_BYTES - index ? end - at : RING_BYTES - index;
            long done = lengthen(SYS_pwrite, (u64)fd, (u64)ring + index, n, at);
            if (done <= 0)
                failed = 1;
            else
                at += (u64)done & ~15ul;
        }
        if (fd >= 0)
            call(SYS_close, fd, 0, 0);
        if (failed)
            b->ring.lost += (end - at) / 16;
        for (u64 i = 8; i < RING_BYTES; i += 16)
            *(volatile u64 *)(ring + i) = 0;
        b->ring.consumed = position;
        b->ring.limit = position + RING_BYTES;
    } else {
        b->ring.limit = consumed + RING_BYTES;
    }
    restore_signals(signals);
    return room;
}
