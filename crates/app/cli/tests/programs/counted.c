/* Takes each sort of lock a known number of times in two threads, and says how often. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 20000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t semaphore;
static pthread_mutex_t *made[3];
static long n, tried;

static void *work(void *x)
{
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&mutex);
        n++;
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_wrlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
        sem_wait(&semaphore);
        sem_post(&semaphore);
        if (!pthread_mutex_trylock(made[i % 3])) {
            __atomic_fetch_add(&tried, 1, __ATOMIC_RELAXED);
            pthread_mutex_unlock(made[i % 3]);
        }
    }
    return x;
}

__attribute__((noinline)) static pthread_mutex_t *make(void)
{
    pthread_mutex_t *one = malloc(sizeof *one);
    pthread_mutex_init(one, 0);
    return one;
}

int main(void)
{
    pthread_t threads[2];
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &kind);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 1);
    for (int i = 0; i < 3; i++)
        made[i] = make();
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("%ld %ld\n", n, tried);
    return 0;
}
