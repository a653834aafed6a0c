/* A call of setjmp in a function that is too large for one method. */
#include <setjmp.h>
#include <stdio.h>

static jmp_buf env;
static volatile int cell[8];

#define ONE(n) if (cell[(n) & 7] > n) cell[(n) * 3 & 7] ^= cell[(n) * 5 & 7] + n;
#define TEN(n) ONE(n) ONE(n + 1) ONE(n + 2) ONE(n + 3) ONE(n + 4) ONE(n + 5) ONE(n + 6) ONE(n + 7) ONE(n + 8) ONE(n + 9)
#define HUNDRED(n) TEN(n) TEN(n + 10) TEN(n + 20) TEN(n + 30) TEN(n + 40) TEN(n + 50) TEN(n + 60) TEN(n + 70) TEN(n + 80) TEN(n + 90)

__attribute__((noinline)) static int large(int times) {
    HUNDRED(0) HUNDRED(100)
    int code = setjmp(env);
    HUNDRED(200) HUNDRED(300)
    if (code < times) longjmp(env, code + 1);
    return code;
}

int main(void) {
    printf("%d\n", large(3));
    return 0;
}
