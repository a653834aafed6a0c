// A mutex whose owner ended.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t rm;
static void *die(void *a) {
    pthread_mutex_lock(&rm);
    return 0;
}

int main(void) {
    pthread_mutexattr_t ma;
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&rm, &ma);
    pthread_t t;
    pthread_create(&t, 0, die, 0);
    pthread_join(t, 0);
    printf("%d\n", pthread_mutex_lock(&rm) == EOWNERDEAD);
    printf("%d\n", pthread_mutex_consistent(&rm));
    printf("%d\n", pthread_mutex_unlock(&rm));
    return 0;
}
