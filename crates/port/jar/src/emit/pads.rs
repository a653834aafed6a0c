//! Calls that an exception may leave another way.
//!
//! An exception of C++ is one of Java while it passes methods. Each call with a landing pad is in
//! the method's exception table; what stands there asks the runtime, which runs the program's
//! personality, and goes to the landing pad if that says so. What does not throw pays nothing.

use super::{A0, A1, Emitter, Invoke, RUNTIME, SP, THROWABLE, V0, V1};
use crate::classfile::{Label, Type};
use crate::flow::Live;
use crate::ir::{BlockId, Rep, Ty};
use crate::op;
use crate::signature::THREAD;

impl Emitter<'_> {
    /// Before a call: floating-point variables become what the landing pad expects.
    pub(super) fn begin_invoke(&mut self, pad: Option<BlockId>) -> Label {
        if let Some(pad) = pad {
            let live = self.liveness.at_pad(pad);
            self.make_ready(pad, &live);
        }
        let from = self.code.label();
        self.code.mark(from);
        from
    }

    /// Behind it.
    pub(super) fn end_invoke(&mut self, from: Label, pc: u32, pad: Option<BlockId>) {
        let to = self.code.label();
        self.code.mark(to);
        self.invokes.push(Invoke { from, to, pc, pad });
    }

    /// The ways to landing pads, one for all calls of which the same is said.
    pub(super) fn finish_invokes(&mut self) {
        let mut stubs: Vec<(u32, Option<BlockId>, Label, u32)> = Vec::new();
        let class = self.pool.class(THROWABLE);
        for invoke in std::mem::take(&mut self.invokes) {
            let same = self.program.regions.same(invoke.pc);
            let known = stubs.iter().find(|stub| (stub.0, stub.1) == (same, invoke.pad));
            let stub = known.map(|stub| stub.2).unwrap_or_else(|| {
                let stub = self.code.label();
                stubs.push((same, invoke.pad, stub, invoke.pc));
                stub
            });
            self.code.handler(invoke.from, invoke.to, stub, class);
        }
        if stubs.is_empty() {
            return;
        }
        let caught = self.fresh(Ty::I);
        for (_, pad, stub, pc) in stubs {
            self.land(pad, stub, pc, caught);
        }
    }

    fn land(&mut self, pad: Option<BlockId>, stub: Label, pc: u32, caught: u16) {
        let mut live = pad.map(|pad| self.liveness.at_pad(pad)).unwrap_or_default();
        live.ints |= SP.bit();
        self.expect(&live);
        self.place(stub, &live, &[Type::Object(THROWABLE.into())]);
        self.code.local(op::ASTORE, caught, -1);
        self.thread();
        self.code.local(op::ALOAD, caught, 1);
        self.code.int(self.pool, pc as i32);
        self.load_var(SP);
        let descriptor = format!("(L{THREAD};L{THROWABLE};II)I");
        self.java(&format!("{RUNTIME}Unwinder"), "land", &descriptor, -3);
        let Some(pad) = pad else {
            self.code.op(op::POP, -1);
            return self.nowhere(pc);
        };
        let wanted = self.liveness.at_start(pad);
        self.keep_or_pop(A1, &wanted);
        if wanted.has(A0) {
            self.thread();
            let field = self.pool.field(THREAD, "landed", "I");
            self.code.op_index(op::GETFIELD, field, 0);
            self.store_var(A0);
        }
        self.reload_memory();
        self.zero_results(&wanted);
        let label = self.label_of(pad);
        self.code.branch(op::GOTO, label, 0);
    }

    /// No correct program reads what the call would have returned; the verifier wants a value.
    fn zero_results(&mut self, wanted: &Live) {
        for var in [V0, V1].into_iter().filter(|var| wanted.has(*var)) {
            self.zero(Ty::I);
            self.store_var(var);
        }
        for fp in self.program.convention.fp_results() {
            let mask = wanted.fp[fp.0 as usize];
            if mask != 0 {
                let rep = Rep::best(mask);
                self.zero(rep.ty());
                let slot = self.fp(fp, rep);
                self.store_local(slot, rep.ty());
            }
        }
    }
}
