// Plug-ins: opened, called, closed, opened again at perhaps another address; exceptions that pass
// from the plug-in through the program and back, and call-backs the other way.

#include "check.h"

#ifndef TORTURE_STATIC
#include <dlfcn.h>
#endif
#include <stdexcept>
#include <string>

#ifdef TORTURE_STATIC
uint64_t part_plugins(const char *) { return 0; }
#else
NOINLINE static long call_back(long n) {
    if (n % 4 == 1) {
        throw std::out_of_range("back " + std::to_string(n));
    }
    return n * 3;
}

using Enter = long (*)(long, long (*)(long));

uint64_t part_plugins(const char *path) {
    Digest digest;
    for (int round = 0; round < 20; round++) {
        void *plugin = dlopen(path, round % 2 == 0 ? RTLD_NOW : RTLD_LAZY);
        CHECK(plugin != nullptr);
        if (plugin == nullptr) {
            break;
        }
        auto enter = reinterpret_cast<Enter>(dlsym(plugin, "plugin_enter"));
        CHECK(enter != nullptr);
        for (long n = 0; n < 40; n++) {
            try {
                digest.add(static_cast<uint64_t>(enter(n, call_back)));
            } catch (const std::out_of_range &error) {
                digest.add(static_cast<uint64_t>(error.what()[5]));
            } catch (const std::exception &error) {
                digest.add(static_cast<uint64_t>(error.what()[0]));
            }
        }
        CHECK(dlclose(plugin) == 0);
    }
    return digest.value();
}
#endif
