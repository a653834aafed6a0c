/* What a many-kernel system with its own memory management and worker threads gets wrong, by
 * McKernel's list of limits, and other system calls that are about the caller itself. One line
 * each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char *map_zero(void)
{
    int file = open("/dev/zero", O_RDWR);
    char *area = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return area;
}

static int zero_is_shared(void)
{
    char *area = map_zero();
    int status;
    if (area == MAP_FAILED)
        return -1;
    if (!fork()) {
        area[4096] = 5;
        _exit(0);
    }
    wait(&status);
    return area[4096];
}

static int clone_newfs(void)
{
    char before[200], after[200];
    int status;
    if (!getcwd(before, sizeof before))
        return -1;
    /* Shares the working directory, and nothing else. */
    if (!syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0))
        _exit(chdir("/tmp"));
    wait(&status);
    return getcwd(after, sizeof after) && !strcmp(after, "/tmp") ? chdir(before) == 0 : 0;
}

static int robust_list(void)
{
    struct {
        void *list;
        long offset;
        void *pending;
    } head = {&head, 0, 0};
    return syscall(SYS_set_robust_list, &head, sizeof head);
}

static int signal_file(void)
{
    struct signalfd_siginfo info;
    sigset_t set;
    int file;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, 0);
    file = signalfd(-1, &set, 0);
    kill(getpid(), SIGUSR2);
    return read(file, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : -1;
}

static int limit_on_files(void)
{
    struct rlimit limit = {5, 5}, old;
    int file;
    getrlimit(RLIMIT_NOFILE, &old);
    limit.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    while ((file = open("/dev/null", O_RDONLY)) >= 0)
        ;
    file = errno;
    setrlimit(RLIMIT_NOFILE, &old);
    return file;
}

static int limit_on_memory(void)
{
    struct rlimit limit, old;
    void *area;
    getrlimit(RLIMIT_AS, &old);
    limit = old;
    limit.rlim_cur = 64 << 20;
    setrlimit(RLIMIT_AS, &limit);
    area = mmap(0, 256 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    setrlimit(RLIMIT_AS, &old);
    return area == MAP_FAILED ? errno : 0;
}

static int priority_is_own(void)
{
    setpriority(PRIO_PROCESS, 0, 7);
    return getpriority(PRIO_PROCESS, getpid());
}

static int filesystem_user(void)
{
    setfsuid(1234);
    return setfsuid(-1);
}

static int locks_all(void)
{
    return mlockall(MCL_CURRENT) ? errno : munlockall();
}

static int shared_memory(void)
{
    int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), status;
    char *area = shmat(segment, 0, 0);
    if (!fork()) {
        area[0] = 9;
        _exit(0);
    }
    wait(&status);
    shmctl(segment, IPC_RMID, 0);
    return area[0];
}

static int event_loop(void)
{
    struct epoll_event event = {.events = EPOLLIN}, got;
    struct itimerspec soon = {{0, 0}, {0, 20000000}};
    int loop = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0), counter = eventfd(3, 0);
    unsigned long value = 0;
    epoll_ctl(loop, EPOLL_CTL_ADD, timer, &event);
    timerfd_settime(timer, 0, &soon, 0);
    if (epoll_wait(loop, &got, 1, 5000) != 1 || read(counter, &value, 8) != 8)
        return -1;
    return (int)value;
}

static int passes_a_file(void)
{
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
                             .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int ends[2], status, file = open("/dev/null", O_RDONLY);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    if (!fork()) {
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
        _exit(sendmsg(ends[1], &message, 0) != 1);
    }
    if (recvmsg(ends[0], &message, 0) != 1)
        return -1;
    wait(&status);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return fcntl(file, F_GETFD) == 0 && status == 0;
}

static int reads_another(void)
{
    static char text[8] = "parent";
    int ends[2], status;
    if (pipe(ends))
        return -1;
    if (!fork()) {
        char copy[8] = "";
        struct iovec here = {copy, 7}, there = {text, 7};
        pid_t parent = getppid();
        _exit(process_vm_readv(parent, &here, 1, &there, 1, 0) != 7 || strcmp(copy, "parent"));
    }
    wait(&status);
    return status == 0;
}

static int seccomp_kills(void)
{
    int status;
    if (!fork()) {
        prctl(PR_SET_SECCOMP, 1); /* only read, write, exit */
        if (write(1, "filtered\n", 9) != 9)
            _exit(1);
        getppid();
        _exit(2);
    }
    wait(&status);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static int processor_limit(void)
{
    int status;
    if (!fork()) {
        struct rlimit limit = {1, 2};
        setrlimit(RLIMIT_CPU, &limit);
        for (;;)
            sched_getcpu(), syscall(SYS_getppid);
    }
    wait(&status);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static int barriers(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
        return errno;
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static int protects(void)
{
    char *area = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    memcpy(area, code, sizeof code);
    mprotect(area, 4096, PROT_READ | PROT_EXEC);
    return ((int (*)(void))area)();
}

static int executes_data(void)
{
    int status;
    if (!fork()) {
        static unsigned char code[] = {0xc3};
        void *volatile place = code;
        ((void (*)(void))place)();
        _exit(0);
    }
    wait(&status);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int grows_a_stack(void)
{
    volatile char deep[1 << 20];
    memset((char *)deep, 1, sizeof deep);
    return deep[123];
}

int main(void)
{
    printf("/dev/zero shared: %d\n", zero_is_shared());
    printf("clone flags: %d\n", clone_newfs());
    printf("set_robust_list: %d\n", robust_list());
    printf("signalfd: %d\n", signal_file());
    printf("RLIMIT_NOFILE: %d\n", limit_on_files());
    printf("RLIMIT_AS: %d\n", limit_on_memory());
    printf("setpriority: %d\n", priority_is_own());
    printf("setfsuid: %d\n", filesystem_user());
    printf("mlockall: %d\n", locks_all());
    printf("shared memory: %d\n", shared_memory());
    printf("epoll, timerfd, eventfd: %d\n", event_loop());
    printf("SCM_RIGHTS: %d\n", passes_a_file());
    printf("process_vm_readv: %d\n", reads_another());
    fflush(stdout);
    printf("seccomp: %d\n", seccomp_kills());
    printf("RLIMIT_CPU: %d\n", processor_limit());
    printf("membarrier: %d\n", barriers());
    printf("mprotect: %d\n", protects());
    printf("data executed: %d\n", executes_data());
    printf("stack grown: %d\n", grows_a_stack());
    return 0;
}
