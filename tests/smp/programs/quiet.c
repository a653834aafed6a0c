/* What needs few messages between the two kernels: memory that is filled page after page, the clock, the
 * program's own numbers. And what must not be mapped: pages that it never touched. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGES 4096
#define PAGE 4096

static unsigned char *map(void)
{
    unsigned char *area = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, PAGES * PAGE, MADV_NOHUGEPAGE);
    return area;
}

static long resident(unsigned char *area)
{
    static unsigned char pages[PAGES];
    long sum = 0, i;
    mincore(area, PAGES * PAGE, pages);
    for (i = 0; i < PAGES; i++)
        sum += pages[i] & 1;
    return sum;
}

static long sum_of(const unsigned char *area)
{
    long sum = 0, i;
    for (i = 0; i < PAGES * PAGE; i++)
        sum += area[i];
    return sum;
}

/* A child writes page after page of memory that its parent has, too. */
static int fork_and_fill(unsigned char *area)
{
    int status, i;
    pid_t child = fork();
    if (!child) {
        for (i = 0; i < PAGES; i++)
            area[(long)i * PAGE + 1] = 9;
        _exit(sum_of(area) % 251);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(void)
{
    unsigned char *filled = map(), *scattered = map();
    struct timespec last = {0}, now;
    long i, backwards = 0, differing = 0, pid = getpid();
    for (i = 0; i < PAGES; i++)
        filled[i * PAGE] = i;
    for (i = 0; i < 200; i++)
        scattered[i * 1237 % PAGES * PAGE] = 1;
    for (i = 0; i < 10000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        backwards += now.tv_sec < last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec < last.tv_nsec);
        last = now;
        differing += getpid() != pid;
    }
    printf("filled %ld of %d pages, sum %ld\n", resident(filled), PAGES, sum_of(filled));
    printf("scattered %ld pages\n", resident(scattered));
    printf("backwards %ld differing %ld\n", backwards, differing);
    printf("child %d, sum %ld\n", fork_and_fill(filled), sum_of(filled));
    return 0;
}
