/* Threads that all are there at once. */
#include <pthread.h>
#include <stdio.h>

#define THREADS 8

static pthread_barrier_t all;
static long sums[THREADS];

__attribute__((noinline)) static long add(long a, long b)
{
    return a + b;
}

static void *run(void *sum)
{
    for (long i = 0; i < 1000; i++)
        *(long *)sum = add(*(long *)sum, i);
    pthread_barrier_wait(&all);
    return 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sum = 0;
    pthread_barrier_init(&all, 0, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, run, &sums[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], 0);
        sum = add(sum, sums[i]);
    }
    printf("%ld\n", sum);
    return 0;
}
