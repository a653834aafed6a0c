// Pipes, polling, sockets and event counters.
#define _GNU_SOURCE
#include "show.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static int fd[2];
static struct sockaddr_in sa;

static void *w(void *a) {
    char b[1000];
    memset(b, 'q', 1000);
    for (int i = 0; i < 200; i++)
        write(fd[1], b, 1000);
    close(fd[1]);
    return 0;
}

static void *srv(void *a) {
    int l = *(int *)a;
    int c = accept(l, 0, 0);
    char b[100];
    int n;
    while ((n = read(c, b, 100)) > 0) {
        for (int i = 0; i < n; i++)
            b[i] ^= 32;
        write(c, b, n);
    }
    close(c);
    return 0;
}

int main() {
    char b[2000];
    pthread_t t;
    SHOW(pipe(fd));
    pthread_create(&t, 0, w, 0);
    long s = 0;
    int n;
    while ((n = read(fd[0], b, 2000)) > 0)
        s += n;
    printf("sum %ld\n", s);
    pthread_join(t, 0);
    close(fd[0]);
    SHOW(pipe2(fd, O_NONBLOCK));
    SHOW(read(fd[0], b, 1));
    struct pollfd p[2] = {{fd[0], POLLIN}, {fd[1], POLLOUT}};
    SHOW(poll(p, 2, 0));
    printf("%x %x\n", p[0].revents, p[1].revents);
    SHOW(write(fd[1], "abc", 3));
    int av;
    SHOW(ioctl(fd[0], FIONREAD, &av));
    SHOW(av);
    SHOW(poll(p, 2, 10));
    printf("%x %x\n", p[0].revents, p[1].revents);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(fd[0], &r);
    struct timeval tv = {0, 1000};
    SHOW(select(fd[0] + 1, &r, 0, 0, &tv));
    SHOW(FD_ISSET(fd[0], &r) != 0);
    read(fd[0], b, 3);
    FD_SET(fd[0], &r);
    SHOW(select(fd[0] + 1, &r, 0, 0, &tv));
    SHOW(lseek(fd[0], 0, 0));
    close(fd[1]);
    SHOW(poll(p, 1, -1));
    printf("%x\n", p[0].revents);
    SHOW(read(fd[0], b, 1));
    close(fd[0]);
    SHOW(poll(p, 1, 0));
    printf("%x\n", p[0].revents);
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
    SHOW(write(fd[0], "ping", 4));
    SHOW(read(fd[1], b, 10));
    SHOW(send(fd[1], "pong!", 5, 0));
    SHOW(recv(fd[0], b, 3, 0));
    SHOW(shutdown(fd[0], SHUT_WR));
    SHOW(read(fd[1], b, 9));
    close(fd[0]);
    close(fd[1]);
    int e = eventfd(3, 0);
    unsigned long long v;
    SHOW(read(e, &v, 8));
    SHOW(v);
    v = 7;
    SHOW(write(e, &v, 8));
    int ep = epoll_create1(0);
    struct epoll_event ev = {EPOLLIN, {.u32 = 77}}, o[4];
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev));
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev));
    SHOW(epoll_wait(ep, o, 4, 100));
    SHOW(o[0].data.u32);
    SHOW(read(e, &v, 8));
    SHOW(v);
    SHOW(epoll_wait(ep, o, 4, 5));
    int l = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    SHOW(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4));
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SHOW(bind(l, (void *)&sa, sizeof sa));
    SHOW(listen(l, 5));
    socklen_t sl = sizeof sa;
    SHOW(getsockname(l, (void *)&sa, &sl));
    SHOW(sa.sin_port != 0);
    SHOW(sl);
    pthread_create(&t, 0, srv, &l);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(c, (void *)&sa, sizeof sa));
    SHOW(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, 4));
    SHOW(write(c, "Hello", 5));
    memset(b, 0, 20);
    n = 0;
    while (n < 5)
        n += read(c, b + n, 5 - n);
    puts(b);
    p[0].fd = c;
    p[0].events = POLLIN | POLLOUT;
    SHOW(poll(p, 1, 0));
    printf("%x\n", p[0].revents);
    SHOW(shutdown(c, SHUT_WR));
    SHOW(read(c, b, 10));
    pthread_join(t, 0);
    close(c);
    close(l);
    int ty;
    sl = 4;
    c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(getsockopt(c, SOL_SOCKET, SO_TYPE, &ty, &sl));
    SHOW(ty);
    sa.sin_port = htons(1);
    SHOW(connect(c, (void *)&sa, sizeof sa));
    SHOW(send(c, "x", 1, MSG_NOSIGNAL));
    int u = socket(AF_INET, SOCK_DGRAM, 0), u2 = socket(AF_INET, SOCK_DGRAM, 0);
    sa.sin_port = 0;
    SHOW(bind(u, (void *)&sa, sizeof sa));
    sl = sizeof sa;
    getsockname(u, (void *)&sa, &sl);
    SHOW(sendto(u2, "dgram", 5, 0, (void *)&sa, sl));
    struct sockaddr_in from;
    sl = sizeof from;
    SHOW(recvfrom(u, b, 100, 0, (void *)&from, &sl));
    SHOW(from.sin_family);
    SHOW(recv(u, b, 10, MSG_DONTWAIT));
    unlink("sock");
    struct sockaddr_un un = {AF_UNIX, "sock"};
    l = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(bind(l, (void *)&un, sizeof un));
    SHOW(listen(l, 1));
    pthread_create(&t, 0, srv, &l);
    c = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(connect(c, (void *)&un, sizeof un));
    SHOW(write(c, "Unix", 4));
    SHOW(recv(c, b, 4, MSG_WAITALL));
    b[4] = 0;
    puts(b);
    close(c);
    pthread_join(t, 0);
    unlink("sock");
    SHOW(write(99, "x", 1));
    SHOW(getsockopt(0, SOL_SOCKET, SO_TYPE, &ty, &sl));
    return 0;
}
