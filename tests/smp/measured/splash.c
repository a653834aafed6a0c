/* RADIX, FFT and LU in the manner of SPLASH-2: threads that share arrays, with a barrier between the phases. What
 * is measured is from the first thread's creation to the last one's end; nothing where it is part of something that
 * is measured. */
#define _GNU_SOURCE
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mark.h"

#define THREADS_MOST 8
#define DIGITS 256
#define BLOCK 16

static int threads, size;
static pthread_barrier_t barrier;

/* Sorts keys by eight bits at a time. */
static unsigned *keys[2], counts[THREADS_MOST][DIGITS];

static void radix(int me)
{
    int pass, first = (long)me * size / threads, last = (long)(me + 1) * size / threads;
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

static void radix_fill(void)
{
    unsigned seed = 1;
    int i;
    keys[0] = calloc(size, sizeof *keys[0]);
    keys[1] = calloc(size, sizeof *keys[1]);
    for (i = 0; i < size; i++)
        keys[0][i] = seed = seed * 1103515245 + 12345;
    memset(keys[1], 1, size * sizeof *keys[1]);
}

static int radix_check(void)
{
    int i;
    for (i = 1; i < size; i++)
        if (keys[0][i] < keys[0][i - 1])
            return 0;
    return 1;
}

/* Transforms points whose spectrum is known: one wave. */
static double complex *points[2], *roots;
static int stages;

static void fft(int me)
{
    int stage, length, half = size / 2;
    int first = (long)me * half / threads, last = (long)(me + 1) * half / threads;
    for (stage = 0, length = 1; length < size; length *= 2, stage++) {
        const double complex *from = points[stage % 2];
        double complex *to = points[(stage + 1) % 2];
        int i, k, step = half / length;
        for (i = first; i < last; i++) {
            double complex turned;
            k = i & (length - 1);
            turned = roots[k * step] * from[i + half];
            to[2 * i - k] = from[i] + turned;
            to[2 * i - k + length] = from[i] - turned;
        }
        pthread_barrier_wait(&barrier);
    }
}

static void fft_fill(void)
{
    int i;
    points[0] = calloc(size, sizeof *points[0]);
    points[1] = calloc(size, sizeof *points[1]);
    roots = calloc(size / 2, sizeof *roots);
    for (stages = 0; 1 << stages < size; stages++)
        ;
    for (i = 0; i < size; i++)
        points[0][i] = cexp(2 * M_PI * I * 5 * i / size);
    for (i = 0; i < size / 2; i++)
        roots[i] = cexp(-2 * M_PI * I * i / size);
    memcpy(points[1], points[0], size * sizeof *points[0]);
}

static int fft_check(void)
{
    const double complex *result = points[stages % 2];
    int i;
    for (i = 0; i < size; i++)
        if (cabs(result[i] - (i == 5 ? size : 0)) > 1e-6 * size)
            return 0;
    return 1;
}

/* Factors a matrix in blocks. Blocks belong to threads as the squares of a chessboard to its players. */
static double *matrix, *original;

static double *at(int row, int column)
{
    return &matrix[(long)row * size + column];
}

static int owner(int row, int column)
{
    return (row + column * 3) % threads;
}

static void factor_diagonal(int d)
{
    int k, i, j, end = d + BLOCK;
    for (k = d; k < end; k++) {
        for (i = k + 1; i < end; i++) {
            double factor = *at(i, k) /= *at(k, k);
            for (j = k + 1; j < end; j++)
                *at(i, j) -= factor * *at(k, j);
        }
    }
}

static void divide_below(int d, int row)
{
    int k, i, j;
    for (i = row; i < row + BLOCK; i++) {
        for (k = d; k < d + BLOCK; k++) {
            double factor = *at(i, k) /= *at(k, k);
            for (j = k + 1; j < d + BLOCK; j++)
                *at(i, j) -= factor * *at(k, j);
        }
    }
}

static void solve_right(int d, int column)
{
    int k, i, j;
    for (k = d; k < d + BLOCK; k++)
        for (i = k + 1; i < d + BLOCK; i++)
            for (j = column; j < column + BLOCK; j++)
                *at(i, j) -= *at(i, k) * *at(k, j);
}

static void update(int d, int row, int column)
{
    int k, i, j;
    for (i = row; i < row + BLOCK; i++) {
        for (k = d; k < d + BLOCK; k++) {
            double factor = *at(i, k);
            const double *from = at(k, column);
            double *to = at(i, column);
            for (j = 0; j < BLOCK; j++)
                to[j] -= factor * from[j];
        }
    }
}

static void lu(int me)
{
    int d, i, j;
    for (d = 0; d < size; d += BLOCK) {
        int step = d / BLOCK;
        if (owner(step, step) == me)
            factor_diagonal(d);
        pthread_barrier_wait(&barrier);
        for (i = d + BLOCK; i < size; i += BLOCK) {
            if (owner(i / BLOCK, step) == me)
                divide_below(d, i);
            if (owner(step, i / BLOCK) == me)
                solve_right(d, i);
        }
        pthread_barrier_wait(&barrier);
        for (i = d + BLOCK; i < size; i += BLOCK)
            for (j = d + BLOCK; j < size; j += BLOCK)
                if (owner(i / BLOCK, j / BLOCK) == me)
                    update(d, i, j);
        pthread_barrier_wait(&barrier);
    }
}

static void lu_fill(void)
{
    int i, j;
    matrix = calloc((long)size * size, sizeof *matrix);
    original = calloc((long)size * size, sizeof *original);
    for (i = 0; i < size; i++)
        for (j = 0; j < size; j++)
            *at(i, j) = i == j ? size : 1.0 / (1 + (i * 7 + j * 3) % 11);
    memcpy(original, matrix, (long)size * size * sizeof *matrix);
}

/* Some entries of the factors' product. */
static int lu_check(void)
{
    int i, j, k;
    for (i = 0; i < size; i += 7) {
        for (j = i % 5; j < size; j += 11) {
            double sum = i <= j ? *at(i, j) : 0;
            for (k = 0; k < i && k <= j; k++)
                sum += *at(i, k) * *at(k, j);
            if (fabs(sum - original[(long)i * size + j]) > 1e-6 * size)
                return 0;
        }
    }
    return 1;
}

static const struct kernel {
    const char *name;
    void (*fill)(void);
    void (*run)(int me);
    int (*check)(void);
} kernels[] = {
    {"radix", radix_fill, radix, radix_check},
    {"fft", fft_fill, fft, fft_check},
    {"lu", lu_fill, lu, lu_check},
};
static const struct kernel *kernel;

static void *work(void *number)
{
    kernel->run((int)(long)number);
    return 0;
}

int main(int count, char **arguments)
{
    pthread_t all[THREADS_MOST];
    int is_part = count == 5 && !strcmp(arguments[4], "part");
    long i;
    for (i = 0; count >= 4 && i < 3; i++)
        if (!strcmp(arguments[1], kernels[i].name))
            kernel = &kernels[i];
    threads = count >= 4 ? atoi(arguments[2]) : 0;
    size = count >= 4 ? atoi(arguments[3]) : 0;
    if (!kernel || threads < 1 || threads > THREADS_MOST || size < BLOCK || size % BLOCK) {
        fprintf(stderr, "splash radix|fft|lu THREADS SIZE [part]\n");
        return 2;
    }
    pthread_barrier_init(&barrier, 0, threads);
    kernel->fill();
    if (!is_part)
        MARK_LONG();
    for (i = 0; i < threads; i++)
        pthread_create(&all[i], 0, work, (void *)i);
    for (i = 0; i < threads; i++)
        pthread_join(all[i], 0);
    if (!is_part) {
        MARK_END();
        name_measurement(kernel->name, threads);
    }
    if (kernel->check())
        return 0;
    printf("%s: the result is wrong\n", kernel->name);
    return 1;
}
