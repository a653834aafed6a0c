/* Two threads that wait for each other, for ever, and one that nothing wakes. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t quiet = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;

static void *idle(void *x)
{
    pthread_mutex_lock(&quiet);
    for (;;)
        pthread_cond_wait(&never, &quiet);
    return x;
}

static void *left(void *x)
{
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&second);
    return x;
}

static void *right(void *x)
{
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&first);
    return x;
}

int main(void)
{
    pthread_t a, b, c;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&a, 0, left, 0);
    pthread_create(&b, 0, right, 0);
    pthread_create(&c, 0, idle, 0);
    puts("hangs");
    fflush(stdout);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return 0;
}
