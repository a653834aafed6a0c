// Requests, a line each, and their answers, which begin with '@': a system may print lines of its own.
//
//   list                      @bench NAME GROUP WHAT…      for each, and then @end
//   environment HEX           NAME=VALUE for what is run later; @ok
//   folder HEX                goes there; @ok
//   tune NAME NS              @tuned N: operations that take about so long
//   time NAME N BATCHES       @timed NS NS …: of one operation, in each batch of N
//   clock                     @clock NS TSC              this system's monotonic clock, and the time-stamp counter
//   stamp NAME N              @stamp TSC CPU TSC CPU     before and after each of N operations, and then @end;
//                             counter and processor are the machine's own, whatever system this is
//   passage NAME              @passage ADDRESS CALL      what each of its operations passes through: a function
//                             of the C library in this process, and the system call that this makes
//   ways                      @way NAME WHAT…             ways of passing messages, and then @end
//   makers                    @maker NAME WHAT…           of making processes, and then @end
//   move WAY SIZE BYTES CPU CPU ROUNDS    @moved NS NS …: each round of BYTES in messages of SIZE
//   make MAKER BYTES ROUNDS   @made NS NS …: each process, made by one that has touched BYTES
//   run HEX…                  runs a program: @ran NS USER_US SYSTEM_US STATUS [HEX]: the end of what it
//                             wrote to standard error
//   quit                      ends
//
// What cannot be done is answered by @no and the reason.
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST_STAMPS = 1 << 16,
    MOST_WORDS = 4096,   // of a request
    MOST_BATCHES = 256,
    SHOWN = 600,         // bytes of what a program wrote
};

static const struct benchmark *const lists[] = {arithmetic, calls, files, memory, pipes, processes};

#define EACH(b)                                                            \
    for (unsigned long l = 0; l < sizeof lists / sizeof *lists; l++)       \
        for (const struct benchmark *b = lists[l]; b->name; b++)

static void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

// What fails in the middle of a benchmark is answered, and the next request is handled.
static jmp_buf failed;
static pid_t server;
static char reason[200];

void fail(const char *what)
{
    snprintf(reason, sizeof reason, "%s: %s", what, strerror(errno));
    if (getpid() == server)
        longjmp(failed, 1);
    printf("@no %s\n", reason);
    fflush(stdout);
    _exit(1);
}

static const struct benchmark *find(const char *name)
{
    EACH(b)
        if (name && strcmp(b->name, name) == 0)
            return b;
    return 0;
}

// The counter, and the number that Linux gives the processor it is read on.
static unsigned long stamp(unsigned *cpu)
{
    unsigned low, high, aux;
    __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(aux) : : "memory");
    *cpu = aux & 0xfff;
    return (unsigned long)high << 32 | low;
}

// A moment on this system's clock and on the counter.
struct moment {
    double ns;
    unsigned long tsc;
};

// Both, read as close together as can be had.
static struct moment moment(void)
{
    struct moment best = {0};
    unsigned long narrow = ~0ul;
    unsigned cpu;
    for (int i = 0; i < 32; i++) {
        unsigned long before = stamp(&cpu);
        double ns = now_ns();
        unsigned long after = stamp(&cpu);
        if (after - before < narrow) {
            narrow = after - before;
            best = (struct moment){ns, before + narrow / 2};
        }
    }
    return best;
}

// Nanoseconds of a tick. Operations are timed by the counter: on some systems a look at the clock takes
// longer than they do.
static double ns_per_tick;

static void weigh_ticks(void)
{
    struct moment begin = moment(), end;
    do
        end = moment();
    while (end.ns - begin.ns < 2e7);
    ns_per_tick = (end.ns - begin.ns) / (end.tsc - begin.tsc);
}

static double timed(const struct benchmark *b, unsigned long n)
{
    unsigned cpu;
    unsigned long begin = stamp(&cpu);
    b->run(n);
    return (stamp(&cpu) - begin) * ns_per_tick;
}

// Prepares a benchmark, or answers why it cannot run.
static int prepared(const struct benchmark *b)
{
    if (!b) {
        answer("@no there is no such benchmark");
        return 0;
    }
    if (b->prepare && b->prepare() != 0) {
        answer("@no %s: %s", b->name, strerror(errno));
        return 0;
    }
    return 1;
}

