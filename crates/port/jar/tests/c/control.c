/* Switches, computed goto, indirect calls, setjmp, variable arguments, recursion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int dense(int x) {
    switch (x) {
    case 0: return 10;
    case 1: return 7;
    case 2: puts("two"); return 2;
    case 3: return x * 3;
    case 4: return -1;
    case 5: puts("five"); /* and on */
    case 6: return 66;
    case 7: return 1;
    default: return 99;
    }
}

static int interpret(const unsigned char *code) {
    static void *labels[] = {&&stop, &&add, &&sub, &&dup, &&jump};
    int acc = 1, steps = 0;
next:
    if (steps++ > 50) return -acc;
    goto *labels[*code++];
add: acc += *code++; goto next;
sub: acc -= *code++; goto next;
dup: acc *= 2; goto next;
jump: code -= *code; goto next;
stop: return acc;
}

static double twice(double x) { return x * 2; }
static double half(double x) { return x / 2; }
static double (*pick(int i))(double) { return i % 2 ? twice : half; }

static long long sum(int n, ...) {
    va_list list;
    va_start(list, n);
    long long total = 0;
    for (int i = 0; i < n; i++) total += i % 2 ? va_arg(list, long long) : (long long)va_arg(list, double);
    va_end(list);
    return total;
}

static jmp_buf env;
static void deep(int n) {
    if (n == 0) longjmp(env, 42);
    deep(n - 1);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

struct pair { int a; double b; };
static struct pair make(int a, double b) { return (struct pair){a + 1, b + 1}; }

int main(void) {
    for (int i = -1; i < 9; i++) printf("%d ", dense(i));
    printf("\n%d\n", interpret((unsigned char[]){1, 5, 3, 2, 3, 3, 0}));
    printf("%d\n", interpret((unsigned char[]){1, 5, 4, 3, 0}));
    for (int i = 0; i < 4; i++) printf("%g ", pick(i)(i + 1.5));
    printf("\n%lld\n", sum(4, 1.5, 2LL << 33, 3.0, -4LL));
    volatile int tries = 0;
    int kept = rand() % 1000;
    int code = setjmp(env);
    if (code < 50 && tries < 3) {
        tries++;
        printf("code %d, tries %d, kept %d\n", code, tries, kept);
        deep(10);
    }
    int numbers[] = {5, 3, 9, -4, 0, 77, 12, 3};
    qsort(numbers, 8, sizeof(int), compare);
    for (int i = 0; i < 8; i++) printf("%d ", numbers[i]);
    struct pair p = make(3, 4.5);
    printf("\n%d %g\n", p.a, p.b);
    char *text = malloc(100000);
    memset(text, 'x', 99999);
    text[99999] = 0;
    printf("%zu\n", strlen(text));
    free(text);
    return dense(3);
}
