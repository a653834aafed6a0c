/* Locks all of its memory, and what comes later; says whether that is more than a GB. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
    char line[256];
    long locked = -1;
    int failed = mlockall(MCL_CURRENT | MCL_FUTURE);
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "VmRSS:", 6))
            sscanf(line + 6, "%ld", &locked);
    printf("%d, %s\n", failed, locked < 1 << 20 ? "little" : "much");
    return 0;
}
