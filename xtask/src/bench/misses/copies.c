// Moves bytes from a process to another in messages of one size, between the marks that tell QEMU's plugin:
// copies SIZE TIMES. The receiver copies them out of the sender's memory, as DROPS' indirect strings are.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

enum { ALL = 2 << 20 };

static char from[ALL], to[ALL];

// Takes messages until the sender has no more: each is a byte that says so, and is answered by one.
static int receive(int peer, pid_t sender, size_t size)
{
    size_t at = 0;
    for (char byte; read(peer, &byte, 1) == 1; at = (at + size) % ALL) {
        struct iovec local = {to, size}, remote = {from + at, size};
        if (process_vm_readv(sender, &local, 1, &remote, 1, 0) != (ssize_t)size || write(peer, &byte, 1) != 1)
            return 1;
    }
    return 0;
}

static int send_all(int peer, size_t size)
{
    char byte = 0;
    for (size_t at = 0; at < ALL; at += size)
        if (write(peer, &byte, 1) != 1 || read(peer, &byte, 1) != 1)
            return 1;
    return 0;
}

int main(int count, char **words)
{
    size_t size = count == 3 ? strtoul(words[1], 0, 10) : 0;
    int times = count == 3 ? atoi(words[2]) : 0, ends[2];
    if (!size || ALL % size || times <= 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    for (size_t i = 0; i < ALL; i += 4096)
        from[i] = to[i] = 1;
    pid_t sender = getpid(), receiver = fork();
    if (receiver == 0) {
        close(ends[0]);
        _exit(receive(ends[1], sender, size));
    }
    close(ends[1]);
    // The first is to warm up.
    int failed = receiver < 0 || send_all(ends[0], size);
    MARK_MODEL();
    for (int i = 0; i < times && !failed; i++)
        failed = send_all(ends[0], size);
    MARK_MODEL_END();
    close(ends[0]);
    int status = 0;
    waitpid(receiver, &status, 0);
    return failed || status != 0;
}
