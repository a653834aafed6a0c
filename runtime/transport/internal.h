/* What the files of the transport share. */
#ifndef FETTLE_TRANSPORT_INTERNAL_H
#define FETTLE_TRANSPORT_INTERNAL_H

#include "fettle_transport.h"

#include <stdatomic.h>

enum {
    DESCRIPTORS = 256,
    RING = 512 << 10,  /* with what is copied out of it, it stays in a second-level cache */
    CHUNK = 64 << 10,  /* a longer message goes through the ring in pieces */
    SAMPLES = 8,
};

enum kind { KIND_MESSAGE = 1, KIND_MORE, KIND_TO_SOCKET, KIND_TO_SHARED };

/* Before each message, in shared memory or on the socket. */
struct descriptor {
    uint8_t kind, way;
    uint8_t stamped;   /* the receiver notes when it has the message, ... */
    uint8_t measured;  /* ... and counts how long it took */
    uint32_t length;
    uint64_t where;    /* in the ring, or in the sender's memory */
    uint64_t begun;    /* when sending began, if it is measured */
};

/* Messages from one process to the other, in memory of both. */
struct lane {
    _Alignas(64) _Atomic uint32_t sent; /* descriptors; written by the sender, who is waited for here */
    _Atomic uint32_t sender_sleeps;
    _Alignas(64) _Atomic uint32_t taken; /* descriptors; written by the receiver, who is waited for here */
    _Atomic uint32_t receiver_sleeps;
    _Atomic uint32_t refused;            /* reading out of the sender's memory is not possible after all */
    _Atomic uint64_t freed;              /* bytes of the ring */
    _Alignas(64) _Atomic uint64_t ticks[FETTLE_TRANSPORT_CLASSES][FETTLE_TRANSPORT_WAYS];
    _Atomic uint64_t counted[FETTLE_TRANSPORT_CLASSES][FETTLE_TRANSPORT_WAYS];
    _Alignas(64) struct descriptor descriptors[DESCRIPTORS];
    _Alignas(4096) unsigned char data[RING];
};

/* The last measured stretches of a way. */
struct measured {
    double samples[SAMPLES]; /* ticks a message */
    unsigned count;          /* all that there were */
    uint64_t seen_ticks, seen_count;
    uint64_t messages;
    uint64_t wait;  /* stretches until it is tried again, ... */
    uint64_t due;   /* ... which is in this one */
};

/* What a sender knows of messages of a class. */
struct chooser {
    int way, trial;      /* in use; what is tried instead at the moment, or -1 */
    int is_measured;     /* this stretch is, ... */
    int is_counted;      /* ... and the transport has counted it among those that are */
    uint32_t left;       /* messages of this stretch */
    uint32_t sent;       /* in it, so far */
    uint64_t begun;      /* when it began */
    uint64_t stretch;    /* its number */
    int beginning;       /* stretches that are left of the first round through all ways */
    uint64_t switches, renewed;
    double regret;       /* ticks that trials have cost more than the way in use would have */
    double total;        /* ticks of all stretches */
    struct measured ways[FETTLE_TRANSPORT_WAYS];
};

unsigned class_of(size_t length);
void chooser_begin(struct chooser *, unsigned open);
/* A stretch is over: what the receiver has measured is looked at, and the next one begins. */
void chooser_turn(struct chooser *, unsigned open, const _Atomic uint64_t *ticks, const _Atomic uint64_t *counted);
double mean_of(const struct measured *);
double ns_per_tick(void);

static inline uint64_t now_ticks(void) { return __builtin_ia32_rdtsc(); }

/* The way of the next message. */
static inline int chooser_way(const struct chooser *c) { return c->trial >= 0 ? c->trial : c->way; }

#endif
