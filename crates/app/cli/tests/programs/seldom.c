// One thread: a function that is called often, and after each hundred thousand calls one that is called
// seldom. Their caller is never left. Ends on SIGTERM and says whether every round was right.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int ending, failures;
static atomic_long rounds;

__attribute__((noipa)) static long often(long value, int i) {
    if (i & 1) value = value * 31 + i;
    else value ^= value << 3;
    return value & 0xffffff;
}

__attribute__((noipa)) static long seldom(long value) {
    return value < 1000 ? value + 1 : value - 1;
}

__attribute__((noipa)) static void *work(void *argument) {
    (void)argument;
    int file = open("/dev/null", O_WRONLY);
    long expected = 0;
    while (!ending) {
        long value = 1;
        for (int i = 0; i < 100000; i++) value = often(value, i);
        value = seldom(value);
        if (expected == 0) expected = value;
        if (value != expected) failures++;
        if (write(file, "x", 1) != 1) failures++;
        rounds++;
    }
    close(file);
    return NULL;
}

int main(void) {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    printf("ready\n");
    fflush(stdout);
    int signal;
    sigwait(&end, &signal);
    ending = 1;
    pthread_join(thread, NULL);
    printf("%s after %s rounds\n", failures ? "FAILED" : "right", rounds > 100 ? "many" : "few");
    return failures != 0;
}
