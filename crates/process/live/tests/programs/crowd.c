// Threads that wait in various calls, each with a mark on its stack, and one that works. Prints where it counts
// what the working one has done, what has woken, and signals that were handled. Ends, and says whether every thread was
// woken once for each time it was meant to, when its input ends.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static const unsigned long MARK = 0x123456789abc;
static volatile unsigned long worked, woken, handled, interrupted;
static volatile int over;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake_up = PTHREAD_COND_INITIALIZER;
static int pipes[2], never[2], started;

static void on_signal(int signal) {
    (void)signal;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void started_one(void) { __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST); }

static void *wait_there(void *number) {
    volatile unsigned long mark = MARK + 16 * (unsigned long)number;
    char byte;
    started_one();
    switch ((unsigned long)number % 4) {
    case 0:
        // A byte for each.
        if (read(pipes[0], &byte, 1) != 1)
            abort();
        break;
    case 1:
        pthread_mutex_lock(&mutex);
        while (!over)
            pthread_cond_wait(&wake_up, &mutex);
        pthread_mutex_unlock(&mutex);
        break;
    case 2: {
        // Without a limit it never fails for our sake.
        struct epoll_event event = {.events = EPOLLIN};
        int epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, never[0], &event);
        while (epoll_wait(epoll, &event, 1, -1) != 1) {
            if (errno != EINTR)
                abort();
            __atomic_add_fetch(&interrupted, 1, __ATOMIC_SEQ_CST);
        }
        break;
    }
    default:
        while (!over) {
            struct timespec second = {.tv_sec = 1};
            nanosleep(&second, NULL);
        }
    }
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    if (mark != MARK + 16 * (unsigned long)number)
        abort();
    return NULL;
}

static void *work(void *nothing) {
    while (!over)
        worked++;
    return nothing;
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 100;
    pthread_t *threads = calloc(count + 1, sizeof *threads);
    pthread_attr_t small;
    char line[64];
    if (pipe(pipes) || pipe(never))
        return 2;
    signal(SIGUSR1, on_signal);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &small, wait_there, (void *)i))
            return 3;
    if (pthread_create(&threads[count], NULL, work, NULL))
        return 3;
    while (started < count)
        usleep(1000);
    usleep(50000);
    printf("%p %p %p %p %d\n", (void *)&worked, (void *)&woken, (void *)&handled, (void *)&interrupted, pipes[1]);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
    over = 1;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&wake_up);
    pthread_mutex_unlock(&mutex);
    close(never[1]);
    char bytes[4096] = {0};
    if (write(pipes[1], bytes, count) != count)
        return 4;
    for (long i = 0; i <= count; i++)
        pthread_join(threads[i], NULL);
    printf("%s\n", woken == (unsigned long)count ? "right" : "WRONG");
    return 0;
}
