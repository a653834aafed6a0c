/* Two threads open and close a library all the time, one with all signals blocked. Prints how
 * often it was given SIGURG, and whether a mask changed. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int urgent;
static char *library;
static int rounds;

static void count(int signal)
{
    (void)signal;
    urgent++;
}

static void use(void)
{
    for (int i = 0; i < rounds; i++) {
        void *handle = dlopen(library, RTLD_NOW);
        if (!handle)
            abort();
        int (*caught)(int) = (int (*)(int))dlsym(handle, "plugin_catch");
        if (caught(5) != 13)
            abort();
        dlclose(handle);
    }
}

static void *blocked(void *unused)
{
    /* The kernel fills in only the first words. */
    sigset_t all, before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    pthread_sigmask(SIG_BLOCK, 0, &before);
    use();
    pthread_sigmask(SIG_BLOCK, 0, &after);
    if (memcmp(&before, &after, sizeof before))
        puts("the mask changed");
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 3)
        return 2;
    library = argv[1];
    rounds = atoi(argv[2]);
    signal(SIGURG, count);
    puts("begun");
    fflush(stdout);
    pthread_create(&thread, 0, blocked, 0);
    use();
    pthread_join(thread, 0);
    printf("done, urgent %d\n", urgent);
    return 7;
}
