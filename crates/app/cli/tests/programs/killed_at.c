// Preloaded, it kills a program at its step KILLED_AT: before it changes another process for that many
// times, or says in a file what it is about to do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static void step(void) {
    static atomic_long steps;
    const char *at = getenv("KILLED_AT");
    if (at && ++steps == atol(at)) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    long tid = va_arg(rest, long);
    void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    step();
    return NEXT(ptrace)(request, tid, address, data);
}

ssize_t write(int file, const void *bytes, size_t count) {
    step();
    return NEXT(write)(file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    step();
    return NEXT(pwrite64)(file, bytes, count, at);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long froms,
                          const struct iovec *to, unsigned long tos, unsigned long flags) {
    step();
    return NEXT(process_vm_writev)(pid, from, froms, to, tos, flags);
}
