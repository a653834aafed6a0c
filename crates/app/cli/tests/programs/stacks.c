// Makes two stacks, one right above the other, and works on the upper one while the lower one sleeps
// with calls in progress. They keep no more than their stack pointers. SIGUSR1 has the lower one make its
// calls, SIGTERM has it come back from them.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE = 32768 };

static void *lower, *upper;
static volatile sig_atomic_t reported, ending;
static volatile long sum;

void change_stack(void **from, void *to);
__asm__("change_stack: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi); mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");

static void *made(char *end, void (*begin)(void)) {
    void **top = (void **)end - 2;
    top[0] = begin;
    return top - 6;
}

static void notify(int signal) {
    if (signal == SIGTERM) ending = 1;
    reported = 1;
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

__attribute__((noinline)) static int deep(int depth) {
    if (depth == 0) {
        change_stack(&lower, upper);
        return 1;
    }
    int got = deep(depth - 1) + 1;
    sum += got;
    return got;
}

static void sleeping(void) {
    for (;;) {
        if (deep(10) != 11) _exit(3);
        change_stack(&lower, upper);
    }
}

__attribute__((noinline)) static void work(void) {
    usleep(1000);
    sum++;
}

static void working(void) {
    for (;;) {
        ready();
        while (!reported) work();
        reported = 0;
        change_stack(&upper, lower);
        if (ending) break;
    }
    puts("right");
    exit(0);
}

int main(void) {
    signal(SIGUSR1, notify);
    signal(SIGTERM, notify);
    // On the heap, where nothing is between them.
    char *stacks = malloc(2 * SIZE);
    lower = made(stacks + SIZE, sleeping);
    upper = made(stacks + 2 * SIZE, working);
    static void *first;
    change_stack(&first, upper);
}
