/* Jumps over a `lock` prefix while there is one thread, as the C library does. */
#include <pthread.h>
#include <stdio.h>

static long total;
static int threads;

__attribute__((noinline)) static long add(long n)
{
    __asm__ volatile("cmpl $0, %2\n\t"
                     "je 1f\n\t"
                     "lock\n"
                     "1:\txaddq %0, %1"
                     : "+r"(n), "+m"(total)
                     : "m"(threads)
                     : "cc", "memory");
    return n;
}

static void *many(void *unused)
{
    for (int i = 0; i < 100000; i++)
        add(1);
    return unused;
}

int main(void)
{
    pthread_t other[2];
    many(NULL);
    threads = 2;
    for (int i = 0; i < 2; i++)
        pthread_create(&other[i], NULL, many, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(other[i], NULL);
    long before = add(5);
    printf("%ld %ld\n", before, total);
    return 0;
}
