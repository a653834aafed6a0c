/* Four threads on one processor that do nothing but take one lock: `convoys HOW ROUNDS`. `handed`: its holder passes it
   to who waits (priority inheritance), for a short section; `long`: for one that takes a while; `plain`: who runs may
   take it first. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t ledger;
static volatile long entries;
static int rounds, inside;

static void work(int n)
{
    for (volatile int i = 0; i < n; i++)
        ;
}

static void *post(void *x)
{
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&ledger);
        entries++;
        work(inside);
        if (!(i & 15))
            sched_yield(); /* the others come and queue */
        pthread_mutex_unlock(&ledger);
    }
    return x;
}

int main(int count, char **arguments)
{
    pthread_t threads[4];
    pthread_mutexattr_t kind;
    cpu_set_t one;
    if (count < 3)
        return 2;
    rounds = atoi(arguments[2]);
    inside = strcmp(arguments[1], "long") ? 10 : 400000;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_mutexattr_init(&kind);
    if (strcmp(arguments[1], "plain"))
        pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&ledger, &kind);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, post, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    printf("%ld\n", entries);
    return 0;
}
