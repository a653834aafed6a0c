// The first process of a User-Mode Linux, whose root is the host's, read-only.
#include "bench.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static void mount_memory(const char *at)
{
    if (mount("fettle", at, "tmpfs", 0, "mode=1777") != 0 && errno != ENOENT)
        fail(at);
}

static void bring_up_loopback(void)
{
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    strcpy(request.ifr_name, "lo");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd >= 0) {
        ioctl(fd, SIOCSIFFLAGS, &request);
        close(fd);
    }
}

void set_up_system(void)
{
    struct termios terminal;
    if (mount("proc", "/proc", "proc", 0, 0) != 0)
        fail("/proc");
    // What the root has there are the host's own.
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount_memory("/dev/shm");
    mount_memory("/run");
    mount_memory(scratch);
    bring_up_loopback();
    if (tcgetattr(0, &terminal) == 0) {
        cfmakeraw(&terminal);
        tcsetattr(0, TCSANOW, &terminal);
    }
}
