// Catches, in a function that never returns, what others throw, all the time. Ends on SIGTERM.
#include <csignal>
#include <cstdio>

static volatile std::sig_atomic_t ending;
static void terminate(int) { ending = 1; }

__attribute__((noipa)) static int leap(int depth, int n) {
    if (depth == 0) {
        if (n % 4 != 3) throw n;
        return n;
    }
    return leap(depth - 1, n) + 1;
}

int main() {
    std::signal(SIGTERM, terminate);
    std::printf("ready\n");
    std::fflush(stdout);
    long rounds = 0, failures = 0;
    for (; !ending; rounds++) {
        int n = rounds % 1000, depth = n % 5;
        try {
            if (leap(depth, n) != n + depth || n % 4 != 3) failures++;
        } catch (int thrown) {
            if (thrown != n || n % 4 == 3) failures++;
        }
    }
    std::printf("%s after %s rounds\n", failures ? "FAILED" : "right", rounds > 100 ? "many" : "few");
    return failures != 0;
}
