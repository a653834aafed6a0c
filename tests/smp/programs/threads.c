/* Threads that share a mutex, a condition variable and a barrier. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long sum;
static int turn;
static __thread long own = 7;

static void *work(void *number)
{
    long i, me = (long)number;
    for (i = 0; i < 5000; i++) {
        pthread_mutex_lock(&lock);
        sum += own;
        pthread_mutex_unlock(&lock);
    }
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&lock);
    while (turn != me)
        pthread_cond_wait(&changed, &lock);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return (void *)(me * me);
}

int main(void)
{
    pthread_t threads[4];
    long i, squares = 0;
    pthread_barrier_init(&barrier, 0, 4);
    for (i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        squares += (long)result;
    }
    printf("%ld %d %ld\n", sum, turn, squares);
    return 0;
}
