//! The programs that run in the kernel, written anew for each kernel.

mod arrivals;
mod block;
mod calls;
mod contexts;
mod descriptors;
mod goroutines;
mod memory;
mod payload;
mod running;
mod sched;
mod slots;
mod tasks;
mod uring;

use crate::asm::Insn;
use crate::code::Env;
use crate::sys::Attach;
use fettle_btf::{Btf, Kind};

pub use calls::{CALLS, TABLE_BYTES, table};
pub use contexts::{made, queued};
pub use goroutines::ready;
pub use payload::{MOST as PAYLOAD_MOST, scratch_bytes};

/// A program and where it belongs.
#[derive(Debug)]
pub struct Spec {
    /// The tracepoint, or the kernel's function.
    pub place: &'static str,
    /// How it is attached there.
    pub attach: Attach,
    /// Its instructions.
    pub code: Vec<Insn>,
    /// Nothing is wrong if this kernel has no such place, or does not permit attaching to functions.
    pub optional: bool,
}

impl Spec {
    /// A program at a tracepoint that every kernel has.
    pub fn tracepoint(place: &'static str, code: Vec<Insn>) -> Spec {
        Spec { place, attach: Attach::Tracepoint, code, optional: false }
    }

    fn function(place: &'static str, attach: Attach, code: Vec<Insn>) -> Spec {
        Spec { place, attach, code, optional: true }
    }

    /// What BTF calls its place.
    pub fn target(&self) -> (Kind, String) {
        match self.attach {
            Attach::Tracepoint => (Kind::Typedef, format!("btf_trace_{}", self.place)),
            Attach::Entry | Attach::Exit => (Kind::Func, self.place.to_owned()),
        }
    }
}

/// All programs. Those that follow starts and ends of processes come first, so that no process is missed
/// once events are recorded.
pub fn all(env: &Env, btf: &Btf) -> Vec<Spec> {
    let state_given = btf.tracepoint_arguments("sched_switch").is_ok_and(|n| n >= 4);
    let mut all = vec![
        Spec::tracepoint("sched_process_fork", tasks::fork(env)),
        Spec::tracepoint("sched_process_exec", tasks::exec(env)),
        Spec::tracepoint("sched_process_free", tasks::free(env)),
        Spec::tracepoint("sched_process_exit", tasks::exit(env)),
        Spec::tracepoint("sched_switch", sched::switch(env, state_given)),
        Spec::tracepoint("sched_waking", sched::wake(env)),
    ];
    if env.only_calls {
        all.extend([
            Spec::tracepoint("sys_enter", calls::number(env, true)),
            Spec::tracepoint("sys_exit", calls::number(env, false)),
        ]);
        return all;
    }
    all.extend([
        Spec::tracepoint("signal_generate", tasks::signal(env)),
        Spec::tracepoint("signal_deliver", tasks::signal_delivered(env)),
        Spec::tracepoint("sys_enter", calls::enter(env)),
        Spec::tracepoint("sys_exit", calls::exit(env)),
        Spec::tracepoint("block_rq_issue", block::issue(env)),
        Spec::tracepoint("block_rq_complete", block::complete(env)),
        Spec::tracepoint("tcp_rcv_space_adjust", arrivals::read(env)),
    ]);
    if env.uring.is_some() {
        all.push(given_to_rings(env));
    }
    if env.functions {
        all.extend([
            Spec::function("sock_close", Attach::Entry, descriptors::socket_close(env)),
            Spec::function("handle_mm_fault", Attach::Entry, memory::fault(env, false)),
            Spec::function("handle_mm_fault", Attach::Exit, memory::fault(env, true)),
        ]);
    } else {
        let fault = Spec::tracepoint("page_fault_user", memory::fault_of_program(env));
        all.push(Spec { optional: true, ..fault });
    }
    all
}

/// What is given to an `io_uring`, where the kernel says so.
pub fn given_to_rings(env: &Env) -> Spec {
    Spec { optional: true, ..Spec::tracepoint("io_uring_submit_req", uring::submit(env)) }
}

/// A program that does nothing, to find out whether functions can be attached to.
pub fn trial(env: &Env) -> Spec {
    Spec::function("sock_close", Attach::Entry, crate::code::Code::new(env).finish())
}
