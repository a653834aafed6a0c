/* Goes on behind a trap, as its handler says. Prints what it came to. */
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

__attribute__((noinline, used)) static int never(int x)
{
    puts("this must not run");
    return x * 3;
}

int main(void)
{
    int sum = 0;
    signal(SIGTRAP, count);
    for (int i = 0; i < 100; i++)
        sum += trap(i);
    printf("%d after %d traps\n", sum, traps);
    return 3;
}
