// The catching function has no probes, and goes on deeper on the stack than the throwing one;
// twice.
#include <alloca.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static jmp_buf back;
static volatile long sum;

__attribute__((noinline)) void spin(int n) {
    for (int i = 0; i < n; i++) sum += i;
}

__attribute__((noinline)) void unwind(void) {
    sum++;
    longjmp(back, 1);
}

__attribute__((noinline)) void deeper(void) {
    char *place = alloca(4096);
    memset(place, 1, 4096);
    spin(100000);
    sum += place[5];
}

__attribute__((noinline)) void catcher(void) {
    if (setjmp(back) == 0) unwind();
    spin(1000);
    deeper();
    sum++;
}

__attribute__((noinline)) void outer(void) {
    for (int i = 0; i < 3; i++) catcher();
    sum++;
}

int main(void) {
    outer();
    printf("%ld\n", sum);
    return 0;
}
