// Opens and closes plugin.cpp over and over, in one thread and in 32; exceptions cross between
// the two in both directions; threads are cancelled inside of the C library.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

static void thrower(int n)
{
    if (n % 3 == 0)
        throw n;
}

static void *pauses(void *)
{
    for (;;)
        pause();
}

static void *reads(void *pipe)
{
    char byte;
    return (void *)read(*(int *)pipe, &byte, 1);
}

static void cancel(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, nullptr, body, argument);
    usleep(1000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
}

int main(int, char **argv)
{
    const char *library = argv[1];
    int rounds = atoi(argv[2]);
    long sum = 0;
    for (int round = 0; round < rounds; round++) {
        void *handle = dlopen(library, RTLD_NOW);
        if (!handle)
            return 2;
        auto run = (int (*)(int))dlsym(handle, "plugin_run");
        auto caught = (int (*)(int))dlsym(handle, "plugin_catch");
        auto call = (void (*)(void (*)(int), int))dlsym(handle, "plugin_call");
        auto live = (int (*)())dlsym(handle, "plugin_live");
        for (int i = 0; i < 20; i++) {
            try {
                sum += run(i + round);
            } catch (std::exception &e) {
                sum += e.what()[12];
            }
            sum += caught(i);
            try {
                call(thrower, i);
            } catch (int n) {
                sum += n;
            }
        }
        sum += 1000 * live();
        dlclose(handle);
    }
    printf("sum %ld\n", sum);
    int ends[2];
    if (pipe(ends))
        return 3;
    cancel(pauses, nullptr);
    cancel(reads, ends);
    void *frames[50];
    printf("backtrace: %d\n", backtrace(frames, 50) >= 2);
    std::atomic<long> total{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < 32; k++)
        threads.emplace_back([&, k] {
            for (int round = 0; round <= rounds / 5; round++) {
                void *handle = dlopen(library, RTLD_NOW);
                auto run = (int (*)(int))dlsym(handle, "plugin_run");
                for (int i = 0; i < 10; i++) {
                    try {
                        total += run(i + k);
                    } catch (std::exception &) {
                        total += 1;
                    }
                }
                dlclose(handle);
            }
        });
    for (auto &thread : threads)
        thread.join();
    printf("total %ld\n", total.load());
    return 5;
}
