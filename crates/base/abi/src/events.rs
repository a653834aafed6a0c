//! The catalogue of the kernel's events: what there are, and what fields they have, whether Fettle
//! or another tracer recorded them. It is what `kernel.fettle-schema` declares, which the tests of
//! `crates/record/kernel-events` compare.

use crate::FieldType;

/// A type by its name.
macro_rules! field_type {
    (u32) => {
        FieldType::U32
    };
    (u64) => {
        FieldType::U64
    };
    (i32) => {
        FieldType::I32
    };
    (i64) => {
        FieldType::I64
    };
    (bool) => {
        FieldType::Bool
    };
    (text) => {
        FieldType::Text
    };
}

/// Declares the events.
macro_rules! events {
    ($($name:ident = $text:literal($($field:ident: $ty:tt),*);)*) => {
        /// An event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // The schema says what they are.
        pub enum Event {
            $($name,)*
        }

        impl Event {
            /// All events, by number.
            pub const ALL: &[Event] = &[$(Event::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Event::$name => $text,)*
                }
            }

            /// Its fields: names and types. In addition, every event has a time and a processor.
            pub fn fields(self) -> &'static [(&'static str, FieldType)] {
                match self {
                    $(Event::$name => &[$((stringify!($field), field_type!($ty)),)*],)*
                }
            }
        }
    };
}

events! {
    SwitchOut = "switch_out"(tid: u32, runnable: bool);
    SwitchIn = "switch_in"(tid: u32);
    Wakeup = "wakeup"(tid: u32, target: u32, interrupt: bool);

    Fork = "fork"(pid: u32, tid: u32, child_pid: u32, child_tid: u32);
    Exec = "exec"(pid: u32, tid: u32, path: text);
    ThreadExit = "thread_exit"(pid: u32, tid: u32, name: text);
    ProcessExit = "process_exit"(pid: u32, tid: u32, status: i32);
    Task = "task"(pid: u32, tid: u32, task: u64, parent: u64);
    TaskWake = "task_wake"(pid: u32, tid: u32, task: u64, parent: u64, target: u64, target_parent: u64, gives: bool);
    TaskResumed = "task_resumed"(pid: u32, tid: u32, task: u64, by: u64);
    TaskMade = "task_made"(pid: u32, tid: u32, task: u64, made: u64);
    TaskSend = "task_send"(pid: u32, tid: u32, socket: u64, task: u64);
    Signal = "signal"(tid: u32, target: u32, signal: u32);
    SignalDelivered = "signal_delivered"(pid: u32, tid: u32, signal: u32);
    PageFault = "page_fault"(pid: u32, tid: u32, address: u64);
    PageFaultDone = "page_fault_done"(pid: u32, tid: u32, address: u64);
    SleepBegin = "sleep_begin"(pid: u32, tid: u32);
    Sleep = "sleep"(pid: u32, tid: u32);
    ChildBegin = "child_begin"(pid: u32, tid: u32);
    Child = "child"(pid: u32, tid: u32, result: i32);

    Open = "open"(pid: u32, tid: u32, fd: i32, path: text, inode: u64, of: text);
    Close = "close"(pid: u32, tid: u32, fd: i32, inode: u64, of: text);
    CloseRange = "close_range"(pid: u32, tid: u32, first: u32, last: u32);
    Dup = "dup"(pid: u32, tid: u32, fd: i32, new_fd: i32);
    ReadBegin = "read_begin"(pid: u32, tid: u32, fd: i32, inode: u64, of: text);
    Read = "read"(pid: u32, tid: u32, fd: i32, bytes: i64, inode: u64, of: text);
    WriteBegin = "write_begin"(pid: u32, tid: u32, fd: i32, inode: u64, of: text);
    Write = "write"(pid: u32, tid: u32, fd: i32, bytes: i64, inode: u64, of: text);
    SyncBegin = "sync_begin"(pid: u32, tid: u32, fd: i32);
    Sync = "sync"(pid: u32, tid: u32, fd: i32);
    IoUring = "io_uring"(pid: u32, tid: u32, fd: i32, result: i64);

    PipeMade = "pipe_made"(pid: u32, tid: u32, pipe: u64, read_fd: i32, write_fd: i32);
    PipeReadBegin = "pipe_read_begin"(pid: u32, tid: u32, pipe: u64);
    PipeRead = "pipe_read"(pid: u32, tid: u32, pipe: u64, bytes: i64);
    PipeWriteBegin = "pipe_write_begin"(pid: u32, tid: u32, pipe: u64);
    PipeWrite = "pipe_write"(pid: u32, tid: u32, pipe: u64, bytes: i64);

    AcceptBegin = "accept_begin"(pid: u32, tid: u32, fd: i32);
    Accept = "accept"(pid: u32, tid: u32, socket: u64, local: text, remote: text, fd: i32);
    AcceptFailed = "accept_failed"(pid: u32, tid: u32, fd: i32, result: i32);
    ConnectBegin = "connect_begin"(pid: u32, tid: u32, socket: u64);
    Connect = "connect"(pid: u32, tid: u32, socket: u64, local: text, remote: text, fd: i32, result: i32);
    SocketPair = "socketpair"(pid: u32, tid: u32, socket: u64, peer: u64, local: text, remote: text);
    SocketClose = "socket_close"(pid: u32, tid: u32, socket: u64, local: text, remote: text);
    ReceiveBegin = "receive_begin"(pid: u32, tid: u32, socket: u64);
    Received = "received"(pid: u32, tid: u32, socket: u64, local: text, remote: text, bytes: i64, lay_ns: u64);
    SendBegin = "send_begin"(pid: u32, tid: u32, socket: u64);
    Sent = "sent"(pid: u32, tid: u32, socket: u64, local: text, remote: text, bytes: i64);
    Ask = "ask"(pid: u32, tid: u32, socket: u64, local: text, remote: text, sent: bool, protocol: text, exchange: u64, command: text, detail: text, lay_ns: u64, trace_id: u64, correlation_id: u64);
    Answer = "answer"(pid: u32, tid: u32, socket: u64, local: text, remote: text, sent: bool, protocol: text, exchange: u64, ok: bool, status: text, correlation_id: u64);
    Undecoded = "undecoded"(pid: u32, tid: u32, socket: u64, local: text, remote: text, reason: text);
    PollBegin = "poll_begin"(pid: u32, tid: u32);
    Poll = "poll"(pid: u32, tid: u32, ready: i32);
    PollLook = "poll_look"(pid: u32, tid: u32, ready: i32);

    FutexWaitBegin = "futex_wait_begin"(pid: u32, tid: u32, address: u64, operation: u32);
    FutexWait = "futex_wait"(pid: u32, tid: u32, address: u64, result: i32);
    FutexWake = "futex_wake"(pid: u32, tid: u32, address: u64, woken: i32);

    BlockIssue = "block_issue"(tid: u32, device: u32, sector: u64, bytes: u32, writes: bool);
    BlockComplete = "block_complete"(device: u32, sector: u64);
}
