/* Random changes of a thread's memory by another one: what is unmapped, mapped anew, moved, protected, copied by fork
 * or merged by KSM must not be seen any more on the other processor when the call has returned. With an argument
 * that many changes; a second one is the seed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 48
#define PAGE 4096
#define FAULT 0xfa17ul
#define STOP (-1l)

enum change { FORGET, ANEW, FILE_PAGE, MOVE, PROTECT, COPY, MERGE, HOLE, CHANGES };
static const char *const names[CHANGES] = {"madvise", "mmap", "file", "mremap", "mprotect", "fork", "ksm", "munmap"};

static unsigned char *area, *spare;
static volatile long asked;      /* page + 1, or 0 when it is answered */
static volatile unsigned long answer;
static sigjmp_buf back;
static unsigned long seed = 1, next_value = 1;
static char is_file[PAGES];

static unsigned long draw(unsigned long most)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (seed >> 33) % most;
}

static volatile unsigned long *word_of(long page)
{
    return (volatile unsigned long *)(area + page * PAGE);
}

static void on_fault(int number)
{
    siglongjmp(back, number);
}

static void *look(void *nothing)
{
    for (;;) {
        long page = asked;
        if (page == STOP)
            return nothing;
        if (!page) {
            __builtin_ia32_pause();
            continue;
        }
        if (sigsetjmp(back, 1))
            answer = FAULT;
        else
            answer = *word_of(page - 1);
        __atomic_store_n(&asked, 0, __ATOMIC_RELEASE);
    }
}

/* What the other thread sees. */
static unsigned long seen_at(long page)
{
    __atomic_store_n(&asked, page + 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&asked, __ATOMIC_ACQUIRE))
        __builtin_ia32_pause();
    return answer;
}

static void map(long page, int flags, int file, long offset)
{
    mmap(area + page * PAGE, PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, offset);
}

static unsigned long copy(long page)
{
    int status;
    pid_t child = fork();
    if (!child)
        _exit(0);
    seen_at(page); /* the page is shared with the child, and not writable */
    *word_of(page) = ++next_value;
    waitpid(child, &status, 0);
    return next_value;
}

/* Changes a page; what is to be seen then. */
static unsigned long change(enum change what, long page, int file)
{
    switch (what) {
    case FORGET:
        madvise(area + page * PAGE, PAGE, MADV_DONTNEED);
        return is_file[page] ? 1000000 + page : 0;
    case ANEW:
        is_file[page] = 0;
        map(page, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return 0;
    case FILE_PAGE:
        is_file[page] = 1;
        map(page, MAP_PRIVATE, file, page * PAGE);
        return 1000000 + page;
    case MOVE:
        is_file[page] = 0;
        spare = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(unsigned long *)spare = ++next_value;
        mremap(spare, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + page * PAGE);
        return next_value;
    case PROTECT:
        mprotect(area + page * PAGE, PAGE, PROT_NONE);
        return FAULT;
    case COPY:
        return copy(page);
    case MERGE:
        /* All but the first word is alike in all pages, and so are some whole pages. */
        *word_of(page) = 7;
        madvise(area + page * PAGE, PAGE, MADV_MERGEABLE);
        seen_at(page);
        *word_of(page) = ++next_value;
        return next_value;
    default:
        is_file[page] = 0;
        munmap(area + page * PAGE, PAGE);
        return FAULT;
    }
}

static enum change draw_change(void)
{
    unsigned long number = draw(100);
    /* Faults and forks take long. */
    if (number < 4)
        return number < 1 ? HOLE : number < 2 ? PROTECT : COPY;
    return number < 24 ? FORGET : number < 44 ? ANEW : number < 62 ? FILE_PAGE : number < 84 ? MOVE : MERGE;
}

static void restore(enum change what, long page)
{
    if (what == PROTECT)
        mprotect(area + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
    if (what == HOLE)
        map(page, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *word_of(page) = ++next_value;
}

int main(int count, char **arguments)
{
    long times = count > 1 ? atol(arguments[1]) : 1000, i, stale[CHANGES] = {0}, sum = 0;
    int file = memfd_create("pages", 0);
    pthread_t other;
    seed = count > 2 ? strtoul(arguments[2], 0, 10) : 1;
    area = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (i = 0; i < PAGES; i++) {
        unsigned long value = 1000000 + i;
        if (pwrite(file, &value, sizeof value, i * PAGE) != sizeof value || ftruncate(file, PAGES * PAGE))
            return 2;
        *word_of(i) = ++next_value;
    }
    signal(SIGSEGV, on_fault);
    pthread_create(&other, 0, look, 0);
    for (i = 0; i < times; i++) {
        enum change what = draw_change();
        long page = (long)draw(PAGES);
        unsigned long expected;
        seen_at(page);
        expected = change(what, page, file);
        if (seen_at(page) != expected)
            stale[what]++;
        restore(what, page);
    }
    asked = STOP;
    pthread_join(other, 0);
    for (i = 0; i < CHANGES; i++) {
        sum += stale[i];
        if (stale[i])
            printf("%s: %ld stale\n", names[i], stale[i]);
    }
    printf("%ld changes, %ld stale\n", times, sum);
    return sum != 0;
}
