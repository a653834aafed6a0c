/* Measures another program, from its start to its end: timed NAME PROGRAM ARGUMENTS... */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

int main(int count, char **arguments)
{
    int status = 1;
    pid_t child;
    if (count < 3)
        return 2;
    MARK_SHORT();
    child = fork();
    if (!child) {
        execvp(arguments[2], arguments + 2);
        _exit(127);
    }
    waitpid(child, &status, 0);
    MARK_END();
    name_measurement(arguments[1], 1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
