// A server that forks: two workers that stay, and one after another that runs briefly. Each never leaves
// the function that it works in, checks all that it computes and says so by its exit status. Ends on
// SIGTERM and says whether every worker was right.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ending;
static long forked, wrong;

static void end(int signal) {
    (void)signal;
    ending = 1;
}

__attribute__((noipa, cold)) static long rare(long value) {
    for (int i = 0; i < 10; i++) value = value * 31 + i;
    return value;
}

__attribute__((noipa)) static long mix(long a, long b) {
    if (a > 1L << 60) return rare(a);
    if (b & 1) return a + b;
    return a ^ b << 3;
}

__attribute__((noipa)) static long run(long seed, int steps) {
    long a = seed;
    for (int i = 0; i < steps; i++) {
        switch ((a ^ i) & 7) {
        case 0: a = mix(a & 0xffff, i); break;
        case 1: a += 3; break;
        case 2: a = a * 7 & 0xffffff; break;
        case 3: a ^= 0x55; break;
        case 4: a -= i; break;
        case 5: a = mix(i, a & 0xff); break;
        case 6: a = a < 0 ? -a : a + 1; break;
        default: a = (a >> 1) + 9; break;
        }
    }
    return a;
}

// Works until it is asked to end, or for so many rounds.
__attribute__((noipa)) static void serve(long rounds, long expected) {
    static char byte = 'x';
    int out[2];
    if (pipe(out)) _exit(3);
    for (long i = 0; !ending && (rounds == 0 || i < rounds); i++) {
        if (run(41, 2000) != expected) _exit(1);
        if (write(out[1], &byte, 1) != 1 || read(out[0], &byte, 1) != 1) _exit(2);
    }
    _exit(0);
}

static pid_t start(long rounds, long expected) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(rounds, expected);
    }
    if (pid > 0) forked++;
    return pid;
}

static void await(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {}
    if (status != 0) wrong++;
}

int main(void) {
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    long expected = run(41, 2000);
    pid_t staying[2] = {start(0, expected), start(0, expected)};
    printf("ready\n");
    fflush(stdout);
    // A machine may have much else to do.
    while (!ending || forked <= 10) {
        pid_t pid = start(300, expected);
        if (pid > 0) await(pid);
        struct timespec time = {0, 5000000};
        nanosleep(&time, NULL);
    }
    for (int i = 0; i < 2; i++) {
        kill(staying[i], SIGTERM);
        await(staying[i]);
    }
    printf("%s after many rounds\n", wrong ? "FAILED" : "right");
    return wrong != 0;
}
