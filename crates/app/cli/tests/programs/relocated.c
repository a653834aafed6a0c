// Code that the loader changes: an instruction holds an address as it is. In a program, or (LIBRARY) in
// a library and (CALLER) in a program that calls it.
#include <stdio.h>

int get(void);

#ifndef CALLER
int value = 42;

__attribute__((noinline)) int get(void) {
    int *from;
    __asm__ volatile("movabs $value, %0" : "=r"(from));
    return *from;
}

__attribute__((noinline)) int of_two(int a, int b) { return a > b ? get() - a : get() - b; }
#else
int of_two(int a, int b);
#endif

#ifndef LIBRARY
int main(void) {
    printf("%d %d\n", get() * 1000, of_two(3, 7));
    return 3;
}
#endif
