// Messages within a process, and between two, which makes two context switches of each.
#include "bench.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int ours[2], theirs[2];
static pid_t echo = -1;
static char buffer[512];

static int open_pipe(void) { return pipe(ours); }

static void close_pipe(void)
{
    close(ours[0]);
    close(ours[1]);
}

static void to_self(unsigned long n, size_t size)
{
    for (unsigned long i = 0; i < n; i++)
        if (write(ours[1], buffer, size) != (ssize_t)size || read(ours[0], buffer, size) != (ssize_t)size)
            fail("pipe");
}

static void pipe_1(unsigned long n) { to_self(n, 1); }
static void pipe_512(unsigned long n) { to_self(n, 512); }

// Starts a process that sends back each byte that it gets; `in` and `out` are its ends.
static int start_echo(int in, int out, int mine_in, int mine_out)
{
    echo = fork();
    if (echo == 0) {
        char byte;
        if (mine_in != in)
            close(mine_in);
        if (mine_out != out)
            close(mine_out);
        while (read(in, &byte, 1) == 1)
            if (write(out, &byte, 1) != 1)
                break;
        _exit(0);
    }
    return echo < 0 ? -1 : 0;
}

static void end_echo(void)
{
    // Its input ends when ours is closed.
    waitpid(echo, 0, 0);
    echo = -1;
}

static int open_pair_of_pipes(void)
{
    if (pipe(ours) != 0 || pipe(theirs) != 0 || start_echo(ours[0], theirs[1], ours[1], theirs[0]) != 0)
        return -1;
    close(ours[0]);
    close(theirs[1]);
    return 0;
}

static void close_pair_of_pipes(void)
{
    close(ours[1]);
    end_echo();
    close(theirs[0]);
}

static void round_trips(unsigned long n, int out, int in)
{
    char byte = 'x';
    for (unsigned long i = 0; i < n; i++)
        if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
            fail("round trip");
}

static void switches(unsigned long n) { round_trips(n, ours[1], theirs[0]); }

static int open_unix(void)
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ours) != 0)
        return -1;
    if (start_echo(ours[1], ours[1], ours[0], ours[0]) != 0)
        return -1;
    close(ours[1]);
    return 0;
}

static void close_socket(void)
{
    close(ours[0]);
    end_echo();
}

static void socket_trips(unsigned long n) { round_trips(n, ours[0], ours[0]); }

static int open_tcp(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (listener < 0 || bind(listener, (void *)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (void *)&at, &size) != 0)
        return -1;
    ours[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ours[0] < 0 || connect(ours[0], (void *)&at, sizeof at) != 0)
        return -1;
    ours[1] = accept(listener, 0, 0);
    close(listener);
    if (ours[1] < 0)
        return -1;
    setsockopt(ours[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(ours[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (start_echo(ours[1], ours[1], ours[0], ours[0]) != 0)
        return -1;
    close(ours[1]);
    return 0;
}

const struct benchmark pipes[] = {
    {"pipe-1", "pipes", "one byte through a pipe to the own process", open_pipe, pipe_1, close_pipe},
    {"pipe-512", "pipes", "512 bytes through a pipe to the own process", open_pipe, pipe_512, close_pipe},
    {"switch", "pipes", "a byte to another process and back, by pipes", open_pair_of_pipes, switches,
     close_pair_of_pipes},
    {"unix", "pipes", "a byte to another process and back, by a UNIX socket", open_unix, socket_trips,
     close_socket},
    {"tcp", "pipes", "a byte to another process and back, by TCP", open_tcp, socket_trips, close_socket},
    {0},
};
