// Loads for a kernel whose functions are replaced meanwhile. Each checks what it gets back, ends by itself,
// and says `load NAME: ok`, or what was wrong and exits with 1. Static, for a guest without libraries.
// With `marked` behind the number, marks for a plugin of QEMU's stand where the repeated part begins and ends.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../smp/measured/mark.h"

static int is_marked;

static void begins(void) {
    if (is_marked) MARK_MODEL();
}

static void ends(void) {
    if (is_marked) MARK_MODEL_END();
}

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void must(int held, const char *what) {
    if (!held) fail(what);
}

static void join(pid_t child) {
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "a child's end");
}

// A byte string goes to a child and comes back, each byte one more.
static void echo(int from, int to) {
    char buffer[512];
    for (;;) {
        ssize_t got = read(from, buffer, sizeof buffer);
        if (got <= 0) _exit(got < 0);
        for (ssize_t i = 0; i < got; i++) buffer[i]++;
        if (write(to, buffer, got) != got) _exit(1);
    }
}

static void exchange(int to, int from, long times) {
    char out[256], in[256];
    begins();
    for (long i = 0; i < times; i++) {
        memset(out, (char)i, sizeof out);
        must(write(to, out, sizeof out) == sizeof out, "write");
        for (size_t have = 0; have < sizeof in;) {
            ssize_t got = read(from, in + have, sizeof in - have);
            must(got > 0, "read");
            have += got;
        }
        for (size_t k = 0; k < sizeof in; k++) must(in[k] == (char)(i + 1), "what came back");
    }
    ends();
}

static void pipes(long times) {
    int there[2], back[2];
    must(!pipe(there) && !pipe(back), "pipe");
    pid_t child = fork();
    if (!child) {
        close(there[1]);
        echo(there[0], back[1]);
    }
    close(there[0]);
    exchange(there[1], back[0], times);
    close(there[1]);
    join(child);
}

static void tcp(long times) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(!bind(listener, (void *)&address, length) && !listen(listener, 1), "listen");
    must(!getsockname(listener, (void *)&address, &length), "getsockname");
    pid_t child = fork();
    if (!child) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        must(!connect(connection, (void *)&address, length), "connect");
        echo(connection, connection);
    }
    int connection = accept(listener, 0, 0);
    must(connection >= 0, "accept");
    exchange(connection, connection, times);
    close(connection);
    join(child);
}

static void files(long times) {
    char name[64], out[1024], in[1024];
    begins();
    for (long i = 0; i < times; i++) {
        struct stat status;
        snprintf(name, sizeof name, "/tmp/load-%d-%ld", getpid(), i % 16);
        int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        must(file >= 0, "open");
        memset(out, (char)i, sizeof out);
        must(write(file, out, sizeof out) == sizeof out && !lseek(file, 0, SEEK_SET), "write");
        must(read(file, in, sizeof in) == sizeof in && !memcmp(in, out, sizeof in), "what was read");
        must(!fstat(file, &status) && status.st_size == sizeof out, "fstat");
        must(!close(file) && !unlink(name), "unlink");
    }
    ends();
}

static void forks(long times) {
    begins();
    for (long i = 0; i < times; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (!child) _exit(0);
        join(child);
    }
    ends();
}

static void execs(long times) {
    begins();
    for (long i = 0; i < times; i++) {
        pid_t child = vfork();
        must(child >= 0, "vfork");
        if (!child) {
            execl("/proc/self/exe", "load", "nothing", (char *)0);
            _exit(1);
        }
        join(child);
    }
    ends();
}

static void polls(long times) {
    enum { PAIRS = 64 };
    int pairs[PAIRS][2], set = epoll_create1(0);
    for (int i = 0; i < PAIRS; i++) {
        must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), "socketpair");
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        must(!epoll_ctl(set, EPOLL_CTL_ADD, pairs[i][0], &event), "epoll_ctl");
    }
    begins();
    for (long i = 0; i < times; i++) {
        struct epoll_event event;
        char byte = (char)i, got;
        must(write(pairs[i % PAIRS][1], &byte, 1) == 1, "write");
        must(epoll_wait(set, &event, 1, -1) == 1 && event.data.u32 == i % PAIRS, "epoll_wait");
        must(read(pairs[i % PAIRS][0], &got, 1) == 1 && got == byte, "what was read");
    }
    ends();
}

static void faults(long times) {
    enum { BYTES = 1 << 16 };
    begins();
    for (long i = 0; i < times; i++) {
        char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(memory != MAP_FAILED, "mmap");
        for (int at = 0; at < BYTES; at += 4096) {
            must(memory[at] == 0, "fresh memory");
            memory[at] = (char)i;
        }
        must(!munmap(memory, BYTES), "munmap");
    }
    ends();
}

