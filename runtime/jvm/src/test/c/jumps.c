// setjmp, callbacks of libc, and numbers that are hard to print.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
jmp_buf b;
void g(int k) {
    if (k == 0)
        longjmp(b, 5);
    g(k - 1);
}

static int cmp(const void *a, const void *b) {
    return *(int *)a - *(int *)b;
}

int main() {
    volatile int i = 0;
    int v = setjmp(b);
    printf("v %d i %d\n", v, i);
    if (v == 0 || i < 3) {
        i++;
        g(10);
    }
    int a[] = {5, 2, 9, 1};
    qsort(a, 4, 4, cmp);
    for (int k = 0; k < 4; k++)
        printf("%d ", a[k]);
    puts("");
    double d[] = {1.0 / 3, 1e300 * 1e10, -0.0, 0.0 / (i - i * 1.0 - (i - 3) + 0 * i)};
    for (int k = 0; k < 4; k++)
        printf("%g %a\n", d[k], d[k]);
    printf("%lld %llu %d\n", -7LL / 2, ~0ULL / 3, (int)3.99);
    return 0;
}
