/* Goes on behind a trap, as its handler says, or dies of it (UNHANDLED). Prints what it came to. */
#include <signal.h>
#include <stdio.h>

static volatile int traps;

static void count(int signal)
{
    (void)signal;
    traps++;
}

__attribute__((noinline)) static int trap(int x)
{
    __asm__ volatile("int3");
    return x + 1;
}

/* As Chromium's CHECK(), and with nothing behind its trap. */
__attribute__((noinline)) static int checked(int x)
{
    if (x < 0)
        __asm__ volatile("int3; ud2; pushq $3");
    if (x > 1000) {
        __asm__ volatile("int3");
        __builtin_unreachable();
    }
    return x + 2;
}

__attribute__((noinline, used)) static int never(int x)
{
    puts("this must not run");
    return x * 3;
}

int main(void)
{
    int sum = 0;
#ifndef UNHANDLED
    signal(SIGTRAP, count);
#endif
    for (int i = 0; i < 100; i++)
        sum += checked(i);
    printf("%d\n", sum);
    fflush(stdout);
    for (int i = 0; i < 100; i++)
        sum += trap(i);
    printf("%d after %d traps\n", sum, traps);
    return 3;
}
