// Messages from a process to another: a number of bytes in messages of one size, by each way that a
// system offers. What the receiver gets, it puts into one buffer of a message's size and acknowledges;
// it does not look at it.
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RING = 2 << 20,       // bytes of a ring in shared memory
    SPIN = 200,           // looks before a thread sleeps
    AT_ONCE = 8,          // requests that are given to io_uring together
};

// Counters that only grow, each with a cache line of its own.
struct shared {
    _Alignas(64) _Atomic unsigned sent;
    _Alignas(64) _Atomic unsigned taken;
    _Atomic unsigned broken;  // the receiver has given up
    _Alignas(64) char ring[];
};

// One transfer between this process and a child.
struct transfer {
    size_t size;       // bytes of a message
    size_t count;      // messages
    char *from, *to;   // all bytes; one message
    int ends[2];       // ours, the child's
    pid_t sender;
    struct shared *shared;
    unsigned slots;    // messages that the ring holds
};

struct way {
    const char *name, *what;
    int (*open)(struct transfer *);
    int (*send)(struct transfer *);     // all messages; -1 and errno
    int (*receive)(struct transfer *);
    int slots;                          // 0: as many as the ring holds
};

static int whole(ssize_t (*move)(int, char *, size_t), int fd, char *at, size_t left)
{
    while (left) {
        ssize_t moved = move(fd, at, left);
        if (moved <= 0)
            return -1;
        at += moved;
        left -= moved;
    }
    return 0;
}

static ssize_t put(int fd, char *at, size_t n) { return write(fd, at, n); }
static ssize_t get(int fd, char *at, size_t n) { return read(fd, at, n); }

// The pages themselves go into the pipe; the receiver copies them.
static ssize_t put_pages(int fd, char *at, size_t n)
{
    struct iovec piece = {at, n};
    return vmsplice(fd, &piece, 1, 0);
}

static int send_by(ssize_t (*move)(int, char *, size_t), struct transfer *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (whole(move, t->ends[0], t->from + i * t->size, t->size) != 0)
            return -1;
    return 0;
}

static int send_bytes(struct transfer *t) { return send_by(put, t); }
static int send_pages(struct transfer *t) { return send_by(put_pages, t); }

static int receive_bytes(struct transfer *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (whole(get, t->ends[1], t->to, t->size) != 0)
            return -1;
    return 0;
}

static int open_pipe(struct transfer *t)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    t->ends[0] = ends[1];
    t->ends[1] = ends[0];
    return 0;
}

static int open_socket(struct transfer *t) { return socketpair(AF_UNIX, SOCK_STREAM, 0, t->ends); }

static void sleep_while(_Atomic unsigned *word, unsigned value)
{
    for (int i = 0; i < SPIN; i++) {
        if (atomic_load(word) != value)
            return;
        __builtin_ia32_pause();
    }
    syscall(SYS_futex, word, FUTEX_WAIT, value, 0, 0, 0);
}

static void grow(_Atomic unsigned *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0);
}

