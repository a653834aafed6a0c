/* What a program has in its registers and its thread: vector registers over calls and faults,
 * rounding, segment bases, time, identity. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <fenv.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((target("avx"))) static int vectors_stay(void)
{
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    char *page = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int i, wrong = 0;
    for (i = 0; i < 16; i++) {
        __asm__ volatile("vmovups (%2), %%ymm5\n\t"
                         "syscall\n\t"
                         "movb $1, (%3)\n\t"
                         "vmovups %%ymm5, (%1)"
                         :
                         : "a"(SYS_getppid), "r"(out), "r"(in), "r"(page + i * 4096)
                         : "rcx", "r11", "xmm5", "memory");
        wrong += memcmp(in, out, sizeof in) != 0;
    }
    return wrong;
}

static int rounding_stays(void)
{
    volatile double third = 3;
    double down, up;
    fesetround(FE_DOWNWARD);
    syscall(SYS_getppid);
    down = 1 / third;
    fesetround(FE_UPWARD);
    syscall(SYS_getppid);
    up = 1 / third;
    fesetround(FE_TONEAREST);
    return down < up;
}

static int bases_stay(void)
{
    static long block[4] = {0x1234};
    unsigned long got = 0;
    long value;
    syscall(SYS_arch_prctl, ARCH_SET_GS, block);
    syscall(SYS_getppid);
    __asm__ volatile("movq %%gs:0, %0" : "=r"(value));
    syscall(SYS_arch_prctl, ARCH_GET_GS, &got);
    return value == 0x1234 && got == (unsigned long)block;
}

int main(void)
{
    struct timespec first, second, cpu;
    volatile long i;
    char name[16];
    clock_gettime(CLOCK_MONOTONIC, &first);
    for (i = 0; i < 3000000; i++)
        ;
    clock_gettime(CLOCK_MONOTONIC, &second);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("vectors wrong %d, rounding %d, bases %d\n",
           __builtin_cpu_supports("avx") ? vectors_stay() : 0, rounding_stays(), bases_stay());
    printf("time goes on %d, CPU time counted %d\n",
           second.tv_sec > first.tv_sec || second.tv_nsec > first.tv_nsec,
           cpu.tv_sec > 0 || cpu.tv_nsec > 100000);
    printf("leader %d, no parent lost %d\n", getpid() == syscall(SYS_gettid), getppid() > 0);
    syscall(SYS_prctl, 15, "renamed", 0, 0, 0);
    syscall(SYS_prctl, 16, name, 0, 0, 0);
    printf("%s\n", name);
    return 42;
}
