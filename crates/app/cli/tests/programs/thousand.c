// A thousand threads that sleep, each by a function of the program, and one that works. Ends on SIGTERM,
// when all have come back right.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 1000

static volatile sig_atomic_t ending;
static int pipes[2];
static void handle(int number) { ending = number; }

__attribute__((noipa)) static long one(long n) { return n * 3 + 1; }
__attribute__((noipa)) static long two(long n) { return one(n) + one(n + 1); }
__attribute__((noipa)) static long run(long n) { return two(n) - one(n); }

__attribute__((noipa)) static long await(long n) {
    char byte;
    return read(pipes[0], &byte, 1) == 0 ? run(n) : -1;
}

static void *sleeper(void *n) { return (void *)await((long)n); }

static void *worker(void *unused) {
    while (!ending)
        for (long n = 0; n < 100; n++)
            if (run(n) != n * 3 + 4) abort();
    return unused;
}

int main(void) {
    signal(SIGTERM, handle);
    pthread_t sleepers[THREADS], working;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pipe(pipes)) abort();
    for (long n = 0; n < THREADS; n++)
        if (pthread_create(&sleepers[n], &small, sleeper, (void *)n)) abort();
    pthread_create(&working, NULL, worker, NULL);
    printf("ready\n");
    fflush(stdout);
    while (!ending) usleep(1000);
    close(pipes[1]);
    long failures = 0;
    for (long n = 0; n < THREADS; n++) {
        void *got;
        pthread_join(sleepers[n], &got);
        failures += (long)got != n * 3 + 4;
    }
    pthread_join(working, NULL);
    printf("%s\n", failures ? "FAILED" : "right");
    return failures != 0;
}
