/* Takes and lets go of eight mutexes in two threads, TIMES pairs in each, and does nothing else: the most
   that counting locks can cost. `pairs TIMES` */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutexes[8];
static long counts[8], times;

static void *work(void *own)
{
    for (long i = 0; i < times; i++) {
        int n = (i * 7 + (long)own * 3) & 7;
        pthread_mutex_lock(&mutexes[n]);
        counts[n]++;
        pthread_mutex_unlock(&mutexes[n]);
    }
    return 0;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];
    long sum = 0;
    times = count > 1 ? atol(arguments[1]) : 2000000;
    for (int i = 0; i < 8; i++)
        pthread_mutex_init(&mutexes[i], 0);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    for (int i = 0; i < 8; i++)
        sum += counts[i];
    printf("%ld\n", sum);
    return 0;
}
