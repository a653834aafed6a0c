// Interpreters of arrays of labels: one with operations that mean nothing and have no label, one
// whose operations are also negative.
#include <stdio.h>

__attribute__((noinline)) static long with_holes(const unsigned char *op) {
    static const void *const labels[64] = {&&stop, &&inc, &&twice, &&dec, [40] = &&more, &&more};
    long a = 0;
#define NEXT goto *labels[*op++]
    NEXT;
inc: a++; NEXT;
twice: a *= 2; NEXT;
dec: a--; NEXT;
more: a += 1000; NEXT;
stop: return a;
#undef NEXT
}

__attribute__((noinline)) static long with_negative(const signed char *op) {
    static const void *const labels[] = {&&less, &&five, &&flip, &&stop, &&inc, &&twice, &&more};
    long a = 0;
#define NEXT goto *(labels + 3)[*op++]
    NEXT;
inc: a++; NEXT;
twice: a *= 2; NEXT;
more: a += 1000; NEXT;
less: a -= 7; NEXT;
five: a *= 5; NEXT;
flip: a ^= 7; NEXT;
stop: return a;
}

int main(void) {
    static const unsigned char holes[] = {1, 1, 2, 40, 3, 41, 2, 0};
    static const signed char negative[] = {1, 1, 2, 3, -3, -2, -1, 2, 0};
    printf("%ld %ld\n", with_holes(holes), with_negative(negative));
    return 0;
}
