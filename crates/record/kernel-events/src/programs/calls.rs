//! System calls. One table says what they are. A program runs at the end of each, where the arguments
//! still are where the program put them, so nothing has to be kept from the beginning. That a call has
//! begun matters only if it has to wait: the program at switches reports it then ([`waits`]). At the
//! beginning there is only `close` to look at, for afterwards it is not known what it closed; unless all
//! beginnings are asked for.

use crate::asm::{Alu, FP, Helper, If, Insn, Label, R0, R1, R2, R3, R7, R8, R9, Size};
use crate::code::{Code, Env, counter, slot};
use crate::programs::descriptors::{
    self as fds, begins, ends, file_of, keep_fd, opened, sock_of, socket_of_file,
};
use crate::programs::running::report_task;
use crate::programs::slots::{FIRST, INODE, MODE};
use crate::programs::uring;
use crate::raw::{Kind, io, socket, wait, word};

/// What a system call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Reads from its first argument.
    Read = 1,
    /// Writes to its first argument.
    Write,
    /// Reads from a socket, or only looks, by the flags in its fourth argument.
    Receive,
    /// The same by the flags in its third argument.
    ReceiveMessage,
    /// Reads several messages.
    ReadMany,
    /// Writes several messages.
    WriteMany,
    /// Stores what its first argument was given.
    Sync,
    /// From its second argument to its first.
    SendFile,
    /// From its first argument to its third.
    Splice,
    /// Waits for one of several descriptors.
    Poll,
    /// Waits at a futex, or wakes others there.
    Futex,
    /// `futex_wait`, `futex_waitv`: waits.
    FutexWait,
    /// `futex_wake`: wakes.
    FutexWake,
    /// Waits for time to pass, or a signal.
    Sleep,
    /// Waits for a child.
    Child,
    /// Takes a connection.
    Accept,
    /// Asks for a connection.
    Connect,
    /// Opens the path in its first argument.
    Open,
    /// Opens the path in its second argument.
    OpenAt,
    /// Closes a descriptor.
    Close,
    /// Closes several.
    CloseRange,
    /// Makes a pipe.
    Pipe,
    /// Makes two sockets.
    SocketPair,
    /// Gives a descriptor another number.
    Dup,
    /// May do so.
    Fcntl,
    /// Gives work to an `io_uring`.
    Uring,
}

/// The system calls of x86-64 that are recorded, by number.
#[rustfmt::skip]
pub const CALLS: &[(u16, &str, Class)] = &[
    (0, "read", Class::Read),
    (1, "write", Class::Write),
    (2, "open", Class::Open),
    (3, "close", Class::Close),
    (7, "poll", Class::Poll),
    (17, "pread64", Class::Read),
    (18, "pwrite64", Class::Write),
    (19, "readv", Class::Read),
    (20, "writev", Class::Write),
    (22, "pipe", Class::Pipe),
    (23, "select", Class::Poll),
    (32, "dup", Class::Dup),
    (33, "dup2", Class::Dup),
    (34, "pause", Class::Sleep),
    (35, "nanosleep", Class::Sleep),
    (40, "sendfile", Class::SendFile),
    (42, "connect", Class::Connect),
    (43, "accept", Class::Accept),
    (44, "sendto", Class::Write),
    (45, "recvfrom", Class::Receive),
    (46, "sendmsg", Class::Write),
    (47, "recvmsg", Class::ReceiveMessage),
    (53, "socketpair", Class::SocketPair),
    (61, "wait4", Class::Child),
    (72, "fcntl", Class::Fcntl),
    (74, "fsync", Class::Sync),
    (75, "fdatasync", Class::Sync),
    (78, "getdents", Class::Read),
    (85, "creat", Class::Open),
    (128, "rt_sigtimedwait", Class::Sleep),
    (130, "rt_sigsuspend", Class::Sleep),
    (202, "futex", Class::Futex),
    (217, "getdents64", Class::Read),
    (230, "clock_nanosleep", Class::Sleep),
    (232, "epoll_wait", Class::Poll),
    (247, "waitid", Class::Child),
    (257, "openat", Class::OpenAt),
    (270, "pselect6", Class::Poll),
    (271, "ppoll", Class::Poll),
    (275, "splice", Class::Splice),
    (277, "sync_file_range", Class::Sync),
    (278, "vmsplice", Class::Write),
    (281, "epoll_pwait", Class::Poll),
    (288, "accept4", Class::Accept),
    (292, "dup3", Class::Dup),
    (293, "pipe2", Class::Pipe),
    (295, "preadv", Class::Read),
    (296, "pwritev", Class::Write),
    (299, "recvmmsg", Class::ReadMany),
    (306, "syncfs", Class::Sync),
    (307, "sendmmsg", Class::WriteMany),
    (326, "copy_file_range", Class::Splice),
    (327, "preadv2", Class::Read),
    (328, "pwritev2", Class::Write),
    (426, "io_uring_enter", Class::Uring),
    (436, "close_range", Class::CloseRange),
    (437, "openat2", Class::OpenAt),
    (441, "epoll_pwait2", Class::Poll),
    (449, "futex_waitv", Class::FutexWait),
    (454, "futex_wake", Class::FutexWake),
    (455, "futex_wait", Class::FutexWait),
];