// One thing of everything that sleeps, for so many seconds: each is woken by the one before.
static void sleepers(long seconds) {
    int gate[2], poll[2], set = epoll_create1(0);
    must(!pipe(gate) && !pipe(poll), "pipe");
    struct epoll_event event = {.events = EPOLLIN};
    must(!epoll_ctl(set, EPOLL_CTL_ADD, poll[0], &event), "epoll_ctl");
    pid_t reader = fork();
    if (!reader) {
        char byte;
        close(gate[1]);
        must(read(gate[0], &byte, 1) == 1 && byte == 'w', "the reader's byte");
        _exit(0);
    }
    pid_t poller = fork();
    if (!poller) {
        must(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        _exit(0);
    }
    pid_t waiter = fork();
    if (!waiter) {
        pid_t child = fork();
        if (!child) {
            struct timespec time = {.tv_sec = seconds};
            must(!nanosleep(&time, 0), "nanosleep");
            _exit(0);
        }
        join(child);
        _exit(0);
    }
    join(waiter);
    must(write(gate[1], "w", 1) == 1 && write(poll[1], "p", 1) == 1, "write");
    join(reader);
    join(poller);
}

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    must(!nanosleep(&time, 0), "nanosleep");
}

// Sleeps again and again, in one of the ways in which threads wait: for a time, for events, for bytes, for a child.
static void sleep_as(int kind, int from) {
    int set = epoll_create1(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        struct epoll_event event;
        char byte;
        pid_t child;
        switch (kind) {
        case 0:
            nap(500);
            break;
        case 1:
            must(!epoll_wait(set, &event, 1, 500), "epoll_wait");
            break;
        case 2:
            must(read(from, &byte, 1) == 1 && byte == 'w', "the byte that wakes");
            break;
        case 3:
            if (!(child = fork())) {
                nap(1000);
                _exit(0);
            }
            must(child > 0, "fork");
            join(child);
        }
    }
}

// So many threads that sleep in the ways above, until this one is killed.
static void crowd(long threads) {
    int gate[2];
    must(!pipe(gate), "pipe");
    for (long i = 0; i < threads; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (!child) sleep_as(i % 4, gate[0]);
    }
    for (;;) {
        for (long i = 0; i < threads / 4; i++) must(write(gate[1], "w", 1) == 1, "write");
        nap(500);
    }
}

// What the module's core says of itself, as in runtime/kmod/kmod.h, as far as it is of interest here.
struct status {
    uint32_t version, state, keep, barred;
    uint64_t before[8], stopped_ns, tasks, moved, hooked, stuck, foreign;
};

static int ask(int core, uint32_t verb) {
    uint32_t command[2] = {verb, 0};
    int failed = write(core, command, sizeof command) != sizeof command;
    must(!failed || errno == EAGAIN, "the core's answer");
    return failed;
}

// Takes what is installed out and puts it back, so many times, threads asleep in it or not.
static void turns(long times) {
    enum { INSTALL = 1, UNDO = 3 };
    int core = open("/proc/fettle", O_RDWR);
    must(core >= 0, "/proc/fettle");
    uint64_t first = 0, least = UINT64_MAX, most = 0, tasks = 0, moved = 0;
    for (long i = 0; i < times; i++) {
        struct status status;
        nap(1200);
        int failed = ask(core, UNDO);
        first += !failed;
        must(pread(core, &status, sizeof status, 0) == sizeof status, "the core's status");
        if (status.stopped_ns > most) most = status.stopped_ns;
        if (status.stopped_ns < least) least = status.stopped_ns;
        if (status.tasks > tasks) tasks = status.tasks;
        moved += status.moved;
        while (failed) {
            nap(20);
            failed = ask(core, UNDO);
        }
        ask(core, INSTALL);
    }
    printf("{\"turns\":%ld,\"at_once\":%lu,\"tasks\":%lu,\"moved\":%lu,\"least_ns\":%lu,\"most_ns\":%lu}\n", times, first,
           tasks, moved, least, most);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// The longest time in which a thread that only looks at the clock did not run.
static void gap(long seconds) {
    double end = now() + seconds, last = now(), largest = 0;
    while (last < end) {
        double next = now();
        if (next - last > largest) largest = next - last;
        last = next;
    }
    printf("load gap: largest %.2f ms\n", largest * 1e3);
}

// Reads so many times one byte, and nothing else: a known number of calls.
static void reads(long times) {
    char byte;
    int zero = open("/dev/zero", O_RDONLY);
    for (long i = 0; i < times; i++) must(read(zero, &byte, 1) == 1, "read");
}

// Tells the plugin alone, before and behind other programs.
static void mark(long begins) {
    if (begins)
        MARK_MODEL();
    else
        MARK_MODEL_END_WITH_BLOCKS();
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(long);
    } loads[] = {{"pipe", pipes}, {"tcp", tcp},       {"file", files},      {"fork", forks}, {"epoll", polls},
                 {"exec", execs}, {"fault", faults}, {"sleep", sleepers}, {"gap", gap},     {"read", reads},
                 {"mark", mark},   {"crowd", crowd},   {"turns", turns},     {"nap", nap}};
    if (count == 2 && !strcmp(arguments[1], "nothing")) return 0;
    is_marked = count == 4 && !strcmp(arguments[3], "marked");
    for (size_t i = 0; (count == 3 || is_marked) && i < sizeof loads / sizeof *loads; i++)
        if (!strcmp(arguments[1], loads[i].name)) {
            loads[i].run(atol(arguments[2]));
            printf("load %s: ok\n", arguments[1]);
            return 0;
        }
    fprintf(stderr, "load: NAME TIMES [marked]\n");
    return 2;
}
