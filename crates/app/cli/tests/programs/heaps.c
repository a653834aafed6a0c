/* Four threads that do little but claim memory: `heaps WHICH`. `one`: from one heap of the C library; `several`: from one
   for each thread; `own`: from a heap of the program's own, behind one mutex. */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int searched;

static __attribute__((noinline)) void *pool_malloc(size_t size)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2000; i++) /* looks for a block that fits */
        searched++;
    sched_yield(); /* the others come meanwhile */
    pthread_mutex_unlock(&lock);
    return malloc(size);
}

static void *claims(void *x)
{
    void *blocks[8];
    for (int i = 0; i < 100000; i++) {
        /* Larger than what the C library keeps for each thread. */
        for (int j = 0; j < 8; j++)
            blocks[j] = malloc(2000 + 100 * j);
        for (int j = 0; j < 8; j++)
            free(blocks[j]);
    }
    return x;
}

static void *claims_own(void *x)
{
    for (int i = 0; i < 500; i++)
        free(pool_malloc(2000));
    return x;
}

int main(int count, char **arguments)
{
    pthread_t threads[4];
    const char *which = count > 1 ? arguments[1] : "";
    mallopt(M_ARENA_MAX, strcmp(which, "one") ? 8 : 1);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, strcmp(which, "own") ? claims : claims_own, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return 0;
}
