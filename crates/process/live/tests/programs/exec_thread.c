// A thread that is not the first one executes another program.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *self;

static void *wait_forever(void *unused) {
    for (;;) pause();
    return unused;
}

static void *execute(void *unused) {
    usleep(2000);
    char rounds[12], pid[12];
    snprintf(rounds, sizeof rounds, "%d", (int)(long)unused - 1);
    snprintf(pid, sizeof pid, "%d", getpid());
    execl(self, self, rounds, pid, NULL);
    return unused;
}

int main(int count, char **arguments) {
    self = arguments[0];
    int rounds = count > 1 ? atoi(arguments[1]) : 0;
    if (count > 2 && atoi(arguments[2]) != getpid()) return 1;
    printf("rounds %d, first thread %d\n", rounds, gettid() == getpid());
    fflush(stdout);
    if (rounds == 0) return 21;
    pthread_t threads[6];
    for (int i = 0; i < 5; i++) pthread_create(&threads[i], NULL, wait_forever, NULL);
    pthread_create(&threads[5], NULL, execute, (void *)(long)rounds);
    if (rounds % 2) pthread_exit(NULL);
    for (;;) pause();
}
