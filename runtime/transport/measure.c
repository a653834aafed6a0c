/* Measures messages from one process to another by one way, or by the way that the sender chooses.
 *
 *     measure WAY|auto SIZE|mixed|moving BYTES SENDER RECEIVER [ROUNDS [SECONDS]]
 *
 * SENDER and RECEIVER are processors. `mixed` has messages of all size classes, the same number of bytes of each and at
 * most 2,000 of one; `moving` has them too, and both processes change between one processor and two all the time. Says
 * one number to a line: nanoseconds of a round of BYTES, until the receiver has all of it. With `auto`, the choices
 * follow on standard error. */
#define _GNU_SOURCE
#include "fettle_transport.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("processor");
        exit(1);
    }
}

static const char *ways[] = {"socket", "ring", "spin", "read"};

enum { LONGEST = 4 << 20 };

struct load {
    uint32_t *sizes; /* of one round */
    size_t count;
};

static void add(struct load *l, uint32_t size) {
    l->sizes = realloc(l->sizes, (l->count + 1) * sizeof *l->sizes);
    if (l->sizes == NULL) exit(1);
    l->sizes[l->count++] = size;
}

/* Of all classes, in an order that is always the same and has no pattern. */
static struct load mixed(size_t bytes) {
    struct load l = {NULL, 0};
    uint64_t state = 88172645463325252u;
    for (uint32_t size = 64; size <= LONGEST; size *= 4) {
        size_t n = bytes / 9 / size;
        for (n = n > 2000 ? 2000 : n < 1 ? 1 : n; n > 0; n--) add(&l, size);
    }
    for (size_t i = l.count - 1; i > 0; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t other = state % (i + 1);
        uint32_t size = l.sizes[i];
        l.sizes[i] = l.sizes[other];
        l.sizes[other] = size;
    }
    return l;
}

static struct load of_one_size(size_t bytes, uint32_t size) {
    struct load l = {NULL, 0};
    for (size_t n = bytes / size > 0 ? bytes / size : 1; n > 0; n--) add(&l, size);
    return l;
}

static unsigned char *buffer(void) {
    void *at = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) exit(1);
    memset(at, 'm', LONGEST);
    return at;
}

int main(int count, char **arguments) {
    if (count < 6) {
        fprintf(stderr, "measure WAY|auto SIZE|mixed|moving BYTES SENDER RECEIVER [ROUNDS]\n");
        return 2;
    }
    int way = -1, moves = strcmp(arguments[2], "moving") == 0, pair[2], acknowledge[2];
    for (int i = 0; i < FETTLE_TRANSPORT_WAYS; i++)
        if (strcmp(arguments[1], ways[i]) == 0) way = i;
    size_t bytes = strtoull(arguments[3], NULL, 10);
    int sender = atoi(arguments[4]), receiver = atoi(arguments[5]), rounds = count > 6 ? atoi(arguments[6]) : 10;
    double seconds = count > 7 ? atof(arguments[7]) : 1e9;
    uint32_t size = (uint32_t)strtoul(arguments[2], NULL, 10);
    struct load load = size > 0 ? of_one_size(bytes, size) : mixed(bytes);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || pipe(acknowledge) != 0) return 1;
    pid_t child = fork();
    unsigned char *bytes_of = buffer();
    if (child == 0) {
        close(pair[0]);
        stay_on(receiver);
        struct fettle_transport *t = fettle_transport_open(pair[1], 0);
        for (int round = 0; t != NULL; round++) {
            if (moves) stay_on(round / 8 % 2 ? sender : receiver);
            for (size_t i = 0; i < load.count; i++)
                if (fettle_transport_receive(t, bytes_of, LONGEST) != (ssize_t)load.sizes[i]) return errno != EPIPE || i != 0;
            if (write(acknowledge[1], "y", 1) != 1) return 1;
        }
        return 0;
    }
    close(pair[1]);
    stay_on(sender);
    struct fettle_transport *t = fettle_transport_open(pair[0], 0);
    if (t == NULL) {
        perror("transport");
        return 1;
    }
    fettle_transport_fix(t, way);
    double first = now_ns();
    for (int round = 0; round < rounds && now_ns() - first < seconds * 1e9; round++) {
        char done;
        double begun = now_ns();
        for (size_t i = 0; i < load.count; i++)
            if (fettle_transport_send(t, bytes_of, load.sizes[i]) != 0) {
                perror("send");
                return 1;
            }
        if (read(acknowledge[0], &done, 1) != 1) return 1;
        printf("%.0f\n", now_ns() - begun);
    }
    if (way < 0)
        for (unsigned class = 0; class < FETTLE_TRANSPORT_CLASSES; class++) {
            struct fettle_transport_choice c = fettle_transport_choice(t, class);
            fprintf(stderr, "%8u:", 64u << (2 * class));
            for (int i = 0; i < FETTLE_TRANSPORT_WAYS; i++)
                fprintf(stderr, "  %s%s %.0f ns (%llu)", ways[i], i == c.way ? "*" : "", c.ns[i], (unsigned long long)c.messages[i]);
            fprintf(stderr, "  %llu switches\n", (unsigned long long)c.switches);
        }
    fettle_transport_close(t);
    waitpid(child, NULL, 0);
    return 0;
}
