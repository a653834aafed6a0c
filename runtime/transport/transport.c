/* Messages between two processes: the ways that they take. choose.c chooses among them.
 *
 * Each process makes a lane, a piece of shared memory for the messages that it sends, and gives it to the other one
 * over the socket. At any time the next message is announced in one place: by a descriptor in the lane (its bytes are
 * in the lane's ring, or in the sender's memory), or by one on the socket (its bytes follow there). A message of its
 * own says that the next one will be in the other place, so messages keep their order whatever way they take. */
#define _GNU_SOURCE
#include "internal.h"
#include "fettle_knob.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

FETTLE_KNOB(fettle_transport_knob, "transport.way", 8, 1, -1, -1, FETTLE_TRANSPORT_WAYS - 1);

enum {
    HELLO = 0x46545431,
    SPIN_LOOKS = 2000,         /* some microseconds, with its pauses */
    ALIVE_EVERY_NS = 20000000, /* who sleeps looks so often whether the other process lives */
    STAGE = 64 << 10,
};

/* What the two say to each other at first. */
struct hello {
    uint32_t magic, has_lane;
    uint64_t cookie_at, cookie;
    int32_t pid;
    uint32_t may_read;
};

struct fettle_transport {
    int socket;
    pid_t peer;
    unsigned open; /* ways that are open to what is sent */
    int fixed;     /* one way for all, or -1 */
    /* Sending. */
    struct lane *out;
    uint32_t published;
    uint64_t put;       /* bytes of the ring */
    int sends_shared;   /* where the next message is announced */
    int measuring;      /* classes of which a stretch is measured */
    struct chooser classes[FETTLE_TRANSPORT_CLASSES];
    /* Receiving. */
    struct lane *in;
    uint32_t next;
    int receives_shared;
    int has_next;       /* `message` is the next one, and nothing of its bytes is taken */
    struct descriptor message;
    uint64_t stamp;
    size_t staged_from, staged_to;
    unsigned char stage[STAGE];
};

/* ------------------------------------------------------------------ waiting */

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, word, what, value, limit, NULL, 0);
}

static int is_gone(const struct fettle_transport *t) {
    struct pollfd one = {t->socket, POLLRDHUP, 0};
    return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Waits until the word has another value. Returns -1 if the other process is gone and it has not. */
static int wait_for(struct fettle_transport *t, _Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleeps,
                    uint32_t how, int spins) {
    static const struct timespec limit = {0, ALIVE_EVERY_NS};
    if (spins)
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return 0;
            __builtin_ia32_pause();
        }
    for (;;) {
        atomic_store(sleeps, how);
        if (atomic_load(word) != value) break;
        int timed_out = futex(word, FUTEX_WAIT, value, &limit) != 0 && errno == ETIMEDOUT;
        if (atomic_load(word) != value) break;
        if (timed_out && is_gone(t)) {
            /* What it did last may have come since. */
            if (atomic_load(word) != value) break;
            atomic_store_explicit(sleeps, 0, memory_order_relaxed);
            errno = EPIPE;
            return -1;
        }
    }
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    return 0;
}

static void wake(_Atomic uint32_t *word, _Atomic uint32_t *sleeps) {
    if (atomic_load_explicit(sleeps, memory_order_relaxed) != 0 && atomic_exchange(sleeps, 0) != 0)
        futex(word, FUTEX_WAKE, 1, NULL);
}

/* ------------------------------------------------------------------ the socket */

/* Sends or receives all of it. */
static int whole(int fd, struct iovec *parts, int count, int sends) {
    while (count > 0) {
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t moved = sends ? sendmsg(fd, &m, MSG_NOSIGNAL) : recvmsg(fd, &m, 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd one = {fd, (short)(sends ? POLLOUT : POLLIN), 0};
            poll(&one, 1, -1);
            continue;
        }
        if (moved <= 0) {
            if (moved == 0 || errno == ECONNRESET) errno = EPIPE;
            return -1;
        }
        for (; count > 0 && (size_t)moved >= parts->iov_len; parts++, count--) moved -= (ssize_t)parts->iov_len;
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + moved;
            parts->iov_len -= (size_t)moved;
        }
    }
    return 0;
}

