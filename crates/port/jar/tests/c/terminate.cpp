// What ends a program: by the number in its argument.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

struct Noisy {
    ~Noisy() {
        puts("cleaned up");
    }
};
struct Throws {
    ~Throws() noexcept(false) {
        puts("throws again");
        throw 2;
    }
};
static void limited() noexcept {
    Noisy noisy;
    throw std::runtime_error("out of noexcept");
}
static void says_goodbye() {
    puts("goodbye");
    fflush(stdout);
    _Exit(9);
}

int main(int, char **v) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    switch (atoi(v[1])) {
    case 1: {
        // No frame handles it: the stack is not unwound.
        Noisy noisy;
        throw std::logic_error("nobody");
    }
    case 2:
        try {
            limited();
        } catch (...) {
            puts("not reached");
        }
        break;
    case 3:
        try {
            Throws throws;
            throw 1;
        } catch (int) {
            puts("not reached");
        }
        break;
    case 4:
        std::set_terminate(says_goodbye);
        throw 1;
    case 5:
        throw;
    default:
        throw 3;
    }
}
