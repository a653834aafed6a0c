/* A program with a knob. For each letter of its standard input it does:
 *
 *     r   says the knob's value
 *     f   forks; the child does the rest, and its parent waits for it
 *     t   has eight threads read the knob at once, and says whether all got a value in its bounds
 *     x   executes itself anew
 */
#include "fettle_knob.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

FETTLE_KNOB(path, "test.knob", 3, 1, 1, -2, 5);

static pthread_barrier_t all;

static void *look(void *wrong) {
    int64_t value;
    pthread_barrier_wait(&all);
    value = FETTLE_VALUE(path);
    if (value < -2 || value > 5) __atomic_fetch_add((int *)wrong, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void look_at_once(void) {
    pthread_t threads[8];
    int i, wrong = 0;
    pthread_barrier_init(&all, NULL, 8);
    for (i = 0; i < 8; i++) pthread_create(&threads[i], NULL, look, &wrong);
    for (i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    printf("%d\n", wrong);
}

int main(int count, char **arguments) {
    char letter;
    (void)count;
    while (read(0, &letter, 1) == 1) {
        if (letter == 'r') printf("%ld\n", (long)FETTLE_VALUE(path));
        if (letter == 't') look_at_once();
        if (letter == 'x') execv("/proc/self/exe", arguments);
        if (letter == 'f' && fork() != 0) return wait(NULL) < 0;
        fflush(stdout);
    }
    return FETTLE_VALUE(path) == INT64_MIN;
}
