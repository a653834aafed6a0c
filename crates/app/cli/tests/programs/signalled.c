// A child sends it one signal after another, each with the next number, and some that are of no
// kind in particular; it checks that none is lost and none comes twice. Ends on SIGTERM, and says
// what came.
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t ending;
static struct { atomic_long received, wrong; } *shared;

__attribute__((noipa)) static void count(long number) {
    if (number != shared->received) shared->wrong++;
    shared->received = number + 1;
}

static void handle(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    count(info->si_value.sival_int);
}

static void end(int signal) {
    (void)signal;
    ending = 1;
}

__attribute__((noipa)) static long mix(long a, long b) { return a ^ (b << 3) ^ (a >> 5); }

// A few are on their way at most.
static void send(pid_t to) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long sent = 0;; sent++) {
        for (int waits = 0; sent - shared->received > 8; waits++) {
            usleep(50);
            // What does not come for so long has been lost: one is, and the next will say so.
            if (waits > 100000) break;
        }
        union sigval value = {.sival_int = (int)sent};
        if (sigqueue(to, SIGRTMIN + 1, value)) _exit(1);
    }
}

int main(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 1, &action, NULL);
    signal(SIGTERM, end);
    pid_t self = getpid(), sender = fork();
    if (sender == 0) send(self);
    printf("ready\n");
    fflush(stdout);
    long sum = 0;
    // A machine may have much else to do.
    while (!ending || shared->received < 1000) {
        for (int i = 0; i < 1000; i++) sum = mix(sum, i);
        usleep(20);
    }
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    printf("%s after many rounds\n", shared->wrong ? "FAILED" : "right");
    return shared->wrong != 0;
}
