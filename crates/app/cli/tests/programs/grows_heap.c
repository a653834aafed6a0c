// Has its heap grow by 4 GiB, which leads far past what is near the program.
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    char *begin = sbrk(0);
    char *old = sbrk((intptr_t)1 << 32);
    if (old != begin) {
        puts("it cannot grow");
        return 1;
    }
    old[0] = old[((intptr_t)1 << 32) - 1] = 1;
    puts("4 GiB more");
    return 0;
}
