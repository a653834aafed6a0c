// Remembers its caller from SIGUSR1 on, until SIGUSR2.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void **caller;
static volatile long sum;

__attribute__((noinline)) static void remember(void) { *caller = __builtin_return_address(0); }

__attribute__((noinline)) static void ask(void) {
    remember();
    sum++;
}

__attribute__((noinline)) static void work(void) { sum++; }

static void ready(void) {
    printf("ready\n");
    fflush(stdout);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    caller = calloc(1, sizeof *caller);
    ready();
    for (;;) {
        struct timespec time = {0, 1000000};
        int signal = sigtimedwait(&set, NULL, &time);
        if (signal == SIGTERM) break;
        work();
        if (signal < 0) continue;
        if (signal == SIGUSR1) ask();
        else *caller = NULL;
        ready();
    }
    printf("right\n");
    return 0;
}
