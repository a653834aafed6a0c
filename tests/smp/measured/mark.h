/* Marks for plugins that count (`cargo xtask bench smp`, `cargo xtask bench kernel-tune`). On any other machine they do nothing. */
#ifndef MARK_H
#define MARK_H

#include <stdio.h>

#define MARK(kind) __asm__ volatile(".byte 0x0f, 0x1f, 0x80, " #kind ", 0x5e, 0xa5, 0x5a" : : : "memory")
#define MARK_SHORT() MARK(0x60)
#define MARK_LONG() MARK(0x61)
#define MARK_END() MARK(0x62)
#define MARK_COUNT() MARK(0x63)
#define MARK_MODEL() MARK(0x64)
#define MARK_MODEL_END() MARK(0x65)
#define MARK_MODEL_END_WITH_BLOCKS() MARK(0x66)

/* Names the measurement that has just ended, and says how many of what it had. */
static inline void name_measurement(const char *name, long count)
{
    printf("measured %s %ld\n", name, count);
    fflush(stdout);
}

#endif
