// A child that has its parent's memory, and executes nothing for long.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(1, "ready\n", 6) != 6) _exit(1);
        for (;;) pause();
    }
    return 0;
}
