// A library as Java uses it: every kind of argument and result, calls in both directions.
#include <ctype.h>
#include <fettle/java.h>
#include <stdlib.h>
#include <string.h>

FETTLE_IMPORT(int, "io.github.fettle.jvm.LibraryTest$Host", score, const char *name, int value)
FETTLE_IMPORT(long long, "io.github.fettle.jvm.LibraryTest$Host", wide, int a, long long b)
FETTLE_IMPORT_FP(double, "io.github.fettle.jvm.LibraryTest$Host", half, double value, float other)
FETTLE_IMPORT(int, "java.lang.Runtime", availableProcessors, int unused)

static int calls;

int sum(const int *numbers, int count) {
    int total = 0;
    calls++;
    for (int i = 0; i < count; i++)
        total += numbers[i];
    return total;
}
FETTLE_EXPORT(sum)

int callCount(void) {
    return calls;
}
FETTLE_EXPORT(callCount)

int upper(char *text, int length) {
    for (int i = 0; i < length; i++)
        text[i] = toupper((unsigned char)text[i]);
    return length;
}
FETTLE_EXPORT(upper)

const char *greeting(const char *name) {
    static char text[64];
    strcpy(text, "hello, ");
    strncat(text, name, 40);
    return text;
}
FETTLE_EXPORT(greeting)

long long mix(int a, long long b, short c, double d, float e) {
    return a + b * 10 + c + (long long)d + (long long)e;
}
FETTLE_EXPORT(mix)

double scale(double a, float b, int c) {
    return a * b + c;
}
FETTLE_EXPORT(scale)

float third(float a) {
    return a / 3;
}
FETTLE_EXPORT(third)

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void sortDoubles(double *values, int count) {
    qsort(values, count, sizeof *values, compare);
}
FETTLE_EXPORT(sortDoubles)

int each(int count, int (*visit)(int index, double half), int start) {
    for (int i = 0; i < count; i++)
        start = start * 2 + visit(i, i / 2.0);
    return start;
}
FETTLE_EXPORT(each)

int viaHost(int value) {
    return score("points", value) + (int)wide(1, 1LL << 33 | 5) + (int)half(9.0, 1.5f);
}
FETTLE_EXPORT(viaHost)

int forbidden(void) {
    return availableProcessors(0);
}
FETTLE_EXPORT(forbidden)

int sameHandle(int handle) {
    return handle;
}
FETTLE_EXPORT(sameHandle)

int crash(void) {
    return *(volatile int *)0xfffffff0;
}
FETTLE_EXPORT(crash)

FETTLE_LIBRARY
