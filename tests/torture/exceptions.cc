// Exceptions: through many frames, rethrown, nested, with destructors, in constructors, through
// callbacks of C functions, translated, in flight while others come and go; and the stack as
// `backtrace` sees it.

#include "check.h"

#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <execinfo.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <unwind.h>
#include <vector>

static int live_objects = 0;

struct Guard {
    explicit Guard(int n) : number(n) { live_objects++; }
    Guard(const Guard &) = delete;
    ~Guard() { live_objects--; }
    int number;
};

struct Odd : std::runtime_error {
    explicit Odd(int n) : std::runtime_error("odd " + std::to_string(n)), number(n) {}
    int number;
};

NOINLINE static int dive(int depth, int fail) {
    Guard guard(depth);
    if (depth == fail) {
        throw Odd(depth);
    }
    if (depth == 0) {
        return 1;
    }
    return dive(depth - 1, fail) + guard.number;
}

NOINLINE static int catch_and_rethrow(int depth) {
    Guard guard(depth);
    try {
        if (depth == 0) {
            throw Odd(7);
        }
        return catch_and_rethrow(depth - 1);
    } catch (Odd &odd) {
        odd.number += depth;
        throw;
    }
}

NOINLINE static void nest(int depth) {
    try {
        if (depth == 0) {
            throw std::logic_error("bottom");
        }
        nest(depth - 1);
    } catch (...) {
        std::throw_with_nested(std::runtime_error("level " + std::to_string(depth)));
    }
}

NOINLINE static int count_nested(const std::exception &error) {
    try {
        std::rethrow_if_nested(error);
    } catch (const std::exception &inner) {
        return 1 + count_nested(inner);
    }
    return 1;
}

/// A destructor that throws and catches while another exception passes.
struct Busy {
    int *count;
    ~Busy() {
        try {
            dive(3, 1);
        } catch (const Odd &) {
            (*count) += std::uncaught_exceptions();
        }
    }
};

struct Half {
    Guard first{1};
    std::unique_ptr<Guard> second = std::make_unique<Guard>(2);
    explicit Half(bool fail) {
        if (fail) {
            throw Odd(1);
        }
    }
};

NOINLINE static int compare(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 13 && y != 13) {
        throw Odd(x);
    }
    return (x > y) - (x < y);
}

/// A handler behind a function that only tail-calls.
NOINLINE static int tail(int n) { return dive(n, 2); }

NOINLINE static int catch_by_value_and_base(int kind) {
    try {
        switch (kind % 5) {
        case 0: throw 5;
        case 1: throw std::out_of_range("five");
        case 2: throw "five";
        case 3: throw Odd(3);
        default: throw std::vector<int>{1, 2, 3};
        }
    } catch (int n) {
        return n;
    } catch (const Odd &odd) {
        return odd.number;
    } catch (const std::logic_error &error) {
        return error.what()[0];
    } catch (const char *text) {
        return text[1];
    } catch (...) {
        return -1;
    }
}

static _Unwind_Reason_Code count_frame(_Unwind_Context *, void *count) {
    ++*static_cast<int *>(count);
    return _URC_NO_REASON;
}

/// Frames above the caller, by the unwinder and by `backtrace`.
NOINLINE static void measure(int depth, int *by_unwinder, int *by_backtrace) {
    if (depth > 0) {
        measure(depth - 1, by_unwinder, by_backtrace);
        asm volatile("");
        return;
    }
    _Unwind_Backtrace(count_frame, by_unwinder);
    void *frames[256];
    *by_backtrace = backtrace(frames, 256);
    asm volatile("");
}

/// Each level of recursion must show as exactly one frame.
NOINLINE static void check_frame_counts() {
    int unwinder[2] = {0, 0}, trace[2] = {0, 0};
    measure(opaque(0), &unwinder[0], &trace[0]);
    measure(opaque(40), &unwinder[1], &trace[1]);
    CHECK(unwinder[1] - unwinder[0] == 40);
    CHECK(trace[1] - trace[0] == 40);
}

NOINLINE static int filtered() noexcept(false) {
    std::exception_ptr kept;
    try {
        dive(5, 3);
    } catch (...) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (const Odd &odd) {
        return odd.number;
    }
}

uint64_t part_exceptions() {
    Digest digest;
    for (int n = 0; n < 300; n++) {
        try {
            digest.add(dive(30, n % 40));
        } catch (const Odd &odd) {
            digest.add(odd.what()[4]);
        }
        CHECK(live_objects == 0);
    }
    try {
        catch_and_rethrow(50);
        CHECK(false);
    } catch (const Odd &odd) {
        digest.add(odd.number);
    }
    try {
        nest(12);
        CHECK(false);
    } catch (const std::exception &error) {
        digest.add(count_nested(error));
    }
    int busy = 0;
    for (int n = 0; n < 20; n++) {
        try {
            Busy outer{&busy};
            dive(4, 4);
        } catch (const Odd &) {
        }
    }
    digest.add(busy);
    for (int n = 0; n < 50; n++) {
        try {
            Half half(n % 2 == 0);
            digest.add(half.second->number);
        } catch (const Odd &odd) {
            digest.add(odd.number);
        }
        CHECK(live_objects == 0);
    }
    int values[] = {5, 13, 2, 9, 1};
    try {
        std::qsort(values, 5, sizeof values[0], compare);
        CHECK(false);
    } catch (const Odd &odd) {
        digest.add(odd.number);
    }
    try {
        tail(9);
        CHECK(false);
    } catch (const Odd &odd) {
        digest.add(odd.number);
    }
    for (int n = 0; n < 20; n++) {
        digest.add(catch_by_value_and_base(n));
    }
    digest.add(filtered());
    check_frame_counts();
    CHECK(live_objects == 0);
    return digest.value();
}
