// Begets processes and threads in every way that there is, and prints how they ended.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/sched.h>

extern char **environ;
static char stack[4][65536] __attribute__((aligned(16)));
static _Atomic int done;

static int child_exit(void *code) { return (int)(long)code; }

static int raw_thread(void *unused) {
    (void)unused;
    atomic_fetch_add(&done, 1);
    syscall(SYS_exit, 0);
    return 0;
}

static void *thread(void *argument) {
    long depth = (long)argument;
    pthread_t next;
    if (depth > 0) {
        pthread_create(&next, NULL, thread, (void *)(depth - 1));
        pthread_join(next, NULL);
    }
    atomic_fetch_add(&done, 1);
    return NULL;
}

static void show(const char *what, pid_t child, int options) {
    int status = 0;
    pid_t seen = waitpid(child, &status, options);
    printf("%s: %d exited %d code %d signalled %d signal %d\n", what, seen == child,
           WIFEXITED(status), WEXITSTATUS(status), WIFSIGNALED(status), WTERMSIG(status));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    pid_t child;

    if ((child = fork()) == 0) _exit(11);
    show("fork", child, 0);
    if ((child = vfork()) == 0) _exit(12);
    show("vfork", child, 0);
    if ((child = vfork()) == 0) {
        execl("/bin/sh", "sh", "-c", "exit 13", NULL);
        _exit(1);
    }
    show("vfork and exec", child, 0);
    char *arguments[] = {"sh", "-c", "kill -SEGV $$", NULL};
    posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ);
    show("posix_spawn", child, 0);
    char *missing[] = {"nothing", NULL};
    printf("posix_spawn of nothing: %d\n",
           posix_spawn(&child, "/nowhere/nothing", NULL, NULL, missing, environ));
    printf("system: %d\n", WEXITSTATUS(system("exit 14")));

    child = clone(child_exit, stack[0] + sizeof stack[0], CLONE_VM | SIGCHLD, (void *)15);
    show("clone with our memory", child, 0);
    child = clone(child_exit, stack[0] + sizeof stack[0], CLONE_VM, (void *)16);
    show("clone without signal", child, __WALL);
    signal(SIGUSR2, SIG_IGN);
    child = clone(child_exit, stack[0] + sizeof stack[0], CLONE_FILES | SIGUSR2, (void *)17);
    show("clone with another signal", child, __WALL);
    struct clone_args arguments3 = {.exit_signal = SIGCHLD};
    child = syscall(SYS_clone3, &arguments3, sizeof arguments3);
    if (child == 0) _exit(18);
    show("clone3", child, 0);

    pthread_t threads[20];
    for (long i = 0; i < 20; i++) pthread_create(&threads[i], NULL, thread, (void *)(i % 4));
    for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
    printf("threads: %d\n", done);
    done = 0;
    int thread_flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    // A thread that looks like a fork, and one that looks like a vfork.
    clone(raw_thread, stack[1] + sizeof stack[1], thread_flags | SIGCHLD, NULL);
    clone(raw_thread, stack[2] + sizeof stack[2], thread_flags | CLONE_VFORK, NULL);
    for (int i = 0; done < 2 && i < 1000; i++) usleep(1000);
    printf("raw threads: %d\n", done);

    // As a daemon does it: the child ends, the grandchild goes on, and is reparented.
    int ends[2];
    if (pipe(ends)) return 1;
    if ((child = fork()) == 0) {
        if (fork() == 0) {
            pid_t parent = getppid();
            for (int i = 0; getppid() == parent && i < 1000; i++) usleep(1000);
            _exit(write(ends[1], "d", 1) != 1);
        }
        usleep(10000);
        _exit(19);
    }
    show("daemon's parent", child, 0);
    char byte = 0;
    int length = read(ends[0], &byte, 1);
    printf("daemon: %d %c\n", length, byte);

    // Many at once, killed while they are being born.
    for (int round = 0; round < 30; round++) {
        if ((child = fork()) == 0) {
            for (;;) {
                pid_t inner = fork();
                if (inner == 0) _exit(0);
                waitpid(inner, NULL, 0);
            }
        }
        usleep(500 + round * 37);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status)) printf("not killed\n");
    }
    printf("end\n");
    fflush(stdout);
    abort();
}