// The shortest of three times, as soon as one is short enough: a thread that is switched out meanwhile
// looks as if an operation took long.
static double shortest(const struct benchmark *b, unsigned long n, double enough_ns)
{
    double best = timed(b, n);
    for (int i = 0; i < 2 && best >= enough_ns; i++) {
        double again = timed(b, n);
        best = again < best ? again : best;
    }
    return best;
}

static void tune(const struct benchmark *b, double wanted_ns)
{
    unsigned long n = 1;
    if (!prepared(b))
        return;
    timed(b, 1);
    for (;;) {
        double took = shortest(b, n, wanted_ns / 4);
        // Once it takes a quarter of that time, what one takes is known well enough.
        if (took * 4 >= wanted_ns || n >= 1ul << 40) {
            double exact = took > 0 ? n * wanted_ns / took : n;
            n = exact < 1 ? 1 : (unsigned long)exact;
            break;
        }
        n *= took * 64 < wanted_ns ? 16 : 2;
    }
    if (b->finish)
        b->finish();
    answer("@tuned %lu", n);
}

static void measure(const struct benchmark *b, unsigned long n, unsigned batches)
{
    double took[MOST_BATCHES];
    if (n == 0 || batches == 0 || batches > MOST_BATCHES) {
        answer("@no so many operations or batches cannot be measured");
        return;
    }
    if (!prepared(b))
        return;
    // Caches and whatever the system makes ready at first use are warm.
    b->run(n / 8 + 1);
    for (unsigned i = 0; i < batches; i++)
        took[i] = timed(b, n);
    if (b->finish)
        b->finish();
    printf("@timed");
    for (unsigned i = 0; i < batches; i++)
        printf(" %.3f", took[i] / n);
    answer("");
}

// The bytes that hexadecimal digits stand for, in their place.
static char *bytes_of(char *hex)
{
    char *out = hex, digits[3] = {0};
    for (const char *in = hex; in[0] && in[1]; in += 2) {
        digits[0] = in[0];
        digits[1] = in[1];
        *out++ = strtoul(digits, 0, 16);
    }
    *out = 0;
    return hex;
}

struct when {
    unsigned long tsc;
    unsigned cpu;
};

static void answer_ran(double ns, const struct when *begin, const struct rusage *used, int status, int errors)
{
    struct when ended;
    ended.tsc = stamp(&ended.cpu);
    char text[SHOWN];
    off_t end = lseek(errors, 0, SEEK_END);
    ssize_t got = pread(errors, text, sizeof text, end > SHOWN ? end - SHOWN : 0);
    int shown = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("@ran %.0f %lu %u %lu %u %ld %ld %d ", ns, begin->tsc, begin->cpu, ended.tsc, ended.cpu, used->ru_utime.tv_sec * 1000000 + used->ru_utime.tv_usec,
           used->ru_stime.tv_sec * 1000000 + used->ru_stime.tv_usec, shown);
    for (ssize_t i = 0; i < got; i++)
        printf("%02x", (unsigned char)text[i]);
    answer("");
}

static void run(char **arguments)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), status;
    int errors = memfd_create("errors", MFD_CLOEXEC);
    struct rusage used;
    if (null < 0 || errors < 0) {
        answer("@no /dev/null or a file in memory: %s", strerror(errno));
        return;
    }
    struct when stamped;
    double begin = now_ns();
    stamped.tsc = stamp(&stamped.cpu);
    pid_t child = fork();
    if (child == 0) {
        dup2(null, 0);
        dup2(null, 1);
        dup2(errors, 2);
        execvp(arguments[0], arguments);
        int why = errno;
        dprintf(2, "%s: %s", arguments[0], strerror(why));
        _exit(why == ENOENT ? 127 : 126);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child)
        answer("@no a process: %s", strerror(errno));
    else
        answer_ran(now_ns() - begin, &stamped, &used, status, errors);
    close(null);
    close(errors);
}

static void answer_clock(void)
{
    struct moment now = moment();
    answer("@clock %.0f %lu", now.ns, now.tsc);
}

static void stamp_each(const struct benchmark *b, unsigned long n)
{
    static struct {
        unsigned long begin, end;
        unsigned from, to;
    } all[MOST_STAMPS];
    if (n == 0 || n > MOST_STAMPS) {
        answer("@no so many operations cannot be stamped");
        return;
    }
    if (!prepared(b))
        return;
    // Pages of the stamps, and what the system makes ready at first use.
    memset(all, 1, n * sizeof *all);
    b->run(n / 8 + 1);
    for (unsigned long i = 0; i < n; i++) {
        all[i].begin = stamp(&all[i].from);
        b->run(1);
        all[i].end = stamp(&all[i].to);
    }
    if (b->finish)
        b->finish();
    for (unsigned long i = 0; i < n; i++)
        printf("@stamp %lu %u %lu %u\n", all[i].begin, all[i].from, all[i].end, all[i].to);
    answer("@end");
}

