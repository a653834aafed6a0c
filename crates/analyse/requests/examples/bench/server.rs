//! The events: those of a server with 64 threads, 1,024 connections and files that are opened, read
//! and closed in each request.

use fettle_requests::{Batch, EventId, Program, Source, compile};

/// What a request is; `ASKED` says which are.
const SCHEMA: &str = r#"
event request_read(pid: u32, tid: u32, fd: i32, bytes: i64)
event reply_write(pid: u32, tid: u32, fd: i32, bytes: i64)
event open(pid: u32, tid: u32, fd: i32)
event read(pid: u32, tid: u32, fd: i32, bytes: i64)
event close(pid: u32, tid: u32, fd: i32)
event switch_out(tid: u32, runnable: bool)
event switch_in(tid: u32)

actor thread(tid: u32)
timeline connection(pid: u32, fd: i32)
timeline file(pid: u32, fd: i32)

on request_read where ASKED {
  start connection(pid, fd) after reply_write, nothing
  start thread(tid)
  seed
}
on request_read where bytes > 0 {
  start connection(pid, fd) after reply_write, nothing
  start thread(tid)
}
on reply_write where bytes > 0 { basic connection(pid, fd)  stop thread(tid) }
on open { start file(pid, fd)  basic thread(tid) }
on read where bytes >= 0 { basic file(pid, fd)  basic thread(tid) expects disk }
on close { stop file(pid, fd)  basic thread(tid) }
on switch_out where runnable { basic thread(tid) is runnable }
on switch_out { basic thread(tid) is blocked }
on switch_in { basic thread(tid) is running }
"#;

/// Numbers of the events above, in their order.
#[derive(Clone, Copy)]
pub struct Kinds(pub [EventId; 7]);

/// What a thread does next.
#[derive(Clone, Copy, Default)]
struct Thread {
    step: u64,
    connection: u64,
    file: u64,
}

/// Makes the events.
#[derive(Clone)]
pub struct Server {
    pub kinds: Kinds,
    random: u64,
    time_ns: u64,
    pub requests: u64,
    threads: [Thread; THREADS as usize],
}

const THREADS: u64 = 64;
/// Events of a batch.
pub const BATCH: usize = 1 << 14;

/// The schema, for requests that are asked for.
pub fn program(asked: &str) -> Program {
    let source = Source::new("bench", SCHEMA.replace("ASKED", asked));
    compile(&[source], &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

impl Server {
    pub fn new(program: &Program) -> Server {
        let mut ids = program.catalog().events().iter().map(|e| program.catalog().find(&e.name));
        let kinds = Kinds(std::array::from_fn(|_| ids.next().flatten().expect("seven events")));
        let threads = [Thread::default(); THREADS as usize];
        Server { kinds, random: 0x1234_5678_9abc_def1, time_ns: 0, requests: 0, threads }
    }

    /// Makes the next events.
    pub fn fill(&mut self, batch: &mut Batch) {
        batch.clear();
        let [request_read, reply_write, open, read, close, switch_out, switch_in] = self.kinds.0;
        for _ in 0..BATCH {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let random = self.random;
            self.time_ns += random >> 40 & 0x3ff;
            let n = random % THREADS;
            let thread = &mut self.threads[n as usize];
            let (time, pid, tid) = (self.time_ns, 100 + n % 4, 1000 + n);
            if thread.step == 0 {
                thread.connection = 16 * n + (random >> 20) % 16;
                thread.file = 2000 + n * 64 + (random >> 30) % 64;
                self.requests += 1;
            }
            let Thread { step, connection, file } = *thread;
            match step {
                0 => batch.push(time, request_read, &[pid, tid, connection, 300]),
                1 => batch.push(time, open, &[pid, tid, file]),
                3 | 7 => batch.push(time, switch_out, &[tid, 0]),
                4 | 8 => batch.push(time, switch_in, &[tid]),
                2 | 5 | 6 | 9 | 10 => batch.push(time, read, &[pid, tid, file, 4096]),
                11 => batch.push(time, close, &[pid, tid, file]),
                12 => batch.push(time, reply_write, &[pid, tid, connection, 900]),
                _ => batch.push(time, switch_out, &[tid, 1]),
            }
            thread.step = (step + 1) % 14;
        }
    }

    /// Whether events of a kind begin with a process, then a thread; others begin with the thread.
    pub fn has_pid(&self, kind: EventId) -> bool {
        let [.., switch_out, switch_in] = self.kinds.0;
        kind != switch_out && kind != switch_in
    }
}
