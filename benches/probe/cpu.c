/* Linked into every benchmarked program: writes the CPU time that the process itself has used,
   at its end, to the file that FETTLE_BENCH_CPU names. Measured from inside, so that the time of
   recorders beside the program is not in it; `cargo xtask bench probe` measures that from
   outside. Not instrumented in any variant that instruments at compile time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

__attribute__((destructor)) static void write_cpu_time(void) {
    const char *path = getenv("FETTLE_BENCH_CPU");
    struct rusage usage;
    char line[80];
    if (path == NULL || getrusage(RUSAGE_SELF, &usage) != 0) {
        return;
    }
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int length = snprintf(line, sizeof line, "%ld %ld\n",
                          usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec,
                          usage.ru_stime.tv_sec * 1000000L + usage.ru_stime.tv_usec);
    if (file >= 0) {
        if (write(file, line, (size_t)length) != length) {
            _exit(97);
        }
        close(file);
    }
}