/* Takes bytes of the socket; short ones by way of a buffer, so that a message needs one call. */
static int take(struct fettle_transport *t, unsigned char *to, size_t length) {
    while (length > 0) {
        size_t staged = t->staged_to - t->staged_from;
        if (staged > 0) {
            size_t n = staged < length ? staged : length;
            memcpy(to, t->stage + t->staged_from, n);
            t->staged_from += n;
            to += n;
            length -= n;
            continue;
        }
        if (length >= STAGE / 2) {
            struct iovec part = {to, length};
            return whole(t->socket, &part, 1, 0);
        }
        ssize_t got = recv(t->socket, t->stage, STAGE, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd one = {t->socket, POLLIN, 0};
            poll(&one, 1, -1);
            continue;
        }
        if (got <= 0) {
            if (got == 0 || errno == ECONNRESET) errno = EPIPE;
            return -1;
        }
        t->staged_from = 0;
        t->staged_to = (size_t)got;
    }
    return 0;
}

static int announce_on_socket(struct fettle_transport *t, struct descriptor d, const void *bytes) {
    struct iovec parts[2] = {{&d, sizeof d}, {(void *)(uintptr_t)bytes, d.length}};
    return whole(t->socket, parts, bytes != NULL && d.length > 0 ? 2 : 1, 1);
}

/* ------------------------------------------------------------------ shared memory */

/* Waits until a descriptor, and so many bytes of the ring, are free. */
static int await_room(struct fettle_transport *t, size_t bytes, int spins) {
    struct lane *l = t->out;
    for (;;) {
        uint32_t taken = atomic_load_explicit(&l->taken, memory_order_acquire);
        uint64_t freed = atomic_load_explicit(&l->freed, memory_order_acquire);
        if (t->published - taken < DESCRIPTORS && t->put - freed + bytes <= RING) return 0;
        if (wait_for(t, &l->taken, taken, &l->sender_sleeps, 1, spins) != 0) return -1;
    }
}

static void publish(struct fettle_transport *t, struct descriptor d) {
    struct lane *l = t->out;
    l->descriptors[t->published % DESCRIPTORS] = d;
    t->published++;
    atomic_store(&l->sent, t->published);
    wake(&l->sent, &l->receiver_sleeps);
}

/* Copies between memory and a place in the ring, which may go around its end. */
static void copy_in(struct lane *l, uint64_t at, const unsigned char *from, size_t n) {
    size_t place = at % RING, first = RING - place < n ? RING - place : n;
    memcpy(l->data + place, from, first);
    memcpy(l->data, from + first, n - first);
}

static void copy_out(const struct lane *l, uint64_t at, unsigned char *to, size_t n) {
    size_t place = at % RING, first = RING - place < n ? RING - place : n;
    memcpy(to, l->data + place, first);
    memcpy(to + first, l->data, n - first);
}

static size_t rounded(size_t n) { return (n + 63) & ~(size_t)63; }

static int send_by_ring(struct fettle_transport *t, struct descriptor d, const unsigned char *bytes) {
    size_t left = d.length;
    int spins = d.way == FETTLE_TRANSPORT_SPIN;
    for (d.kind = KIND_MESSAGE;; d.kind = KIND_MORE) {
        size_t piece = left < CHUNK ? left : CHUNK;
        if (await_room(t, rounded(piece), spins) != 0) return -1;
        copy_in(t->out, t->put, bytes, piece);
        d.where = t->put;
        t->put += rounded(piece);
        bytes += piece;
        left -= piece;
        publish(t, d);
        if (left == 0) return 0;
    }
}

/* Waits until the receiver has read it. Returns 1 if it cannot. */
static int send_by_reading(struct fettle_transport *t, struct descriptor d, const void *bytes) {
    uint32_t refused = atomic_load(&t->out->refused);
    d.kind = KIND_MESSAGE;
    d.where = (uint64_t)(uintptr_t)bytes;
    if (await_room(t, 0, 1) != 0) return -1;
    publish(t, d);
    for (;;) {
        uint32_t taken = atomic_load_explicit(&t->out->taken, memory_order_acquire);
        if (taken == t->published) break;
        if (wait_for(t, &t->out->taken, taken, &t->out->sender_sleeps, 2, 0) != 0) return -1;
    }
    return atomic_load(&t->out->refused) != refused;
}

/* ------------------------------------------------------------------ sending */

static int announce_there(struct fettle_transport *t, int shared) {
    struct descriptor d = {.kind = shared ? KIND_TO_SHARED : KIND_TO_SOCKET};
    if (t->sends_shared == shared) return 0;
    if (shared) {
        if (announce_on_socket(t, d, NULL) != 0) return -1;
    } else {
        if (await_room(t, 0, 0) != 0) return -1;
        publish(t, d);
    }
    t->sends_shared = shared;
    return 0;
}

