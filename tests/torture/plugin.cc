// A shared object that the torture program opens, calls and closes again.

#include <stdexcept>
#include <string>

static thread_local long calls;

__attribute__((noinline)) static long inner(long n, long (*back)(long)) {
    if (n > 30) {
        throw std::length_error("long " + std::to_string(n));
    }
    if (n % 5 == 0) {
        try {
            return back(n);
        } catch (const std::out_of_range &) {
            return -n;
        }
    }
    return back(n) + 1;
}

extern "C" __attribute__((visibility("default"))) long plugin_enter(long n, long (*back)(long)) {
    calls++;
    return inner(n, back) + (calls > 0 ? 0 : 1);
}
