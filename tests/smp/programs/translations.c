/* Does a thread still see what its process has unmapped or copied? One thread reads a page without
 * end, the other changes what is there; a translation that is kept too long shows. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long *volatile page;
static volatile unsigned long seen, looks;
static volatile int stop;
static double patience = 2; /* seconds; with an argument less, where waiting is in vain */

static void *read_on(void *nothing)
{
    while (!stop) {
        seen = *page;
        looks++;
    }
    return 0;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Until the reader has looked again, often; with translations that are kept too long it may write
 * its count to a page that is not ours any more. */
static void let_it_look(void)
{
    unsigned long before = looks;
    double end = seconds() + patience;
    while (looks < before + 1000 && seconds() < end)
        __builtin_ia32_pause();
}

static void let_it_see(unsigned long value)
{
    double end = seconds() + patience;
    while (seen != value && seconds() < end)
        __builtin_ia32_pause();
}

int main(int count, char **arguments)
{
    pthread_t reader;
    int i, stale = 0, copied = 0, moved = 0, status;
    if (count > 1)
        patience = 0.2;
    page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&reader, 0, read_on, 0);
    for (i = 1; i <= 20; i++) {
        *page = i;
        let_it_see(i);
        madvise((void *)page, 4096, MADV_DONTNEED);
        let_it_look();
        stale += seen != 0;
    }
    for (i = 1; i <= 5; i++) {
        *page = 1000 + i;
        if (!fork()) {
            usleep(1000);
            _exit(*page != (unsigned long)(1000 + i));
        }
        *page = 5;
        let_it_look();
        copied += seen != 5;
        wait(&status);
        copied += 100 * (status != 0);
    }
    for (i = 1; i <= 5; i++) {
        void *fresh = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(unsigned long *)fresh = 2000 + i;
        mremap(fresh, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page);
        let_it_look();
        moved += seen != (unsigned long)(2000 + i);
    }
    stop = 1;
    /* A reader with stale translations may not see that. */
    if (count == 1)
        pthread_join(reader, 0);
    printf("stale %d, wrong copies %d, wrong moves %d\n", stale, copied, moved);
    return stale || copied || moved;
}
