/* Integers of all widths, floating point, shifts, division: what instructions do at their edges. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static const int32_t edges[] = {0, 1, -1, 2, -2, 31, 32, 33, 0x7fffffff, -0x7fffffff - 1, 0x8000, 0xffff};
#define EDGES (sizeof edges / sizeof *edges)

static void integers(int32_t a, int32_t b) {
    uint32_t u = a, v = b;
    printf("%d %d %d %d %d ", a + b, a - b, a < b, u < v, (int)(u * v));
    if (b && !(b == -1 && a == -0x7fffffff - 1)) printf("%d %d %u %u ", a / b, a % b, u / v, u % v);
    printf("%d %u %d %d ", a >> (b & 31), u >> (b & 31), (int8_t)a, (int16_t)b);
    printf("%lld %llu %lld\n", (long long)a * b, (unsigned long long)u * v, ((long long)a << 32 | v) >> (b & 63));
}

static void longs(int64_t a, int64_t b) {
    uint64_t u = a, v = b;
    printf("%lld %lld %d %d %lld ", (long long)(a + b), (long long)(a - b), a < b, u < v, (long long)(a * b));
    if (b && b != -1) printf("%lld %lld %llu %llu ", (long long)(a / b), (long long)(a % b), (unsigned long long)(u / v), (unsigned long long)(u % v));
    printf("%d %d\n", __builtin_clzll(u | 1), __builtin_popcountll(v));
}

static void floats(double a, double b) {
    float f = a, g = b;
    printf("%.17g %.17g %.17g %.17g %.9g %.9g ", a + b, a - b, a * b, a / b, f * g, f / g);
    printf("%d%d%d%d%d ", a < b, a <= b, a == b, a != b, isunordered(a, b));
    printf("%.17g %.9g %.17g %.17g\n", sqrt(fabs(a)), sqrtf(fabsf(f)), floor(a), fmod(a, b));
    if (fabs(a) < 2e9) printf("%d %lld %u\n", (int)a, (long long)b, (unsigned)fabs(a));
}

struct __attribute__((packed)) odd {
    char c;
    int i;
    short s;
    double d;
};

int main(void) {
    for (unsigned i = 0; i < EDGES; i++)
        for (unsigned j = 0; j < EDGES; j++) integers(edges[i], edges[j]);
    for (int i = 0; i < 200; i++) {
        uint64_t a = next(), b = next() >> (i & 63);
        integers(a, b);
        longs(a, b);
        floats((int64_t)a / 4294967296.0, (int64_t)b / 65536.0);
    }
    struct odd odd[3];
    memset(odd, 0, sizeof odd);
    for (int i = 0; i < 3; i++) odd[i] = (struct odd){i, 0x12345678 * i, -i, i / 3.0};
    for (unsigned i = 0; i < sizeof odd; i++) printf("%02x", ((unsigned char *)odd)[i]);
    printf("\n%d %d %g\n", odd[2].i, odd[1].s, odd[2].d);
    printf("%.12f %.12f %.12f %.12f\n", sin(1), exp(2), pow(3, 0.5), atan2(1, -2));
    return 0;
}
