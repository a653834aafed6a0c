// A mutex that two threads wait for while it is held, a semaphore between a producer and a consumer,
// a read-write lock that two readers have at once; prints where each is.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;
static sem_t filled;

static void *take(void *unused)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_rwlock_rdlock(&shared);
    pthread_barrier_wait(&both);
    pthread_rwlock_unlock(&shared);
    return unused;
}

static void *consume(void *unused)
{
    for (int n = 0; n < 50; n++)
        sem_wait(&filled);
    return unused;
}

int main(void)
{
    pthread_t threads[3];
    sem_init(&filled, 0, 0);
    pthread_barrier_init(&both, 0, 2);
    pthread_mutex_lock(&mutex);
    pthread_create(&threads[0], 0, take, 0);
    pthread_create(&threads[1], 0, take, 0);
    pthread_create(&threads[2], 0, consume, 0);
    usleep(100000);
    if (pthread_mutex_trylock(&mutex) == 0)
        return 1;
    pthread_mutex_unlock(&mutex);
    for (int n = 0; n < 50; n++)
        sem_post(&filled);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], 0);
    printf("%p %p %p\n", (void *)&mutex, (void *)&filled, (void *)&shared);
    return 7;
}
