/* What the compilers' own instrumentation calls, reduced to the least that is of use. With
   -DCOUNT: one counter of all calls in the thread. Otherwise: a time stamp at entry is pushed, and at exit a
   record of sixteen bytes goes to a ring in the thread's memory. */
#include <stdint.h>

#define HOOK __attribute__((no_instrument_function, visibility("default")))

struct frame {
    uint64_t function, start;
};

static __thread uint64_t calls;
#ifndef COUNT
static __thread uint32_t depth, position;
static __thread struct frame stack[1 << 16];
static __thread struct frame ring[1 << 16];

__attribute__((no_instrument_function)) static inline uint64_t stamp(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}
#endif

HOOK void __cyg_profile_func_enter(void *function, void *caller) {
    (void)caller;
    calls++;
#ifndef COUNT
    struct frame *frame = &stack[depth++ & 0xffff];
    frame->function = (uintptr_t)function;
    frame->start = stamp();
#endif
}

HOOK void __cyg_profile_func_exit(void *function, void *caller) {
    (void)function;
    (void)caller;
#ifndef COUNT
    struct frame *frame = &stack[--depth & 0xffff];
    ring[position++ & 0xffff] = (struct frame){frame->function, stamp() - frame->start};
#endif
}
