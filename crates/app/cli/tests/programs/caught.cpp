// Throws and catches, with clean-up in between, in functions that have a part which never runs. Ends
// after some rounds; with an argument on SIGTERM.
#include <csignal>
#include <cstdio>

static volatile std::sig_atomic_t ending;
static void terminate(int) { ending = 1; }

static volatile long cleaned;

struct Guard {
    long value;
    __attribute__((noinline)) ~Guard() { cleaned += value; }
};

__attribute__((noipa)) static long deep(int depth, long value) {
    Guard guard{depth};
    if (depth < 0) {
        std::printf("never %d\n", depth);
        for (int i = 0; i < depth * 7; i++) cleaned -= i;
        return cleaned;
    }
    if (depth == 0) {
        if (value % 3 == 0) throw value;
        return value;
    }
    return deep(depth - 1, value) + 1;
}

__attribute__((noipa)) static long round() {
    long sum = 0;
    for (long i = 0; i < 300; i++) {
        try {
            sum += deep(i % 7, i);
        } catch (long value) {
            sum -= value;
        }
    }
    return sum;
}

int main(int argc, char **) {
    std::signal(SIGTERM, terminate);
    std::printf("ready\n");
    std::fflush(stdout);
    long expected = round(), wrong = 0;
    for (long i = 0; argc > 1 ? !ending : i < 10; i++) wrong += round() != expected;
    std::printf("%s %ld\n", wrong ? "FAILED" : "right", expected);
    return 4;
}
