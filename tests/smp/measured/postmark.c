/* Small files in the manner of Postmark: postmark PROCESSES FILES TRANSACTIONS. Each process has a folder of its own and
 * fills it; a transaction reads or appends to one file, and makes or removes one. It ends with all of them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 100
#define FILES_MOST 4096

static unsigned seed;
static char there[FILES_MOST];

static unsigned drawn(unsigned below)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % below;
}

static int transfer(int file, int flags, int writes)
{
    char name[16], bytes[BYTES * 8] = "mail";
    snprintf(name, sizeof name, "%d", file);
    int fd = open(name, flags, 0600);
    if (fd < 0)
        return 0;
    long done = writes ? write(fd, bytes, BYTES) : read(fd, bytes, sizeof bytes);
    return close(fd) == 0 && done >= BYTES;
}

static int make(int file)
{
    there[file] = 1;
    return transfer(file, O_CREAT | O_EXCL | O_WRONLY, 1);
}

static int drop(int file)
{
    char name[16];
    snprintf(name, sizeof name, "%d", file);
    there[file] = 0;
    return unlink(name) == 0;
}

/* The next file from `file` on that is there, or is not. */
static int next(int file, int files, int wanted)
{
    int i;
    for (i = 0; i < files; i++, file = (file + 1) % files)
        if (there[file] == wanted)
            return file;
    return -1;
}

static int work(int me, int files, int transactions)
{
    char folder[32];
    int i, file, right = 1;
    snprintf(folder, sizeof folder, "/tmp/mail%d", me);
    seed = me + 1;
    if (mkdir(folder, 0700) || chdir(folder))
        return 1;
    for (i = 0; i < files / 2; i++)
        right &= make(i);
    for (i = 0; i < transactions && right; i++) {
        file = next(drawn(files), files, 1);
        if (file >= 0)
            right &= drawn(2) ? transfer(file, O_RDONLY, 0) : transfer(file, O_WRONLY | O_APPEND, 1);
        file = next(drawn(files), files, drawn(2));
        if (file >= 0)
            right &= there[file] ? drop(file) : make(file);
    }
    for (i = 0; i < files; i++)
        if (there[i])
            right &= drop(i);
    return !(right && rmdir(folder) == 0);
}

int main(int count, char **arguments)
{
    int i, status, bad = 0, processes, files, transactions;
    if (count < 4)
        return 2;
    processes = atoi(arguments[1]), files = atoi(arguments[2]), transactions = atoi(arguments[3]);
    if (files < 2 || files > FILES_MOST)
        return 2;
    for (i = 0; i < processes; i++)
        if (!fork())
            _exit(work(i, files, transactions));
    for (i = 0; i < processes; i++)
        bad |= wait(&status) < 0 || status;
    return bad;
}
