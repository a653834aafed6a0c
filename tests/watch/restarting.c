/* The server of the thesis on request tracking (4.4): a thread has a heartbeat, and stops once in a while. Each time it
 * is begun anew it goes on.
 *
 *     restarting TIMES [spins|waits|off]
 *
 * Prints `ready`, and after so many restarts how often the thread was begun anew, and how long after its last
 * heartbeat, in microseconds: median, 99th percentile, longest. Then it ends. */
#include "fettle_restart.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

FETTLE_SCALAR(ticks, "restarting.ticks", 9, 3);
FETTLE_RESTART(beater, "restarting.beat", 9, 4);

#define MOST 10000

static int times;
static long gaps[MOST];
static const char *how;

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static int by_size(const void *a, const void *b) {
    long one = *(const long *)a, other = *(const long *)b;
    return (one > other) - (one < other);
}

static void *beat(void *nothing) {
    static long last_us;
    volatile int n;
    int restarts = FETTLE_RESTARTED(beater);
    if (restarts > 0 && restarts <= MOST) gaps[restarts - 1] = now_us() - last_us;
    if (restarts >= times) {
        fettle_restart_ends();
        qsort(gaps, (size_t)times, sizeof gaps[0], by_size);
        printf("restarted %d times after %ld %ld %ld\n", restarts, gaps[times / 2], gaps[times * 99 / 100],
               gaps[times - 1]);
        fflush(stdout);
        return nothing;
    }
    for (n = 0; n < 300; n++) {
        FETTLE_ADD(ticks, 1);
        last_us = now_us();
        usleep(100);
    }
    if (strcmp(how, "off") == 0) {
        /* What must not be cut short is not. */
        fettle_restarts_off();
        for (n = 0; n < 12; n++) usleep(1000);
        fettle_restarts_on();
        pause();
    } else if (strcmp(how, "waits") == 0) {
        for (;;) pause();
    }
    for (;;) __asm__ __volatile__("");
}

int main(int argc, char **argv) {
    pthread_t thread;
    times = argc > 1 ? atoi(argv[1]) : 1;
    if (times < 1 || times > MOST) return 2;
    how = argc > 2 ? argv[2] : "spins";
    printf("ready\n");
    fflush(stdout);
    pthread_create(&thread, NULL, beat, NULL);
    pthread_join(thread, NULL);
    return 0;
}
