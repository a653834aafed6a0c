/* For probes of your own: `fettle record --probe FILE.c -- PROGRAM`.
 *
 * Fettle compiles the file and puts fettle_enter at the entry and fettle_leave at every exit of
 * each function that is recorded; either may be missing. A function that is one straight line, and
 * each function that is recorded; either may be missing. A function that is one straight line, and
 *
 * A probe runs in the middle of the program's functions. It has no library, no writable variables
 * of its own, and must not make system calls that the program would notice; what it may write to
 * are four counters of each function and thread, which begin at zero:
 *
 *     #include <fettle_probe.h>
 *
 *     FETTLE_COUNTERS("calls, bytes, max:largest");
 *
 *     void fettle_enter(struct fettle_state *state, const struct fettle_call *call)
 *     {
 *         state->counter[0]++;
 *         state->counter[1] += call->argument[0];
 *         if (call->argument[0] > state->counter[2])
 *             state->counter[2] = call->argument[0];
 *     }
 *
 * The report adds the counters of threads up; those named with `max:` it takes the greatest of.
 * Frames that an exception or longjmp leaves have no fettle_leave.
 */
#ifndef FETTLE_PROBE_H
#define FETTLE_PROBE_H

#include <stdint.h>

/* The counters of one function in one thread. */
struct fettle_state {
    uint64_t counter[4];
};

/* Values of `moment`. */
#define FETTLE_ENTERED 0
#define FETTLE_RETURNS 1
#define FETTLE_TAIL_CALLS 2

/* The call that a probe runs for. */
struct fettle_call {
    /* Arguments in general-purpose registers, in order; at the entry only. */
    uint64_t argument[6];
    /* The result in the general-purpose register; when the function returns only. */
    uint64_t result;
    /* Stack pointer at the entry: the return address is there, and arguments follow it. */
    const uint64_t *stack;
    /* FETTLE_ENTERED, FETTLE_RETURNS or FETTLE_TAIL_CALLS. */
    uint64_t moment;
};

/* Names of the counters in use, in order, as one text. */
#define FETTLE_COUNTERS(names) \
    __attribute__((used, section(".fettle_counters"))) static const char fettle_counters[] = names

void fettle_enter(struct fettle_state *state, const struct fettle_call *call);
void fettle_leave(struct fettle_state *state, const struct fettle_call *call);

/* Ticks of the time-stamp counter. */
static inline uint64_t fettle_ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

#endif
