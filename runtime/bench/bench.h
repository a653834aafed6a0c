// The static program that measures what a system offers to programs, from inside of it.
//
// One process stays alive in each system that is compared and does what it is asked, a line a request
// (serve.c): so turns of different systems follow each other within milliseconds, and whatever disturbs
// the machine disturbs them alike. All it needs of a system is a folder that it may write.
#pragma once

#include <stddef.h>

enum { MOST_ROUNDS = 256 };  // of messages or processes, at one request

// One kind of operation.
struct benchmark {
    const char *name;    // as the user says it
    const char *group;   // kinds that belong together
    const char *what;    // one line for people
    int (*prepare)(void);          // NULL, or 0 where it can run; else -1 and errno
    void (*run)(unsigned long n);  // n operations
    void (*finish)(void);          // NULL, or undoes `prepare`
};

// Each list ends with an entry without a name.
extern const struct benchmark arithmetic[], calls[], files[], memory[], pipes[], processes[];

// A folder that may be written, without a slash at its end.
extern const char *scratch;

// What each operation of a benchmark passes through once: a function of the C library, and the system call
// that this one makes. NULL where there is none.
struct passage {
    const char *benchmark;
    const void *function;
    const char *call;
};
const struct passage *passage_of(const char *benchmark);

// A tracepoint of LTTng where each operation passes it, if this program is compiled with one
// (`-DFETTLE_LTTNG`); else nothing.
#ifdef FETTLE_LTTNG
#include "lttng.h"
#define PASSES() lttng_ust_tracepoint(fettle, passes)
#else
#define PASSES() ((void)0)
#endif

// A path in that folder; the result holds until the next call.
const char *in_scratch(const char *name);

// Nanoseconds of the monotonic clock.
double now_ns(void);

// What an operation cannot go on after: it is answered with errno's text, and the next request is handled.
void fail(const char *what) __attribute__((noreturn));

// The nth way of passing messages, or of making processes, and what it does; NULL behind the last.
const char *message_way(unsigned n, const char **what);
const char *maker_of_processes(unsigned n, const char **what);

// Moves so many bytes, in messages of one size, from this process to a child, which run on those
// processors (on any, below 0). 0 and nanoseconds of each round, or what errno would be.
int move_messages(const char *way, size_t size, size_t bytes, int ours, int theirs, int rounds, double *ns);

// Makes processes from one that has touched so many bytes; the same result.
int make_processes(const char *maker, size_t bytes, int rounds, double *ns);

// Answers requests from standard input until that ends.
int serve(void);

// Makes a system of its own usable: file systems, the loopback interface, a terminal that changes no
// byte. For the first process of a User-Mode Linux.
void set_up_system(void);
