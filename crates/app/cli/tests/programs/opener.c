// A program that opens and closes libraries while it works: SIGUSR1 closes the one that is open and
// opens the next, at the same addresses as a rule. Execs itself on SIGUSR2. Ends on SIGTERM.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t ending, next, again;
static void handle(int number) {
    if (number == SIGUSR1) next = 1;
    if (number == SIGUSR2) again = 1;
    if (number == SIGTERM) ending = 1;
}

__attribute__((noipa)) static long twice(long (*work)(long), long n) {
    return work(n) + work(n + 1);
}

int main(int count, char **arguments) {
    signal(SIGUSR1, handle);
    signal(SIGUSR2, handle);
    signal(SIGTERM, handle);
    long rounds = 0, failures = 0;
    int current = 0;
    void *library = NULL;
    long (*work)(long) = NULL;
    next = 1;
    while (!ending) {
        if (again) {
            execv(arguments[0], arguments);
            abort();
        }
        if (next) {
            next = 0;
            if (library && dlclose(library)) failures++;
            current = current % (count - 1) + 1;
            library = dlopen(arguments[current], RTLD_NOW);
            work = library ? (long (*)(long))dlsym(library, "work") : NULL;
            if (!work) abort();
            printf("ready\n");
            fflush(stdout);
        }
        // work(n) is n times the number of the library, by a long way.
        long n = rounds % 100;
        if (twice(work, n) != (2 * n + 1) * current) failures++;
        rounds++;
        if (rounds % 1000 == 0) usleep(100);
    }
    printf("%s after %s rounds\n", failures ? "FAILED" : "right", rounds > 100 ? "many" : "few");
    return failures != 0;
}
