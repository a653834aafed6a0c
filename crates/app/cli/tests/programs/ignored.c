/* Waits with a timeout while ignored signals come: the kernel drops them before they interrupt a
 * thread. Children end by and by, and one sends a signal that is ignored. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    pid_t me = getpid();
    signal(SIGUSR1, SIG_IGN);
    for (int i = 1; i <= 12; i++)
        if (!fork()) {
            usleep(100000 * i);
            kill(me, SIGUSR1);
            _exit(0);
        }
    int epoll = epoll_create1(0);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    bind(listener, (struct sockaddr *)&own, sizeof own.sun_family);
    listen(listener, 1);
    struct timeval limit = {.tv_usec = 300000};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (int i = 0; i < 2; i++) {
        struct epoll_event event;
        int ready = epoll_wait(epoll, &event, 1, 300);
        printf("epoll_wait %d %s\n", ready, ready < 0 ? strerror(errno) : "in vain");
        printf("accept %d", accept(listener, 0, 0));
        printf(" %s\n", strerror(errno));
    }
    while (wait(0) > 0)
        ;
    printf("all have ended\n");
    return 0;
}
