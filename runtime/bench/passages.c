// Where operations can be observed: by a probe at the function of the C library that each passes through
// once, or at the kernel's handler of the call that this makes.
#define _GNU_SOURCE
#include "bench.h"

#include <string.h>
#include <unistd.h>

static const struct passage passages[] = {
    {"null", syscall, "getppid"},
    {"lseek", lseek, "lseek"},
    {"read-256", pread, "pread64"},
    {"read-1k", pread, "pread64"},
    {"read-4k", pread, "pread64"},
    {"read-64k", pread, "pread64"},
    {"write-256", pwrite, "pwrite64"},
    {"write-1k", pwrite, "pwrite64"},
    {"write-4k", pwrite, "pwrite64"},
    {"write-64k", pwrite, "pwrite64"},
    {"fork", fork, "clone"},
    {"vfork", vfork, "vfork"},
    {"exec", execve, "execve"},
};

const struct passage *passage_of(const char *benchmark)
{
    for (unsigned i = 0; i < sizeof passages / sizeof *passages; i++)
        if (strcmp(passages[i].benchmark, benchmark) == 0)
            return &passages[i];
    return 0;
}
