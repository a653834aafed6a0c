// Preloaded into a program: before its first instruction, its own code comes to lie in huge pages of memory, as far as
// whole ones fit. Says on standard error how much of it does, if FETTLE_HUGE is "say".
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE (2ul << 20)

static long anonymous_huge_kb(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kb = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "AnonHugePages: %ld", &kb);
    if (file)
        fclose(file);
    return kb;
}

static void move(uintptr_t at) {
    char *room = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return;
    char *page = (char *)(((uintptr_t)room + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    madvise(page, HUGE_PAGE, MADV_HUGEPAGE);
    memcpy(page, (void *)at, HUGE_PAGE);
    mprotect(page, HUGE_PAGE, PROT_READ | PROT_EXEC);
    mremap(page, HUGE_PAGE, HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at);
}

__attribute__((constructor)) static void move_all(void) {
    char own[4096], line[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t starts[64], ends[64];
    int count = 0;
    if (length < 0 || !maps)
        return;
    own[length] = 0;
    while (count < 64 && fgets(line, sizeof line, maps)) {
        char rights[5], path[4096] = "";
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %4095s", &starts[count], &ends[count], rights, path) == 4 &&
            !strcmp(rights, "r-xp") && !strcmp(path, own))
            count++;
    }
    fclose(maps);
    for (int i = 0; i < count; i++)
        for (uintptr_t at = (starts[i] + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); at + HUGE_PAGE <= ends[i]; at += HUGE_PAGE)
            move(at);
    const char *say = getenv("FETTLE_HUGE");
    if (say && !strcmp(say, "say"))
        fprintf(stderr, "%ld kB of code in huge pages\n", anonymous_huge_kb());
    // What the program starts is left as it is.
    unsetenv("LD_PRELOAD");
}
