/* Functions that are left in different ways, or not at all. */
#include <setjmp.h>
#include <stdlib.h>

static jmp_buf back;
static volatile int sum;

int calls_nothing(int a)
{
    for (int i = 0; i < 3; i++)
        sum += a ^ i;
    return sum;
}

void jumps_far(int a)
{
    if (a % 3 == 0 && a > 0)
        longjmp(back, 1);
    calls_nothing(a);
}

int goes_on_elsewhere(int a)
{
    return calls_nothing(a * 2);
}

void ends(void)
{
    exit(0);
}

int main(void)
{
    for (volatile int i = 0; i < 1000; i++) {
        if (!setjmp(back))
            jumps_far(i);
    }
    for (int i = 0; i < 500; i++)
        goes_on_elsewhere(i);
    for (int i = 0; i < 1833; i++)
        calls_nothing(i);
    ends();
}
