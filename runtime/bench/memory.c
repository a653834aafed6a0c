// Address spaces: mapping, protecting, growing, and the first touch of pages.
#include "bench.h"

#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static char *mapped(unsigned long bytes)
{
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("mmap");
    return at;
}

static void maps(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        munmap(mapped(16 * PAGE), 16 * PAGE);
}

static void faults(unsigned long n)
{
    // Pages are touched in pieces, so that mapping them is a small part of it.
    for (unsigned long done = 0; done < n; done += PAGES) {
        unsigned long pages = n - done < PAGES ? n - done : PAGES;
        volatile char *at = mapped(pages * PAGE);
        for (unsigned long page = 0; page < pages; page++)
            at[page * PAGE] = 1;
        munmap((void *)at, pages * PAGE);
    }
}

static void breaks(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        if (sbrk(PAGE) == (void *)-1 || sbrk(-PAGE) == (void *)-1)
            fail("brk");
}

static char *page;

static int map_page(void)
{
    page = mapped(PAGE);
    page[0] = 1;
    return 0;
}

static void unmap_page(void) { munmap(page, PAGE); }

static void protects(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        if (mprotect(page, PAGE, i & 1 ? PROT_READ | PROT_WRITE : PROT_READ) != 0)
            fail("mprotect");
}

const struct benchmark memory[] = {
    {"mmap", "memory", "64 KiB mapped and unmapped", 0, maps, 0},
    {"fault", "memory", "the first touch of a page", 0, faults, 0},
    {"brk", "memory", "the heap made a page larger and smaller", 0, breaks, 0},
    {"mprotect", "memory", "the protection of a page changed", map_page, protects, unmap_page},
    {0},
};
