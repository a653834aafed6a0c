// Making a process that runs another program, or the same one on, when its maker has touched much memory:
// what fork copies, a small helper that was made before (a zygote) or a child that borrows its maker's
// memory need not.
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *const program[] = {"fettle-bench", "exit", 0};
// To the zygote: a byte asks for a process; back comes one when that has ended.
static int zygote = -1;

static int waited(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return status == 0 ? 0 : (errno = ECHILD, -1);
}

static int by_fork(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return waited(child);
}

static int by_fork_exec(void)
{
    pid_t child = fork();
    if (child == 0) {
        execve("/proc/self/exe", program, environ);
        _exit(127);
    }
    return waited(child);
}

static __attribute__((noinline)) int by_vfork_exec(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execve("/proc/self/exe", program, environ);
        _exit(127);
    }
    return waited(child);
}

// What posix_spawn does: the child has a stack of its own in its maker's memory.
static int execute(void *nothing)
{
    (void)nothing;
    execve("/proc/self/exe", program, environ);
    _exit(127);
}

static int by_clone3_exec(void)
{
    static _Alignas(64) char stack[65536];
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (unsigned long)stack,
        .stack_size = sizeof stack,
    };
    long child;
    // The child comes out of the call with another stack, so it may not return to compiled code.
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%edi, %%edi\n\t"
                     "call *%[execute]\n"
                     "1:"
                     : "=a"(child)
                     : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), [execute] "r"(execute)
                     : "rcx", "r11", "memory");
    if (child < 0) {
        errno = -child;
        return -1;
    }
    return waited(child);
}

static int by_zygote(void)
{
    char byte = 'z';
    return write(zygote, &byte, 1) == 1 && read(zygote, &byte, 1) == 1 && byte == 'z' ? 0 : -1;
}

static const struct {
    const char *name, *what;
    int (*make)(void);
} makers[] = {
    {"fork", "fork; the child ends", by_fork},
    {"zygote", "a fork of a small process that was made before", by_zygote},
    {"fork-exec", "fork and exec", by_fork_exec},
    {"vfork-exec", "vfork and exec", by_vfork_exec},
    {"clone3-exec", "clone3 with the maker's memory, and exec, as posix_spawn does", by_clone3_exec},
    {0},
};

const char *maker_of_processes(unsigned n, const char **what)
{
    if (n >= sizeof makers / sizeof *makers || !makers[n].name)
        return 0;
    *what = makers[n].what;
    return makers[n].name;
}

static pid_t start_zygote(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[0]);
        while (read(ends[1], &byte, 1) == 1) {
            byte = by_fork() == 0 ? 'z' : 'n';
            if (write(ends[1], &byte, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(ends[1]);
    zygote = ends[0];
    return child;
}

// In a process of its own, which has touched that memory: times go through a pipe.
static void measure_in_child(int (*make)(void), size_t bytes, int rounds, int to)
{
    double ns[MOST_ROUNDS];
    int why = 0;
    char *memory = bytes ? mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
    if (memory == MAP_FAILED)
        why = errno;
    // Pages of 4 KiB, as heaps that have grown have them.
    if (!why && bytes)
        madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; !why && at < bytes; at += 4096)
        memory[at] = 1;
    for (int i = 0; !why && i < rounds; i++) {
        double begin = now_ns();
        if (make() != 0)
            why = errno ? errno : EIO;
        ns[i] = now_ns() - begin;
    }
    if (write(to, &why, sizeof why) != sizeof why || write(to, ns, sizeof *ns * rounds) < 0)
        _exit(1);
    _exit(0);
}

int make_processes(const char *name, size_t bytes, int rounds, double *ns)
{
    int at = 0, ends[2], why = EIO;
    while (makers[at].name && strcmp(makers[at].name, name) != 0)
        at++;
    if (!makers[at].name || rounds > MOST_ROUNDS || pipe(ends) != 0)
        return EINVAL;
    pid_t helper = makers[at].make == by_zygote ? start_zygote() : 0;
    pid_t child = fork();
    if (child == 0)
        measure_in_child(makers[at].make, bytes, rounds, ends[1]);
    close(ends[1]);
    size_t wanted = sizeof *ns * rounds;
    if (read(ends[0], &why, sizeof why) != sizeof why ||
        (!why && read(ends[0], ns, wanted) != (ssize_t)wanted))
        why = why ? why : EIO;
    close(ends[0]);
    if (zygote >= 0)
        close(zygote);
    zygote = -1;
    if (child > 0)
        waitpid(child, 0, 0);
    if (helper > 0)
        waitpid(helper, 0, 0);
    return why;
}
