// Exercises signals in every way that a tracer could disturb, and prints what it saw: the output
// must be the same with and without one.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t count, code, value, status_seen;
static void *volatile address;
static sigjmp_buf jump;

static void note(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    count++;
    code = info->si_code;
    value = info->si_value.sival_int;
    if (signal == SIGCHLD) status_seen = info->si_status;
    address = info->si_addr;
}

static void leap(int signal, siginfo_t *info, void *context) {
    note(signal, info, context);
    siglongjmp(jump, 1);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, NULL);
}

static void timer(long first_us, long every_us) {
    struct itimerval t = {{0, every_us}, {0, first_us}};
    setitimer(ITIMER_REAL, &t, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);

    // A timer at 1 kHz, while computing.
    handle(SIGALRM, note, SA_RESTART);
    count = 0;
    timer(1000, 1000);
    double end = now() + 0.5;
    while (now() < end) {}
    timer(0, 0);
    printf("timer: %s\n", count > 30 ? "many" : "few");

    // Sleeping ends with EINTR, SA_RESTART or not, and says what was left.
    timer(50000, 0);
    struct timespec left, second = {1, 0};
    int result = nanosleep(&second, &left);
    printf("nanosleep: %d %s %s\n", result, strerrorname_np(errno),
           left.tv_nsec > 800000000 && left.tv_nsec < 960000000 ? "rest" : "no rest");

    // Reading goes on with SA_RESTART, and ends with EINTR without.
    int ends[2];
    if (pipe(ends)) return 1;
    char byte;
    handle(SIGALRM, note, 0);
    timer(20000, 0);
    result = read(ends[0], &byte, 1);
    printf("read: %d %s\n", result, strerrorname_np(errno));
    handle(SIGALRM, note, SA_RESTART);
    timer(20000, 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(60000);
        _exit(write(ends[1], "x", 1) != 1);
    }
    result = read(ends[0], &byte, 1);
    printf("read with restart: %d %c\n", result, byte);
    int status;
    waitpid(child, &status, 0);

    // An ignored signal (a child's end) does not end a poll.
    signal(SIGCHLD, SIG_DFL);
    if ((child = fork()) == 0) _exit(0);
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    double before = now();
    result = poll(&set, 1, 200);
    printf("poll: %d %s\n", result, now() - before > 0.19 ? "full" : "short");
    waitpid(child, &status, 0);

    // Where signals come from.
    handle(SIGUSR1, note, 0);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42});
    printf("sigqueue: %d %d\n", code == SI_QUEUE, value);
    kill(getpid(), SIGUSR1);
    printf("kill: %d\n", code == SI_USER);
    raise(SIGUSR1);
    printf("raise: %d\n", code == SI_TKILL);
    handle(SIGCHLD, note, SA_RESTART);
    if ((child = fork()) == 0) _exit(7);
    waitpid(child, &status, 0);
    printf("child: %d %d %d\n", code == CLD_EXITED, status_seen, WEXITSTATUS(status));
    signal(SIGCHLD, SIG_DFL);

    // Faults, breakpoints, steps.
    handle(SIGSEGV, leap, 0);
    if (!sigsetjmp(jump, 1)) *(volatile int *)0x1234 = 0;
    printf("fault: %d %p\n", code == SEGV_MAPERR, address);
    handle(SIGTRAP, note, 0);
    count = 0;
    __asm__ volatile("int3");
    printf("breakpoint: %d %d\n", count, code == SI_KERNEL);
    raise(SIGTRAP);
    printf("raised trap: %d %d\n", count, code == SI_TKILL);
    count = 0;
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; nop; nop; pushfq; andq $~0x100, (%%rsp); popfq"
                     ::: "memory", "cc");
    printf("steps: %d %d\n", count, code == TRAP_TRACE);
    signal(SIGTRAP, SIG_IGN);
    raise(SIGTRAP);
    printf("ignored trap\n");

    // Blocked signals wait, and can be read.
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    count = 0;
    for (int i = 0; i < 3; i++) sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
    kill(getpid(), SIGUSR1);
    siginfo_t info;
    struct timespec soon = {1, 0};
    for (int i = 0; i < 3; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGRTMIN);
        sigtimedwait(&one, &info, &soon);
        printf("queued: %d %d\n", info.si_code == SI_QUEUE, info.si_value.sival_int);
    }
    int file = signalfd(-1, &mask, 0);
    struct signalfd_siginfo read_info;
    result = read(file, &read_info, sizeof read_info);
    printf("signalfd: %d %d %d\n", result == sizeof read_info, read_info.ssi_signo, (int)count);

    // A child is stopped and continued; its parent sees both. It has a process group of its own: in
    // an orphaned one, as a test without a controlling terminal may have, SIGTSTP is void.
    if ((child = fork()) == 0) {
        setpgid(0, 0);
        for (;;) pause();
    }
    usleep(10000);
    for (int round = 0; round < 3; round++) {
        kill(child, round == 1 ? SIGTSTP : SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        printf("stopped: %d %d\n", WIFSTOPPED(status), WSTOPSIG(status));
        kill(child, SIGCONT);
        waitpid(child, &status, WCONTINUED);
        printf("continued: %d\n", WIFCONTINUED(status));
    }
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    result = waitpid(child, &status, WNOHANG);
    printf("stays: %d\n", result);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("killed: %d %d\n", WIFSIGNALED(status), WTERMSIG(status));

    // A stopped process does not run.
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((child = fork()) == 0) for (;;) { ++*(volatile int *)shared; }
    usleep(20000);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    int seen = *(volatile int *)shared;
    usleep(50000);
    printf("still: %d %d\n", seen > 0, seen == *(volatile int *)shared);
    kill(child, SIGCONT);
    usleep(50000);
    printf("moves: %d\n", seen != *(volatile int *)shared);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    printf("terminated: %d %d\n", WIFSIGNALED(status), WTERMSIG(status));
    return 33;
}
