// Writes the gs base of each of its threads and children into the file that is its argument:
// "tid base" a line.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int file;

static void notify(void) {
    unsigned long base = 0;
    syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
    dprintf(file, "%d %lu\n", gettid(), base);
}

static void *thread(void *unused) {
    notify();
    return unused;
}

int main(int count, char **arguments) {
    if (count < 2) return 1;
    file = open(arguments[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    notify();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, thread, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            notify();
            pthread_create(&threads[0], NULL, thread, NULL);
            pthread_join(threads[0], NULL);
            _exit(0);
        }
        wait(NULL);
    }
    notify();
    return 0;
}
