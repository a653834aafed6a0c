// Threads, thread-local variables, mutexes, atomics, condition variables.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>
thread_local int tl = 5;
std::mutex mu;
std::atomic<int> at;
long sum;
std::condition_variable cv;
int turn;

int main() {
    std::vector<std::thread> v;
    for (int i = 0; i < 4; i++)
        v.emplace_back([i] {
            tl += i;
            for (int k = 0; k < 20000; k++) {
                at++;
                std::lock_guard<std::mutex> g(mu);
                sum += tl;
            }
            std::unique_lock<std::mutex> l(mu);
            cv.wait(l, [&] {
                return turn == i;
            });
            printf("thread %d tl %d\n", i, tl);
            turn++;
            cv.notify_all();
            try {
                throw i;
            } catch (int x) {
                printf("caught %d\n", x);
            }
        });
    for (auto &t : v)
        t.join();
    printf("%d %ld %d\n", (int)at, sum, tl);
}
