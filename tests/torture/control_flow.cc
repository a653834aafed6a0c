// Shapes of code: jump tables, computed goto, tail calls, recursion, variable arguments, structures
// by value, vector registers as arguments, alloca, self-loops at a function's first instruction.

#include "check.h"

#include <alloca.h>
#include <cstdarg>
#include <cstring>
#include <immintrin.h>

/// A byte-code machine with computed goto.
NOINLINE static long computed_goto(const unsigned char *code, long x) {
    static const void *const labels[] = {&&add, &&multiply, &&exclusive_or, &&jump, &&stop};
    long steps = 0;
#define NEXT goto *labels[*code++]
    NEXT;
add:
    x += 3;
    NEXT;
multiply:
    x *= 7;
    NEXT;
exclusive_or:
    x ^= 0x55;
    NEXT;
jump:
    if (++steps < 1000) {
        code -= 4;
    }
    NEXT;
stop:
    return x;
#undef NEXT
}

/// Two dense switches and a sparse one.
NOINLINE static int big_switch(int n) {
    int s = 0;
    switch (n % 40) {
    case 0: s = 11; break;
    case 1: s = n; break;
    case 2: s = n * 2; break;
    case 3: s = n ^ 3; [[fallthrough]];
    case 4: s += 4; break;
    case 5: s = -n; break;
    case 6: return 6;
    case 7: return n / 7;
    case 8: s = n << 3; break;
    case 9: s = n % 9; break;
    case 10: s = ~n; break;
    case 11: return big_switch(n - 1) + 1;
    case 12: s = 12; break;
    case 13: s = 1300; break;
    case 14: s = n & 14; break;
    case 15: s = n | 15; break;
    case 20: s = 20; break;
    case 21: s = 2; break;
    case 22: s = n + 22; break;
    case 23: s = n - 23; break;
    case 24: s = 24 * n; break;
    case 25: s = 25; break;
    case 30: s = 3; break;
    case 31: s = 5; break;
    case 39: s = 39; break;
    default: s = 1;
    }
    switch (n) {
    case 5: return s + 1;
    case 500: return s + 2;
    case 50000: return s + 3;
    case 5000000: return s + 4;
    }
    switch (static_cast<unsigned char>(s)) {
    case 'a': return 1 + s;
    case 'b': return 2 * s;
    case 'c': return 3 ^ s;
    case 'd': return s - 4;
    case 'e': return s % 5;
    case 'f': return s | 6;
    case 'g': return s & 7;
    }
    return s;
}

NOINLINE static long even(long n);
NOINLINE static long odd(long n) { return n == 0 ? 0 : even(n - 1); }
NOINLINE static long even(long n) { return n == 0 ? 1 : odd(n - 1); }

NOINLINE static long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

/// Arguments of both register classes, and enough of them to spill to the stack.
NOINLINE static double variadic(int count, ...) {
    va_list list;
    va_start(list, count);
    double sum = 0;
    for (int n = 0; n < count; n++) {
        sum += n % 3 == 0 ? va_arg(list, double) : n % 3 == 1 ? va_arg(list, int) : va_arg(list, long);
    }
    va_end(list);
    return sum;
}

struct Large {
    long values[9];
};
struct Mixed {
    double d;
    long l;
};

NOINLINE static Large by_value(Large large, Mixed mixed, long a, long b, long c, long d, long e) {
    large.values[3] += static_cast<long>(mixed.d) + mixed.l + a - b + c - d + e;
    return large;
}
NOINLINE static Mixed in_registers(double d, long l) { return {d * 2, l * 3}; }
NOINLINE static long double on_x87(long double x, long double y) { return x * y + 1; }
NOINLINE static __int128 in_two(__int128 x, long y) { return x * y + 1; }
NOINLINE static __m128i in_vectors(__m128i a, __m128i b, __m128d c) {
    return _mm_add_epi32(_mm_mul_epu32(a, b), _mm_castpd_si128(c));
}

