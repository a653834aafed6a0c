/* A program that stays in one function for all its life: an interpreter's loop, whose table of labels is
   in a register. What it works out is the same each time, or it says so. Its name and its end are all
   that it says besides. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void end(int signal) {
    (void)signal;
    over = 1;
}

/* Something that the loop calls and comes back from. */
__attribute__((noinline)) static unsigned mixed(unsigned x) {
    for (int i = 0; i < 8; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    return x;
}

enum { ADD, SHIFT, CALL, SKIP, LESS, AGAIN };

static const unsigned char code[] = {
    ADD, SHIFT, CALL, SKIP, ADD, LESS, ADD, CALL, SHIFT, SKIP, CALL, ADD, LESS, SHIFT, CALL, AGAIN,
};

int main(void) {
    static const void *const table[] = {&&add, &&shift, &&call, &&skip, &&less, &&again};
#ifdef HANDED
    /* Other code may read it there. */
    static const void *const *volatile handed = table;
    handed = handed;
#endif
    int null = open("/dev/null", O_WRONLY);
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    const unsigned char *at = code;
    unsigned x = 1, first = 0, turns = 0;
    unsigned long rounds = 0;
#define NEXT goto *table[*at++]
    NEXT;
add:
    x += 0x9e3779b9u ^ turns;
    NEXT;
shift:
    x = x << 7 | x >> 25;
    NEXT;
call:
    x = mixed(x);
    NEXT;
skip:
    at += x & 1;
    NEXT;
less:
    if (x > 1000000) {
        x -= turns + 17;
    }
    NEXT;
again:
    at = code;
    if (++turns < 1000) {
        NEXT;
    }
    if (rounds++ == 0) {
        first = x;
    } else if (x != first) {
        puts("wrong");
        return 1;
    }
    x = 1, turns = 0;
    /* Work that can be seen. */
    if (rounds % 8 == 0) {
        if (write(null, "", 1) != 1) {
            return 2;
        }
    }
    if (over) {
        puts("right after many rounds");
        return 0;
    }
    NEXT;
}
