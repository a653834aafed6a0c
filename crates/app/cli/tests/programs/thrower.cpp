// Exceptions, backtraces, cancellation, longjmp, forks and new threads, all the time. Ends on
// SIGTERM, and says whether everything went as it should.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <atomic>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<bool> ending;
static std::atomic<long> failures, rounds;

static void expect(bool right, const char *what) {
    if (!right) {
        failures++;
        std::printf("wrong: %s\n", what);
        std::fflush(stdout);
    }
}

struct Counted {
    static std::atomic<long> alive;
    Counted() { alive++; }
    ~Counted() { alive--; }
};
std::atomic<long> Counted::alive;

__attribute__((noinline)) static int dive(int depth, int kind) {
    Counted counted;
    std::string text(depth + 20, 'x');
    if (depth == 0) {
        switch (kind % 4) {
        case 0: throw std::runtime_error(text);
        case 1: throw 42;
        case 2: throw std::out_of_range("far");
        default: return 7;
        }
    }
    try {
        return dive(depth - 1, kind) + (text.size() > 1000);
    } catch (const std::out_of_range &) {
        if (depth % 3) throw;
        throw std::logic_error("turned");
    }
}

/* As a thread does that works: it waits now and then. */
static void rest(int round) {
    if (round % 64 == 0) usleep(100);
}

static void throwing() {
    for (int kind = 0; !ending; kind++) {
        rest(kind);
        int caught = 0, result = 0;
        try {
            result = dive(kind % 9 + 1, kind);
        } catch (const std::runtime_error &error) {
            caught = error.what()[0] == 'x' ? 1 : 9;
        } catch (int number) {
            caught = number == 42 ? 2 : 9;
        } catch (const std::logic_error &) {
            caught = 3;
        }
        expect(kind % 4 == 3 ? result == 7 && !caught : caught == kind % 4 + 1, "an exception");
        rounds++;
    }
}

__attribute__((noinline)) static int depth_of_trace(int depth) {
    if (depth == 0) {
        void *frames[64];
        return backtrace(frames, 64);
    }
    int frames = depth_of_trace(depth - 1);
    asm volatile("" ::: "memory");
    return frames;
}

static void tracing() {
    int base = depth_of_trace(0);
    for (int round = 0; !ending; round++) {
        rest(round);
        for (int depth = 1; depth < 12; depth++)
            expect(depth_of_trace(depth) == base + depth, "a backtrace");
        rounds++;
    }
}

static std::jmp_buf *where;
__attribute__((noinline)) static void jump(int depth) {
    if (depth == 0) std::longjmp(*where, 5);
    jump(depth - 1);
    asm volatile("" ::: "memory");
}

static void jumping() {
    for (int round = 0; !ending; round++) {
        rest(round);
        std::jmp_buf buffer;
        where = &buffer;
        int value = setjmp(buffer);
        if (value == 0) jump(10);
        expect(value == 5, "a longjmp");
        rounds++;
    }
}

static void *cancelled(void *argument) {
    pthread_cleanup_push([](void *flag) { *static_cast<bool *>(flag) = true; }, argument);
    Counted counted;
    for (;;) usleep(1000);
    pthread_cleanup_pop(0);
    return nullptr;
}

static void cancelling() {
    while (!ending) {
        bool cleaned = false;
        pthread_t thread;
        pthread_create(&thread, nullptr, cancelled, &cleaned);
        usleep(500);
        pthread_cancel(thread);
        void *result = nullptr;
        pthread_join(thread, &result);
        expect(cleaned && result == PTHREAD_CANCELED, "a cancellation");
        rounds++;
    }
}

static void forking() {
    while (!ending) {
        pid_t child = fork();
        if (child == 0) {
            int status = 1;
            try {
                dive(5, 0);
            } catch (const std::runtime_error &) {
                status = 7;
            }
            _exit(status);
        }
        int status = 0;
        while (waitpid(child, &status, 0) == -1) continue;
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a forked process");
        std::thread([] { expect(depth_of_trace(3) > 3, "a new thread"); }).join();
        if (std::system("true") != 0) expect(false, "a program that was started");
        rounds++;
    }
}

static volatile std::sig_atomic_t reported;

static void terminate(int) { reported = 1; }

int main() {
    std::signal(SIGTERM, terminate);
    std::vector<std::thread> threads;
    for (auto run : {throwing, throwing, tracing, jumping, cancelling, forking})
        threads.emplace_back(run);
    std::printf("ready\n");
    std::fflush(stdout);
    // A machine may have much else to do.
    while (!reported || rounds <= 100) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ending = true;
    for (auto &thread : threads) thread.join();
    expect(Counted::alive == 0, "destructors");
    std::printf("%s after many rounds\n", failures ? "FAILED" : "right");
    return failures != 0;
}
