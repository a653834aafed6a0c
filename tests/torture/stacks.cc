// Stacks of one's own: coroutines by swapcontext (two that take turns, many, one that is never
// finished, one that throws inside), and recursion a hundred thousand frames deep.

#include "check.h"

#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <sys/resource.h>
#include <ucontext.h>
#include <vector>

struct Coroutine {
    ucontext_t own{}, caller{};
    std::unique_ptr<char[]> stack{new char[256 << 10]};
    long state = 0;
    bool done = false;
};

static thread_local Coroutine *running;

NOINLINE static void yield() {
    Coroutine *self = running;
    swapcontext(&self->own, &self->caller);
}

NOINLINE static void resume(Coroutine &coroutine) {
    Coroutine *outer = running;
    running = &coroutine;
    swapcontext(&coroutine.caller, &coroutine.own);
    running = outer;
}

NOINLINE static long walk(int depth) {
    if (depth == 0) {
        yield();
        return 1;
    }
    long sum = walk(depth - 1);
    running->state += depth;
    return sum + 1;
}

NOINLINE static void fail(int depth) {
    if (depth == 0) {
        throw std::runtime_error("inside");
    }
    fail(depth - 1);
    asm volatile("");
}

static void body() {
    for (int n = 0; n < 20; n++) {
        running->state += walk(n);
        try {
            fail(n);
        } catch (const std::runtime_error &error) {
            running->state += error.what()[0];
        }
    }
    running->done = true;
    yield();
}

static void prepare(Coroutine &coroutine) {
    getcontext(&coroutine.own);
    coroutine.own.uc_stack.ss_sp = coroutine.stack.get();
    coroutine.own.uc_stack.ss_size = 256 << 10;
    coroutine.own.uc_link = nullptr;
    makecontext(&coroutine.own, body, 0);
}

NOINLINE static long deep(long n) {
    volatile char room[16];
    room[n & 15] = static_cast<char>(n);
    if (n == 0) {
        return 0;
    }
    return deep(n - 1) + 1 + (room[n & 15] == static_cast<char>(n) ? 0 : 1000000);
}

static void *deep_thread(void *result) {
    *static_cast<long *>(result) = deep(100000);
    return nullptr;
}

uint64_t part_stacks() {
    Digest digest;
    std::vector<Coroutine> all(17);
    for (auto &coroutine : all) {
        prepare(coroutine);
    }
    // The last one is left unfinished.
    for (bool any = true; any;) {
        any = false;
        for (size_t n = 0; n + 1 < all.size(); n++) {
            if (!all[n].done) {
                resume(all[n]);
                any = true;
            }
        }
        if (all.back().state < 100) {
            resume(all.back());
        }
    }
    for (auto &coroutine : all) {
        digest.add(static_cast<uint64_t>(coroutine.state));
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 20);
    pthread_t thread;
    long depth = 0;
    CHECK(pthread_create(&thread, &attributes, deep_thread, &depth) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    CHECK(depth == 100000);
    digest.add(static_cast<uint64_t>(depth));
    return digest.value();
}
