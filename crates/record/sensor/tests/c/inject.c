/* Interrupts one commit between two of its steps.
 *
 * usage: inject POINT ACTION POLICY SLOTS NTH
 *
 * Commits 200 events of number 1 to a ring of 128; at FETTLE_INJECT point POINT of the NTH (from 0)
 * does ACTION: `k` kill -9, `p` stop (until another process continues us), `s` a signal whose
 * handler
 * commits two events of number 2, `f` one that commits 300, `l` the same and kill -9 at the next
 * point, `j` one that leaves by siglongjmp (and the program stops after its first commit).
 * With `t`, a thread ends in the middle of its NTH commit; then the main thread commits 20 and
 * stops. */
#define _GNU_SOURCE
static void pass(int point);
#define FETTLE_INJECT(point) pass(point)
#include "fettle.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

FETTLE_DEFINE(events, "test.inject", 1, 2, 0, FETTLE_KIND_LIST, FETTLE_DROP, 2, 5, 12);

static int wanted, action, busy, now, nth, lapped;
static sigjmp_buf back;

static void commit(int number, uint64_t i) {
    FETTLE_COMMIT(events, number, i, i * 0x9e3779b97f4a7c15u);
}

static void handler(int signal) {
    int i;
    (void)signal;
    if (action == 'j' || action == 't') siglongjmp(back, 1);
    for (i = 0; i < (action == 'f' || action == 'l' ? 300 : 2); i++) commit(2, (uint64_t)i);
    lapped = 1;
}

static void pass(int point) {
    if (action == 'l' && lapped) kill(getpid(), SIGKILL);
    if (point != wanted || now != nth || busy) return;
    busy = 1;
    if (action == 'k') kill(getpid(), SIGKILL);
    else if (action == 'p') raise(SIGSTOP);
    else raise(SIGUSR1);
}

static void *work(void *arg) {
    (void)arg;
    if (sigsetjmp(back, 1) == 0)
        for (now = 0;; now++) commit(1, (uint64_t)now);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    wanted = atoi(argv[1]);
    action = argv[2][0];
    events.policy = (uint32_t)atoi(argv[3]);
    events.slots = (uint32_t)atoi(argv[4]);
    nth = atoi(argv[5]);
    signal(SIGUSR1, handler);
    if (action == 't') {
        pthread_t thread;
        int i;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
        for (i = 0; i < 20; i++) commit(2, (uint64_t)i);
        raise(SIGSTOP);
        return 0;
    }
    for (now = 0; now < 200; now++) {
        if (action == 'j' && now == 1) raise(SIGSTOP);
        if (sigsetjmp(back, 1) == 0) commit(1, (uint64_t)now);
    }
    return 0;
}
