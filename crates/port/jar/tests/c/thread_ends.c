/* Threads that end from within, in C without tables for the unwinder. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t ready;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void handler(void *argument) {
    printf("handler %s\n", (char *)argument);
}

static void unlock(void *argument) {
    puts("unlocks");
    pthread_mutex_unlock(argument);
}

static void *exits(void *argument) {
    pthread_cleanup_push(handler, "outer");
    pthread_cleanup_push(handler, "inner");
    pthread_exit((void *)7);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return argument;
}

static void *waits(void *argument) {
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, &mutex);
    sem_post(&ready);
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(1);
    return argument;
}

static void *reads(void *argument) {
    int *ends = argument;
    char byte;
    pthread_cleanup_push(handler, "reader");
    sem_post(&ready);
    (void)!read(ends[0], &byte, 1);
    pthread_cleanup_pop(1);
    return argument;
}

static void run(void *(*function)(void *), void *argument, int cancel) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, function, argument);
    if (cancel) {
        sem_wait(&ready);
        usleep(10000);
        pthread_cancel(thread);
    }
    pthread_join(thread, &result);
    printf("result %ld\n", result == PTHREAD_CANCELED ? -1L : (long)result);
}

int main(void) {
    int ends[2];
    sem_init(&ready, 0, 0);
    if (pipe(ends))
        return 1;
    run(exits, 0, 0);
    run(waits, 0, 1);
    run(reads, ends, 1);
    pthread_mutex_lock(&mutex);
    puts("locked again");
    return 0;
}
