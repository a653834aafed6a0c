// An exception is on its way to its handler from SIGUSR1 on: a destructor that it has called waits for
// the next signal. What the handler's address is was found before.
#include <csignal>
#include <cstdio>

static sigset_t set;

static int next_signal() {
    std::puts("ready");
    std::fflush(stdout);
    int signal;
    sigwait(&set, &signal);
    return signal;
}

static volatile long cleaned;

struct Waiting {
    __attribute__((noinline)) ~Waiting() {
        next_signal();
        cleaned++;
    }
};

__attribute__((noipa)) static long deep(int depth) {
    if (depth == 0) throw 7L;
    return deep(depth - 1) + 1;
}

__attribute__((noipa)) static long middle(int depth) {
    Waiting waiting;
    return deep(depth) + 1;
}

__attribute__((noipa)) static long caught() {
    try {
        return middle(3);
    } catch (long value) {
        return value * 6;
    }
}

int main() {
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    next_signal();
    long value = caught();
    std::printf("%s\n", value == 42 && cleaned == 1 ? "right" : "FAILED");
    return 0;
}