/// Numbers that the table has room for.
const NUMBERS: usize = 512;
/// Bytes of the table: for the beginning, for the end, for when the call has to wait.
pub const TABLE_BYTES: u32 = 3 * NUMBERS as u32;
/// Where the last of the three begins.
const WAITS: i32 = 2 * NUMBERS as i32;

/// The table as the programs read it. With `begins`, all calls are reported when they begin, not only
/// when they have to wait.
pub fn table(begins: bool) -> Vec<u8> {
    let mut table = vec![0; TABLE_BYTES as usize];
    for (number, _, class) in CALLS {
        let waits = !matches!(
            class,
            Class::Open
                | Class::OpenAt
                | Class::Pipe
                | Class::SocketPair
                | Class::Dup
                | Class::Fcntl
                | Class::FutexWake
                | Class::Uring
                | Class::Close
                | Class::CloseRange
        );
        let ends = !matches!(class, Class::Close);
        let number = usize::from(*number);
        let at_once = *class == Class::Close || (begins && waits);
        table[number] = if at_once { *class as u8 } else { 0 };
        table[NUMBERS + number] = if ends { *class as u8 } else { 0 };
        table[WAITS as usize + number] = if waits { *class as u8 } else { 0 };
    }
    table
}

/// A descriptor that the call was given or gave back.
const FD: i16 = slot(FIRST);
/// What it answered.
const RESULT: i16 = slot(FIRST + 1);
/// Whatever else.
const OTHER: i16 = slot(FIRST + 2);

/// Begins a program: R7 is the registers of the call, R8 its class. Ends the program for calls and
/// processes that are not recorded.
fn prologue(env: &Env, half: usize) -> Code<'_> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    let native = c.asm.label();
    c.argument(R7, 0);
    c.direct(R8, R7, f.regs_number);
    c.asm.jump_if(If::Ge, R8, NUMBERS as i32, out);
    c.asm.map_value(R1, env.calls, (half * NUMBERS) as i32);
    c.asm.alu(Alu::Add, R1, R8);
    c.asm.load(Size::B1, R8, R1, 0);
    c.asm.jump_if(If::Eq, R8, 0, out);
    c.current_observed(out);
    c.asm.call(Helper::CurrentTaskBtf);
    c.direct(R1, R0, f.task_status);
    c.asm.alu_imm(Alu::And, R1, COMPAT);
    c.asm.jump_if(If::Eq, R1, 0, native);
    c.count(counter::COMPAT);
    c.asm.jump(out);
    c.asm.place(native);
    c
}

/// `TS_COMPAT`: a system call of a 32-bit program is under way.
const COMPAT: i32 = 2;

/// Goes on at a part of the program for each class.
fn dispatch(c: &mut Code, classes: &[Class]) -> Vec<Label> {
    let labels: Vec<Label> = classes.iter().map(|_| c.asm.label()).collect();
    for (class, label) in classes.iter().zip(&labels) {
        c.asm.jump_if(If::Eq, R8, i32::from(*class as u8), *label);
    }
    let out = c.out;
    c.asm.jump(out);
    labels
}

/// `to` is an argument of the call.
fn argument(c: &mut Code, to: crate::asm::Reg, n: usize) {
    let f = &c.env.fields;
    let field = [f.regs_0, f.regs_1, f.regs_2, f.regs_3][n];
    c.direct(to, R7, field);
}

