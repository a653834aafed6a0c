// A context whose stack is the beginning of a large mapping, of which some other pages are in use, as
// where a runtime has the stacks of all its fibers in one. Given a number, so many megabytes more are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static const size_t SIZE = 1ul << 30;
static const unsigned long MARK = 0x123456789abc;
static ucontext_t home, inside;

static void wait_there(void) {
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    *(unsigned long *)(memory + SIZE / 2) = MARK;
    *(unsigned long *)(memory + SIZE - 8) = MARK + 1;
    if (argc > 1)
        memset(memory + SIZE / 4, 1, strtoul(argv[1], 0, 10) << 20);
    getcontext(&inside);
    inside.uc_stack.ss_sp = memory;
    inside.uc_stack.ss_size = 1 << 16;
    makecontext(&inside, wait_there, 0);
    swapcontext(&home, &inside);
    return 0;
}
