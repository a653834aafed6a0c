// Making processes and threads, and shell scripts, which do little else.
#include "bench.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void ended(pid_t child)
{
    int status;
    if (child < 0)
        fail("fork");
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("a child of the benchmark");
}

static void forks(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++) {
        PASSES();
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        ended(child);
    }
}

// A process of the program at `path`, or one that ends at once without one. What comes back from vfork
// twice has a frame of its own.
static __attribute__((noinline)) pid_t vforked(const char *path, char **arguments)
{
    PASSES();
    pid_t child = vfork();
    if (child == 0) {
        if (!path)
            _exit(0);
        execve(path, arguments, environ);
        _exit(127);
    }
    return child;
}

static void vforks(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        ended(vforked(0, 0));
}

static void execs(unsigned long n)
{
    char *arguments[] = {"fettle-bench", "exit", 0};
    for (unsigned long i = 0; i < n; i++)
        ended(vforked("/proc/self/exe", arguments));
}

static void *nothing(void *p) { return p; }

static void threads(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, nothing, 0) != 0)
            fail("pthread_create");
        pthread_join(thread, 0);
    }
}

// Six programs and four pipes.
static const char script[] =
    "for i in 7 3 5 1 9; do echo line $i; done | sort | tee /dev/null | grep -v 5 | wc -l > /dev/null";

static int have_shell(void) { return access("/bin/sh", X_OK); }

static void shells(unsigned long n, int at_once)
{
    char *arguments[] = {"sh", "-c", (char *)script, 0};
    for (unsigned long i = 0; i < n; i++) {
        pid_t all[16];
        for (int k = 0; k < at_once; k++)
            all[k] = vforked("/bin/sh", arguments);
        for (int k = 0; k < at_once; k++)
            ended(all[k]);
    }
}

static void shell_1(unsigned long n) { shells(n, 1); }
static void shell_8(unsigned long n) { shells(n, 8); }
static void shell_16(unsigned long n) { shells(n, 16); }

const struct benchmark processes[] = {
    {"thread", "processes", "a thread made and joined", 0, threads, 0},
    {"fork", "processes", "fork, exit and wait", 0, forks, 0},
    {"vfork", "processes", "vfork, exit and wait", 0, vforks, 0},
    {"exec", "processes", "vfork, exec of this static program, exit and wait", 0, execs, 0},
    {"shell-1", "shell", "a shell script of six programs", have_shell, shell_1, 0},
    {"shell-8", "shell", "eight of them at once", have_shell, shell_8, 0},
    {"shell-16", "shell", "sixteen of them at once", have_shell, shell_16, 0},
    {0},
};