/// Keeps an argument as a descriptor.
fn keep_argument(c: &mut Code, n: usize) {
    argument(c, R1, n);
    keep_fd(c, FD, R1);
}

/// A system call begins or ends: which, and its first argument; nothing else of it.
pub fn number(env: &Env, begins: bool) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.argument(R7, 0);
    c.current_observed(out);
    c.record(Kind::Call, u16::from(begins), out);
    c.direct(R1, R7, env.fields.regs_number);
    c.number(R1);
    c.direct(R1, R7, env.fields.regs_0);
    c.word(0, R1);
    c.submit();
    c.finish()
}

/// A system call begins.
pub fn enter(env: &Env) -> Vec<Insn> {
    let mut c = prologue(env, 0);
    let (out, other) = (c.out, c.asm.label());
    c.asm.jump_if(If::Ne, R8, i32::from(Class::Close as u8), other);
    close(&mut c);
    c.asm.jump(out);
    c.asm.place(other);
    all_begin(&mut c, out);
    c.finish()
}

/// Reports that a call has begun that has to wait: the thread whose `task_struct` is in R7 is about to
/// be switched out. Its call's number is in R1. Goes to `done`; R7 and R8 are something else then.
pub fn waits(c: &mut Code, done: Label) {
    c.asm.jump_if(If::Ge, R1, NUMBERS as i32, done);
    c.asm.map_value(R2, c.env.calls, WAITS);
    c.asm.alu(Alu::Add, R2, R1);
    c.asm.load(Size::B1, R8, R2, 0);
    c.asm.jump_if(If::Eq, R8, 0, done);
    c.direct(R1, R7, c.env.fields.task_status);
    c.asm.jump_if(If::Set, R1, COMPAT, done);
    c.asm.mov(R1, R7);
    c.asm.call(Helper::TaskPtRegs);
    c.asm.mov(R7, R0);
    all_begin(c, done);
}

/// The call of the class in R8 begins.
fn all_begin(c: &mut Code, done: Label) {
    use Class as C;
    let out = std::mem::replace(&mut c.out, done);
    let classes = [
        C::Read,
        C::Write,
        C::Receive,
        C::ReceiveMessage,
        C::Poll,
        C::Futex,
        C::Sync,
        C::SendFile,
        C::Splice,
        C::Accept,
        C::Connect,
        C::ReadMany,
        C::WriteMany,
        C::FutexWait,
        C::Sleep,
        C::Child,
    ];
    let labels = dispatch(c, &classes);
    for (class, label) in classes.into_iter().zip(labels) {
        c.asm.place(label);
        match class {
            C::Read | C::Receive | C::ReceiveMessage | C::ReadMany => begin(c, 0, 0),
            C::Write | C::WriteMany => begin(c, io::WRITE, 0),
            C::Sync => begin(c, io::SYNC, 0),
            C::SendFile => begin_both(c, 1, 0),
            C::Splice => begin_both(c, 0, 2),
            C::Poll => begin_wait(c, wait::POLL),
            C::Sleep => begin_wait(c, wait::SLEEP),
            C::Child => begin_wait(c, wait::CHILD),
            C::FutexWait => begin_wait(c, wait::FUTEX),
            C::Futex => begin_futex(c),
            C::Accept => begin_connection(c, wait::ACCEPT),
            C::Connect => begin_connection(c, wait::CONNECT),
            _ => {}
        }
        c.asm.jump(done);
    }
    c.out = out;
}

fn begin(c: &mut Code, flags: u16, descriptor: usize) {
    let out = c.out;
    keep_argument(c, descriptor);
    begins(c, flags, FD, out);
}

fn begin_both(c: &mut Code, from: usize, to: usize) {
    let (out, read) = (c.out, c.asm.label());
    keep_argument(c, from);
    begins(c, 0, FD, read);
    c.asm.place(read);
    keep_argument(c, to);
    begins(c, io::WRITE, FD, out);
}

