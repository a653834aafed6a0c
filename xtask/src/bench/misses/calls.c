// Makes a system call again and again between the marks that tell QEMU's plugin: calls getppid|read TIMES.
// As the first process of a User-Mode Linux it stops that afterwards.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mark.h"

static char buffer[4096];

int main(int count, char **words)
{
    // User-Mode Linux adds words of its own.
    int times = count >= 3 ? atoi(words[2]) : 0, reads = count >= 3 && strcmp(words[1], "read") == 0;
    int file = open(words[0], O_RDONLY);
    int failed = times <= 0 || file < 0;
    for (int round = 0; round < 2 && !failed; round++) {
        // The first is to warm up.
        if (round)
            MARK_MODEL();
        for (int i = 0; i < times; i++) {
            long got = reads ? pread(file, buffer, sizeof buffer, 0) : syscall(SYS_getppid);
            failed |= reads && got != sizeof buffer;
        }
        if (round)
            MARK_MODEL_END();
    }
    if (getpid() == 1)
        reboot(RB_POWER_OFF);
    return failed;
}
