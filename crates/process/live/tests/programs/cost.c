// Prints what births, execs and signals cost, in ns each: `cost` plainly and `follow cost` side by
// side show what the tracer adds.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(const char *what, int count, void (*once)(void)) {
    double *times = malloc(count * sizeof *times);
    for (int i = 0; i < count; i++) {
        double start = now();
        once();
        times[i] = now() - start;
    }
    qsort(times, count, sizeof *times, compare);
    printf("%-16s %9.0f %9.0f\n", what, times[count / 2], times[count * 95 / 100]);
    free(times);
}

static void *nothing(void *argument) { return argument; }
static void handler(int signal) { (void)signal; }

static void thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
}

static void process(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
}

static void program(void) {
    pid_t child;
    char *arguments[] = {"true", NULL};
    posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ);
    waitpid(child, NULL, 0);
}

static void a_signal(void) { raise(SIGUSR1); }

static void a_call(void) { getppid(); }

int main(void) {
    signal(SIGUSR1, handler);
    printf("ns each             median   95th %%\n");
    measure("system call", 20000, a_call);
    measure("signal", 5000, a_signal);
    measure("thread", 3000, thread);
    measure("fork and wait", 1500, process);
    measure("spawn and wait", 800, program);
    return 0;
}
