// A machine with an interpreter, of which some instructions never come, run by several threads;
// each run ends with a write. Ends on SIGTERM and says whether every run was right.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int ending, failures;
static atomic_long runs;

__attribute__((noipa, cold)) static long rare(long value) {
    for (int i = 0; i < 10; i++) value = value * 31 + i;
    return value;
}

__attribute__((noipa)) static long mix(long a, long b) {
    if (a > 1L << 60) return rare(a);
    if (b & 1) return a + b;
    return a ^ b << 3;
}

__attribute__((noipa)) static long run(const unsigned char *code, int steps) {
    long a = 1, b = 2, stack[8];
    int depth = 0;
    for (int i = 0; i < steps; i++) {
        switch (code[i & 63]) {
        case 0: a = mix(a, b) & 0xffffff; break;
        case 1: b += a & 7; break;
        case 2: a -= 3; break;
        case 3: if (depth < 8) stack[depth++] = a; break;
        case 4: if (depth > 0) b ^= stack[--depth] & 0xff; break;
        case 5: a = rare(a); break;
        case 6: b = rare(b) + a; break;
        case 7: a = a < 0 ? -a : a; break;
        case 8: b = mix(b & 0xffff, a); break;
        default: abort();
        }
    }
    return a * 1000003 + b;
}

static void *work(void *argument) {
    (void)argument;
    unsigned char code[64];
    unsigned state = 12345;
    for (int i = 0; i < 64; i++) {
        state = state * 1103515245 + 12345;
        unsigned char op = state >> 16 & 15;
        code[i] = op > 8 || op == 5 || op == 6 ? 0 : op;
    }
    int file = open("/dev/null", O_WRONLY);
    long expected = run(code, 5000);
    while (!ending) {
        if (run(code, 5000) != expected) failures++;
        if (write(file, "x", 1) != 1) failures++;
        runs++;
    }
    close(file);
    return NULL;
}

int main(void) {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, NULL);
    printf("ready\n");
    fflush(stdout);
    int signal;
    sigwait(&end, &signal);
    ending = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%s after %s rounds\n", failures ? "FAILED" : "right", runs > 100 ? "many" : "few");
    return failures != 0;
}