/// Everything the calling convention may use for arguments and results at once.
NOINLINE static double many(long a, long b, long c, long d, long e, long f, double g, double h,
                            double i, double j, double k, double l, double m, double n, long o,
                            double p) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + g - h + i - j + k - l + m - n + o * p;
}

NOINLINE static unsigned with_alloca(unsigned size) {
    auto *room = static_cast<unsigned char *>(alloca(size + 1));
    std::memset(room, static_cast<int>(size), size);
    room[size] = 1;
    unsigned sum = 0;
    for (unsigned n = 0; n <= size; n += 7) {
        sum += room[n];
    }
    return sum;
}

/// Its first instruction is likely to be the target of its own loop.
NOINLINE static unsigned long countdown(unsigned long n) {
    do {
        asm volatile("" : "+r"(n));
    } while (--n != 0);
    return n;
}

/// Reads its own return address: it must lie in the caller, probes or none.
NOINLINE static const char *return_address() {
    return static_cast<const char *>(__builtin_return_address(0));
}
NOINLINE static bool return_address_is_mine() {
    const char *here = return_address();
    auto start = reinterpret_cast<const char *>(&return_address_is_mine);
    // Code moves under some tools; then the address must still be the place of a call that
    // returns here, which calling again from the same place shows.
    const char *again = nullptr;
    for (int n = 0; n < 2; n++) {
        const char *now = return_address();
        if (again != nullptr && again != now) {
            return false;
        }
        again = now;
    }
    return here != nullptr && start != nullptr;
}

using Function = long (*)(long);
template <int N> NOINLINE static long nth(long x) { return x * N + (x >> (N % 13)); }

/// Calls through a table, and functions compared as values.
NOINLINE static long through_table(long x) {
    static const Function table[] = {nth<1>, nth<2>, nth<3>, nth<4>, nth<5>, nth<6>, nth<7>, nth<8>};
    Function volatile chosen = table[x & 7];
    CHECK(chosen == table[x & 7]);
    return chosen(x);
}

/// Flags, all registers and the red zone around a call-free leaf.
NOINLINE static long leaf_with_red_zone(long x) {
    volatile long room[12];
    for (int n = 0; n < 12; n++) {
        room[n] = x + n;
    }
    long sum = 0;
    for (int n = 0; n < 12; n++) {
        sum += room[n] * (n + 1);
    }
    return sum;
}

uint64_t part_control_flow() {
    Digest digest;
    const unsigned char code[] = {0, 1, 2, 3, 4};
    digest.add(computed_goto(code, 5));
    for (int n = 0; n < 3000; n++) {
        digest.add(big_switch(n));
    }
    digest.add(big_switch(opaque(50000)) + big_switch(opaque(5000000)));
    digest.add(even(opaque(1001L)));
    digest.add(fibonacci(opaque(22L)));
    digest.add(static_cast<uint64_t>(
        variadic(12, 1.5, 2, 3L, 4.5, 5, 6L, 7.5, 8, 9L, 10.5, 11, 12L) * 8));
    Large large = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
    digest.add(by_value(large, {2.5, 7}, 1, 2, 3, 4, 5).values[3]);
    digest.add(in_registers(opaque(4L), 5).l + static_cast<long>(in_registers(2.5, 1).d));
    digest.add(static_cast<uint64_t>(on_x87(1e9L, 3.0L)));
    digest.add(static_cast<uint64_t>(in_two(opaque(1L << 62), 12) >> 60));
    __m128i vector = in_vectors(_mm_set1_epi32(7), _mm_set1_epi32(9), _mm_setzero_pd());
    digest.add(static_cast<uint64_t>(_mm_cvtsi128_si64(vector)));
    digest.add(static_cast<uint64_t>(
        many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)));
    for (unsigned size = 0; size < 5000; size += 111) {
        digest.add(with_alloca(size));
    }
    CHECK(countdown(opaque(100000ul)) == 0);
    CHECK(return_address_is_mine());
    for (long n = 0; n < 200; n++) {
        digest.add(through_table(n));
        digest.add(leaf_with_red_zone(n));
    }
    return digest.value();
}
