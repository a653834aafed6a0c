/* A server whose one worker hangs when it is asked to; the master starts another when it has ended.
 *
 *     hanging PORT
 *
 * A question is a word of five bytes: "spins", "locks" (a deadlock of two threads), "sleep" (in the handler),
 * "waits" (for a wake-up that was lost), "still" (its heartbeat ends, too), or another, which is answered. */
#include "fettle.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

FETTLE_SCALAR(ticks, "hanging.ticks", 9, 1);

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;
static volatile int beats = 1;

static void *other_way(void *nothing) {
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&first);
    return nothing;
}

static void *beat(void *nothing) {
    while (beats) {
        FETTLE_ADD(ticks, 1);
        usleep(500);
    }
    return nothing;
}

static void hang(const char *how) {
    pthread_t thread;
    if (memcmp(how, "spins", 5) == 0) {
        for (;;) __asm__ __volatile__("");
    } else if (memcmp(how, "locks", 5) == 0) {
        pthread_barrier_init(&both, NULL, 2);
        pthread_create(&thread, NULL, other_way, NULL);
        pthread_mutex_lock(&first);
        pthread_barrier_wait(&both);
        pthread_mutex_lock(&second);
    } else if (memcmp(how, "sleep", 5) == 0) {
        sleep(3600);
    } else if (memcmp(how, "waits", 5) == 0) {
        pthread_mutex_lock(&first);
        for (;;) pthread_cond_wait(&woken, &first);
    } else if (memcmp(how, "still", 5) == 0) {
        beats = 0;
        pause();
    }
}

static void work(int listener) {
    char word[5];
    pthread_t thread;
    if (getenv("HEARTBEAT") != NULL) pthread_create(&thread, NULL, beat, NULL);
    for (;;) {
        int peer = accept(listener, NULL, NULL);
        if (recv(peer, word, sizeof word, MSG_WAITALL) == sizeof word) hang(word);
        send(peer, "done\n", 5, MSG_NOSIGNAL);
        close(peer);
    }
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (count != 2) return 2;
    address.sin_port = htons(atoi(arguments[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0) {
        perror("hanging");
        return 1;
    }
    for (;;) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(listener);
        }
        wait(NULL);
    }
}
