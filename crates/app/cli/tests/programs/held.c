/* Two locks in one cache line that two threads take often, and one that is held over a system call. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t pair[2] __attribute__((aligned(64))) = {PTHREAD_MUTEX_INITIALIZER,
                                                               PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t slow = PTHREAD_MUTEX_INITIALIZER;

static void *often(void *lock)
{
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(lock);
        pthread_mutex_unlock(lock);
    }
    return lock;
}

static void *sleeps(void *x)
{
    for (int i = 0; i < 4; i++) {
        pthread_mutex_lock(&slow);
        usleep(100000);
        pthread_mutex_unlock(&slow);
        usleep(20000);
    }
    return x;
}

static void *waits(void *x)
{
    for (int i = 0; i < 4; i++) {
        usleep(50000);
        pthread_mutex_lock(&slow);
        pthread_mutex_unlock(&slow);
    }
    return x;
}

int main(void)
{
    pthread_t threads[4];
    pthread_create(&threads[0], 0, often, &pair[0]);
    pthread_create(&threads[1], 0, often, &pair[1]);
    pthread_create(&threads[2], 0, sleeps, 0);
    pthread_create(&threads[3], 0, waits, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return 0;
}
