// Threads that only look at the clock, and note the longest time that passed between two looks:
// how long something kept them from running. Others sleep. Ends on SIGTERM, and says what it saw.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static atomic_int ending;
static atomic_long longest_ns, rounds;

__attribute__((noipa)) static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

__attribute__((noipa)) static long look(long last) {
    long now = now_ns(), longest = longest_ns;
    while (now - last > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, now - last)) {}
    return now;
}

static void *spin(void *argument) {
    for (long last = now_ns(); !ending; rounds++) last = look(last);
    return argument;
}

static void *doze(void *argument) {
    struct timespec time = {0, 20000000};
    while (!ending) nanosleep(&time, NULL);
    return argument;
}

int main(void) {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i ? doze : spin, NULL);
    printf("ready\n");
    fflush(stdout);
    int signal;
    sigwait(&end, &signal);
    ending = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("right after %s rounds\n", rounds > 100 ? "many" : "few");
    printf("longest gap %.2f ms\n", longest_ns / 1e6);
    return 0;
}
