// Indirect calls, most of which lead to one function and some to others; any of them may
// throw. Ends on SIGTERM and says whether every call came where it should, and back.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <pthread.h>
#include <stdexcept>

static std::atomic<bool> ending;
static std::atomic<long> failures, rounds;

struct Counted {
    long &alive;
    Counted(long &alive) : alive(alive) { alive++; }
    ~Counted() { alive--; }
};

struct Shape {
    virtual ~Shape() {}
    virtual long area(long n) = 0;
    virtual long twice(long n) = 0;
};

struct Square : Shape {
    __attribute__((noipa)) long area(long n) override {
        if (n % 1000 == 7) throw std::runtime_error("square");
        return n * n;
    }
    __attribute__((noipa)) long twice(long n) override { return 2 * n; }
};

struct Circle : Shape {
    __attribute__((noipa)) long area(long n) override {
        if (n % 1000 == 10) throw std::out_of_range("circle");
        return 3 * n * n;
    }
    __attribute__((noipa)) long twice(long n) override { return 6 * n; }
};

__attribute__((noipa)) static long add(long a) { return a + 1; }
__attribute__((noipa)) static long subtract(long a) { return a - 1; }
static long (*volatile variable)(long) = add;

// Both ways out of the call are caught here, with something to be undone.
__attribute__((noipa)) static long caught(Shape *shape, long n, long &alive) {
    Counted counted(alive);
    try {
        Counted another(alive);
        return shape->area(n) + alive;
    } catch (const std::runtime_error &error) {
        return -1;
    } catch (const std::out_of_range &error) {
        return -2;
    }
}

// Tail calls.
__attribute__((noipa)) static long tail(Shape *shape, long n) { return shape->twice(n + 1); }
__attribute__((noipa)) static long by_register(long (*f)(long), long n) { return f(n) * 2; }
__attribute__((noipa)) static long by_variable(long n) { return variable(n) + 5; }

static void *work(void *) {
    Square square;
    Circle circle;
    long alive = 0;
    for (long n = 0; !ending; n++) {
        bool rare = n % 10 == 0;
        Shape *shape = rare ? (Shape *)&circle : &square;
        long area = rare ? 3 * n * n : n * n;
        if (!rare && n % 1000 == 7) area = -3;
        if (rare && n % 1000 == 10) area = -4;
        bool right = caught(shape, n, alive) == area + 2 && alive == 0;
        right &= tail(shape, n) == (rare ? 6 : 2) * (n + 1);
        right &= by_register(rare ? subtract : add, n) == (rare ? n - 1 : n + 1) * 2;
        long other = by_variable(n);
        right &= other == n + 6 || other == n + 4;
        if (!right) failures++;
        rounds++;
    }
    return nullptr;
}

int main() {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, nullptr);
    pthread_t threads[2];
    for (auto &thread : threads) pthread_create(&thread, nullptr, work, nullptr);
    std::printf("ready\n");
    std::fflush(stdout);
    timespec pause = {0, 1000000};
    while (sigtimedwait(&end, nullptr, &pause) < 0) variable = variable == add ? subtract : add;
    ending = true;
    for (auto &thread : threads) pthread_join(thread, nullptr);
    std::printf("%s after %s rounds\n", failures ? "FAILED" : "right", rounds > 100 ? "many" : "few");
    return failures != 0;
}
