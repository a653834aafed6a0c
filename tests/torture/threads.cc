// Sixty-four threads at once that call, throw, leap and keep thread-local state; threads that end
// by pthread_exit and by cancellation, with clean-up handlers; many short-lived ones.

#include "check.h"

#include <csetjmp>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>
#include <vector>

struct Local {
    long count = 0;
    ~Local() { ended++; }
    static std::atomic<int> ended;
};
std::atomic<int> Local::ended{0};

static thread_local Local local;
static thread_local jmp_buf local_place;
static std::atomic<int> cleaned{0}, keys_ended{0};
static pthread_key_t key;

NOINLINE static long climb(long n) {
    local.count++;
    if (n % 17 == 5) {
        throw std::runtime_error("climb");
    }
    return n < 2 ? n : climb(n - 1) + climb(n - 2);
}

NOINLINE static void leap(int n) {
    if (n == 0) {
        longjmp(local_place, 1);
    }
    leap(n - 1);
    asm volatile("");
}

struct Work {
    int number;
    uint64_t digest;
};

static void *work(void *pointer) {
    auto *work = static_cast<Work *>(pointer);
    Digest digest;
    for (volatile long n = 0; n < 60; n = n + 1) {
        try {
            digest.add(static_cast<uint64_t>(climb((n + work->number) % 14)));
        } catch (const std::runtime_error &) {
            digest.add(1);
        }
        if (setjmp(local_place) == 0) {
            leap(static_cast<int>(n % 9));
        }
    }
    digest.add(static_cast<uint64_t>(local.count));
    work->digest = digest.value();
    return nullptr;
}

static void cleanup(void *) { cleaned++; }

static void *cancelled(void *) {
    pthread_setspecific(key, &key);
    local.count = 1;
    pthread_cleanup_push(cleanup, nullptr);
    for (;;) {
        pthread_testcancel();
        usleep(100);
    }
    pthread_cleanup_pop(0);
    return nullptr;
}

NOINLINE static void exit_from_below(int depth) {
    if (depth == 0) {
        pthread_exit(&key);
    }
    exit_from_below(depth - 1);
    asm volatile("");
}

static void *leaves(void *) {
    pthread_cleanup_push(cleanup, nullptr);
    exit_from_below(10);
    pthread_cleanup_pop(0);
    return nullptr;
}

static void *brief(void *pointer) {
    local.count++;
    auto value = reinterpret_cast<uintptr_t>(pointer);
    return reinterpret_cast<void *>(value * 3);
}

uint64_t part_threads() {
    Digest digest;
    std::vector<pthread_t> threads(64);
    std::vector<Work> works(64);
    for (int n = 0; n < 64; n++) {
        works[n].number = n;
        CHECK(pthread_create(&threads[n], nullptr, work, &works[n]) == 0);
    }
    for (int n = 0; n < 64; n++) {
        pthread_join(threads[n], nullptr);
        digest.add(works[n].digest);
    }
    CHECK(Local::ended == 64);

#ifndef TORTURE_TWO_UNWINDERS
    // The C library cancels threads by libgcc's unwinder, whatever the program throws by.
    pthread_key_create(&key, [](void *) { keys_ended++; });
    for (int n = 0; n < 8; n++) {
        pthread_create(&threads[n], nullptr, n % 2 == 0 ? cancelled : leaves, nullptr);
    }
    usleep(20000);
    for (int n = 0; n < 8; n++) {
        void *result = nullptr;
        if (n % 2 == 0) {
            CHECK(pthread_cancel(threads[n]) == 0);
        }
        pthread_join(threads[n], &result);
        CHECK(result == (n % 2 == 0 ? PTHREAD_CANCELED : &key));
    }
    CHECK(cleaned == 8);
    CHECK(keys_ended == 4);
#endif
    for (uintptr_t n = 0; n < 300; n++) {
        pthread_t thread;
        void *result = nullptr;
        if (pthread_create(&thread, nullptr, brief, reinterpret_cast<void *>(n)) != 0) {
            CHECK(false);
            break;
        }
        pthread_join(thread, &result);
        digest.add(reinterpret_cast<uintptr_t>(result));
    }
    return digest.value();
}
