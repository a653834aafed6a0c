// Keeps return addresses in its memory: in a list of callers, and on the stack of a coroutine that
// sleeps. SIGUSR1 has it do both; SIGTERM ends the coroutine, and looks at the list. An interpreter
// waits for it, and another one has begun the coroutine: both keep the address of their jump table in a
// register.
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

static volatile long work_done[8];

__attribute__((noinline)) static void step(int which, long by) { work_done[which] += by; }

// GCC keeps the table's address in a register that calls leave alone.
__attribute__((noinline)) static long interpret(const char *program, void (*wait)(void)) {
    long turns = 0;
    for (;; turns++) switch (*program++) {
        case 'a': step(0, 1); break;
        case 'b': step(1, turns); break;
        case 'c': step(2, 3); step(3, turns); break;
        case 'd': step(4, turns * 2); break;
        case 'e': step(5, 7); step(6, 2); break;
        case 'f': step(6, 5); break;
        case 'g': step(7, turns); step(0, 2); break;
        case 'w': wait(); break;
        default: return turns;
    }
}

__attribute__((noinline)) static void deep(int depth) {
    if (depth == 0) swapcontext(&there, &here);
    else deep(depth - 1);
    sum += depth;
}

static void sleep_deep(void) { deep(10); }

static void coroutine(void) {
    sum *= interpret("abcwcba", sleep_deep) == 7 ? 2 : 0;
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

static sigset_t set;

static void wait_for_the_end(void) {
    while (sigwaitinfo(&set, NULL) != SIGTERM) {}
}

int main(void) {
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    callers = calloc(100, sizeof *callers);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        // Not for ever: a thread that waits in rewritten text leaves it.
        struct timespec time = {0, 5000000};
        int signal = sigtimedwait(&set, NULL, &time);
        if (signal == SIGTERM) break;
        if (signal != SIGUSR1) continue;
        work();
        printf("ready\n");
        fflush(stdout);
        if (interpret("gfwedcba", wait_for_the_end) != 8) return 3;
        break;
    }
    if (swapcontext(&here, &there)) return 2;
    int wrong = sum != (3 + 55) * 2 || count != 3;
    // Each letter's share, in both programs.
    const long done[8] = {2 + 2 + 1, 1 + 5 + 6, 9, 2 + 4 + 5, 8, 7, 7, 0};
    for (int i = 0; i < 8; i++) wrong |= work_done[i] != done[i];
    for (int i = 0; i < count; i++)
        wrong |= (char *)callers[i] < &__executable_start || (char *)callers[i] >= &etext;
    printf("%s\n", wrong ? "FAILED" : "right");
    return wrong;
}
