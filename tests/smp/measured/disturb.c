/* Work by which Linux disturbs all its processors: filters of sockets (which are translated, and so change the
 * kernel's text), modules, and kernel memory that is freed. Goes on until it is killed. */
#include <fcntl.h>
#include <linux/filter.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void filter(void)
{
    struct sock_filter code[] = {{BPF_LD | BPF_W | BPF_LEN, 0, 0, 0}, {BPF_RET | BPF_A, 0, 0, 0}};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    int place = socket(AF_UNIX, SOCK_DGRAM, 0);
    setsockopt(place, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    close(place);
}

static void module(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (syscall(SYS_finit_module, file, "", 0) == 0)
        syscall(SYS_delete_module, "disturbance", O_NONBLOCK);
    close(file);
}

int main(int count, char **arguments)
{
    long i;
    if (count != 2)
        return 2;
    for (i = 0;; i++) {
        pid_t child;
        filter();
        if (i % 10 == 0)
            module(arguments[1]);
        /* Stacks of the kernel are freed by the hundred, and their addresses forgotten everywhere. */
        child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
        if (i == 20) {
            printf("disturbs\n");
            fflush(stdout);
        }
    }
}