static int way_of(struct fettle_transport *t, struct chooser *c) {
    int64_t fixed = FETTLE_VALUE(fettle_transport_knob);
    if (fixed < 0) fixed = t->fixed;
    if (fixed >= 0 && fixed < FETTLE_TRANSPORT_WAYS && (t->open >> fixed & 1) != 0) return (int)fixed;
    return chooser_way(c);
}

static int send_by(struct fettle_transport *t, struct descriptor d, const void *bytes) {
    if (announce_there(t, d.way != FETTLE_TRANSPORT_SOCKET) != 0) return -1;
    if (d.way == FETTLE_TRANSPORT_SOCKET) {
        d.kind = KIND_MESSAGE;
        return announce_on_socket(t, d, bytes);
    }
    if (d.way != FETTLE_TRANSPORT_READ) return send_by_ring(t, d, bytes);
    int refused = send_by_reading(t, d, bytes);
    if (refused <= 0) return refused;
    t->open &= ~(1u << FETTLE_TRANSPORT_READ);
    for (unsigned i = 0; i < FETTLE_TRANSPORT_CLASSES; i++) chooser_begin(&t->classes[i], t->open);
    t->measuring = 0;
    d.way = FETTLE_TRANSPORT_RING;
    return send_by_ring(t, d, bytes);
}

