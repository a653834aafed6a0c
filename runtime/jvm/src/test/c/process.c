// Clocks, identity, limits, memory, and the end of a process by its last thread.
#define _GNU_SOURCE
#include "show.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *bye(void *a) {
    usleep(10000);
    puts("last thread");
    exit(9);
}

static void fini(void) {
    puts("atexit");
}

int main(int c, char **v, char **env) {
    struct timespec a, b;
    SHOW(clock_gettime(CLOCK_MONOTONIC, &a));
    usleep(3000);
    clock_gettime(CLOCK_MONOTONIC, &b);
    SHOW((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec >= 3000000);
    SHOW(time(0) > 1600000000);
    struct timeval tv;
    gettimeofday(&tv, 0);
    SHOW(tv.tv_sec - time(0) <= 1);
    SHOW(clock_getres(CLOCK_REALTIME, &a));
    SHOW(clock_gettime(99, &a));
    SHOW(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a));
    struct tms tm;
    SHOW(times(&tm) != -1);
    struct rusage ru;
    SHOW(getrusage(RUSAGE_SELF, &ru));
    a.tv_sec = 0;
    a.tv_nsec = 2000000000;
    SHOW(nanosleep(&a, 0));
    clock_gettime(CLOCK_MONOTONIC, &a);
    a.tv_nsec += 1000000;
    if (a.tv_nsec >= 1000000000) {
        a.tv_sec++;
        a.tv_nsec -= 1000000000;
    }
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &a, 0));
    char r[32];
    SHOW(getrandom(r, 32, 0));
    struct utsname u;
    SHOW(uname(&u));
    puts(u.sysname);
    puts(u.machine);
    SHOW(getuid() == geteuid());
    SHOW(getgid() == (int)getauxval(AT_GID));
    SHOW(getauxval(AT_PAGESZ));
    SHOW(getpid() == gettid());
    SHOW(sysconf(_SC_NPROCESSORS_ONLN) > 0);
    SHOW(sysconf(_SC_PAGESIZE));
    struct rlimit rl;
    SHOW(getrlimit(RLIMIT_NOFILE, &rl));
    SHOW(getrlimit(99, &rl));
    struct sysinfo si;
    SHOW(sysinfo(&si));
    SHOW(si.mem_unit);
    SHOW(sched_yield());
    SHOW(wait(0));
    SHOW(getppid() > 0);
    SHOW(kill(getpid(), 0));
    SHOW(kill(999999, 0));
    SHOW(raise(0));
    char *p = sbrk(0);
    SHOW(sbrk(4096) == p);
    p[4095] = 1;
    SHOW(brk(p));
    sbrk(4096);
    SHOW(p[4095]);
    p = malloc(50 << 20);
    memset(p, 7, 50 << 20);
    SHOW(p[49 << 20]);
    p = realloc(p, 100 << 20);
    SHOW(p[49 << 20]);
    free(p);
    for (int i = 0; i < 1000; i++)
        free(malloc(i * 997));
    SHOW(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SHOW(munmap((void *)1, 4096));
    p = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[0] = p[8192] = 5;
    SHOW(munmap(p + 4096, 4096));
    SHOW(p[0] + p[8192]);
    SHOW(madvise(p, 4096, MADV_DONTNEED));
    SHOW(p[0]);
    SHOW(mprotect(p, 4096, PROT_READ));
    SHOW(mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
         p);
    pthread_t t;
    sem_t s;
    sem_init(&s, 0, 0);
    clock_gettime(CLOCK_REALTIME, &a);
    a.tv_nsec += 2000000;
    if (a.tv_nsec >= 1000000000) {
        a.tv_sec++;
        a.tv_nsec -= 1000000000;
    }
    SHOW(sem_timedwait(&s, &a));
    SHOW(syscall(4999));
    SHOW(setpriority(PRIO_PROCESS, 0, 0));
    errno = 0;
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(c);
    for (int i = 1; i < c; i++)
        puts(v[i]);
    puts(getenv("TESTVAR") ?: "-");
    puts(strrchr(v[0], '/') ?: v[0]);
    atexit(fini);
    fflush(stdout);
    pthread_create(&t, 0, bye, 0);
    pthread_exit(0);
    return 0;
}
