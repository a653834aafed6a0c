// Throws, for whatever unwinder it is linked with. With a number it throws about as often and says
// what came of it; without, it goes on until SIGTERM, and says whether it was always the same.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

static volatile sig_atomic_t ending;

struct Counted {
    long &alive;
    explicit Counted(long &alive) : alive(alive) { alive++; }
    ~Counted() { alive--; }
};

__attribute__((noinline)) static int dive(int depth, int kind, long &alive) {
    Counted counted(alive);
    if (depth == 0) {
        if (kind % 3 == 0) throw std::runtime_error(std::string("some words that are kept elsewhere"));
        if (kind % 3 == 1) throw kind;
        return kind;
    }
    return dive(depth - 1, kind, alive) + 1;
}

__attribute__((noinline)) static long once(int kind) {
    long alive = 0, result = 0;
    try {
        result = dive(kind % 7, kind, alive);
    } catch (const std::exception &error) {
        result = static_cast<long>(std::string(error.what()).size());
    } catch (int thrown) {
        result = thrown * 3;
    }
    return result + alive * 1000000;
}

static long round() {
    long sum = 0;
    for (int kind = 0; kind < 100; kind++) sum += once(kind);
    return sum;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        long sum = 0;
        for (int n = std::atoi(argv[1]); n > 0; n--) sum += round();
        std::printf("%ld\n", sum);
        return 0;
    }
    std::signal(SIGTERM, [](int) { ending = 1; });
    const long right = round();
    std::puts("ready");
    std::fflush(stdout);
    long rounds = 0, wrong = 0;
    for (; !ending; rounds++) wrong += round() != right;
    std::printf("%ld wrong, %s\n", wrong, rounds > 20 ? "many rounds" : "few rounds");
    return wrong != 0;
}
