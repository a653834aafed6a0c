// Loses ten bytes if it is given an argument, and works for two seconds first if it is given another; has a thread that runs to the end, and a child that loses nothing.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept;

static void *wait_for_ever(void *argument) {
    for (;;) usleep(1000);
    return argument;
}

__attribute__((noinline)) static unsigned rest(int i) { return 1000 + i % 2; }

int main(int count, char **arguments) {
    pthread_t thread;
    int status = 0;
    (void)arguments;
    if (fork() == 0) {
        kept = malloc(20);
        puts("child");
        exit(3);
    }
    wait(&status);
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    kept = malloc(10);
    for (int i = 0; count > 2 && i < 2000; i++) usleep(rest(i));
    if (count > 1) kept = NULL;
    printf("child ended with %d\n", WEXITSTATUS(status));
    return 0;
}
