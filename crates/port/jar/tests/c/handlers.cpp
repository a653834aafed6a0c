// Exceptions, handlers and destructors, without threads: what a small device can do.
#include <cstdio>
#include <stdexcept>
#include <string>

struct Guard {
    const char *name;
    ~Guard() { printf("-%s\n", name); }
};

static int depth(int n) {
    Guard guard{n % 2 ? "odd" : "even"};
    if (n == 0)
        throw std::runtime_error("at the bottom");
    return depth(n - 1) + 1;
}

static void rethrow() {
    try {
        depth(3);
    } catch (const std::logic_error &) {
        printf("wrong handler\n");
    } catch (...) {
        printf("again\n");
        throw;
    }
}

int main() {
    try {
        rethrow();
    } catch (const std::exception &e) {
        printf("caught %s\n", e.what());
    }
    try {
        printf("%c\n", std::string("abc").at(7));
    } catch (const std::out_of_range &) {
        printf("out of range\n");
    }
    try {
        throw 42;
    } catch (int value) {
        printf("%d\n", value);
    }
    Guard last{"main"};
    return 4;
}
