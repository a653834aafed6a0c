// Threads that wait in the kernel in every way, and check that each wait ended as it should: not
// early, not with EINTR, with what was waited for. Ends on SIGTERM; prints what went wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Ways to wait without an end, or for longer than any stop.
#define WAYS 7

static atomic_int failures, rounds, ending;
static int pipes[WAYS][2], spliced[2];

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void expect(int right, const char *what) {
    if (!right) {
        atomic_fetch_add(&failures, 1);
        printf("wrong: %s, errno %d\n", what, errno);
        fflush(stdout);
    }
}

#define WAIT_NS 30000000L

// Each is a function that waits for WAIT_NS and answers whether that went well.
static int by_nanosleep(void) {
    struct timespec time = {0, WAIT_NS};
    return nanosleep(&time, NULL) == 0;
}
static int by_clock_nanosleep(void) {
    struct timespec time = {0, WAIT_NS};
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) == 0;
}
static int by_poll(void) {
    return poll(NULL, 0, WAIT_NS / 1000000) == 0;
}
static int by_select(void) {
    struct timeval time = {0, WAIT_NS / 1000};
    return select(0, NULL, NULL, NULL, &time) == 0;
}
static int by_ppoll(void) {
    struct timespec time = {0, WAIT_NS};
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    return ppoll(NULL, 0, &time, &mask) == 0;
}
static int by_futex(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&never, &mutex, &until);
    pthread_mutex_unlock(&mutex);
    return result == ETIMEDOUT;
}

static int (*const waits[])(void) = {by_nanosleep, by_clock_nanosleep, by_poll,
                                     by_select,    by_ppoll,           by_futex};
static const char *const names[] = {"nanosleep", "clock_nanosleep", "poll",
                                    "select",    "ppoll",           "futex"};

__attribute__((noinline)) static int wait_once(int which) {
    long begin = now_ns();
    errno = 0;
    int right = waits[which]();
    long took = now_ns() - begin;
    // A cond's time is another clock's, which may be slewed.
    return right && took >= WAIT_NS - 1000000L;
}

static void *waiter(void *argument) {
    int which = (int)(long)argument;
    while (!ending) {
        expect(wait_once(which), names[which]);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

// Waits without an end for a byte, in a way of its own.
__attribute__((noinline)) static int read_byte(int way, int file) {
    char byte = 0;
    errno = 0;
    if (way == 1) {
        struct pollfd wanted = {file, POLLIN, 0};
        if (poll(&wanted, 1, -1) != 1) return -1;
    } else if (way == 2) {
        int set = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN};
        epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
        int count = epoll_wait(set, &event, 1, -1);
        close(set);
        if (count != 1) return -1;
    } else if (way == 3) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(file, &set);
        if (select(file + 1, &set, NULL, NULL, NULL) != 1) return -1;
    } else if (way == 4) {
        return recv(file, &byte, 1, 0) == 1 ? byte : -1;
    } else if (way == 6) {
        if (splice(file, NULL, spliced[1], NULL, 1, 0) != 1) return -1;
        file = spliced[0];
    }
    return read(file, &byte, 1) == 1 ? byte : -1;
}

static const char *const ways[] = {"read", "endless poll", "epoll_wait", "endless select",
                                   "recv with a time limit", "read with a time limit",
                                   "splice with a time limit"};

static void *reader(void *argument) {
    int way = (int)(long)argument;
    for (char expected = 1;; expected = expected % 100 + 1) {
        int byte = read_byte(way, pipes[way][0]);
        if (byte == 0) return NULL;
        expect(byte == expected, ways[way]);
        atomic_fetch_add(&rounds, 1);
    }
}

// Handlers run while others wait.
static atomic_int handled;
static void handler(int signal) {
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *worker(void *argument) {
    // Code that is somewhere in the middle of itself at any time.
    unsigned long *sum = argument, x = 88172645463325252UL;
    while (!ending) {
        for (int i = 0; i < 1000; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            *sum += x & 1;
        }
    }
    return NULL;
}

// Frames that a handler interrupts, on a stack of its own.
static void *interrupted(void *argument) {
    (void)argument;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    while (!ending) {
        int before = handled;
        pthread_kill(pthread_self(), SIGUSR1);
        expect(handled > before, "a signal's handler");
    }
    return NULL;
}

int main(void) {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t threads[16];
    int count = 0;
    if (pipe(spliced)) return 2;
    for (long i = 0; i < 6; i++) pthread_create(&threads[count++], NULL, waiter, (void *)i);
    for (long i = 0; i < WAYS; i++) {
        struct timeval limit = {60, 0};
        if (i < 4 ? pipe(pipes[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, pipes[i])) return 2;
        if (i >= 4) setsockopt(pipes[i][0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        pthread_create(&threads[count++], NULL, reader, (void *)i);
    }
    static unsigned long sum;
    pthread_create(&threads[count++], NULL, worker, &sum);
    pthread_create(&threads[count++], NULL, interrupted, NULL);
    printf("ready\n");
    fflush(stdout);
    char byte = 1;
    for (int reported = 0;;) {
        struct timespec time = {0, 20000000};
        errno = 0;
        // Without an end of its own it must not be given up, with one it may.
        int signal = sigtimedwait(&end, NULL, &time);
        // A machine may have much else to do.
        reported |= signal == SIGTERM;
        if (reported && rounds > 50) break;
        for (int i = 0; i < WAYS; i++)
            if (write(pipes[i][1], &byte, 1) != 1) return 2;
        byte = byte % 100 + 1;
    }
    ending = 1;
    byte = 0;
    for (int i = 0; i < WAYS; i++)
        if (write(pipes[i][1], &byte, 1) != 1) return 2;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%s after many rounds\n", failures ? "FAILED" : "right");
    return failures != 0;
}
