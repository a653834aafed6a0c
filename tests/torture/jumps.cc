// Leaving functions without returning: longjmp over many frames, in loops, from signal masks saved.

#include "check.h"

#include <csetjmp>
#include <csignal>

static jmp_buf place;
static sigjmp_buf place_with_mask;

NOINLINE static void leap(int depth, int value) {
    volatile int here = depth;
    if (depth == 0) {
        longjmp(place, value);
    }
    leap(depth - 1, value);
    CHECK(here == -1);
}

NOINLINE static int land(int depth) {
    volatile int tries = 0;
    int value = setjmp(place);
    tries = tries + 1;
    if (value < 5) {
        leap(depth, value + 1);
    }
    return value * 100 + tries;
}

NOINLINE static int land_with_mask() {
    volatile int landed = 0;
    if (sigsetjmp(place_with_mask, 1) != 0) {
        landed = landed + 1;
    }
    if (landed < 3) {
        siglongjmp(place_with_mask, 1);
    }
    return landed;
}

/// A leap over frames that were entered after others had been left by leaps.
NOINLINE static int leap_often(int count) {
    volatile int sum = 0;
    for (volatile int n = 0; n < count; n = n + 1) {
        int value = setjmp(place);
        if (value == 0) {
            leap(n % 50, n + 1);
        }
        sum = sum + value % 7;
    }
    return sum;
}

uint64_t part_jumps() {
    Digest digest;
    for (int depth = 0; depth < 60; depth += 7) {
        digest.add(land(depth));
    }
    digest.add(land_with_mask());
    digest.add(leap_often(3000));
    return digest.value();
}
