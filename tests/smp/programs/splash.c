/* Small kernels in the manner of SPLASH-2: RADIX, FFT and LU by threads with barriers. Prints
 * checks of the results, and with an argument the time. */
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MOST 8
#define KEYS (1 << 16)
#define DIGITS 256
#define POINTS 4096
#define SIDE 96

static int threads;
static pthread_barrier_t barrier;
static unsigned keys[2][KEYS];
static unsigned counts[THREADS_MOST][DIGITS];
static double complex points[2][POINTS];
static double matrix[SIDE][SIDE];

static void radix(int me)
{
    int pass, first = me * (KEYS / threads), last = me == threads - 1 ? KEYS : first + KEYS / threads;
    for (pass = 0; pass < 4; pass++) {
        unsigned *from = keys[pass % 2], *to = keys[(pass + 1) % 2], sum = 0, places[DIGITS];
        int i, digit, other;
        memset(counts[me], 0, sizeof counts[me]);
        for (i = first; i < last; i++)
            counts[me][from[i] >> 8 * pass & 255]++;
        pthread_barrier_wait(&barrier);
        for (digit = 0; digit < DIGITS; digit++) {
            for (other = 0; other < threads; other++) {
                if (other == me)
                    places[digit] = sum;
                sum += counts[other][digit];
            }
        }
        for (i = first; i < last; i++)
            to[places[from[i] >> 8 * pass & 255]++] = from[i];
        pthread_barrier_wait(&barrier);
    }
}

static void fft(int me)
{
    int length, side = 0;
    for (length = 1; length < POINTS; length *= 2, side = !side) {
        double complex *from = points[side], *to = points[!side];
        int i, half = POINTS / 2;
        for (i = me; i < half; i += threads) {
            int k = i & (length - 1);
            double complex turn = cexp(-I * M_PI * k / length) * from[i + half];
            to[2 * i - k] = from[i] + turn;
            to[2 * i - k + length] = from[i] - turn;
        }
        pthread_barrier_wait(&barrier);
    }
}

static void lu(int me)
{
    int step, row, column;
    for (step = 0; step < SIDE; step++) {
        for (row = step + 1 + me; row < SIDE; row += threads) {
            double factor = matrix[row][step] /= matrix[step][step];
            for (column = step + 1; column < SIDE; column++)
                matrix[row][column] -= factor * matrix[step][column];
        }
        pthread_barrier_wait(&barrier);
    }
}

static void *work(void *number)
{
    int me = (int)(long)number;
    radix(me);
    fft(me);
    lu(me);
    return 0;
}

static void fill(void)
{
    unsigned seed = 1;
    int i, j;
    for (i = 0; i < KEYS; i++)
        keys[0][i] = seed = seed * 1103515245 + 12345;
    for (i = 0; i < POINTS; i++)
        points[0][i] = i % 17;
    for (i = 0; i < SIDE; i++)
        for (j = 0; j < SIDE; j++)
            matrix[i][j] = i == j ? SIDE : 1.0 / (1 + i + j);
}

int main(int count, char **arguments)
{
    pthread_t all[THREADS_MOST];
    struct timespec begin, end;
    double sum = 0;
    long i, unsorted = 0;
    threads = count > 1 ? atoi(arguments[1]) : 2;
    if (threads < 1 || threads > THREADS_MOST)
        return 2;
    pthread_barrier_init(&barrier, 0, threads);
    fill();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (i = 0; i < threads; i++)
        pthread_create(&all[i], 0, work, (void *)i);
    for (i = 0; i < threads; i++)
        pthread_join(all[i], 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (i = 1; i < KEYS; i++)
        unsorted += keys[0][i] < keys[0][i - 1];
    for (i = 0; i < SIDE; i++)
        sum += matrix[i][i];
    printf("unsorted %ld, points %.6f, diagonal %.9f\n", unsorted, creal(points[0][0]), sum);
    if (count > 1)
        printf("ms %.1f\n", (end.tv_sec - begin.tv_sec) * 1e3 + (end.tv_nsec - begin.tv_nsec) / 1e6);
    return 0;
}
