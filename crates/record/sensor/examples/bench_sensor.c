/* The C half of bench_sensor: nanoseconds per event, medians, one `name value` to a line. */
#include "fettle.h"

#include <stdio.h>

#define EVENTS 200000
#define ROUNDS 75
#define CPU_TIME 3 /* of this thread, so that a busy machine does not count */

FETTLE_LIST(list, "bench.list", 900, 1, FETTLE_OVERWRITE);
FETTLE_SHARED_LIST(shared, "bench.shared", 900, 2, FETTLE_OVERWRITE);
FETTLE_SCALAR(scalar, "bench.scalar", 900, 3);
FETTLE_HISTOGRAM(histogram, "bench.histogram", 900, 4);

static int compare(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

#define MEASURE(name, body)                                                      \
    do {                                                                         \
        double times[ROUNDS];                                                    \
        int round;                                                               \
        uint64_t i;                                                              \
        for (round = 0; round < ROUNDS; round++) {                               \
            uint64_t start = fettle__clock(CPU_TIME);                                   \
            for (i = 0; i < EVENTS; i++) {                                       \
                body;                                                            \
                __asm__ __volatile__("" ::: "memory");                           \
            }                                                                    \
            times[round] = (double)(fettle__clock(CPU_TIME) - start) / EVENTS;          \
        }                                                                        \
        qsort(times, ROUNDS, sizeof times[0], compare);                          \
        printf("%s %.2f\n", name, times[ROUNDS / 2]);                            \
    } while (0)

int main(void) {
    uint64_t sink = 0;
    MEASURE("rdtsc", sink += __builtin_ia32_rdtsc());
    MEASURE("list", FETTLE_COMMIT(list, 1, i, i));
    MEASURE("shared", FETTLE_COMMIT(shared, 1, i, i));
    MEASURE("add", FETTLE_ADD(scalar, 1));
    MEASURE("set", FETTLE_SET(scalar, i));
    MEASURE("histogram", FETTLE_RECORD(histogram, i));
    return sink == 1;
}
