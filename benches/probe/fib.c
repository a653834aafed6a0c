/* The smallest program that does nothing but call. The empty assembler statements keep compilers
   from making loops of the calls, each in its own way. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static long fib(long n) {
    if (n < 2) {
        return n;
    }
    long a = fib(n - 1);
    __asm__ volatile("" : "+r"(a));
    long b = fib(n - 2);
    __asm__ volatile("" : "+r"(b));
    return a + b;
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 37;
    printf("%ld\n", fib(n));
    return 0;
}