int fettle_transport_send(struct fettle_transport *t, const void *bytes, size_t length) {
    unsigned class = class_of(length);
    struct chooser *c = &t->classes[class];
    struct descriptor d = {.length = (uint32_t)length};
    if (length > UINT32_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    d.way = (uint8_t)way_of(t, c);
    int is_chosen = t->open != 1u << FETTLE_TRANSPORT_SOCKET && d.way == chooser_way(c);
    if (is_chosen) {
        if (c->is_measured && !c->is_counted) {
            c->is_counted = 1;
            t->measuring++;
        }
        if (t->measuring > 0) {
            d.stamped = 1;
            d.measured = (uint8_t)c->is_measured;
            d.begun = now_ticks();
        }
        c->sent++;
    } else {
        c->ways[d.way].messages++;
    }
    if (send_by(t, d, bytes) != 0) return -1;
    if (is_chosen && --c->left == 0) {
        chooser_turn(c, t->open, t->out->ticks[class], t->out->counted[class]);
        if (c->sent == 0 && c->is_counted) {
            c->is_counted = 0;
            t->measuring--;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ receiving */

/* Says that descriptors were taken, and wakes a sender who waits for that. */
static void taken(struct fettle_transport *t) {
    struct lane *l = t->in;
    uint32_t ahead = atomic_load_explicit(&l->sent, memory_order_relaxed) - t->next;
    atomic_store(&l->taken, t->next);
    uint32_t how = atomic_load(&l->sender_sleeps);
    /* Who waits for room is left to sleep until there is much of it. */
    if (how == 2 || (how == 1 && ahead <= DESCRIPTORS / 4)) wake(&l->taken, &l->sender_sleeps);
}

/* The next descriptor in shared memory. */
static int await_shared(struct fettle_transport *t, struct descriptor *d) {
    int spins = t->message.way == FETTLE_TRANSPORT_SPIN;
    if (atomic_load_explicit(&t->in->sent, memory_order_acquire) == t->next) {
        wake(&t->in->taken, &t->in->sender_sleeps);
        if (wait_for(t, &t->in->sent, t->next, &t->in->receiver_sleeps, 1, spins) != 0) return -1;
    }
    *d = t->in->descriptors[t->next % DESCRIPTORS];
    return 0;
}

/* Waits until there is a message. */
static int await_message(struct fettle_transport *t) {
    struct descriptor d;
    while (!t->has_next) {
        if (t->receives_shared) {
            if (await_shared(t, &d) != 0) return -1;
        } else if (take(t, (unsigned char *)&d, sizeof d) != 0) {
            return -1;
        }
        if (d.kind == KIND_MESSAGE && d.way < FETTLE_TRANSPORT_WAYS &&
            (d.way == FETTLE_TRANSPORT_SOCKET) == !t->receives_shared) {
            t->message = d;
            t->has_next = 1;
        } else if (d.kind == KIND_TO_SOCKET && t->receives_shared) {
            t->receives_shared = 0;
            t->next++;
            taken(t);
        } else if (d.kind == KIND_TO_SHARED && !t->receives_shared && t->in != NULL) {
            t->receives_shared = 1;
        } else {
            errno = EPROTO;
            return -1;
        }
    }
    return 0;
}

static int receive_by_ring(struct fettle_transport *t, unsigned char *to) {
    struct descriptor d = t->message;
    size_t left = d.length;
    for (;;) {
        size_t piece = left < CHUNK ? left : CHUNK;
        copy_out(t->in, d.where, to, piece);
        to += piece;
        left -= piece;
        t->next++;
        atomic_store_explicit(&t->in->freed, d.where + rounded(piece), memory_order_release);
        taken(t);
        if (left == 0) return 0;
        if (await_shared(t, &d) != 0) return -1;
        if (d.kind != KIND_MORE) {
            errno = EPROTO;
            return -1;
        }
    }
}

/* Returns 1 if the sender has to send it by another way. */
static int receive_by_reading(struct fettle_transport *t, unsigned char *to) {
    uint64_t from = t->message.where;
    size_t left = t->message.length;
    int refused = 0;
    while (left > 0) {
        struct iovec here = {to, left}, there = {(void *)(uintptr_t)from, left};
        ssize_t got = process_vm_readv(t->peer, &here, 1, &there, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            refused = 1;
            break;
        }
        to += got;
        from += (uint64_t)got;
        left -= (size_t)got;
    }
    /* Another process may have the number of one that has ended. */
    if (is_gone(t)) {
        errno = EPIPE;
        return -1;
    }
    if (refused) atomic_fetch_add(&t->in->refused, 1);
    t->next++;
    taken(t);
    return refused;
}

/* Notes how long a message has taken: since it was sent, or since the one before it was there. */
static void measure(struct fettle_transport *t, const struct descriptor *d) {
    uint64_t now, from;
    if (!d->stamped || t->in == NULL) {
        t->stamp = 0;
        return;
    }
    now = now_ticks();
    from = d->begun > t->stamp ? d->begun : t->stamp;
    if (d->measured && t->stamp != 0 && now > from) {
        unsigned class = class_of(d->length);
        uint64_t ticks = atomic_load_explicit(&t->in->ticks[class][d->way], memory_order_relaxed);
        uint64_t count = atomic_load_explicit(&t->in->counted[class][d->way], memory_order_relaxed);
        atomic_store_explicit(&t->in->ticks[class][d->way], ticks + (now - from), memory_order_relaxed);
        atomic_store_explicit(&t->in->counted[class][d->way], count + 1, memory_order_relaxed);
    }
    t->stamp = now;
}

ssize_t fettle_transport_next(struct fettle_transport *t) {
    return await_message(t) != 0 ? -1 : (ssize_t)t->message.length;
}

ssize_t fettle_transport_receive(struct fettle_transport *t, void *buffer, size_t room) {
    for (;;) {
        int failed;
        if (await_message(t) != 0) return -1;
        if (t->message.length > room) {
            errno = EMSGSIZE;
            return -1;
        }
        switch (t->message.way) {
        case FETTLE_TRANSPORT_SOCKET: failed = take(t, buffer, t->message.length); break;
        case FETTLE_TRANSPORT_READ: failed = receive_by_reading(t, buffer); break;
        default: failed = receive_by_ring(t, buffer);
        }
        if (failed < 0) return -1;
        t->has_next = 0;
        if (failed) continue;
        measure(t, &t->message);
        return (ssize_t)t->message.length;
    }
}

/* ------------------------------------------------------------------ opening */

static struct lane *map_lane(int fd) {
    void *at = mmap(NULL, sizeof(struct lane), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int make_lane(struct fettle_transport *t) {
    int fd = memfd_create("fettle-transport", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* What cannot shrink cannot be taken from under the receiver. */
    if (fd >= 0 && ftruncate(fd, sizeof(struct lane)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 && fallocate(fd, 0, 0, sizeof(struct lane)) == 0)
        t->out = map_lane(fd);
    if (fd >= 0 && t->out == NULL) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void take_lane(struct fettle_transport *t, int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    if (lseek(fd, 0, SEEK_END) == (off_t)sizeof(struct lane) && seals >= 0 && (seals & F_SEAL_SHRINK) != 0)
        t->in = map_lane(fd);
    close(fd);
}

/* Sends a greeting, with a lane if there is one. */
static int greet(struct fettle_transport *t, struct hello *own, int fd) {
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control = {.bytes = {0}};
    struct iovec part = {own, sizeof *own};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    do sent = sendmsg(t->socket, &m, MSG_NOSIGNAL); while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof *own ? 0 : -1;
}

static int be_greeted(struct fettle_transport *t, struct hello *other) {
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec part = {other, sizeof *other};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do got = recvmsg(t->socket, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL); while (got < 0 && errno == EINTR);
    struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
        int fd;
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
        take_lane(t, fd);
    }
    if (got == (ssize_t)sizeof *other && other->magic == HELLO) return 0;
    if (got >= 0) errno = got == 0 ? EPIPE : EPROTO;
    else if (errno == ECONNRESET) errno = EPIPE;
    return -1;
}

/* Whether we can read the other process's memory. */
static int can_read(pid_t pid, const struct hello *other) {
    uint64_t found = 0;
    struct iovec here = {&found, sizeof found}, there = {(void *)(uintptr_t)other->cookie_at, sizeof found};
    return other->may_read && pid > 0 && process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof found &&
           found == other->cookie;
}

static int negotiate(struct fettle_transport *t, unsigned flags) {
    uint64_t cookie = now_ticks() ^ (uint64_t)(uintptr_t)t ^ (uint64_t)getpid() << 32;
    struct hello own = {.magic = HELLO, .cookie_at = (uint64_t)(uintptr_t)&cookie, .cookie = cookie, .pid = getpid()}, other;
    struct ucred who;
    socklen_t length = sizeof who;
    int fd = flags & FETTLE_TRANSPORT_NO_SHARED ? -1 : make_lane(t);
    own.has_lane = fd >= 0;
    own.may_read = fd >= 0 && !(flags & FETTLE_TRANSPORT_NO_READ);
    int failed = greet(t, &own, fd) != 0 || be_greeted(t, &other) != 0;
    if (fd >= 0) close(fd);
    if (failed) return -1;
    if ((flags & FETTLE_TRANSPORT_NO_SHARED) && t->in != NULL) {
        munmap(t->in, sizeof *t->in);
        t->in = NULL;
    }
    if (getsockopt(t->socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0) t->peer = who.pid;
    /* Each says what it can do with what the other one has offered. A socketpair's ends name the process that made
     * it, so the cookie decides which process it is. */
    uint32_t verdict[2] = {t->in != NULL, 0}, theirs[2];
    if (own.may_read && t->in != NULL) {
        if (!can_read(t->peer, &other)) t->peer = other.pid;
        verdict[1] = (uint32_t)can_read(t->peer, &other);
    }
    struct iovec out = {verdict, sizeof verdict}, in = {theirs, sizeof theirs};
    if (whole(t->socket, &out, 1, 1) != 0 || whole(t->socket, &in, 1, 0) != 0) return -1;
    t->open = 1u << FETTLE_TRANSPORT_SOCKET;
    if (t->out != NULL && theirs[0]) {
        t->open |= 1u << FETTLE_TRANSPORT_RING | 1u << FETTLE_TRANSPORT_SPIN;
        if (theirs[1]) t->open |= 1u << FETTLE_TRANSPORT_READ;
    }
    /* Neither leaves before the other one has read the cookie, which is on our stack. */
    char done = 1;
    out = (struct iovec){&done, 1};
    in = (struct iovec){&done, 1};
    return whole(t->socket, &out, 1, 1) != 0 || whole(t->socket, &in, 1, 0) != 0 ? -1 : 0;
}

struct fettle_transport *fettle_transport_open(int socket, unsigned flags) {
    struct fettle_transport *t = aligned_alloc(64, (sizeof *t + 63) & ~(size_t)63);
    if (t == NULL) {
        close(socket);
        errno = ENOMEM;
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->socket = socket;
    t->fixed = -1;
    if (negotiate(t, flags) != 0) {
        int why = errno;
        fettle_transport_close(t);
        errno = why;
        return NULL;
    }
    for (unsigned i = 0; i < FETTLE_TRANSPORT_CLASSES; i++) chooser_begin(&t->classes[i], t->open);
    return t;
}

void fettle_transport_close(struct fettle_transport *t) {
    if (t->out != NULL) munmap(t->out, sizeof *t->out);
    if (t->in != NULL) munmap(t->in, sizeof *t->in);
    close(t->socket);
    free(t);
}

unsigned fettle_transport_ways(const struct fettle_transport *t) { return t->open; }

void fettle_transport_fix(struct fettle_transport *t, int way) { t->fixed = way; }

struct fettle_transport_choice fettle_transport_choice(const struct fettle_transport *t, unsigned size_class) {
    struct fettle_transport_choice choice = {0};
    if (size_class >= FETTLE_TRANSPORT_CLASSES) return choice;
    const struct chooser *c = &t->classes[size_class];
    choice.way = c->way;
    choice.switches = c->switches;
    for (int way = 0; way < FETTLE_TRANSPORT_WAYS; way++) {
        choice.ns[way] = mean_of(&c->ways[way]) * ns_per_tick();
        choice.messages[way] = c->ways[way].messages + (chooser_way(c) == way ? c->sent : 0);
    }
    return choice;
}
