// A library whose exceptions go to Java, and that Java's go through.
#include <cstdio>
#include <fettle/java.h>
#include <stdexcept>
#include <string>

FETTLE_IMPORT(int, "Exceptions$Host", callback, int value)

static int cleaned;

struct Cleaned {
    ~Cleaned() {
        cleaned++;
    }
};

struct Special : std::runtime_error {
    explicit Special(int n) : std::runtime_error("special " + std::to_string(n)) {
    }
};

extern "C" int fails(int n) {
    Cleaned here;
    if (n == 0)
        throw Special(7);
    return n + fails(n - 1);
}
FETTLE_EXPORT(fails)

extern "C" int fails_oddly(void) {
    throw 5;
}
FETTLE_EXPORT(fails_oddly)

extern "C" int cleanups(void) {
    return cleaned;
}
FETTLE_EXPORT(cleanups)

// Java's function is called, directly or by its address.
extern "C" int calls(int (*function)(int), int value) {
    Cleaned here;
    return (function ? function(value) : callback(value)) + 1;
}
FETTLE_EXPORT(calls)

extern "C" int catches(int (*function)(int), int value) {
    try {
        Cleaned here;
        return function(value);
    } catch (const Special &special) {
        return -1;
    } catch (...) {
        return -2;
    }
}
FETTLE_EXPORT(catches)

extern "C" int rethrows(int (*function)(int), int value) {
    try {
        return function(value);
    } catch (...) {
        cleaned += 100;
        throw;
    }
}
FETTLE_EXPORT(rethrows)

extern "C" double average(double a, float b) {
    return (a + b) / 2;
}
FETTLE_EXPORT(average)

extern "C" float third(float a) {
    return a / 3;
}
FETTLE_EXPORT(third)

FETTLE_LIBRARY
