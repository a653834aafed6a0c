// A library that throws, catches and sorts; opened and closed again by `host.cpp` and `doors.c`.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

static thread_local int live;

struct Counted {
    Counted() { ++live; }
    ~Counted() { --live; }
};

__attribute__((noinline)) static int deep(int n, int m)
{
    Counted counted;
    if (n == 0) {
        if (m & 1)
            throw std::runtime_error("from plugin " + std::to_string(m));
        return m;
    }
    return deep(n - 1, m) + 1;
}

extern "C" int plugin_run(int n) { return deep(n % 17, n); }

extern "C" int plugin_catch(int n)
{
    try {
        return deep(n % 13, n | 1);
    } catch (std::exception &e) {
        return (int)strlen(e.what());
    }
}

extern "C" void plugin_call(void (*callback)(int), int n)
{
    Counted counted;
    std::vector<std::string> words;
    for (int i = 0; i < 20; i++)
        words.push_back(std::to_string(i * 7919 % 101));
    std::sort(words.begin(), words.end());
    callback(n);
}

extern "C" int plugin_live() { return live; }
