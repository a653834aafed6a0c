/* Commits events whose content can be checked, and keeps the truth about them in a file.
 *
 * usage: producer TRUTH POLICY SLOTS RING_LOG2 THREADS EVENTS
 *
 * Each of THREADS threads commits EVENTS events (0: for ever) with the words `thread << 48 | i`
 * and a hash of it. TRUTH holds two words to each thread: events begun, events done. */
#define _GNU_SOURCE
#include "fettle.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

FETTLE_LIST(events, "test.events", 1, 1, FETTLE_DROP);

static volatile uint64_t *truth;
static uint64_t wanted;

static void *work(void *arg) {
    uint64_t thread = (uint64_t)arg, i;
    for (i = 0; wanted == 0 || i < wanted; i++) {
        uint64_t word = thread << 48 | i;
        truth[2 * thread] = i + 1;
        FETTLE_COMMIT(events, i & 0xffff, word, word * 0x9e3779b97f4a7c15u);
        truth[2 * thread + 1] = i + 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[256];
    uint64_t n, i;
    if (argc != 7) return 2;
    truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
    events.policy = (uint32_t)atoi(argv[2]);
    events.slots = (uint32_t)atoi(argv[3]);
    events.ring_log2 = (uint32_t)atoi(argv[4]);
    n = (uint64_t)atoi(argv[5]);
    wanted = (uint64_t)atol(argv[6]);
    for (i = 0; i < n; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return 0;
}
