// Arithmetic, which no system should make slower: where these differ, something else does.
#include "bench.h"

#include <string.h>

// The compiler may not know what a value is, nor leave it out.
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define KEEP_VECTOR(x) __asm__ volatile("" : "+x"(x))

static void integers(unsigned long n)
{
    unsigned long x = 1;
    for (unsigned long i = 0; i < n; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        x ^= x >> 29;
        KEEP(x);
    }
}

static void divisions(unsigned long n)
{
    unsigned long x = ~0ul;
    for (unsigned long i = 0; i < n; i++) {
        unsigned long by = (x & 0xff) + 3;
        KEEP(by);
        x = ~0ul - x / by;
        KEEP(x);
    }
}

static void doubles(unsigned long n)
{
    double x = 1.0;
    for (unsigned long i = 0; i < n; i++) {
        x = x * 0.999999 + 0.25;
        KEEP_VECTOR(x);
    }
}

static void copies(unsigned long n)
{
    static char from[65536], to[65536];
    for (unsigned long i = 0; i < n; i++) {
        memcpy(to, from, sizeof to);
        __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
    }
}

const struct benchmark arithmetic[] = {
    {"integer", "arithmetic", "a multiplication, an addition and a shift", 0, integers, 0},
    {"divide", "arithmetic", "an integer division", 0, divisions, 0},
    {"double", "arithmetic", "a multiplication and an addition of doubles", 0, doubles, 0},
    {"memcpy-64k", "arithmetic", "64 KiB copied within the caches", 0, copies, 0},
    {0},
};
