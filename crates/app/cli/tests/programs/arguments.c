/* Calls with arguments of every kind, and pointers that lead nowhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) double mixed(const char *name, int n, double x, unsigned char c, long a,
                                       long b, long d, long stacked, const char *last)
{
    return n * x + strlen(name) + c + a + b + d + stacked + strlen(last);
}

__attribute__((noinline)) const char *greet(const char *who)
{
    return (unsigned long)who - 0x1000 < 1ul << 47 ? "hello" : "nobody";
}

__attribute__((noinline)) int nested(int depth)
{
    return depth ? nested(depth - 1) + 1 : getpid() > 0;
}

static void on_fault(int signal)
{
    (void)signal;
    printf("the program's own fault\n");
    fflush(stdout);
    _exit(7);
}

int main(void)
{
    signal(SIGSEGV, on_fault);
    double sum = 0;
    for (int i = -2; i < 3; i++)
        sum += mixed("abcdefgh", i, 1.5, 200, 1, 2, 3, 4,
                     "a text of more than sixty-four bytes, which is as much as is taken of one");
    puts(greet("you"));
    puts(greet(""));
    puts(greet(0));
    puts(greet((char *)0x500000000123));
    puts(greet((char *)0x8000000000000000));
    printf("%g %d\n", sum, nested(9));
    fflush(stdout);
    return *(volatile int *)0x123;
}
