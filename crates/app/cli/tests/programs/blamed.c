/* One thread has the lock for 10 ms at a time, nine others for a few microseconds: `blamed SECONDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static volatile int over;
static long taken;

static void *longer(void *x)
{
    while (!over) {
        pthread_mutex_lock(&shared);
        taken++;
        usleep(10000);
        pthread_mutex_unlock(&shared);
        usleep(2000);
    }
    return x;
}

static void *shorter(void *x)
{
    while (!over) {
        pthread_mutex_lock(&shared);
        taken++;
        pthread_mutex_unlock(&shared);
        usleep(500);
    }
    return x;
}

int main(int count, char **arguments)
{
    pthread_t threads[10];
    pthread_create(&threads[0], 0, longer, 0);
    for (int i = 1; i < 10; i++)
        pthread_create(&threads[i], 0, shorter, 0);
    usleep(atof(count > 1 ? arguments[1] : "1") * 1e6);
    over = 1;
    for (int i = 0; i < 10; i++)
        pthread_join(threads[i], 0);
    printf("%ld\n", taken);
    return 0;
}
