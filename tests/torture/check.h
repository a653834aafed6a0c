// What every part of the torture program uses: a check that says where it failed, and a digest of
// results that does not depend on timing.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>

/// Keeps the compiler from seeing through a value.
template <typename T> inline T opaque(T value) {
    asm volatile("" : "+r"(value));
    return value;
}

#define NOINLINE __attribute__((noinline))

inline std::atomic<int> failures{0};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/// Order-dependent hash of a part's results.
class Digest {
  public:
    void add(uint64_t value) {
        state = (state ^ value) * 0x9e3779b97f4a7c15u;
        state ^= state >> 29;
    }
    uint64_t value() const { return state; }

  private:
    uint64_t state = 0x243f6a8885a308d3u;
};

// The parts. Each returns its digest.
uint64_t part_control_flow();
uint64_t part_exceptions();
uint64_t part_jumps();
uint64_t part_stacks();
uint64_t part_signals();
uint64_t part_threads();
uint64_t part_processes(const char *self);
uint64_t part_plugins(const char *plugin);
