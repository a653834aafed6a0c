// Every way that an exception of C++ goes, one line a step.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

static int depth;

struct Noisy {
    const char *name;
    explicit Noisy(const char *name) : name(name) {
        printf("%*s+%s\n", depth++, "", name);
    }
    Noisy(const Noisy &other) : name(other.name) {
        printf("%*s=%s\n", depth++, "", name);
    }
    ~Noisy() {
        printf("%*s-%s uncaught %d\n", --depth, "", name, std::uncaught_exceptions());
    }
};

struct A {
    int a = 1;
    virtual ~A() {
    }
};
struct B {
    int b = 2;
    virtual ~B() {
    }
};
struct C : A, B {
    int c = 3;
};
struct V1 : virtual A {
    int v1 = 4;
};
struct V2 : virtual A {
    int v2 = 5;
};
struct Diamond : V1, V2 {
    int d = 6;
};

template <class T> static void thrower(T value, int n) {
    Noisy here("frame");
    if (n == 0)
        throw value;
    thrower(value, n - 1);
}

static void matching() {
    try {
        thrower(C(), 2);
    } catch (B &b) {
        printf("B %d %s\n", b.b, typeid(b) == typeid(C) ? "a C" : "?");
    }
    try {
        throw Diamond();
    } catch (A &a) {
        printf("A %d\n", a.a);
    }
    try {
        throw new C;
    } catch (B *b) {
        printf("B* %d\n", b->b);
        delete b;
    }
    try {
        throw static_cast<const char *>("text");
    } catch (const char *text) {
        printf("%s\n", text);
    }
    try {
        throw nullptr;
    } catch (A *a) {
        printf("null %d\n", a == nullptr);
    }
    try {
        throw 2.5;
    } catch (int i) {
        printf("int?? %d\n", i);
    } catch (double d) {
        printf("double %g\n", d);
    }
    try {
        try {
            throw 7LL;
        } catch (int) {
            puts("wrong");
        } catch (float) {
            puts("wrong");
        }
        puts("not reached");
    } catch (...) {
        puts("anything");
    }
}

static void nested() {
    try {
        Noisy outer("outer");
        try {
            Noisy inner("inner");
            throw std::runtime_error("first");
        } catch (const std::exception &e) {
            printf("caught %s\n", e.what());
            try {
                throw std::logic_error(std::string("second after ") + e.what());
            } catch (const std::logic_error &second) {
                printf("caught %s inside\n", second.what());
            }
            printf("still %s\n", e.what());
            throw;
        }
    } catch (const std::runtime_error &e) {
        printf("again %s\n", e.what());
    }
    try {
        try {
            throw std::runtime_error("cause");
        } catch (...) {
            std::throw_with_nested(std::logic_error("effect"));
        }
    } catch (const std::exception &e) {
        printf("%s because of ", e.what());
        try {
            std::rethrow_if_nested(e);
        } catch (const std::exception &inner) {
            printf("%s\n", inner.what());
        }
    }
    std::exception_ptr kept;
    try {
        thrower(std::string("kept"), 1);
    } catch (...) {
        kept = std::current_exception();
    }
    for (int i = 0; i < 2; i++) {
        try {
            std::rethrow_exception(kept);
        } catch (const std::string &text) {
            printf("%s %d\n", text.c_str(), i);
        }
    }
}

struct Part {
    Noisy noisy;
    explicit Part(bool fail) : noisy("part") {
        if (fail)
            throw 11;
    }
};
struct Whole {
    Noisy first;
    Part second;
    Whole(bool fail)
    try : first("first"), second(fail) {
        puts("whole");
    } catch (int i) {
        printf("constructor %d\n", i);
    }
};

static int function_try(int n)
try {
    Noisy here("body");
    if (n)
        throw n;
    return 0;
} catch (int i) {
    return i * 2;
}

static void construction() {
    try {
        Whole good(false);
        Whole bad(true);
    } catch (int i) {
        printf("whole failed %d\n", i);
    }
    printf("%d %d\n", function_try(0), function_try(21));
    try {
        std::vector<std::unique_ptr<Noisy>> many;
        for (int i = 0; i < 3; i++)
            many.push_back(std::unique_ptr<Noisy>(new Noisy("held")));
        many.at(5);
    } catch (const std::out_of_range &e) {
        puts(e.what());
    }
    try {
        // More than the address space has.
        void *volatile large = operator new(static_cast<size_t>(-1) / 2);
        printf("%p\n", large);
    } catch (const std::bad_alloc &e) {
        puts(e.what());
    }
    try {
        struct Many {
            Noisy n{"element"};
            Many() {
                static int made;
                if (++made == 3)
                    throw made;
            }
        };
        Many *array = new Many[5];
        delete[] array;
    } catch (int i) {
        printf("array %d\n", i);
    }
}

// A destructor that throws and catches while another exception is on its way.
struct Careful {
    ~Careful() {
        try {
            throw std::string("in a destructor");
        } catch (const std::string &text) {
            printf("%s, %d on their way\n", text.c_str(), std::uncaught_exceptions());
        }
    }
};

static void destructors() {
    try {
        Careful careful;
        Noisy noisy("beside");
        throw 1;
    } catch (int i) {
        printf("%d came through\n", i);
    }
}

static int compare(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 5 || y == 5)
        throw x + y;
    return x - y;
}

static void through_c() {
    int values[] = {3, 5, 1};
    try {
        qsort(values, 3, sizeof(int), compare);
    } catch (int sum) {
        printf("from qsort %s\n", sum >= 6 ? "yes" : "no");
    }
}

// Registers that a handler needs, integer and floating-point.
__attribute__((noinline)) static int may_throw(int i) {
    if (i % 3 == 0)
        throw i;
    return i;
}

static void registers() {
    double sum = 0.5, product = 1;
    float single = 0.25f;
    long long wide = 1LL << 40;
    int count = 0, caught = 0;
    for (int i = 1; i < 20; i++) {
        try {
            count += may_throw(i);
            sum += i * 1.5;
            single += 1.0f;
            wide += i;
        } catch (int value) {
            caught += value;
            product *= 1.25;
            sum -= 0.125;
            wide <<= 1;
        }
    }
    printf("%d %d %.4f %.6f %.3f %lld\n", count, caught, sum, product, single, wide);
}

static void *in_thread(void *argument) {
    long number = reinterpret_cast<long>(argument), sum = 0;
    for (int i = 0; i < 200; i++) {
        try {
            try {
                if (i % 2)
                    throw i * number;
                throw std::string("text");
            } catch (const std::string &) {
                throw;
            }
        } catch (long value) {
            sum += value;
        } catch (const std::string &text) {
            sum += static_cast<long>(text.size());
        }
    }
    return reinterpret_cast<void *>(sum);
}

static void threads() {
    pthread_t all[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&all[i], nullptr, in_thread, reinterpret_cast<void *>(i + 1));
    for (pthread_t &each : all) {
        void *sum;
        pthread_join(each, &sum);
        printf("thread %ld\n", reinterpret_cast<long>(sum));
    }
}

int main() {
    matching();
    nested();
    construction();
    destructors();
    through_c();
    registers();
    threads();
    return 5;
}
