// Keeps return addresses in its memory: in a list of who called, and on the stack of a coroutine
// that sleeps. SIGUSR1 has it do both; SIGTERM ends the coroutine, and looks at the list.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

extern char __executable_start, etext;

static ucontext_t here, there;
static void **callers;
static int count;
static volatile long sum;

__attribute__((noinline)) static void keep(void) {
    callers[count++] = __builtin_return_address(0);
}

__attribute__((noinline)) static void deep(int depth) {
    if (depth == 0) swapcontext(&there, &here);
    else deep(depth - 1);
    sum += depth;
}

static void coroutine(void) {
    deep(10);
    sum *= 2;
}

__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 3; i++) {
        keep();
        sum += i;
    }
    static char stack[65536];
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    swapcontext(&here, &there);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    callers = calloc(100, sizeof *callers);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        // Not for ever: who waits in new code leaves it.
        struct timespec time = {0, 5000000};
        int signal = sigtimedwait(&set, NULL, &time);
        if (signal == SIGTERM) break;
        if (signal != SIGUSR1) continue;
        work();
        printf("ready\n");
        fflush(stdout);
    }
    if (swapcontext(&here, &there)) return 2;
    int wrong = sum != (3 + 55) * 2 || count != 3;
    for (int i = 0; i < count; i++)
        wrong |= (char *)callers[i] < &__executable_start || (char *)callers[i] >= &etext;
    printf("%s\n", wrong ? "FAILED" : "right");
    return wrong;
}
