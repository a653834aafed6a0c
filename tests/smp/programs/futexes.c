/* Turns that threads hand over by private futexes, while signals and affinity move threads home and out: none may be
 * lost. The ring uses bare calls, the queue mutexes and condition variables, waits with a limit among them. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING 4
#define ROUNDS 1000

static _Atomic int words[RING], stop;
static _Atomic long interrupted;
static pthread_t ring[RING];
static long handed[RING];

static long futex(_Atomic int *word, int operation, int value)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, 0, 0, -1);
}

static void on_signal(int number)
{
    (void)number;
    interrupted++;
}

static void on_alarm(int number)
{
    static const char text[] = "a turn is lost\n";
    (void)number;
    _exit(write(1, text, sizeof text - 1) > 0 ? 3 : 4);
}

static void go_home(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *run_ring(void *number)
{
    long me = (long)number, next = (me + 1) % RING, i;
    for (i = 0; i < ROUNDS; i++) {
        /* The last half has one thread at home for good. */
        if (me == 1 && i == ROUNDS / 2)
            go_home();
        while (!words[me])
            futex(&words[me], me % 2 ? FUTEX_WAIT : FUTEX_WAIT_BITSET, 0);
        words[me] = 0;
        handed[me]++;
        words[next] = 1;
        futex(&words[next], me % 2 ? FUTEX_WAKE_BITSET : FUTEX_WAKE, 1);
    }
    return 0;
}

static void *disturb(void *nothing)
{
    struct timespec moment = {0, 3000000};
    unsigned i;
    for (i = 0; !stop; i++) {
        pthread_kill(ring[i * 7 % RING], SIGUSR1);
        nanosleep(&moment, 0);
    }
    return nothing;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static int queued;
static long taken;

static void *consume(void *patient)
{
    int end = 0;
    while (!end) {
        pthread_mutex_lock(&lock);
        while (!queued) {
            struct timespec limit;
            clock_gettime(CLOCK_REALTIME, &limit);
            limit.tv_sec += 30;
            if (patient)
                pthread_cond_wait(&filled, &lock);
            else
                pthread_cond_timedwait(&filled, &lock, &limit);
        }
        if (queued > 0) {
            queued--;
            taken++;
        }
        end = queued < 0;
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void produce(int count)
{
    int i;
    for (i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        while (queued == 3)
            pthread_cond_wait(&emptied, &lock);
        queued++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    while (queued > 0)
        pthread_cond_wait(&emptied, &lock);
    queued = -1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
}

/* What a call answers that cannot wait, or wakes no thread. */
static void answers(void)
{
    _Atomic int word = 5;
    int differs = futex(&word, FUTEX_WAIT, 4) == -1 && errno == EAGAIN;
    long none = futex(&word, FUTEX_WAKE, 9);
    int crooked = futex((_Atomic int *)((char *)&word + 1), FUTEX_WAKE, 1) == -1 && errno == EINVAL;
    int nowhere = futex((_Atomic int *)16, FUTEX_WAIT, 0) == -1 && errno == EFAULT;
    printf("differs %d none %ld crooked %d nowhere %d\n", differs, none, crooked, nowhere);
}

int main(void)
{
    pthread_t pest, consumers[3];
    long i, sum = 0;
    signal(SIGALRM, on_alarm);
    signal(SIGUSR1, on_signal);
    alarm(60);
    answers();
    for (i = 0; i < 3; i++)
        pthread_create(&consumers[i], 0, consume, (void *)(i % 2));
    produce(1000);
    for (i = 0; i < 3; i++)
        pthread_join(consumers[i], 0);
    for (i = 0; i < RING; i++)
        pthread_create(&ring[i], 0, run_ring, (void *)i);
    pthread_create(&pest, 0, disturb, 0);
    while (!interrupted)
        usleep(1000);
    words[0] = 1;
    futex(&words[0], FUTEX_WAKE, 1);
    /* Thread ids are valid until they are joined: the disturber ends first. */
    for (i = 0; i < RING; i++)
        while (__atomic_load_n(&handed[i], __ATOMIC_ACQUIRE) < ROUNDS)
            usleep(10000);
    stop = 1;
    pthread_join(pest, 0);
    for (i = 0; i < RING; i++) {
        pthread_join(ring[i], 0);
        sum += handed[i];
    }
    printf("taken %ld handed %ld\n", taken, sum);
    return 0;
}
