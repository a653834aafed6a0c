// Every kind of parameter and result that an interface is made of.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct point {
    int x;
    double y;
    const char *label;
};

typedef struct {
    short a;
    long long b;
} pair;

int sum(const int *values, size_t count) {
    int total = 0;
    for (size_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

void twice(double *values, int n) {
    for (int i = 0; i < n; i++)
        values[i] *= 2;
}

const char *greet(const char *name) {
    static char text[80];
    snprintf(text, sizeof text, "hello %s", name);
    return text;
}

struct point move_point(struct point point, int by) {
    point.x += by;
    point.y *= 2;
    point.label = "moved";
    return point;
}

/* An object: what is made here is changed and read by its address. */
struct list {
    int value;
    struct list *next;
};
struct tally {
    int value;
};
static struct list lists[8];
static int lists_made;
static struct tally tally;

struct list *push(const struct list *next, int value) {
    struct list *list = &lists[lists_made++];
    list->value = value;
    list->next = (struct list *)next;
    return list;
}

int sum_of(const struct list *list) {
    return list ? list->value + sum_of(list->next) : 0;
}

struct tally *counting(void) {
    return &tally;
}

int counted(const struct tally *which) {
    tally.value++;
    return which->value;
}

double norm(const struct point *point) {
    return point->x + point->y;
}

pair swapped(pair both) {
    pair result = {(short)both.b, both.a};
    return result;
}

long long wide(long long a, int b) {
    return a * b;
}

bool odd(unsigned char number) {
    return number & 1;
}

int each(const char *text, int (*visit)(int at, char letter, const char *rest)) {
    int total = 0;
    for (int i = 0; text[i]; i++)
        total += visit(i, text[i], text + i);
    return total;
}

unsigned long bound(unsigned long sourceLen) {
    return sourceLen * 2;
}

/* As zlib's functions are. */
int doubled(unsigned char *dest, unsigned long *destLen, const unsigned char *source,
            unsigned long sourceLen, int level) {
    if (level < 0)
        return -2;
    for (unsigned long i = 0; i < sourceLen; i++)
        dest[2 * i] = dest[2 * i + 1] = source[i] + level;
    *destLen = sourceLen * 2;
    return 0;
}

static int counter;

int count(void) {
    return ++counter;
}

/* Does not end by itself, and makes no system call. */
int spin(int a) {
    volatile int x = a;
    while (x)
        x |= 1;
    return x;
}

int main(void) {
    return 3;
}
