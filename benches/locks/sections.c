/* Threads that share a mutex: how long its sections are, how long the work between them, and whether the
   mutex is divided in two stand on the command line, so that an edit is another argument. Every sixteenth time
   each takes another mutex, too. Prints the nanoseconds from the threads' beginning to the last one's end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef COZ
#include <coz.h>
#else
#define COZ_PROGRESS
#endif

static pthread_mutex_t hot[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static long inside, outside, rounds, halves;

/* All in the line of its use, which Coz makes virtually faster. */
#define WORK(n)                                                                                    \
    for (unsigned long i = 0, x = 1; i < (unsigned long)(n); i++) {                                \
        x = x * 6364136223846793005ul + 1442695040888963407ul;                                     \
        __asm__ volatile("" : "+r"(x));                                                            \
    }

static void *run(void *number)
{
    unsigned seed = (long)number * 7919 + 1;
    for (long i = 0; i < rounds; i++) {
        pthread_mutex_t *one = &hot[halves && (rand_r(&seed) & 64)];
        pthread_mutex_lock(one);
        WORK(inside)
        pthread_mutex_unlock(one);
        WORK(outside)
        COZ_PROGRESS;
        if (i % 16 == 0) {
            pthread_mutex_lock(&other);
            WORK(100)
            pthread_mutex_unlock(&other);
        }
    }
    return 0;
}

int main(int count, char **arguments)
{
    pthread_t threads[16];
    if (count != 6)
        return 2;
    long n = atol(arguments[1]);
    rounds = atol(arguments[2]);
    inside = atol(arguments[3]);
    outside = atol(arguments[4]);
    halves = atol(arguments[5]);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < n && i < 16; i++)
        pthread_create(&threads[i], 0, run, (void *)i);
    for (long i = 0; i < n && i < 16; i++)
        pthread_join(threads[i], 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%ld\n", (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec);
    return 0;
}