static void answer_passage(const char *name)
{
    const struct passage *p = passage_of(name);
    if (p)
        answer("@passage %lx %s", (unsigned long)p->function, p->call);
    else
        answer("@no its operations pass through no function that could be probed");
}

static void answer_times(const char *word, int why, const double *ns, int rounds)
{
    if (why) {
        answer("@no %s", strerror(why));
        return;
    }
    printf("@%s", word);
    for (int i = 0; i < rounds; i++)
        printf(" %.0f", ns[i]);
    answer("");
}

static void move_or_make(char **words, unsigned n)
{
    static double ns[MOST_ROUNDS];
    int rounds = atoi(words[n - 1]), why = EINVAL;
    int moves = n == 7;
    if (rounds > 0 && rounds <= MOST_ROUNDS) {
        if (moves)
            why = move_messages(words[1], strtoul(words[2], 0, 10), strtoul(words[3], 0, 10),
                                atoi(words[4]), atoi(words[5]), rounds, ns);
        else
            why = make_processes(words[1], strtoul(words[2], 0, 10), rounds, ns);
    }
    answer_times(moves ? "moved" : "made", why, ns, rounds);
}

static void list_names(const char *word, const char *(*name_of)(unsigned, const char **))
{
    const char *what, *name;
    for (unsigned i = 0; (name = name_of(i, &what)); i++)
        answer("@%s %s %s", word, name, what);
    answer("@end");
}

static void list(void)
{
    EACH(b)
        answer("@bench %s %s %s", b->name, b->group, b->what);
    answer("@end");
}

static int handle(char **words, unsigned n)
{
    const char *request = words[0];
    if (strcmp(request, "list") == 0) {
        list();
    } else if (strcmp(request, "clock") == 0) {
        answer_clock();
    } else if (strcmp(request, "stamp") == 0 && n == 3) {
        stamp_each(find(words[1]), strtoul(words[2], 0, 10));
    } else if (strcmp(request, "passage") == 0 && n == 2) {
        answer_passage(words[1]);
    } else if (strcmp(request, "ways") == 0) {
        list_names("way", message_way);
    } else if (strcmp(request, "makers") == 0) {
        list_names("maker", maker_of_processes);
    } else if ((strcmp(request, "move") == 0 && n == 7) || (strcmp(request, "make") == 0 && n == 4)) {
        move_or_make(words, n);
    } else if (strcmp(request, "environment") == 0 && n == 2) {
        // Kept: putenv takes the text itself.
        char *text = strdup(bytes_of(words[1]));
        answer(text && putenv(text) == 0 ? "@ok" : "@no the environment cannot hold that");
    } else if (strcmp(request, "folder") == 0 && n == 2) {
        if (chdir(bytes_of(words[1])) == 0)
            answer("@ok");
        else
            answer("@no %s: %s", words[1], strerror(errno));
    } else if (strcmp(request, "tune") == 0 && n == 3) {
        tune(find(words[1]), atof(words[2]));
    } else if (strcmp(request, "time") == 0 && n == 4) {
        measure(find(words[1]), strtoul(words[2], 0, 10), atoi(words[3]));
    } else if (strcmp(request, "run") == 0 && n > 1) {
        for (unsigned i = 1; i < n; i++)
            bytes_of(words[i]);
        run(words + 1);
    } else if (strcmp(request, "quit") == 0) {
        return 0;
    } else {
        answer("@no such request");
    }
    return 1;
}

int serve(void)
{
    static char *words[MOST_WORDS + 1];
    static char *line;
    static size_t room;
    weigh_ticks();
    answer("@ready 1");
    server = getpid();
    if (setjmp(failed))
        answer("@no %s", reason);
    while (getline(&line, &room, stdin) > 0) {
        unsigned n = 0;
        for (char *at = strtok(line, " \r\n"); at && n < MOST_WORDS; at = strtok(0, " \r\n"))
            words[n++] = at;
        words[n] = 0;
        if (n && !handle(words, n))
            break;
    }
    return 0;
}
