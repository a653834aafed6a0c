/* fork, vfork, exec, wait, orphans, pipes, and what a child inherits. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int forks(void)
{
    int status, sum = 0, i;
    for (i = 0; i < 5; i++) {
        pid_t child = fork();
        if (!child)
            _exit(getppid() == 1 ? 99 : i);
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    return sum;
}

static int vforks(void)
{
    volatile int written = 0;
    int status;
    pid_t child = vfork();
    if (!child) {
        written = 5;
        _exit(2);
    }
    waitpid(child, &status, 0);
    return written * 10 + WEXITSTATUS(status);
}

static int spawns(void)
{
    char *arguments[] = {"/bin/busybox", "sh", "-c", "exit 11", 0};
    int status;
    pid_t child;
    if (posix_spawn(&child, arguments[0], 0, 0, arguments, environ))
        return -1;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static int ends_by_signal(void)
{
    int status;
    pid_t child = fork();
    if (!child) {
        *(volatile int *)8 = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WTERMSIG(status);
}

static int pipes(void)
{
    int ends[2], sum = 0, status;
    char text[4096];
    ssize_t got;
    if (pipe(ends))
        return -1;
    if (!fork()) {
        int i;
        close(ends[0]);
        memset(text, 'x', sizeof text);
        for (i = 0; i < 64; i++)
            if (write(ends[1], text, sizeof text) < 0)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], text, sizeof text)) > 0)
        sum += got;
    wait(&status);
    return sum;
}

int main(int count, char **arguments)
{
    if (count > 1) {
        printf("executed %s, %d\n", arguments[1], setenv("X", "1", 1));
        return 9;
    }
    printf("forks %d, vforks %d, spawns %d, signal %d, pipes %d\n", forks(), vforks(), spawns(),
           ends_by_signal(), pipes());
    fflush(stdout);
    execl("/proc/self/exe", arguments[0], "again", (char *)0);
    return 1;
}
