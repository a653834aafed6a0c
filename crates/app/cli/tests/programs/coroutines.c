// Coroutines that leave each other in the midst of calls: what has a frame in one may be at the same
// address of its stack that a call which it has left for another was at.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { COUNT = 50, ROUNDS = 40, DEPTH = 10 };

static ucontext_t home, contexts[COUNT];
static long sum;
static int done;

__attribute__((noinline)) static void yield(int me) {
    swapcontext(&contexts[me], &contexts[(me + 1) % COUNT]);
}

__attribute__((noinline)) static long leaf(long x) {
    return x * 3 + 1;
}

__attribute__((noinline)) static void descend(int me, int depth) {
    char bytes[64];
    memset(bytes, depth, sizeof bytes);
    if (depth == 0)
        return;
    descend(me, depth - 1);
    sum += leaf(bytes[3]);
    yield(me);
}

static void work(int me) {
    for (int i = 0; i < ROUNDS; i++)
        descend(me, DEPTH);
    if (++done == COUNT)
        setcontext(&home);
    for (;;)
        yield(me);
}

int main(void) {
    for (int i = 0; i < COUNT; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(65536);
        contexts[i].uc_stack.ss_size = 65536;
        makecontext(&contexts[i], (void (*)(void))work, 1, i);
    }
    swapcontext(&home, &contexts[0]);
    printf("%ld\n", sum);
    return 0;
}
