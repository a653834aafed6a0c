/* Threads that come and go, forks, scalars and histograms.
 *
 * usage: life threads N | fork | numbers | storm */
#define _GNU_SOURCE
#include "fettle.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

FETTLE_DEFINE(events, "test.life", 1, 3, 0, FETTLE_KIND_LIST, FETTLE_DROP, 3, 5, 16);
FETTLE_SCALAR(sum, "test.sum", 1, 4);
FETTLE_SCALAR(level, "test.level", 1, 5);
FETTLE_HISTOGRAM(sizes, "test.sizes", 1, 6);
FETTLE_DEFINE(storm, "test.storm", 1, 7, 0, FETTLE_KIND_LIST, FETTLE_DROP, 3, 5, 20);

static void commit_ten(int number) {
    int i;
    for (i = 0; i < 10; i++) FETTLE_COMMIT(events, number, i);
}

static void *one_event(void *arg) {
    FETTLE_COMMIT(events, 1, (uint64_t)arg);
    return NULL;
}

static void *numbers(void *arg) {
    int i;
    (void)arg;
    for (i = 1; i <= 1000; i++) {
        FETTLE_ADD(sum, 3);
        FETTLE_ADD(sum, -1);
        FETTLE_RECORD(sizes, i);
    }
    FETTLE_SET(level, -5);
    return NULL;
}

static uint64_t in_handler;

static void on_alarm(int signal) {
    (void)signal;
    FETTLE_COMMIT(storm, 2, in_handler, in_handler * 0x9e3779b97f4a7c15u);
    in_handler++;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    long i;
    if (argc < 2) return 2;
    errno = 77;
    if (strcmp(argv[1], "threads") == 0) {
        for (i = 0; i < atol(argv[2]); i++) {
            pthread_create(&threads[0], NULL, one_event, (void *)i);
            pthread_join(threads[0], NULL);
        }
    } else if (strcmp(argv[1], "fork") == 0) {
        commit_ten(1);
        FETTLE_ADD(sum, 1);
        if (fork() == 0) {
            commit_ten(2);
            FETTLE_ADD(sum, 20);
            if (fork() == 0) commit_ten(3);
            else wait(NULL);
            _exit(0);
        }
        wait(NULL);
        commit_ten(1);
        FETTLE_ADD(sum, 1);
    } else if (strcmp(argv[1], "numbers") == 0) {
        for (i = 0; i < 4; i++) pthread_create(&threads[i], NULL, numbers, NULL);
        for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    } else {
        struct itimerval often = {{0, 50}, {0, 50}};
        uint64_t n;
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &often, NULL);
        for (n = 0; in_handler < 2000; n++)
            if (n % 64 == 0 || n < 1000) FETTLE_COMMIT(storm, 1, n, n * 0x9e3779b97f4a7c15u);
        often.it_value.tv_usec = 0;
        setitimer(ITIMER_REAL, &often, NULL);
        printf("%lu\n", (unsigned long)in_handler);
        return 0;
    }
    return errno == 77 ? 0 : 3;
}
