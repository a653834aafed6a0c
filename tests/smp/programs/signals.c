/* Signals: where handlers run, alternate stacks, addresses of faults, siglongjmp, restarts. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int count;
static char *volatile where;
static void *volatile fault;
static sigjmp_buf back;

static void on_alarm(int signal)
{
    char here;
    where = &here;
    count++;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    fault = info->si_addr;
    siglongjmp(back, info->si_code);
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    /* Past UD2. */
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    count++;
}

static void interrupts_the_program(void)
{
    struct itimerval soon = {{0, 0}, {0, 50000}};
    double before = 1.25, after;
    char here;
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &soon, 0);
    after = before;
    while (!count)
        after = after * 1.0;
    printf("on its stack %d, vectors kept %d\n", where < &here && where > &here - 65536,
           after == before);
}

static void has_an_alternate_stack(void)
{
    static char area[65536];
    stack_t stack = {.ss_sp = area, .ss_size = sizeof area};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    printf("on the other stack %d\n", where >= area && where < area + sizeof area);
}

static void says_where_it_faults(void)
{
    char *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    int code;
    sigaction(SIGSEGV, &action, 0);
    code = sigsetjmp(back, 1);
    if (!code)
        page[100] = 1;
    printf("denied %d, at %ld\n", code == SEGV_ACCERR, (long)((char *)fault - page));
    code = sigsetjmp(back, 1);
    if (!code)
        *(volatile int *)0x10 = 1;
    printf("unmapped %d, at %p\n", code == SEGV_MAPERR, fault);
}

static void goes_on_behind_an_exception(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    count = 0;
    sigaction(SIGILL, &action, 0);
    __asm__ volatile("ud2");
    printf("exceptions %d\n", count);
}

static void restarts_calls(int flags, const char *what)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval soon = {{0, 0}, {1, 0}};
    int ends[2], result;
    char byte = 0;
    if (pipe(ends))
        exit(2);
    count = 0;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &soon, 0);
    if (!fork()) {
        sleep(3);
        _exit(write(ends[1], "x", 1) != 1);
    }
    result = read(ends[0], &byte, 1);
    printf("%s: %d %s, handled %d\n", what, result, result < 0 ? strerror(errno) : "", count);
}

int main(void)
{
    interrupts_the_program();
    has_an_alternate_stack();
    says_where_it_faults();
    goes_on_behind_an_exception();
    restarts_calls(SA_RESTART, "restarted");
    restarts_calls(0, "interrupted");
    fflush(stdout);
    signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
    return 1;
}