static int open_shared(struct transfer *t)
{
    t->shared = mmap(0, sizeof *t->shared + RING, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return t->shared == MAP_FAILED ? -1 : 0;
}

static char *slot(struct transfer *t, unsigned n) { return t->shared->ring + (size_t)(n % t->slots) * t->size; }

// Waits until there is room for message `n`, and until there is message `n`.
static void await_room(struct transfer *t, unsigned n)
{
    for (unsigned taken; n - (taken = atomic_load(&t->shared->taken)) >= t->slots;) {
        if (atomic_load(&t->shared->broken))
            return;
        sleep_while(&t->shared->taken, taken);
    }
}

static void await_message(struct transfer *t, unsigned n)
{
    while (atomic_load(&t->shared->sent) == n)
        sleep_while(&t->shared->sent, n);
}

static int send_copies(struct transfer *t)
{
    unsigned n = atomic_load(&t->shared->sent);
    for (size_t i = 0; i < t->count; i++, n++) {
        await_room(t, n);
        memcpy(slot(t, n), t->from + i * t->size, t->size);
        grow(&t->shared->sent);
    }
    return 0;
}

static int receive_copies(struct transfer *t)
{
    unsigned n = atomic_load(&t->shared->taken);
    for (size_t i = 0; i < t->count; i++, n++) {
        await_message(t, n);
        memcpy(t->to, slot(t, n), t->size);
        grow(&t->shared->taken);
    }
    return 0;
}

// The data is made where the receiver finds it, and used there: nothing is copied.
static int send_in_place(struct transfer *t)
{
    unsigned n = atomic_load(&t->shared->sent);
    for (size_t i = 0; i < t->count; i++, n++) {
        await_room(t, n);
        grow(&t->shared->sent);
    }
    return 0;
}

static int receive_in_place(struct transfer *t)
{
    unsigned n = atomic_load(&t->shared->taken);
    for (size_t i = 0; i < t->count; i++, n++) {
        await_message(t, n);
        grow(&t->shared->taken);
    }
    return 0;
}

static int receive_from_process(struct transfer *t)
{
    unsigned n = atomic_load(&t->shared->taken);
    for (size_t i = 0; i < t->count; i++, n++) {
        struct iovec here = {t->to, t->size}, there = {t->from + i * t->size, t->size};
        await_message(t, n);
        if (process_vm_readv(t->sender, &here, 1, &there, 1, 0) != (ssize_t)t->size)
            return -1;
        grow(&t->shared->taken);
    }
    return 0;
}

// An io_uring of this process.
struct uring {
    int fd;
    unsigned *head, *tail, mask, *array;
    unsigned *done_head, *done_tail, done_mask;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *results;
};

static int uring_open(struct uring *u)
{
    struct io_uring_params p = {0};
    u->fd = syscall(SYS_io_uring_setup, AT_ONCE, &p);
    if (u->fd < 0)
        return -1;
    size_t bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t results = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    int flags = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
    char *sq = mmap(0, bytes, both, flags, u->fd, IORING_OFF_SQ_RING);
    char *cq = mmap(0, results, both, flags, u->fd, IORING_OFF_CQ_RING);
    u->requests = mmap(0, p.sq_entries * sizeof *u->requests, both, flags, u->fd, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || u->requests == MAP_FAILED)
        return -1;
    u->head = (unsigned *)(sq + p.sq_off.head);
    u->tail = (unsigned *)(sq + p.sq_off.tail);
    u->mask = *(unsigned *)(sq + p.sq_off.ring_mask);
    u->array = (unsigned *)(sq + p.sq_off.array);
    u->done_head = (unsigned *)(cq + p.cq_off.head);
    u->done_tail = (unsigned *)(cq + p.cq_off.tail);
    u->done_mask = *(unsigned *)(cq + p.cq_off.ring_mask);
    u->results = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    return 0;
}

// Transfers `n` messages, one after the other, by one system call.
static int uring_move(struct uring *u, int operation, int fd, char **messages, unsigned n, size_t size)
{
    unsigned tail = *u->tail;
    for (unsigned i = 0; i < n; i++, tail++) {
        struct io_uring_sqe *request = &u->requests[tail & u->mask];
        *request = (struct io_uring_sqe){
            .opcode = operation,
            .fd = fd,
            .addr = (unsigned long)messages[i],
            .len = size,
            .msg_flags = MSG_WAITALL,
            // In order: each begins when the one before is done.
            .flags = i + 1 < n ? IOSQE_IO_LINK : 0,
        };
        u->array[tail & u->mask] = tail & u->mask;
    }
    __atomic_store_n(u->tail, tail, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, u->fd, n, n, IORING_ENTER_GETEVENTS, 0, 0) != (long)n)
        return -1;
    unsigned head = *u->done_head;
    int moved = 0;
    for (; head != __atomic_load_n(u->done_tail, __ATOMIC_ACQUIRE); head++) {
        int result = u->results[head & u->done_mask].res;
        if (result != (int)size) {
            errno = result < 0 ? -result : EIO;
            moved = -1;
        }
    }
    __atomic_store_n(u->done_head, head, __ATOMIC_RELEASE);
    return moved;
}

static int uring_all(struct transfer *t, int operation, int fd, int sends)
{
    struct uring u;
    char *messages[AT_ONCE];
    if (uring_open(&u) != 0)
        return -1;
    for (size_t i = 0; i < t->count;) {
        unsigned n = 0;
        for (; n < AT_ONCE && i < t->count; n++, i++)
            messages[n] = sends ? t->from + i * t->size : t->to;
        if (uring_move(&u, operation, fd, messages, n, t->size) != 0)
            return -1;
    }
    close(u.fd);
    return 0;
}

static int send_uring(struct transfer *t) { return uring_all(t, IORING_OP_SEND, t->ends[0], 1); }
static int receive_uring(struct transfer *t) { return uring_all(t, IORING_OP_RECV, t->ends[1], 0); }

