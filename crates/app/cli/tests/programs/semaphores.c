/* Threads that wait for a semaphore, which glibc does in a function that its own jumps to. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t things;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;

static void *take(void *x)
{
    for (int i = 0; i < 100; i++) {
        sem_wait(&things);
        pthread_mutex_lock(&other);
        pthread_mutex_unlock(&other);
    }
    return x;
}

int main(void)
{
    pthread_t t[3];
    sem_init(&things, 0, 0);
    for (int i = 0; i < 3; i++)
        pthread_create(t + i, 0, take, 0);
    for (int i = 0; i < 300; i++) {
        usleep(500);
        sem_post(&things);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    printf("done\n");
    return 0;
}
