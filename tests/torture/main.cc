// Everything that a probe could break, in one program that checks itself: prints one digest per
// part, the same for every compiler, optimisation level and run, and says on standard error what
// failed. `torture child N` is what the process part executes.

#include "check.h"

#include <cstdlib>
#include <cstring>

static void show(const char *part, uint64_t digest) {
    std::printf("%-14s %016llx\n", part, static_cast<unsigned long long>(digest));
    std::fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc == 3 && std::strcmp(argv[1], "child") == 0) {
        std::printf("child %s\n", argv[2]);
        return std::atoi(argv[2]) % 100;
    }
    // A static program has no plug-ins; then none is named.
    const char *plugin = argc > 1 ? argv[1] : "";
    show("control-flow", part_control_flow());
    show("exceptions", part_exceptions());
    show("jumps", part_jumps());
    show("stacks", part_stacks());
    show("signals", part_signals());
    show("threads", part_threads());
    show("processes", part_processes(argv[0]));
    if (*plugin != '\0') {
        show("plugins", part_plugins(plugin));
    }
    std::printf("failures       %d\n", failures.load());
    return failures == 0 ? 0 : 1;
}
