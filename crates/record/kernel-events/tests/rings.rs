//! Programs that use an `io_uring`: only what moves bytes through one counts.

mod common;

use std::process::Command;

use common::{alone, record, scratch};
use fettle_kernel_events::{Event, Options};

/// Gives a ring five operations, one a call: `epoll_ctl`, or reads; or reads that a thread of the kernel's takes.
const RINGS: &str = r#"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int reads = argv[1][0] != 'e', polled = argv[1][0] == 'p';
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    p.flags = polled ? IORING_SETUP_SQPOLL : 0;
    p.sq_thread_idle = 1000;
    int ring = syscall(SYS_io_uring_setup, 8, &p);
    if (ring < 0) return 77;
    int how = PROT_READ | PROT_WRITE;
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, how, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * 16, how, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *work = mmap(0, p.sq_entries * sizeof *work, how, MAP_SHARED, ring, IORING_OFF_SQES);
    unsigned *tail = (unsigned *)(sq + p.sq_off.tail), *order = (unsigned *)(sq + p.sq_off.array);
    unsigned *asleep = (unsigned *)(sq + p.sq_off.flags);
    unsigned *done = (unsigned *)(cq + p.cq_off.tail), mask = p.sq_entries - 1;
    int poll = epoll_create1(0), file = open("/dev/zero", O_RDONLY), ends[2];
    static char buffer[16];
    struct epoll_event event = { .events = EPOLLIN };
    if (pipe(ends)) return 1;
    for (unsigned n = 0; n < 5; n++) {
        struct io_uring_sqe *one = &work[n & mask];
        memset(one, 0, sizeof *one);
        one->opcode = reads ? IORING_OP_READ : IORING_OP_EPOLL_CTL;
        one->fd = reads ? file : poll;
        one->len = reads ? sizeof buffer : n ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        one->off = reads ? 0 : ends[0];
        one->addr = (unsigned long)(reads ? (void *)buffer : (void *)&event);
        order[n & mask] = n & mask;
        __atomic_store_n(tail, n + 1, __ATOMIC_RELEASE);
        if (!polled && syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1) return 2;
        while (__atomic_load_n(done, __ATOMIC_ACQUIRE) <= n) {
            // The kernel's thread sleeps when it has had nothing to do for a second.
            if (polled && __atomic_load_n(asleep, __ATOMIC_ACQUIRE) & IORING_SQ_NEED_WAKEUP)
                syscall(SYS_io_uring_enter, ring, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
            usleep(1000);
        }
    }
    return 0;
}
"#;

#[test]
fn only_what_moves_bytes_counts() {
    let _alone = alone();
    let kernel = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let says = b"btf_trace_io_uring_submit_req\0";
    if !kernel.windows(says.len()).any(|words| words == says) {
        eprintln!("skipped: this kernel does not say what is given to an io_uring");
        return;
    }
    let folder = scratch();
    std::fs::create_dir(&folder).unwrap();
    let (source, program) = (folder.join("rings.c"), folder.join("rings"));
    std::fs::write(&source, RINGS).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    for (mode, counted) in [("epoll", 0), ("reads", 5), ("polled", 5)] {
        let mut command = Command::new(&program);
        let Some((status, recorded)) = record(command.arg(mode), Options::default()) else {
            return;
        };
        if status.code() == Some(77) {
            eprintln!("skipped: this kernel has no io_uring for this user");
            return;
        }
        assert!(status.success(), "{mode}: {status}");
        let given: Vec<i64> = recorded.of(Event::IoUring).map(|it| it.number("fd")).collect();
        assert_eq!(given.len(), counted, "{mode}: {given:?}");
        assert_eq!(
            given.iter().filter(|fd| **fd == -1).count(),
            if mode == "polled" { 5 } else { 0 }
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}
