// System calls that do little, so that what they cost is what it costs to reach the system.
#include "bench.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int file = -1, null = -1;

static int open_file(void)
{
    file = open(in_scratch("small"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    return file < 0 ? -1 : 0;
}

static void close_file(void)
{
    close(file);
    unlink(in_scratch("small"));
}

static int open_null(void)
{
    null = open("/dev/null", O_WRONLY);
    return null < 0 ? -1 : 0;
}

static void close_null(void) { close(null); }

static void null_calls(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++) {
        PASSES();
        syscall(SYS_getppid);
    }
}

static void clocks(unsigned long n)
{
    struct timespec t;
    for (unsigned long i = 0; i < n; i++)
        clock_gettime(CLOCK_MONOTONIC, &t);
}

static void writes_to_null(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        if (write(null, "x", 1) != 1)
            fail("write to /dev/null");
}

static void seeks(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        lseek(file, i & 511, SEEK_SET);
}

static void stats(unsigned long n)
{
    const char *path = in_scratch("small");
    struct stat s;
    for (unsigned long i = 0; i < n; i++)
        if (stat(path, &s) != 0)
            fail("stat");
}

static void fstats(unsigned long n)
{
    struct stat s;
    for (unsigned long i = 0; i < n; i++)
        if (fstat(file, &s) != 0)
            fail("fstat");
}

static void opens(unsigned long n)
{
    const char *path = in_scratch("small");
    for (unsigned long i = 0; i < n; i++) {
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            fail("open");
        close(fd);
    }
}

static void polls(unsigned long n)
{
    struct pollfd p = {.fd = file, .events = POLLIN};
    for (unsigned long i = 0; i < n; i++)
        poll(&p, 1, 0);
}

static void sigactions(unsigned long n)
{
    struct sigaction a = {.sa_handler = SIG_DFL};
    for (unsigned long i = 0; i < n; i++)
        sigaction(SIGUSR1, &a, 0);
}

static void sigprocmasks(unsigned long n)
{
    sigset_t set;
    sigemptyset(&set);
    for (unsigned long i = 0; i < n; i++)
        sigprocmask(SIG_BLOCK, &set, 0);
}

static void handler(int signal) { (void)signal; }

static int catch_signal(void)
{
    struct sigaction a = {.sa_handler = handler};
    return sigaction(SIGUSR2, &a, 0);
}

static void ignore_signal(void) { signal(SIGUSR2, SIG_DFL); }

static void signals(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        raise(SIGUSR2);
}

const struct benchmark calls[] = {
    {"null", "calls", "getppid, which does nothing", 0, null_calls, 0},
    {"clock", "calls", "clock_gettime, which most systems answer without a system call", 0, clocks, 0},
    {"write-null", "calls", "one byte written to /dev/null", open_null, writes_to_null, close_null},
    {"lseek", "calls", "lseek in a file", open_file, seeks, close_file},
    {"stat", "calls", "stat of a path", open_file, stats, close_file},
    {"fstat", "calls", "fstat of an open file", open_file, fstats, close_file},
    {"open", "calls", "open and close of a file", open_file, opens, close_file},
    {"poll", "calls", "poll of one file that is ready", open_file, polls, close_file},
    {"sigaction", "calls", "sigaction", 0, sigactions, 0},
    {"sigprocmask", "calls", "sigprocmask", 0, sigprocmasks, 0},
    {"signal", "calls", "a signal to the own thread, and its handler", catch_signal, signals, ignore_signal},
    {0},
};
