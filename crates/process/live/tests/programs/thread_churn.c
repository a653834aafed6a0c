/* Eight threads that stay and sleep often; the first thread has others come and go. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *stay(void *p) {
    for (;;) usleep(200);
    return p;
}

static void *go(void *p) {
    usleep(50);
    return p;
}

int main(void) {
    pthread_t thread;
    for (int i = 0; i < 8; i++) pthread_create(&thread, NULL, stay, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_create(&thread, NULL, go, NULL);
        pthread_join(thread, NULL);
    }
}
