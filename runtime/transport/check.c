/* Checks that messages arrive whole and in order by all ways, whatever happens to the two processes.
 *
 *     check content|interrupted|limited|both|room|refused|killed SEED
 *
 * Says nothing and ends with 0 if all is well. */
#define _GNU_SOURCE
#include "fettle_transport.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEMAND(what)                                                                    \
    do {                                                                                \
        if (!(what)) {                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

enum { LONGEST = (4 << 20) + 77 };

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Any length, as many short ones as long ones, and those next to powers of two. */
static size_t random_length(uint64_t *state) {
    uint64_t bits = next_random(state) % 23;
    size_t length = (size_t)(next_random(state) & ((UINT64_C(1) << bits) - 1)) | (size_t)1 << bits;
    switch (next_random(state) % 4) {
    case 0: length = (size_t)1 << bits; break;
    case 1: length = ((size_t)1 << bits) - 1; break;
    default: break;
    }
    return length < LONGEST ? length : LONGEST;
}

/* What message `n` holds: all of its words differ from those of others. */
static void fill(unsigned char *to, size_t length, uint64_t n) {
    uint64_t word = n * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < length; i += 8, word += UINT64_C(0x0101010101010107))
        memcpy(to + i, &word, length - i < 8 ? length - i : 8);
}

static void send_all(struct fettle_transport *t, uint64_t seed, uint64_t messages, int switches) {
    unsigned char *bytes = malloc(LONGEST);
    uint64_t ways = seed ^ 0x5555;
    DEMAND(bytes != NULL);
    for (uint64_t n = 0; n < messages; n++) {
        size_t length = random_length(&seed);
        fill(bytes, length, n);
        if (switches) fettle_transport_fix(t, (int)(next_random(&ways) % 5) - 1);
        DEMAND(fettle_transport_send(t, bytes, length) == 0);
        /* They are ours again. */
        memset(bytes, 0xee, length);
    }
    free(bytes);
}

static void receive_all(struct fettle_transport *t, uint64_t seed, uint64_t messages) {
    unsigned char *bytes = malloc(LONGEST), *wanted = malloc(LONGEST);
    DEMAND(bytes != NULL && wanted != NULL);
    for (uint64_t n = 0; n < messages; n++) {
        size_t length = random_length(&seed);
        if (n % 3 == 0) DEMAND(fettle_transport_next(t) == (ssize_t)length);
        DEMAND(fettle_transport_receive(t, bytes, LONGEST) == (ssize_t)length);
        fill(wanted, length, n);
        DEMAND(memcmp(bytes, wanted, length) == 0);
    }
    free(bytes);
    free(wanted);
}

static void ends(int pair[2]) { DEMAND(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0); }

static struct fettle_transport *open_end(int pair[2], int which, unsigned flags) {
    struct fettle_transport *t;
    close(pair[!which]);
    t = fettle_transport_open(pair[which], flags);
    DEMAND(t != NULL);
    return t;
}

static void expect_success(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) DEMAND(errno == EINTR);
    DEMAND(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* There and back, and the end is seen. */
static void content(uint64_t seed, uint64_t messages, unsigned ours, unsigned theirs, unsigned ways) {
    int pair[2];
    char byte;
    ends(pair);
    pid_t child = fork();
    if (child == 0) {
        struct fettle_transport *t = open_end(pair, 1, theirs);
        receive_all(t, seed, messages);
        send_all(t, seed + 2, messages, 1);
        fettle_transport_close(t);
        exit(0);
    }
    struct fettle_transport *t = open_end(pair, 0, ours);
    if (ways != 0) DEMAND(fettle_transport_ways(t) == ways);
    send_all(t, seed, messages, 1);
    receive_all(t, seed + 2, messages);
    DEMAND(fettle_transport_receive(t, &byte, 1) == -1 && errno == EPIPE);
    DEMAND(fettle_transport_receive(t, &byte, 1) == -1 && errno == EPIPE);
    fettle_transport_fix(t, FETTLE_TRANSPORT_SOCKET);
    DEMAND(fettle_transport_send(t, &byte, 1) == -1 && errno == EPIPE);
    fettle_transport_close(t);
    expect_success(child);
}

static void on_alarm(int number) { (void)number; }

/* Signals whose handlers do not have calls begun anew. */
static void interrupt(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 150}, {0, 150}};
    DEMAND(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void interrupted(uint64_t seed) {
    int pair[2];
    ends(pair);
    pid_t child = fork();
    interrupt();
    if (child == 0) {
        struct fettle_transport *t = open_end(pair, 1, 0);
        receive_all(t, seed, 300);
        fettle_transport_close(t);
        exit(0);
    }
    struct fettle_transport *t = open_end(pair, 0, 0);
    send_all(t, seed, 300, 1);
    expect_success(child);
    fettle_transport_close(t);
}

struct task { struct fettle_transport *t; uint64_t seed; };

static void *send_task(void *task) {
    struct task *of = task;
    send_all(of->t, of->seed, 300, 0);
    return NULL;
}

/* Both send while both receive: a thread for each. */
static void both(uint64_t seed) {
    int pair[2], which;
    ends(pair);
    pid_t child = fork();
    which = child == 0;
    struct task task = {open_end(pair, which, 0), seed + (uint64_t)which};
    pthread_t thread;
    DEMAND(pthread_create(&thread, NULL, send_task, &task) == 0);
    receive_all(task.t, seed + !which, 300);
    DEMAND(pthread_join(thread, NULL) == 0);
    fettle_transport_close(task.t);
    if (child == 0) exit(0);
    expect_success(child);
}

/* A buffer that is too small takes nothing away, by any way. */
static void room(void) {
    int pair[2];
    static char bytes[100000], got[100000];
    ends(pair);
    pid_t child = fork();
    if (child == 0) {
        struct fettle_transport *t = open_end(pair, 1, 0);
        for (int i = 0; i < 8; i++) {
            fettle_transport_fix(t, i / 2);
            memset(bytes, i, sizeof bytes);
            DEMAND(fettle_transport_send(t, bytes, i % 2 ? sizeof bytes : 0) == 0);
        }
        fettle_transport_close(t);
        exit(0);
    }
    struct fettle_transport *t = open_end(pair, 0, 0);
    for (int i = 0; i < 8; i++) {
        ssize_t length = i % 2 ? (ssize_t)sizeof bytes : 0;
        if (length > 0) DEMAND(fettle_transport_receive(t, got, sizeof bytes - 1) == -1 && errno == EMSGSIZE);
        DEMAND(fettle_transport_next(t) == length);
        DEMAND(fettle_transport_receive(t, got, sizeof got) == length);
        DEMAND(length == 0 || (got[0] == i && got[sizeof got - 1] == i));
    }
    DEMAND(fettle_transport_next(t) == -1 && errno == EPIPE);
    fettle_transport_close(t);
    expect_success(child);
}

/* Reading out of the sender's memory is forbidden when the connection is there already. */
static void refused(uint64_t seed) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof steps[0], steps};
    int pair[2];
    ends(pair);
    pid_t child = fork();
    if (child == 0) {
        struct fettle_transport *t = open_end(pair, 1, 0);
        DEMAND(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        DEMAND(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        receive_all(t, seed, 400);
        fettle_transport_close(t);
        exit(0);
    }
    struct fettle_transport *t = open_end(pair, 0, 0);
    unsigned before = fettle_transport_ways(t), read = 1u << FETTLE_TRANSPORT_READ;
    send_all(t, seed, 400, 1);
    DEMAND(fettle_transport_ways(t) == (before & ~read));
    expect_success(child);
    fettle_transport_close(t);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Either process is killed at any instant: the other one gets whole messages only, and then gets an error soon. */
static void killed(uint64_t seed) {
    for (int turn = 0; turn < 60; turn++) {
        int pair[2], kills_sender = turn % 2;
        uint64_t of = seed + (uint64_t)turn, n = 0;
        unsigned char *bytes = malloc(LONGEST), *wanted = malloc(LONGEST);
        DEMAND(bytes != NULL && wanted != NULL);
        ends(pair);
        pid_t child = fork();
        if (child == 0) {
            struct fettle_transport *t = open_end(pair, 1, 0);
            uint64_t endless = UINT64_MAX;
            if (kills_sender) send_all(t, of, endless, 1);
            receive_all(t, of, endless);
            exit(1);
        }
        pid_t killer = fork();
        if (killer == 0) {
            usleep((useconds_t)(next_random(&seed) % 30000) + 2000);
            kill(child, SIGKILL);
            exit(0);
        }
        next_random(&seed);
        struct fettle_transport *t;
        close(pair[1]);
        t = fettle_transport_open(pair[0], 0);
        double last = seconds();
        if (t != NULL && kills_sender) {
            for (;; n++, last = seconds()) {
                size_t length = random_length(&of);
                ssize_t got = fettle_transport_receive(t, bytes, LONGEST);
                if (got < 0) break;
                fill(wanted, length, n);
                DEMAND(got == (ssize_t)length && memcmp(bytes, wanted, length) == 0);
            }
        } else if (t != NULL) {
            uint64_t ways = of;
            for (;; n++, last = seconds()) {
                size_t length = random_length(&of);
                fill(bytes, length, n);
                fettle_transport_fix(t, (int)(next_random(&ways) % 5) - 1);
                if (fettle_transport_send(t, bytes, length) != 0) break;
            }
        }
        DEMAND(errno == EPIPE);
        DEMAND(seconds() - last < 2);
        if (t != NULL) fettle_transport_close(t);
        DEMAND(waitpid(child, NULL, 0) == child && waitpid(killer, NULL, 0) == killer);
        free(bytes);
        free(wanted);
    }
}

int main(int count, char **arguments) {
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) | 1 : 1;
    const char *what = count > 1 ? arguments[1] : "";
    unsigned socket_only = 1u << FETTLE_TRANSPORT_SOCKET, no_read = 7;
    if (strcmp(what, "content") == 0) {
        content(seed, 500, 0, 0, 0);
    } else if (strcmp(what, "interrupted") == 0) {
        interrupted(seed);
    } else if (strcmp(what, "limited") == 0) {
        content(seed, 100, FETTLE_TRANSPORT_NO_SHARED, 0, socket_only);
        content(seed, 100, FETTLE_TRANSPORT_NO_SHARED, FETTLE_TRANSPORT_NO_SHARED, socket_only);
        content(seed, 100, 0, FETTLE_TRANSPORT_NO_SHARED, socket_only);
        content(seed, 100, FETTLE_TRANSPORT_NO_READ, 0, no_read);
        content(seed, 100, 0, FETTLE_TRANSPORT_NO_READ, no_read);
    } else if (strcmp(what, "both") == 0) {
        both(seed);
    } else if (strcmp(what, "room") == 0) {
        room();
    } else if (strcmp(what, "refused") == 0) {
        refused(seed);
    } else if (strcmp(what, "killed") == 0) {
        killed(seed);
    } else {
        fprintf(stderr, "check content|interrupted|limited|both|room|refused|killed SEED\n");
        return 2;
    }
    return 0;
}
