/* Jumps to buffers that are filled more than once, and from signal handlers. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sigjmp_buf shared;
static jmp_buf other;

static void jumps(int value) {
    siglongjmp(shared, value);
}

static void handles(int signal) {
    siglongjmp(shared, signal);
}

static int nested(int depth) {
    jmp_buf own;
    if (depth == 0)
        longjmp(other, 3);
    int got = setjmp(own);
    if (got == 0)
        return nested(depth - 1) + 1;
    return got;
}

int main(void) {
    volatile int count = 0;
    double kept = 1.5;
    signal(SIGUSR1, handles);
    int first = sigsetjmp(shared, 1);
    printf("first %d\n", first);
    if (first == 0)
        jumps(1);
    /* The same buffer again: from now on this call returns. */
    int second = sigsetjmp(shared, 1);
    printf("second %d\n", second);
    if (second < 3 && count++ < 5)
        jumps(second + 1);
    for (int i = 0; i < 3; i++) {
        kept *= 2;
        int got = sigsetjmp(shared, 1);
        if (got == 0)
            raise(SIGUSR1);
        printf("loop %d %d %g\n", i, got == SIGUSR1, kept);
    }
    int deep = setjmp(other);
    printf("deep %d\n", deep);
    if (deep == 0)
        nested(4);
    return 0;
}
