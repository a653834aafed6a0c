// Signals that a program sends itself, faults, timers, an alternate stack.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static sigjmp_buf jb;
static volatile int n;

static void h(int s) {
    n++;
    printf("handler %d\n", s);
}

static void hs(int s, siginfo_t *i, void *c) {
    printf("segv %d code %d addr %p\n", s, i->si_code, i->si_addr);
    siglongjmp(jb, 2);
}

static void hf(int s, siginfo_t *i, void *c) {
    printf("fpe %d code %d\n", s, i->si_code);
    siglongjmp(jb, 3);
}

static void ha(int s, siginfo_t *i, void *c) {
    int x;
    printf("alt %d code %d same %d\n", s, i->si_code, i->si_pid == getpid());
}

int main() {
    struct sigaction a = {0};
    a.sa_handler = h;
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigset_t m, o, p;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, &o);
    raise(SIGUSR1);
    sigpending(&p);
    printf("pending %d\n", sigismember(&p, SIGUSR1));
    struct timespec ts = {0, 1000000};
    int s = sigtimedwait(&m, 0, &ts);
    printf("timedwait %d\n", s);
    raise(SIGUSR1);
    sigprocmask(SIG_SETMASK, &o, 0);
    printf("n %d\n", n);
    a.sa_sigaction = hs;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &a, 0);
    int v;
    if ((v = sigsetjmp(jb, 1)) == 0) {
        *(volatile int *)0 = 1;
    }
    printf("back %d\n", v);
    if ((v = sigsetjmp(jb, 1)) == 0) {
        *(volatile int *)0xdeadbee0 = 1;
    }
    printf("back %d\n", v);
    a.sa_sigaction = hf;
    sigaction(SIGFPE, &a, 0);
    volatile int z = 0;
    if ((v = sigsetjmp(jb, 1)) == 0) {
        printf("%d\n", 1 / z);
    }
    printf("back %d\n", v);
    stack_t ss = {malloc(65536), 0, 65536};
    sigaltstack(&ss, 0);
    a.sa_sigaction = ha;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR2, &a, 0);
    raise(SIGUSR2);
    a.sa_handler = h;
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, 0);
    struct itimerval it = {{0, 0}, {0, 30000}};
    setitimer(ITIMER_REAL, &it, 0);
    int r = pause();
    printf("pause %d %s\n", r, strerror(errno));
    it.it_value.tv_usec = 20000;
    setitimer(ITIMER_REAL, &it, 0);
    n = 0;
    while (!n)
        ;
    printf("spun\n");
    setitimer(ITIMER_REAL, &it, 0);
    r = sleep(5);
    printf("sleep left %d\n", r);
    signal(SIGPIPE, SIG_IGN);
    int fd[2];
    pipe(fd);
    close(fd[0]);
    r = write(fd[1], "x", 1);
    printf("write %d %s\n", r, strerror(errno));
    fflush(stdout);
    abort();
}
