// Code that the loader changes: an instruction holds an address as it is.
#include <stdio.h>

int value = 42;

__attribute__((noinline)) static int get(void) {
    int *from;
    __asm__ volatile("movabs $value, %0" : "=r"(from));
    return *from;
}

int main(void) {
    printf("%d\n", get() * 1000);
    return 3;
}
