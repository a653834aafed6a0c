// A switch without a default, one of whose cases the compiler keeps with code that seldom runs:
// the table has no bound, and leads out of the function in its midst.
#include <stdio.h>
#include <stdlib.h>

static long sums[8];

__attribute__((cold, noinline)) static void seldom(long *sum) {
    *sum += 1000;
}

__attribute__((noinline)) long *choose(int op, long *sum) {
    switch (op) {
    case 0: sum[0] += 1; return sum;
    case 1: sum[1] += 2; return sum + 1;
    case 2: sum[2] += 3; return sum + 2;
    case 3: seldom(sum); sum[3] += 4; return sum + 3;
    case 4: sum[4] += 5; return sum + 4;
    case 5: sum[5] += 6; return sum + 5;
    case 6: seldom(sum); sum[6] += 7; return sum + 6;
    case 7: sum[7] += 8; return sum + 7;
    default: __builtin_unreachable();
    }
}

int main(void) {
    for (int i = 0; i < 80; i++) printf("%ld ", *choose(i * 5 % 8, sums));
    puts("");
    return 0;
}
