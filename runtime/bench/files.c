// Reading, writing and copying files that lie in memory, by the sizes that Unixbench takes and one more.
#include "bench.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SPAN = 1 << 20 };  // bytes of the file: all caches' but the smallest

static int from = -1, to = -1;
static char buffer[65536];

static int open_files(void)
{
    from = open(in_scratch("from"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    to = open(in_scratch("to"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (from < 0 || to < 0)
        return -1;
    memset(buffer, 'f', sizeof buffer);
    for (int at = 0; at < SPAN; at += sizeof buffer)
        if (write(from, buffer, sizeof buffer) != sizeof buffer || write(to, buffer, sizeof buffer) != sizeof buffer)
            return -1;
    return 0;
}

static void close_files(void)
{
    close(from);
    close(to);
    unlink(in_scratch("from"));
    unlink(in_scratch("to"));
}

static void read_by(unsigned long n, size_t size)
{
    for (unsigned long i = 0; i < n; i++) {
        PASSES();
        if (pread(from, buffer, size, i * size % SPAN) != (ssize_t)size)
            fail("read");
    }
}

static void write_by(unsigned long n, size_t size)
{
    for (unsigned long i = 0; i < n; i++) {
        PASSES();
        if (pwrite(to, buffer, size, i * size % SPAN) != (ssize_t)size)
            fail("write");
    }
}

static void copy_by(unsigned long n, size_t size)
{
    for (unsigned long i = 0; i < n; i++) {
        off_t at = i * size % SPAN;
        if (pread(from, buffer, size, at) != (ssize_t)size || pwrite(to, buffer, size, at) != (ssize_t)size)
            fail("copy");
    }
}

#define SIZE(name, bytes)                                                 \
    static void read_##name(unsigned long n) { read_by(n, bytes); }       \
    static void write_##name(unsigned long n) { write_by(n, bytes); }     \
    static void copy_##name(unsigned long n) { copy_by(n, bytes); }
SIZE(256, 256)
SIZE(1k, 1024)
SIZE(4k, 4096)
SIZE(64k, 65536)

#define ROW(verb, name, what) {#verb "-" #name, "files", what, open_files, verb##_##name, close_files}

const struct benchmark files[] = {
    ROW(read, 256, "256 bytes read from a file"),
    ROW(read, 1k, "1 KiB read from a file"),
    ROW(read, 4k, "4 KiB read from a file"),
    ROW(read, 64k, "64 KiB read from a file"),
    ROW(write, 256, "256 bytes written to a file"),
    ROW(write, 1k, "1 KiB written to a file"),
    ROW(write, 4k, "4 KiB written to a file"),
    ROW(write, 64k, "64 KiB written to a file"),
    ROW(copy, 256, "256 bytes read and written"),
    ROW(copy, 1k, "1 KiB read and written"),
    ROW(copy, 4k, "4 KiB read and written"),
    ROW(copy, 64k, "64 KiB read and written"),
    {0},
};