static const struct way ways[] = {
    {"pipe", "write and read of a pipe", open_pipe, send_bytes, receive_bytes, 0},
    {"unix", "write and read of a UNIX stream socket", open_socket, send_bytes, receive_bytes, 0},
    {"vmsplice", "pages put into a pipe, and read", open_pipe, send_pages, receive_bytes, 0},
    {"io_uring", "eight messages at a time through a UNIX socket by io_uring", open_socket, send_uring,
     receive_uring, 0},
    {"shm-slot", "copied into shared memory and out of it, one message at a time", open_shared, send_copies,
     receive_copies, 1},
    {"shm-ring", "the same through a ring of 2 MiB", open_shared, send_copies, receive_copies, 0},
    {"vm_readv", "read out of the sender's memory by process_vm_readv", open_shared, send_in_place,
     receive_from_process, 1},
    {"zero-copy", "made and used in a ring of shared memory: nothing is copied", open_shared, send_in_place,
     receive_in_place, 0},
    {0},
};

const char *message_way(unsigned n, const char **what)
{
    if (n >= sizeof ways / sizeof *ways || !ways[n].name)
        return 0;
    *what = ways[n].what;
    return ways[n].name;
}

static int stay_on(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return 0;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

// The receiver: a child, which says by a byte that it has all messages of a round.
static void receive_all(const struct way *way, struct transfer *t, int rounds, int acknowledge)
{
    for (int i = 0; i < rounds; i++) {
        char done = way->receive(t) == 0 ? 'y' : errno;
        if (done != 'y' && t->shared) {
            atomic_store(&t->shared->broken, 1);
            grow(&t->shared->taken);
        }
        if (write(acknowledge, &done, 1) != 1 || done != 'y')
            _exit(1);
    }
    _exit(0);
}

static int send_all(const struct way *way, struct transfer *t, int rounds, int acknowledged, double *ns)
{
    for (int i = 0; i < rounds; i++) {
        char done = 0;
        double begin = now_ns();
        int why = way->send(t) == 0 ? 0 : errno;
        // Where the receiver has given up, it says why. Otherwise it waits for the rest.
        if (why && why != EPIPE)
            return why;
        if (read(acknowledged, &done, 1) != 1 || (why && done == 'y'))
            return why ? why : EIO;
        ns[i] = now_ns() - begin;
        if (done != 'y')
            return done;
    }
    return 0;
}

int move_messages(const char *name, size_t size, size_t bytes, int ours, int theirs, int rounds, double *ns)
{
    const struct way *way = ways;
    int acknowledge[2], why = 0;
    cpu_set_t before;
    while (way->name && strcmp(way->name, name) != 0)
        way++;
    if (!way->name || size == 0 || size > bytes)
        return EINVAL;
    struct transfer t = {.size = size, .count = bytes / size, .sender = getpid(), .ends = {-1, -1}};
    // What is read out of the sender's memory needs no room in the ring.
    int in_ring = way->open == open_shared && way->receive != receive_from_process;
    if (in_ring && size > RING)
        return EMSGSIZE;
    t.slots = way->slots ? (unsigned)way->slots : size <= RING ? RING / size : 1;
    t.from = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    t.to = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (t.from == MAP_FAILED || t.to == MAP_FAILED || way->open(&t) != 0 || pipe(acknowledge) != 0)
        return errno;
    memset(t.from, 'm', bytes);
    sched_getaffinity(0, sizeof before, &before);
    pid_t child = fork();
    if (child == 0) {
        close(acknowledge[0]);
        if (t.ends[0] >= 0)
            close(t.ends[0]);
        if (stay_on(theirs) != 0)
            _exit(1);
        receive_all(way, &t, rounds, acknowledge[1]);
    }
    close(acknowledge[1]);
    if (t.ends[1] >= 0)
        close(t.ends[1]);
    if (child < 0 || stay_on(ours) != 0)
        why = errno;
    else
        why = send_all(way, &t, rounds, acknowledge[0], ns);
    sched_setaffinity(0, sizeof before, &before);
    if (child > 0) {
        if (why)
            kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
    close(acknowledge[0]);
    if (t.ends[0] >= 0)
        close(t.ends[0]);
    munmap(t.from, bytes);
    munmap(t.to, size);
    if (t.shared)
        munmap(t.shared, sizeof *t.shared + RING);
    return why;
}
