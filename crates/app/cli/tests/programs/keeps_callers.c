// Notes in each of its objects the function that had it last, as memory pools with leak reports do;
// most of them are not touched again for long.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { OBJECTS = 1000 };

struct object {
    long used;
    void *caller;
};

static struct object *pool[OBJECTS];

__attribute__((noinline)) static void put(int i) {
    pool[i]->caller = __builtin_return_address(0);
    pool[i]->used++;
}

__attribute__((noinline)) static void use(int i) {
    put(i);
    __asm__ volatile("");
    pool[i]->used++;
}

int main(void) {
    struct timespec time = {0, 500000};
    sigset_t set;
    void *caller;
    long n;
    int i;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (i = 0; i < OBJECTS; i++) pool[i] = calloc(1, sizeof **pool);
    use(0);
    caller = pool[0]->caller;
    printf("ready\n");
    fflush(stdout);
    for (n = 0; sigtimedwait(&set, NULL, &time) != SIGTERM; n++) use(n % OBJECTS);
    // Each was noted by the same call.
    for (i = 0; i < OBJECTS; i++) {
        if (pool[i]->caller != NULL && pool[i]->caller != caller) return printf("wrong at %d\n", i), 1;
    }
    printf("right\n");
    return 0;
}
