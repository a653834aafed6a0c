//! Second returns of `setjmp`.

use super::{A0, Again, Emitter, Extent, FAULT, RUNTIME, SP, Site, Slot, THROWABLE, V0};
use crate::classfile::{Label, Type};
use crate::convention::FPS;
use crate::flow::Live;
use crate::ir::{Expr, Rep, Stmt, Ty, Var};
use crate::landing::second_return;
use crate::op;
use crate::signature::Signature;

impl Emitter<'_> {
    /// Gives every integer variable a value at once: a handler that catches a jump finds all of them.
    pub(super) fn pin(&mut self, signature: &Signature) {
        let mut used = 0_u64;
        for block in &self.function.blocks {
            let mut look = |e: &Expr| {
                if let Expr::Var(var) = e {
                    used |= var.bit();
                }
            };
            block.end.visit(&mut look);
            block.steps.iter().for_each(|(_, step)| step.visit(&mut look));
            for (_, step) in &block.steps {
                if let Stmt::Set(var, _) | Stmt::SetIf(_, var, _) = step {
                    used |= var.bit();
                }
                used |= self.liveness.hidden_reads(step) | self.liveness.kills(step);
            }
        }
        used |= V0.bit() | A0.bit() | SP.bit();
        for var in (Live { ints: used, ..Live::default() }).vars() {
            let number = self.var(var);
            self.always.push(Slot { number, ty: Ty::I });
        }
        self.parameters = signature.ints.len() as u16;
        self.prepare_sites();
    }

    /// Gives locals to what each call of `setjmp` has to keep.
    pub(super) fn prepare_sites(&mut self) {
        for id in 0..self.function.blocks.len() {
            let after = self.liveness.after_steps(self.function, id);
            for ((pc, step), live) in self.function.blocks[id].steps.iter().zip(after) {
                if !self.program.returns_again(self.function, step) {
                    continue;
                }
                let mut kept = Vec::new();
                let (from, result) = second_return(step);
                for var in live.vars().filter(|&var| var != result) {
                    let (number, copy) = (self.var(var), self.fresh(Ty::I));
                    kept.push((copy, Slot { number, ty: Ty::I }));
                }
                for (fp, mask) in live.fps() {
                    let ty = Rep::best(mask).ty();
                    let (number, copy) = (self.fp(fp, Rep::best(mask)), self.fresh(ty));
                    kept.push((copy, Slot { number, ty }));
                }
                let buffer = self.fresh(Ty::I);
                let copies = kept.iter().map(|(copy, slot)| Slot { number: *copy, ty: slot.ty });
                let locals = copies.chain([Slot { number: buffer, ty: Ty::I }]);
                self.always.extend(locals.collect::<Vec<_>>());
                let again = self.code.label();
                self.sites.push(Site { pc: *pc, buffer, from, result, kept, again });
            }
        }
        for slot in self.always.clone() {
            if !(1..=self.parameters).contains(&slot.number) {
                self.zero(slot.ty);
                self.store_local(slot.number, slot.ty);
            }
        }
    }

    /// Notes where jumps to labels of the function come back to.
    pub(super) fn note_landing(&mut self, pc: u32, live: &Live) {
        self.zero(Ty::I);
        self.store_var(Var::LANDED);
        self.setjmp_returned(pc, live);
    }

    /// Behind a call of `setjmp`: keeps what the second return has to find.
    pub(super) fn setjmp_returned(&mut self, pc: u32, live: &Live) {
        if let Extent::Part { agains, .. } = self.extent {
            return self.keep_in_arrays(pc, agains);
        }
        let Some(at) = self.sites.iter().position(|site| site.pc == pc) else { return };
        let Site { buffer, again, from, result, .. } = self.sites[at];
        self.forget_buffer(at);
        self.load_var(from);
        self.store_local(buffer, Ty::I);
        self.make_valid(live);
        for (fp, mask) in live.fps() {
            self.valid[fp.0 as usize] = Rep::best(mask) as u8;
        }
        for (copy, slot) in self.sites[at].kept.clone() {
            self.load_local(slot.number, slot.ty);
            self.store_local(copy, slot.ty);
        }
        if !live.has(result) {
            self.zero(Ty::I);
            self.store_var(result);
        }
        let mut with_result = *live;
        with_result.ints |= result.bit();
        self.place(again, &with_result, &[]);
    }

    /// The same in a part of a function.
    fn keep_in_arrays(&mut self, pc: u32, agains: &[Again]) {
        let Some((ints, fps)) = self.arrays else { return };
        let Some(again) = agains.iter().find(|again| again.pc == pc) else { return };
        for other in agains.iter().filter(|other| other.pc != pc) {
            self.code.local(op::ALOAD, ints, 1);
            self.code.int(self.pool, other.ints_at);
            self.code.op(op::DUP2, 2);
            self.code.op(op::IALOAD, -1);
            self.load_var(again.buffer);
            self.java(&format!("{RUNTIME}Mips"), "unless", "(II)I", -1);
            self.code.op(op::IASTORE, -3);
        }
        let kept = std::iter::once(&again.buffer).chain(&again.vars);
        let places = kept.zip(again.ints_at..).map(|(var, at)| (*var, at));
        // A handler of a fault needs to know where the stack is.
        for (var, at) in places.chain([(SP, i32::from(SP.0))]) {
            self.code.local(op::ALOAD, ints, 1);
            self.code.int(self.pool, at);
            self.load_var(var);
            self.code.op(op::IASTORE, -3);
        }
        for (fp, at) in again.fps.iter().zip(again.fps_at..) {
            let slot = self.ensure(*fp, Rep::Long);
            self.code.local(op::ALOAD, fps, 1);
            self.code.int(self.pool, at);
            self.load_local(slot, Ty::J);
            self.code.op(op::LASTORE, -4);
        }
    }

    /// A buffer that is filled again means the call that fills it last.
    pub(super) fn forget_buffer(&mut self, site: usize) {
        let others: Vec<u16> = (0..self.sites.len())
            .filter(|&other| other != site)
            .map(|other| self.sites[other].buffer)
            .collect();
        for buffer in others {
            self.load_local(buffer, Ty::I);
            self.load_var(self.sites[site].from);
            self.java(&format!("{RUNTIME}Mips"), "unless", "(II)I", -1);
            self.store_local(buffer, Ty::I);
        }
    }

    /// A fault below a call of `setjmp` runs the program's handler, which may jump here.
    pub(super) fn catch_faults(&mut self, start: Label) {
        if self.sites.is_empty() {
            return;
        }
        let end = self.code.label();
        self.code.mark(end);
        let target = self.code.label();
        for class in self.program.target.faults() {
            let class = self.pool.class(&format!("java/lang/{class}"));
            self.code.handler(start, end, target, class);
        }
        self.valid = [0; FPS];
        self.place(target, &Live::default(), &[Type::Object(THROWABLE.into())]);
        let fault = self.fresh(Ty::I);
        self.code.local(op::ASTORE, fault, -1);
        self.thread();
        self.code.local(op::ALOAD, fault, 1);
        self.load_var(SP);
        self.java(&format!("{RUNTIME}Signals"), "fault", FAULT, -2);
        self.code.op(op::ATHROW, -1);
    }

    /// A `longjmp` to a buffer that was filled here comes to a second return.
    pub(super) fn finish_sites(&mut self, start: Label, end: Label) {
        if self.sites.is_empty() {
            return;
        }
        let jump = format!("{RUNTIME}GuestJump");
        let class = self.pool.class(&jump);
        let target = self.code.label();
        let kept = self.fresh(Ty::I);
        self.code.handler(start, end, target, class);
        self.valid = [0; FPS];
        self.place(target, &Live::default(), &[Type::Object(jump.clone().into())]);
        self.code.local(op::ASTORE, kept, -1);
        for site in std::mem::take(&mut self.sites) {
            let other = self.code.label();
            self.code.local(op::ALOAD, kept, 1);
            self.load_local(site.buffer, Ty::I);
            let method = self.pool.method(&jump, "isTo", "(I)Z");
            self.code.op_index(op::INVOKEVIRTUAL, method, -1);
            self.code.branch(op::IFEQ, other, -1);
            for (copy, slot) in site.kept {
                self.load_local(copy, slot.ty);
                self.store_local(slot.number, slot.ty);
            }
            self.code.local(op::ALOAD, kept, 1);
            let field = self.pool.field(&jump, "value", "I");
            self.code.op_index(op::GETFIELD, field, 0);
            self.store_var(site.result);
            self.reload_memory();
            self.code.branch(op::GOTO, site.again, 0);
            let mut locals = self.locals(&Live::default());
            let next = locals.iter().map(Type::slots).sum::<u16>();
            locals.extend((next..kept).map(|_| Type::Top));
            locals.push(Type::Object(jump.clone().into()));
            self.code.place(other, locals, Vec::new());
        }
        self.code.local(op::ALOAD, kept, 1);
        self.code.op(op::ATHROW, -1);
    }
}
