/* The sets of ready threads (shared.h), on the host: turns, and that a thread has one owner. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "shared.h"

#define WORKERS 4
#define ROUNDS 200000

static u64 set[THREAD_WORDS];
static int owners[MAX_THREADS];
static long claimed[WORKERS], twice;

static int turns(void)
{
    u64 words[THREAD_WORDS] = {0};
    const u32 members[] = {0, 3, 63, 64, 200, 255};
    int i, last = MAX_THREADS - 1;
    if (ready_next(words, 7) != -1 || !ready_is_empty(words))
        return 1;
    for (i = 0; i < 6; i++)
        ready_set(words, members[i]);
    for (i = 0; i < 12; i++) {
        last = ready_next(words, last);
        if (last != (int)members[i % 6])
            return 2;
    }
    /* The one that is alone comes again, for any that asks. */
    memset(words, 0, sizeof words);
    ready_set(words, 70);
    for (i = 0; i < MAX_THREADS; i++)
        if (ready_next(words, i) != 70 || ready_is_empty(words))
            return 3;
    if (!ready_claim(words, 70) || ready_claim(words, 70) || ready_next(words, 0) != -1)
        return 4;
    return 0;
}

static void *work(void *number)
{
    long me = (long)number, round;
    u32 last = me * 50;
    for (round = 0; round < ROUNDS; round++) {
        int found = ready_next(set, last);
        if (found < 0 || !ready_claim(set, found))
            continue;
        if (__atomic_exchange_n(&owners[found], 1, __ATOMIC_SEQ_CST))
            __atomic_fetch_add(&twice, 1, __ATOMIC_SEQ_CST);
        claimed[me]++;
        __atomic_store_n(&owners[found], 0, __ATOMIC_SEQ_CST);
        ready_set(set, found);
        last = found;
    }
    return 0;
}

int main(void)
{
    pthread_t threads[WORKERS];
    long i, sum = 0, left = 0;
    int wrong = turns();
    for (i = 0; i < 6; i++)
        ready_set(set, i * 43);
    for (i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (i = 0; i < WORKERS; i++)
        pthread_join(threads[i], 0);
    for (i = 0; i < WORKERS; i++)
        sum += claimed[i];
    for (i = 0; i < THREAD_WORDS; i++)
        left += __builtin_popcountl(set[i]);
    printf("turns %d, owned twice %ld, left %ld, claimed %d\n", wrong, twice, left, sum > 1000);
    return wrong || twice || left != 6 || sum <= 1000;
}
