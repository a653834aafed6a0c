/* fettle_knob.h: numbers that others set and your C or C++ program reads.
 *
 *     #include "fettle_knob.h"
 *
 *     FETTLE_KNOB(path, "put.path", 7, 4, 0, 0, 3);    // once, at file scope: 0 if nothing is said, else 0 to 3
 *
 *     switch (FETTLE_VALUE(path)) { ... }              // one load
 *
 * `fettle sensors set put.path 2` changes it, and so do rules of `fettle watch`. Without FETTLE_SENSORS in
 * the environment a knob has its default for good. The first FETTLE_VALUE makes the knob's file, and may not
 * be in a signal handler; all others may.
 *
 * The idea. A knob is a page of the program's own data, over which a page of its file is mapped when the knob
 * is made. So reading it is one load from an address that never changes. INT64_MIN says that it is not made
 * yet. In the child of a fork the C library calls back, and the page is one of the child's own again.
 *
 * Apache-2.0 OR MIT.
 */
#ifndef FETTLE_KNOB_H
#define FETTLE_KNOB_H

#include "fettle.h"

#define FETTLE_KNOB_UNOPENED INT64_MIN

struct fettle_knob_slot {
    int64_t value; /* written by others */
    uint64_t pad0[7];
    int64_t default_value, least, greatest;
    int64_t resting; /* what `value` is while no process holds the knob */
    uint64_t held, sets;
    uint64_t pad1[498];
} __attribute__((aligned(4096)));

/* One knob. */
struct fettle_knob {
    struct fettle_knob_slot page; /* its memory is replaced */
    struct fettle_sensor sensor;
    int64_t default_value, least, greatest;
    struct fettle_knob *next;
    uint32_t is_listed;
};

/* Defines a knob: its name and numbers, its default, and the least and greatest value that may be set. */
#define FETTLE_KNOB(id, name, major, minor, default_value, least, greatest)                           \
    struct fettle_knob id = {{FETTLE_KNOB_UNOPENED, {0}, 0, 0, 0, 0, 0, 0, {0}},                      \
                             {name, major, minor, 0, FETTLE_KIND_KNOB, 0, 1, 0, 0, 0, 0, NULL},       \
                             default_value, least, greatest, NULL, 0}

/* Declares a knob that another file defines. */
#define FETTLE_EXTERN_KNOB(id) extern struct fettle_knob id

/* The value, an int64_t: one load, and a comparison that fails but once. */
#define FETTLE_VALUE(id) fettle_value(&id)

/* Knobs of this file that were made, the last one first. */
static struct fettle_knob *fettle__knobs __attribute__((unused));

/* In the child of a fork: what is mapped is the parent's knob; the child's own is made when it is read. */
FETTLE__COLD void fettle__forget_knobs(void) {
    struct fettle_knob *k;
    for (k = __atomic_load_n(&fettle__knobs, __ATOMIC_ACQUIRE); k != NULL; k = k->next) {
        long page = fettle__sys(FETTLE__MMAP, 0, 4096, 3, 0x22 /* PRIVATE ANON */, -1, 0);
        if (fettle__is_error(page)) continue;
        *(int64_t *)page = FETTLE_KNOB_UNOPENED;
        fettle__sys(25 /* mremap */, page, 4096, 4096, 3 /* MAYMOVE FIXED */, (long)&k->page, 0);
        __atomic_store_n(&k->sensor.state, FETTLE__UNOPENED, __ATOMIC_RELEASE);
    }
}

/* Has a child of a fork know this knob, so that it gets one of its own; returns whether that is so. */
FETTLE__COLD int fettle__list_knob(struct fettle_knob *k) {
    static uint32_t is_called_back;
    if (__register_atfork == NULL) return 0;
    if (__atomic_exchange_n(&is_called_back, 1, __ATOMIC_ACQ_REL) == 0 &&
        __register_atfork(NULL, NULL, fettle__forget_knobs, &__dso_handle) != 0) {
        __atomic_store_n(&is_called_back, 0, __ATOMIC_RELEASE);
        return 0;
    }
    if (__atomic_exchange_n(&k->is_listed, 1, __ATOMIC_ACQ_REL) == 0) {
        k->next = __atomic_load_n(&fettle__knobs, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&fettle__knobs, &k->next, k, 0, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {}
    }
    return 1;
}

/* Maps a new file and fills it in; returns whether the knob's page is the file's by now. */
FETTLE__COLD int fettle__map_knob(struct fettle_knob *k, long fd) {
    long bytes = 2 * FETTLE_SLOTS, populated = 0;
    long base = fettle__sys(FETTLE__MMAP, 0, bytes, 3, 1 /* SHARED */, fd, 0);
    struct fettle_head *head = (struct fettle_head *)base;
    struct fettle_knob_slot *slot = (struct fettle_knob_slot *)(base + FETTLE_SLOTS);
    if (fettle__is_error(base)) return 0;
    populated = fettle__populate((char *)base, (uint64_t)bytes);
    if (populated == -22) populated = fettle__sys(FETTLE__FALLOCATE, fd, 0, 0, bytes, 0, 0);
    if (populated == 0) {
        slot->value = slot->default_value = slot->resting = k->default_value;
        slot->least = k->least;
        slot->greatest = k->greatest;
        fettle__fill_head(head, &k->sensor);
        if (fettle__sys(FETTLE__MMAP, (long)&k->page, 4096, 3, 0x11 /* SHARED FIXED */, fd, FETTLE_SLOTS) ==
            (long)&k->page)
            fettle__store(&head->magic, FETTLE_MAGIC);
        else
            populated = -1;
    }
    fettle__sys3(11 /* munmap */, base, bytes, 0);
    return populated == 0;
}

FETTLE__COLD void fettle__make_knob(struct fettle_knob *k) {
    long dir = fettle__open_directory(), fd;
    struct fettle__text name = {{0}, 0};
    int made = 0;
    if (dir < 0) return;
    fd = fettle__create(dir, &k->sensor, &name);
    if (fd >= 0) {
        if (fettle__sys3(FETTLE__FTRUNCATE, fd, 2 * FETTLE_SLOTS, 0) == 0) made = fettle__map_knob(k, fd);
        if (!made) fettle__sys3(FETTLE__UNLINKAT, dir, (long)name.bytes, 0);
        fettle__sys3(FETTLE__CLOSE, fd, 0, 0);
    }
    fettle__sys3(FETTLE__CLOSE, dir, 0, 0);
}

/* Makes a knob; another thread that is at it has the default meanwhile. */
FETTLE__COLD int64_t fettle__open_knob(struct fettle_knob *k) {
    uint32_t state = FETTLE__UNOPENED;
    int64_t unopened = FETTLE_KNOB_UNOPENED;
    if (!__atomic_compare_exchange_n(&k->sensor.state, &state, FETTLE__OPENING(0), 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return k->default_value;
    if (fettle__list_knob(k)) fettle__make_knob(k);
    /* Without a file it is the default for good. */
    __atomic_compare_exchange_n(&k->page.value, &unopened, k->default_value, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    __atomic_store_n(&k->sensor.state, FETTLE__ON, __ATOMIC_RELEASE);
    return __atomic_load_n(&k->page.value, __ATOMIC_RELAXED);
}

/* A knob's value. */
static inline int64_t fettle_value(struct fettle_knob *k) {
    int64_t value = __atomic_load_n(&k->page.value, __ATOMIC_RELAXED);
    return __builtin_expect(value == FETTLE_KNOB_UNOPENED, 0) ? fettle__open_knob(k) : value;
}

#endif
