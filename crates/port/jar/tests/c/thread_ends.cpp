// Threads that end from within: by pthread_exit and by being cancelled.
#include <cstdio>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static sem_t ready;

struct Noisy {
    const char *name;
    ~Noisy() {
        printf("-%s\n", name);
    }
};

static void handler(void *argument) {
    printf("handler %s\n", static_cast<const char *>(argument));
}

static void leave(int n) {
    Noisy here{"frame"};
    if (n == 0)
        pthread_exit(reinterpret_cast<void *>(42));
    leave(n - 1);
}

static void *exits(void *) {
    Noisy here{"outermost"};
    try {
        pthread_cleanup_push(handler, const_cast<char *>("pushed"));
        leave(2);
        pthread_cleanup_pop(0);
    } catch (...) {
        puts("passes");
        throw;
    }
    return nullptr;
}

static void *waits(void *) {
    Noisy here{"waiting"};
    pthread_cleanup_push(handler, const_cast<char *>("cancelled"));
    sem_post(&ready);
    for (;;)
        usleep(1000);
    pthread_cleanup_pop(0);
    return nullptr;
}

static void *tests(void *) {
    Noisy here{"testing"};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    sem_post(&ready);
    usleep(20000);
    puts("not yet");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    for (;;)
        pthread_testcancel();
}

static void run(void *(*function)(void *), bool cancel) {
    pthread_t thread;
    pthread_create(&thread, nullptr, function, nullptr);
    if (cancel) {
        sem_wait(&ready);
        pthread_cancel(thread);
    }
    void *result;
    pthread_join(thread, &result);
    printf("result %ld\n", result == PTHREAD_CANCELED ? -1L : reinterpret_cast<long>(result));
}

int main() {
    sem_init(&ready, 0, 0);
    run(exits, false);
    run(waits, true);
    run(tests, true);
    puts("last");
    fflush(stdout);
    // The process ends with its last thread.
    pthread_exit(nullptr);
}
