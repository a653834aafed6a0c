/* Two calls of three are left by longjmp, again and again, for a function that may have no probes. */

#include <setjmp.h>

static jmp_buf caught;

__attribute__((noinline)) void leaf(int i)
{
    if (i % 3)
        longjmp(caught, 1);
}

__attribute__((noinline)) void middle(int i)
{
    leaf(i);
    __asm__ volatile("");
}

__attribute__((noinline)) int catcher(int i)
{
    if (!setjmp(caught))
        middle(i);
    return i;
}

int main(void)
{
    for (int i = 0; i < 100; i++)
        catcher(i);
    return 0;
}
