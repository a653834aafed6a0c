// Prints what a program can see of its own beginning: descriptors, auxiliary vector, signals,
// the memory below its stack. Without libraries' constructors having run much.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dirent.h>
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int sum = 0, own = dirfd(directory);
    while ((entry = readdir(directory))) {
        int file = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && file != own) sum += 1 << file;
    }
    closedir(directory);
    printf("descriptors %x\n", sum);
    sigset_t mask, pending;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigpending(&pending);
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d ignored %d\n", signal, action.sa_handler == SIG_IGN);
        if (sigismember(&mask, signal) == 1) printf("signal %d blocked\n", signal);
        if (sigismember(&pending, signal) == 1) printf("signal %d pending\n", signal);
    }
    printf("phdr %d phnum %lu secure %lu\n", getauxval(AT_PHDR) != 0, getauxval(AT_PHNUM),
           getauxval(AT_SECURE));
    printf("seccomp %d dumpable %d\n", prctl(PR_GET_SECCOMP), prctl(PR_GET_DUMPABLE));
    unsigned long gs = 0;
    syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
    printf("cleared %s\n", getenv("FETTLE_NOT_SET") ? "no" : "yes");
    return 0;
}
