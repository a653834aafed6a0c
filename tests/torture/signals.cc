// Signals: a timer at 1 kHz over ordinary work, handlers on an alternate stack, handlers that leap
// out, faults that are handled and repaired, signals to oneself inside handlers.

#include "check.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <ctime>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

static volatile sig_atomic_t ticks, nested, faults, repaired;
static volatile uintptr_t handler_stack;
static sigjmp_buf after_fault;
static char *guarded;

NOINLINE static int handler_work(int n) { return n < 2 ? n : handler_work(n - 1) + handler_work(n - 2); }

static void on_tick(int) {
    ticks = ticks + 1;
    CHECK(handler_work(6) == 8);
    if (ticks % 16 == 0) {
        raise(SIGUSR2);
    }
}
static void on_nested(int) {
    nested = nested + 1;
    CHECK(handler_work(4) == 3);
}
static void on_alternate(int) {
    char here;
    handler_stack = reinterpret_cast<uintptr_t>(&here);
    handler_work(5);
}
static void on_fault(int, siginfo_t *info, void *) {
    faults = faults + 1;
    if (info->si_addr == guarded) {
        mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
        repaired = repaired + 1;
        return;
    }
    siglongjmp(after_fault, 1);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(number, &action, nullptr);
}

NOINLINE static unsigned long grind(unsigned long seed, int rounds) {
    for (int n = 0; n < rounds; n++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        seed ^= static_cast<unsigned long>(handler_work(static_cast<int>(seed >> 61)));
    }
    return seed;
}

NOINLINE static void write_to(volatile char *place) { *place = 1; }

NOINLINE static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

uint64_t part_signals() {
    Digest digest;
    handle(SIGALRM, on_tick, SA_RESTART);
    handle(SIGUSR2, on_nested, SA_RESTART);
    itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    unsigned long seed = 1;
    // At least so much work, and long enough for many ticks.
    for (int n = 0; n < 20; n++) {
        seed = grind(seed, 5000);
    }
    digest.add(seed);
    for (double start = seconds(); seconds() - start < 0.3;) {
        grind(seed, 500);
    }
    itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, nullptr);
    CHECK(ticks > 20);
    CHECK(nested > 0);

    std::vector<char> alternate(256 << 10);
    stack_t stack = {};
    stack.ss_sp = alternate.data();
    stack.ss_size = alternate.size();
    sigaltstack(&stack, nullptr);
    handle(SIGUSR1, on_alternate, SA_ONSTACK);
    raise(SIGUSR1);
    auto base = reinterpret_cast<uintptr_t>(alternate.data());
    CHECK(handler_stack > base && handler_stack < base + alternate.size());

    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    guarded = static_cast<char *>(
        mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    write_to(guarded);
    CHECK(guarded[0] == 1 && repaired == 1);
    for (volatile int n = 0; n < 100; n = n + 1) {
        if (sigsetjmp(after_fault, 1) == 0) {
            write_to(reinterpret_cast<char *>(opaque(8ul + static_cast<unsigned long>(n))));
            CHECK(false);
        }
    }
    CHECK(faults == 101);
    digest.add(static_cast<uint64_t>(faults));
    handle(SIGSEGV, SIG_DFL, 0);
    munmap(guarded, 4096);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);

    // A blocked signal waits until it is let in.
    sigset_t mask, old;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigprocmask(SIG_BLOCK, &mask, &old);
    int before = nested;
    raise(SIGUSR2);
    CHECK(nested == before);
    sigprocmask(SIG_SETMASK, &old, nullptr);
    CHECK(nested == before + 1);
    return digest.value();
}
