// Sleeps from SIGUSR1 on with what exceptions have left on its stack.
#include <alloca.h>
#include <csignal>
#include <cstdio>

static volatile long sum;

__attribute__((noinline)) static void fails(int depth) {
    if (depth == 0)
        throw 1;
    fails(depth - 1);
    sum++;
}

__attribute__((noinline)) static void catches() {
    try {
        fails(3);
    } catch (int one) {
        sum += one;
    }
}

/* What an unwinder leaves depends on how the stack is aligned for the processor's registers: one
   exception for each way, each above what those before have left. */
__attribute__((noinline)) static void catches_at(int depth) {
    void *room = alloca(depth * (2048 + 16));
    __asm__ volatile("" : : "r"(room) : "memory");
    catches();
}

static void ready() {
    puts("ready");
    fflush(stdout);
}

/* The room is never written to. */
__attribute__((noinline)) static void sleeps(const sigset_t *set) {
    char room[32768];
    __asm__ volatile("" : : "r"(room) : "memory");
    ready();
    int signal;
    sigwait(set, &signal);
}

int main() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    ready();
    int signal;
    sigwait(&set, &signal);
    for (int depth = 8; depth > 0; depth--)
        catches_at(depth);
    sleeps(&set);
    puts("right");
    return 0;
}
