/* Built without symbols and unwind tables, nothing says where its functions are. */
#include <stdio.h>

__attribute__((noinline)) static int large(int x)
{
    __asm__ volatile("jmp 1f\n.fill 8192, 1, 0x90\n1:" : "+r"(x));
    return x + 1;
}

int main(void)
{
    printf("%d\n", large(1));
    return 0;
}
