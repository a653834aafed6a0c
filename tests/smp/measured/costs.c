/* What single operations cost: calls that are forwarded and calls that are not, handing a turn over by a
 * futex, the first touch of a page, and a loop that does nothing but count. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mark.h"

static _Atomic int turn;

static void calls(const char *name, long number, long count)
{
    long i;
    for (i = 0; i < 100; i++)
        syscall(number);
    MARK_SHORT();
    for (i = 0; i < count; i++)
        syscall(number);
    MARK_END();
    name_measurement(name, count);
}

static void hand_over(int me, long rounds)
{
    long i;
    for (i = 0; i < rounds; i++) {
        while (turn != me)
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !me, 0, 0, 0);
        turn = !me;
        syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
}

static void *partner(void *rounds)
{
    hand_over(1, (long)rounds);
    return 0;
}

static void futexes(long count)
{
    const long before = 20;
    pthread_t other;
    pthread_create(&other, 0, partner, (void *)(before + count));
    hand_over(0, before);
    MARK_SHORT();
    hand_over(0, count);
    MARK_END();
    pthread_join(other, 0);
    name_measurement("futex", 2 * count);
}

static void touch(long pages)
{
    char *area = mmap(0, (pages + 64) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long i;
    madvise(area, (pages + 64) * 4096, MADV_NOHUGEPAGE);
    for (i = 0; i < 64; i++)
        area[i * 4096] = 1;
    MARK_SHORT();
    for (; i < pages + 64; i++)
        area[i * 4096] = 1;
    MARK_END();
    name_measurement("touch", pages);
}

/* The same in an order in which no page follows the last one. */
static void scatter(long pages)
{
    char *area = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long i;
    madvise(area, pages * 4096, MADV_NOHUGEPAGE);
    MARK_SHORT();
    for (i = 0; i < pages; i++)
        area[i * 389 % pages * 4096] = 1;
    MARK_END();
    name_measurement("scatter", pages);
}

static void loop(long count)
{
    volatile long sum = 0;
    long i;
    for (i = 0; i < 1000; i++)
        sum += i;
    MARK_COUNT();
    for (i = 0; i < count; i++)
        sum += i;
    MARK_END();
    name_measurement("loop", count);
}

int main(int count, char **arguments)
{
    const char *what = count > 2 ? arguments[1] : "";
    long times = count > 2 ? atol(arguments[2]) : 0;
    if (!strcmp(what, "forwarded"))
        calls(what, SYS_getppid, times);
    else if (!strcmp(what, "local"))
        calls(what, SYS_getpid, times);
    else if (!strcmp(what, "futex"))
        futexes(times);
    else if (!strcmp(what, "touch"))
        touch(times);
    else if (!strcmp(what, "scatter"))
        scatter(times);
    else if (!strcmp(what, "loop"))
        loop(times);
    else
        return 2;
    return 0;
}