fn begin_wait(c: &mut Code, what: u16) {
    let out = c.out;
    c.record(Kind::Wait, what | wait::BEGIN, out);
    argument(c, R1, 0);
    c.word(0, R1);
    c.asm.store_imm(Size::B8, R9, word(1), 0);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

/// `futex(address, operation, …)`: only what waits begins.
fn begin_futex(c: &mut Code) {
    let out = c.out;
    argument(c, R1, 1);
    c.asm.alu_imm(Alu::And, R1, OPERATION);
    c.keep(OTHER, R1);
    let waits = c.asm.label();
    for operation in FUTEX_WAITS {
        c.asm.jump_if(If::Eq, R1, operation, waits);
    }
    c.asm.jump(out);
    c.asm.place(waits);
    c.record(Kind::Wait, wait::FUTEX | wait::BEGIN, out);
    c.recall(R1, OTHER);
    c.number(R1);
    argument(c, R1, 0);
    c.word(0, R1);
    c.asm.store_imm(Size::B8, R9, word(1), 0);
    c.submit();
}

/// Of a futex's operation, without flags.
const OPERATION: i32 = 0x7f;
/// `WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI`, `LOCK_PI2`.
const FUTEX_WAITS: [i32; 5] = [0, 6, 9, 11, 13];
/// `TRYLOCK_PI`: neither waits nor wakes.
const FUTEX_TRIES: i32 = 8;

/// `accept` and `connect`: the socket is reported, unless it never waits.
fn begin_connection(c: &mut Code, what: u16) {
    /// `O_NONBLOCK`.
    const NONBLOCK: i32 = 0o4000;
    let out = c.out;
    keep_argument(c, 0);
    file_of(c, FD, out);
    c.get(R0, R8, c.env.fields.file_flags);
    c.asm.jump_if(If::Set, R0, NONBLOCK, out);
    c.record(Kind::Wait, what | wait::BEGIN, out);
    c.recall(R1, FD);
    c.number(R1);
    c.word_from(0, INODE);
    c.asm.store_imm(Size::B8, R9, word(1), 0);
    c.submit();
}

/// `close(descriptor)`: afterwards it is not known what it was.
fn close(c: &mut Code) {
    let out = c.out;
    keep_argument(c, 0);
    file_of(c, FD, out);
    opened(c, Kind::Close, FD, out);
    c.submit();
    if !c.env.functions {
        // No event says when the last reference to a socket is gone; this is most often it.
        let f = &c.env.fields;
        c.recall(R1, MODE);
        c.asm.alu_imm(Alu::And, R1, fds::KIND);
        c.asm.jump_if(If::Ne, R1, fds::SOCKET, out);
        c.get(R0, R8, f.file_count);
        c.asm.jump_if(If::Ne, R0, c.env.single_reference, out);
        c.asm.store_imm(Size::B8, FP, RESULT, 0);
        socket_of_file(c, socket::CLOSE, FD, RESULT, out);
    }
}

/// What moves bytes is done by a task, and so is what opens a connection, after which it waits; the others are the
/// scheduler's.
fn task(c: &mut Code) {
    let (of_task, of_scheduler) = (c.asm.label(), c.asm.label());
    c.asm.jump_if(If::Eq, R8, i32::from(Class::Connect as u8), of_task);
    c.asm.jump_if(If::Gt, R8, i32::from(Class::Splice as u8), of_scheduler);
    c.asm.place(of_task);
    report_task(c);
    c.asm.place(of_scheduler);
}

/// A system call has ended.
pub fn exit(env: &Env) -> Vec<Insn> {
    use Class as C;
    let mut c = prologue(env, 1);
    let out = c.out;
    c.argument(R1, 1);
    c.keep(RESULT, R1);
    task(&mut c);
    let classes = [
        C::Read,
        C::Write,
        C::Receive,
        C::ReceiveMessage,
        C::Poll,
        C::Futex,
        C::OpenAt,
        C::SendFile,
        C::Accept,
        C::Connect,
        C::Sync,
        C::Open,
        C::Fcntl,
        C::Dup,
        C::Splice,
        C::ReadMany,
        C::WriteMany,
        C::Sleep,
        C::Child,
        C::FutexWait,
        C::FutexWake,
        C::Pipe,
        C::SocketPair,
        C::CloseRange,
        C::Uring,
    ];
    let labels = dispatch(&mut c, &classes);
    for (class, label) in classes.into_iter().zip(labels) {
        c.asm.place(label);
        match class {
            C::Read => end(&mut c, 0, 0),
            C::Receive => end_receive(&mut c, 3),
            C::ReceiveMessage => end_receive(&mut c, 2),
            C::Write => end(&mut c, io::WRITE, 0),
            C::Sync => end(&mut c, io::SYNC, 0),
            C::SendFile => end_both(&mut c, 1, 0),
            C::Splice => end_both(&mut c, 0, 2),
            C::ReadMany => end_many(&mut c, 0),
            C::WriteMany => end_many(&mut c, io::WRITE),
            C::Poll => end_poll(&mut c),
            C::Sleep => end_wait(&mut c, wait::SLEEP),
            C::Child => end_wait(&mut c, wait::CHILD),
            C::FutexWait => end_wait(&mut c, wait::FUTEX),
            C::FutexWake => end_wait(&mut c, wait::FUTEX_WAKE),
            C::Futex => end_futex(&mut c),
            C::Accept => end_accept(&mut c),
            C::Connect => end_connect(&mut c),
            C::Open => end_open(&mut c, 0),
            C::OpenAt => end_open(&mut c, 1),
            C::Pipe => end_pipe(&mut c),
            C::SocketPair => end_socket_pair(&mut c),
            C::Dup => end_dup(&mut c),
            C::Fcntl => end_fcntl(&mut c),
            C::CloseRange => end_close_range(&mut c),
            C::Uring => {
                uring::gave(&mut c);
                end_one(&mut c, Kind::Uring);
            }
            C::Close => {}
        }
        c.asm.jump(out);
    }
    c.finish()
}

fn end(c: &mut Code, flags: u16, descriptor: usize) {
    let out = c.out;
    keep_argument(c, descriptor);
    ends(c, flags, FD, RESULT, true, out);
}

/// `recvfrom`, `recvmsg`, with flags in this argument: what is only looked at stays where it is, as
/// if the call had found nothing.
fn end_receive(c: &mut Code, flags: usize) {
    /// `MSG_PEEK`.
    const PEEK: i32 = 2;
    const EAGAIN: i32 = 11;
    let (looks, takes) = (c.asm.label(), c.asm.label());
    argument(c, R1, flags);
    c.asm.jump_if(If::Set, R1, PEEK, looks);
    c.asm.jump(takes);
    c.asm.place(looks);
    c.recall(R1, RESULT);
    c.asm.jump_if(If::SignedLess, R1, 1, takes);
    c.asm.imm(R1, -EAGAIN);
    c.keep(RESULT, R1);
    c.asm.place(takes);
    end(c, 0, 0);
}

fn end_both(c: &mut Code, from: usize, to: usize) {
    let (out, read) = (c.out, c.asm.label());
    keep_argument(c, from);
    ends(c, 0, FD, RESULT, false, read);
    c.asm.place(read);
    keep_argument(c, to);
    ends(c, io::WRITE, FD, RESULT, false, out);
}

/// `recvmmsg`, `sendmmsg(descriptor, messages, …)`: the result is a number of messages; each has
/// its number of bytes behind it.
fn end_many(c: &mut Code, flags: u16) {
    /// The kernel takes no more at once.
    const MESSAGES: i32 = 1024;
    const MESSAGE: i32 = 64;
    const LENGTH_AT: i32 = 56;
    let (top, none) = (c.asm.label(), c.asm.label());
    c.recall(R1, RESULT);
    c.asm.jump_if(If::SignedLess, R1, 1, none);
    argument(c, R8, 1);
    c.asm.alu_imm(Alu::Add, R8, LENGTH_AT);
    c.asm.imm(R9, 0);
    c.asm.store_imm(Size::B8, FP, OTHER, 0);
    c.asm.place(top);
    let end_of_loop = c.asm.label();
    c.recall(R1, RESULT);
    c.asm.jump_if_reg(If::Ge, R9, R1, end_of_loop);
    c.asm.mov(R3, R9);
    c.asm.alu_imm(Alu::Mul, R3, MESSAGE);
    c.asm.alu(Alu::Add, R3, R8);
    c.get_user(Size::B4, R1);
    c.recall(R2, OTHER);
    c.asm.alu(Alu::Add, R2, R1);
    c.keep(OTHER, R2);
    c.asm.alu_imm(Alu::Add, R9, 1);
    c.asm.jump_if(If::Ne, R9, MESSAGES, top);
    c.asm.place(end_of_loop);
    c.recall(R1, OTHER);
    c.keep(RESULT, R1);
    c.asm.place(none);
    end(c, flags, 0);
}

/// A poll that looks and never waits is distinguished from one that may: a thread that does so has more
/// to do.
fn end_poll(c: &mut Code) {
    const POLL: i32 = 7;
    const EPOLL: [i32; 2] = [232, 281];
    let out = c.out;
    let (reported, may, timeout) = (c.asm.label(), c.asm.label(), c.asm.label());
    c.asm.store_imm(Size::B8, FP, OTHER, 1);
    c.direct(R2, R7, c.env.fields.regs_number);
    c.direct(R1, R7, c.env.fields.regs_3);
    for number in EPOLL {
        c.asm.jump_if(If::Eq, R2, number, timeout);
    }
    c.direct(R1, R7, c.env.fields.regs_2);
    c.asm.jump_if(If::Ne, R2, POLL, reported);
    c.asm.place(timeout);
    // An int: the upper half is not guaranteed.
    c.asm.alu_imm(Alu::Shl, R1, 32);
    c.asm.jump_if(If::Ne, R1, 0, may);
    c.asm.store_imm(Size::B8, FP, OTHER, 0);
    c.asm.place(may);
    c.asm.place(reported);
    c.record(Kind::Wait, wait::POLL, out);
    c.recall(R1, OTHER);
    c.word(0, R1);
    c.word_from(1, RESULT);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

fn end_wait(c: &mut Code, what: u16) {
    let out = c.out;
    c.record(Kind::Wait, what, out);
    argument(c, R1, 0);
    c.word(0, R1);
    c.word_from(1, RESULT);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

fn end_futex(c: &mut Code) {
    let (out, known) = (c.out, c.asm.label());
    argument(c, R8, 1);
    c.asm.alu_imm(Alu::And, R8, OPERATION);
    c.asm.jump_if(If::Eq, R8, FUTEX_TRIES, out);
    c.asm.imm(R1, i32::from(wait::FUTEX));
    c.keep(OTHER, R1);
    for operation in FUTEX_WAITS {
        c.asm.jump_if(If::Eq, R8, operation, known);
    }
    c.asm.imm(R1, i32::from(wait::FUTEX_WAKE));
    c.keep(OTHER, R1);
    c.asm.place(known);
    c.record(Kind::Wait, 0, out);
    c.recall(R1, OTHER);
    c.flags(R1);
    c.number(R8);
    argument(c, R1, 0);
    c.word(0, R1);
    c.word_from(1, RESULT);
    c.submit();
}

/// `accept`: what it gave back is the connection.
fn end_accept(c: &mut Code) {
    let (out, failed) = (c.out, c.asm.label());
    c.recall(R1, RESULT);
    c.asm.jump_if(If::SignedLess, R1, 0, failed);
    keep_fd(c, FD, R1);
    file_of(c, FD, out);
    socket_of_file(c, socket::ACCEPT, FD, RESULT, out);
    c.asm.jump(out);
    c.asm.place(failed);
    c.record(Kind::Wait, wait::ACCEPT, out);
    argument(c, R1, 0);
    c.number(R1);
    c.asm.store_imm(Size::B8, R9, word(0), 0);
    c.word_from(1, RESULT);
    c.submit();
}

/// `connect`: the socket is the same one.
fn end_connect(c: &mut Code) {
    let out = c.out;
    keep_argument(c, 0);
    sock_of(c, FD, out);
    fds::record_connect(c, FD, RESULT, out);
}

fn end_open(c: &mut Code, path: usize) {
    let (out, failed, have) = (c.out, c.asm.label(), c.asm.label());
    c.recall(R1, RESULT);
    keep_fd(c, FD, R1);
    c.recall(R1, RESULT);
    c.asm.jump_if(If::SignedLess, R1, 0, failed);
    file_of(c, FD, failed);
    opened(c, Kind::Open, FD, out);
    c.asm.jump(have);
    c.asm.place(failed);
    c.record(Kind::Open, 0, out);
    c.recall(R1, RESULT);
    c.number(R1);
    c.asm.store_imm(Size::B8, R9, word(0), 0);
    c.asm.store_imm(Size::B8, R9, word(1), 0);
    c.asm.place(have);
    argument(c, R3, path);
    c.text(Kind::Open, Helper::ProbeReadUserStr);
    c.submit();
}

/// `pipe(descriptors)`.
fn end_pipe(c: &mut Code) {
    let out = c.out;
    c.recall(R1, RESULT);
    c.asm.jump_if(If::Ne, R1, 0, out);
    argument(c, R3, 0);
    c.get_user(Size::B8, R1);
    c.keep(OTHER, R1);
    keep_fd(c, FD, R1);
    file_of(c, FD, out);
    c.record(Kind::Pipe, 0, out);
    c.word_from(0, INODE);
    c.word_from(1, OTHER);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

/// `socketpair(family, type, protocol, descriptors)`.
fn end_socket_pair(c: &mut Code) {
    const FIRST_INODE: i16 = slot(FIRST + 3);
    const FIRST_SOCK: i16 = slot(FIRST + 4);
    const SECOND_SOCK: i16 = slot(FIRST + 5);
    let out = c.out;
    c.recall(R1, RESULT);
    c.asm.jump_if(If::Ne, R1, 0, out);
    argument(c, R3, 3);
    c.get_user(Size::B8, R1);
    c.keep(OTHER, R1);
    keep_fd(c, FD, R1);
    sock_of(c, FD, out);
    c.keep(FIRST_SOCK, R8);
    c.recall(R1, INODE);
    c.keep(FIRST_INODE, R1);
    c.recall(R1, OTHER);
    c.asm.alu_imm(Alu::Shr, R1, 32);
    c.keep(FD, R1);
    sock_of(c, FD, out);
    c.keep(SECOND_SOCK, R8);
    c.record(Kind::SocketPair, 0, out);
    c.word_from(0, FIRST_INODE);
    c.word_from(1, INODE);
    c.word_from(2, OTHER);
    c.word_from(3, FIRST_SOCK);
    c.word_from(4, SECOND_SOCK);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

fn end_dup(c: &mut Code) {
    let out = c.out;
    c.recall(R1, RESULT);
    c.asm.jump_if(If::SignedLess, R1, 0, out);
    c.record(Kind::Dup, 0, out);
    argument(c, R1, 0);
    c.number(R1);
    c.word_from(0, RESULT);
    c.submit();
}

/// `fcntl(descriptor, F_DUPFD or F_DUPFD_CLOEXEC, …)`.
fn end_fcntl(c: &mut Code) {
    const DUPFD: i32 = 0;
    const DUPFD_CLOEXEC: i32 = 1030;
    let (out, dup) = (c.out, c.asm.label());
    argument(c, R1, 1);
    c.asm.jump_if(If::Eq, R1, DUPFD, dup);
    c.asm.jump_if(If::Ne, R1, DUPFD_CLOEXEC, out);
    c.asm.place(dup);
    end_dup(c);
}

/// `close_range(first, last, …)`.
fn end_close_range(c: &mut Code) {
    let out = c.out;
    c.recall(R1, RESULT);
    c.asm.jump_if(If::Ne, R1, 0, out);
    c.record(Kind::CloseRange, 0, out);
    argument(c, R1, 0);
    c.word(0, R1);
    argument(c, R1, 1);
    c.word(1, R1);
    c.asm.store_imm(Size::B4, R9, crate::raw::NUMBER, 0);
    c.submit();
}

/// A record whose only word is the result.
fn end_one(c: &mut Code, kind: Kind) {
    let out = c.out;
    c.record(kind, 0, out);
    argument(c, R1, 0);
    c.number(R1);
    c.word_from(0, RESULT);
    c.submit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_in_bounds() {
        assert!(CALLS.is_sorted_by_key(|(number, _, _)| number));
        assert_eq!(super::table(true)[0], Class::Read as u8);
        let table = table(false);
        for (number, name, class) in CALLS {
            let halves = [table[usize::from(*number)], table[NUMBERS + usize::from(*number)]];
            assert!(halves.contains(&(*class as u8)), "{name}");
        }
        let waits = &table[WAITS as usize..];
        assert_eq!((table[0], table[NUMBERS], waits[0]), (0, 1, Class::Read as u8));
        assert_eq!((table[3], table[NUMBERS + 3], waits[3]), (Class::Close as u8, 0, 0));
    }
}
