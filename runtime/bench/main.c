// fettle-bench serve FOLDER     answers requests (serve.c); FOLDER may be written
// fettle-bench system FOLDER    the same, as the first process of a User-Mode Linux
// fettle-bench exit             ends at once: what the benchmark of exec executes
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *scratch;

const char *in_scratch(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "exit") == 0)
        _exit(0);
    // User-Mode Linux adds words of its own.
    int is_system = count >= 3 && strcmp(words[1], "system") == 0;
    if (!is_system && (count != 3 || strcmp(words[1], "serve") != 0)) {
        fputs("fettle-bench: a part of `fettle compare`, which starts it\n", stderr);
        return 2;
    }
    scratch = words[2];
    if (is_system)
        set_up_system();
    else
        mkdir(scratch, 0700);
    signal(SIGPIPE, SIG_IGN);
    // The first process of a system is not killed by signals and inherits orphans: measured is a usual
    // process.
    if (getpid() != 1)
        return serve();
    pid_t server = fork();
    if (server == 0)
        _exit(serve());
    for (;;) {
        pid_t ended = wait(0);
        if (ended == server || (ended < 0 && errno != EINTR))
            break;
    }
    if (is_system)
        reboot(RB_POWER_OFF);
    return 0;
}
