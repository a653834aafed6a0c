// Processes: fork with work in the child, fork in a thread, vfork and exec, posix_spawn, pipes
// between them, a child that dies of a signal, one that calls _exit and one that calls exit.

#include "check.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

NOINLINE static long labour(long n) {
    if (n == 13) {
        throw std::runtime_error("labour");
    }
    return n < 2 ? n : labour(n - 1) + labour(n - 2);
}

static int wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

NOINLINE static int forked(int kind) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        long sum = labour(12);
        try {
            labour(15);
        } catch (const std::runtime_error &) {
            sum++;
        }
        if (write(ends[1], &sum, sizeof sum) != sizeof sum) {
            _exit(99);
        }
        switch (kind % 4) {
        case 0: _exit(3);
        case 1: std::exit(4);
        case 2: raise(SIGKILL); [[fallthrough]];
        default: signal(SIGTERM, SIG_DFL); raise(SIGTERM);
        }
    }
    close(ends[1]);
    long sum = 0;
    CHECK(read(ends[0], &sum, sizeof sum) == sizeof sum);
    close(ends[0]);
    int status = wait_for(child);
    return static_cast<int>(sum) * 1000 + (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

NOINLINE static int grandchildren(int depth) {
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(depth == 0 ? 1 : grandchildren(depth - 1) + 1);
    }
    return WEXITSTATUS(wait_for(child));
}

static std::string run(const char *self, const char *number, bool by_vfork) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    char *arguments[] = {const_cast<char *>(self), const_cast<char *>("child"),
                         const_cast<char *>(number), nullptr};
    pid_t child = 0;
    if (by_vfork) {
        child = vfork();
        if (child == 0) {
            dup2(ends[1], 1);
            execv(self, arguments);
            _exit(98);
        }
    } else {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        CHECK(posix_spawn(&child, self, &actions, nullptr, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    std::string text;
    char room[64];
    for (ssize_t n; (n = read(ends[0], room, sizeof room)) > 0;) {
        text.append(room, static_cast<size_t>(n));
    }
    close(ends[0]);
    int status = wait_for(child);
    return text + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void *fork_in_thread(void *result) {
    *static_cast<int *>(result) = forked(0);
    return nullptr;
}

uint64_t part_processes(const char *self) {
    Digest digest;
    for (int n = 0; n < 8; n++) {
        digest.add(static_cast<uint64_t>(forked(n)));
    }
    digest.add(static_cast<uint64_t>(grandchildren(4)));
    for (int n = 0; n < 4; n++) {
        std::string number = std::to_string(40 + n);
        std::string text = run(self, number.c_str(), n % 2 == 0);
        CHECK(text == "child " + number + "\n" + number);
        for (char c : text) {
            digest.add(static_cast<uint64_t>(c));
        }
    }
    pthread_t threads[4];
    int results[4];
    for (int n = 0; n < 4; n++) {
        pthread_create(&threads[n], nullptr, fork_in_thread, &results[n]);
    }
    for (int n = 0; n < 4; n++) {
        pthread_join(threads[n], nullptr);
        digest.add(static_cast<uint64_t>(results[n]));
    }
    // exec of something that is not there must fail and leave all as it was.
    CHECK(execl("/nonexistent/program", "program", nullptr) == -1);
    return digest.value();
}
