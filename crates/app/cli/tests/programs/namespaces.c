// Works in a thread, and prints the lists of libraries that its loader has: on SIGUSR1 their
// version and number; on SIGUSR2 it opens a library in a namespace of its own first; on SIGHUP it
// forks a child that does the same. Ends on SIGTERM.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t notify, opening, forking, ending;
static void handle(int number) {
    if (number == SIGUSR1) notify = 1;
    if (number == SIGUSR2) opening = notify = 1;
    if (number == SIGHUP) forking = 1;
    if (number == SIGTERM) ending = 1;
}

struct list { struct r_debug first; struct list *next; };

static void report_lists(void) {
    struct list *list = NULL;
    for (ElfW(Dyn) *d = _DYNAMIC; d->d_tag; d++)
        if (d->d_tag == DT_DEBUG) list = (struct list *)d->d_un.d_ptr;
    int version = list->first.r_version, count = 0;
    for (; list; list = list->next) count++;
    printf("version %d, %d\n", version, count);
    fflush(stdout);
}

__attribute__((noipa)) static long one(long n) { return n * 3 + 1; }
__attribute__((noipa)) static long two(long n) { return one(n) + one(n + 1); }
__attribute__((noipa)) static long run(long n) { return two(n) - one(n); }

static void *work(void *unused) {
    while (!ending)
        for (long n = 0; n < 100; n++)
            if (run(n) != n * 3 + 4) abort();
    return unused;
}

int main(void) {
    signal(SIGUSR1, handle);
    signal(SIGUSR2, handle);
    signal(SIGHUP, handle);
    signal(SIGTERM, handle);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    printf("ready\n");
    fflush(stdout);
    while (!ending) {
        if (forking) {
            forking = 0;
            if (fork() == 0) {
                pthread_create(&thread, NULL, work, NULL);
                printf("ready\n");
                fflush(stdout);
            }
        }
        if (opening && !dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW)) abort();
        opening = 0;
        if (notify) report_lists();
        notify = 0;
        usleep(1000);
    }
    pthread_join(thread, NULL);
    printf("right\n");
    return 0;
}
