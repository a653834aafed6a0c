// The application server of app.py with a work queue: queue PORT REDIS_PORT LOG.
//
// One thread waits for all connections and reads requests; eight workers take them from a queue,
// ask Redis, each over a connection of its own, and answer.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct Task {
    int connection;
    int port;
    long number;
};

class TaskQueue {
public:
    void push(Task *task);
    Task *pop();

private:
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<Task *> tasks;
};

__attribute__((noinline)) void TaskQueue::push(Task *task)
{
    {
        std::lock_guard<std::mutex> guard(mutex);
        tasks.push_back(task);
    }
    filled.notify_one();
}

__attribute__((noinline)) Task *TaskQueue::pop()
{
    std::unique_lock<std::mutex> guard(mutex);
    filled.wait(guard, [this] { return !tasks.empty(); });
    Task *task = tasks.front();
    tasks.pop_front();
    return task;
}

static TaskQueue queue;
static int log_file, port, store_port;

static sockaddr_in local(int at)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(at);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void put(int to, const std::string &text)
{
    must(send(to, text.data(), text.size(), MSG_NOSIGNAL) == (ssize_t)text.size(), "send");
}

static void work()
{
    int store = -1;
    sockaddr_in own{};
    for (;;) {
        Task *task = queue.pop();
        if (store < 0) {
            store = socket(AF_INET, SOCK_STREAM, 0);
            sockaddr_in address = local(store_port);
            must(connect(store, (sockaddr *)&address, sizeof address) == 0, "connect");
            socklen_t size = sizeof own;
            getsockname(store, (sockaddr *)&own, &size);
        }
        std::string key = "key" + std::to_string(task->number % 100);
        put(store, "*2\r\n$4\r\nINCR\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n");
        char value[64];
        ssize_t got = recv(store, value, sizeof value, 0);
        must(got > 3, "recv");
        std::string text = std::to_string(task->number) + " " + std::string(value + 1, got - 3) + "\n";
        char line[128];
        int length = snprintf(line, sizeof line, "%ld %d:%d %d:%d\n", task->number, task->port, port,
                              ntohs(own.sin_port), store_port);
        must(write(log_file, line, length) == length, "write");
        put(task->connection, "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(text.size()) +
                                  "\r\nConnection: keep-alive\r\n\r\n" + text);
        delete task;
    }
}

int main(int, char **arguments)
{
    port = atoi(arguments[1]);
    store_port = atoi(arguments[2]);
    log_file = open(arguments[3], O_WRONLY | O_CREAT | O_APPEND, 0644);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = local(port);
    must(bind(listener, (sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listener, 512) == 0, "listen");
    std::vector<std::thread> workers;
    for (int n = 0; n < 8; n++)
        workers.emplace_back(work);
    int poll = epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    std::map<int, std::pair<int, std::string>> open;
    for (;;) {
        epoll_event ready[64];
        int count = epoll_wait(poll, ready, 64, -1);
        for (int n = 0; n < count; n++) {
            int fd = ready[n].data.fd;
            if (fd == listener) {
                sockaddr_in peer{};
                socklen_t size = sizeof peer;
                fd = accept(listener, (sockaddr *)&peer, &size);
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                open[fd] = {ntohs(peer.sin_port), ""};
                event.data.fd = fd;
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                continue;
            }
            char data[4096];
            ssize_t got = recv(fd, data, sizeof data, 0);
            if (got <= 0) {
                open.erase(fd);
                close(fd);
                continue;
            }
            auto &[peer, text] = open[fd];
            text.append(data, got);
            size_t end;
            while ((end = text.find("\r\n\r\n")) != std::string::npos) {
                const char *header = strcasestr(text.c_str(), "\r\nx-number:");
                queue.push(new Task{fd, peer, header ? atol(header + 11) : -1});
                text.erase(0, end + 4);
            }
        }
    }
}
