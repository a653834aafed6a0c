//! Local variables: registers, and what frames say of them.

use super::{Emitter, verification};
use crate::classfile::{Label, Type};
use crate::convention::FPS;
use crate::flow::Live;
use crate::ir::{Fp, Rep, Ty, Var};
use crate::op;
use crate::signature::{THREAD, slots};

impl Emitter<'_> {
    pub(super) fn var(&mut self, var: Var) -> u16 {
        if let Some(slot) = self.vars[var.0 as usize] {
            return slot;
        }
        let slot = self.fresh(Ty::I);
        self.vars[var.0 as usize] = Some(slot);
        slot
    }

    pub(super) fn fresh(&mut self, ty: Ty) -> u16 {
        let slot = self.next_slot;
        self.next_slot += slots(ty) as u16;
        slot
    }

    pub(super) fn fp(&mut self, fp: Fp, rep: Rep) -> u16 {
        if let Some(&slot) = self.fps.get(&(fp, rep)) {
            return slot;
        }
        let slot = self.fresh(rep.ty());
        self.fps.insert((fp, rep), slot);
        slot
    }

    pub(super) fn load_local(&mut self, slot: u16, ty: Ty) {
        let opcode = match ty {
            Ty::I => op::ILOAD,
            Ty::J => op::LLOAD,
            Ty::F => op::FLOAD,
            Ty::D => op::DLOAD,
        };
        self.code.local(opcode, slot, slots(ty));
    }

    pub(super) fn store_local(&mut self, slot: u16, ty: Ty) {
        let opcode = match ty {
            Ty::I => op::ISTORE,
            Ty::J => op::LSTORE,
            Ty::F => op::FSTORE,
            Ty::D => op::DSTORE,
        };
        self.code.local(opcode, slot, -slots(ty));
    }

    pub(super) fn load_var(&mut self, var: Var) {
        let slot = self.var(var);
        self.load_local(slot, Ty::I);
    }

    pub(super) fn store_var(&mut self, var: Var) {
        let slot = self.var(var);
        self.store_local(slot, Ty::I);
    }

    pub(super) fn zero(&mut self, ty: Ty) {
        match ty {
            Ty::I => self.code.int(self.pool, 0),
            Ty::J => self.code.long(self.pool, 0),
            Ty::F => self.code.float(self.pool, 0),
            Ty::D => self.code.double(self.pool, 0),
        }
    }

    pub(super) fn thread(&mut self) {
        self.code.local(op::ALOAD, 0, 1);
    }

    pub(super) fn load_memory(&mut self) {
        let slot = self.memory.expect("a method that reads memory has it");
        self.code.local(op::ALOAD, slot, 1);
    }

    pub(super) fn reload_memory(&mut self) {
        let Some(slot) = self.memory else { return };
        self.thread();
        let field = self.pool.field(THREAD, "memory", self.program.target.memory());
        self.code.op_index(op::GETFIELD, field, 0);
        self.code.local(op::ASTORE, slot, -1);
    }

    /// Locals of a frame: what always has a value, and what is live.
    pub(super) fn locals(&mut self, live: &Live) -> Vec<Type> {
        let mut by_slot: Vec<(u16, Type)> = vec![(0, Type::Object(THREAD.into()))];
        if let Some(slot) = self.memory {
            by_slot.push((slot, Type::Object(self.program.target.memory().into())));
        }
        if let Some((ints, fps)) = self.arrays {
            by_slot.push((ints, Type::Object("[I".into())));
            by_slot.push((fps, Type::Object("[J".into())));
        }
        for slot in &self.always {
            by_slot.push((slot.number, verification(slot.ty)));
        }
        for var in live.vars() {
            let slot = self.var(var);
            by_slot.push((slot, Type::Int));
        }
        for (fp, _) in live.fps() {
            for rep in [Rep::Int, Rep::Float, Rep::Double, Rep::Long] {
                if self.valid[fp.0 as usize] & rep as u8 != 0 {
                    let slot = self.fp(fp, rep);
                    by_slot.push((slot, verification(rep.ty())));
                }
            }
        }
        by_slot.sort_by_key(|(slot, _)| *slot);
        by_slot.dedup();
        let mut locals = Vec::new();
        let mut next = 0;
        for (slot, ty) in by_slot {
            while next < slot {
                locals.push(Type::Top);
                next += 1;
            }
            next = slot + ty.slots();
            locals.push(ty);
        }
        locals
    }

    pub(super) fn place(&mut self, label: Label, live: &Live, stack: &[Type]) {
        let locals = self.locals(live);
        self.code.place(label, locals, stack.to_vec());
    }

    /// At the beginning of a block each floating-point variable is there in one way.
    pub(super) fn expect(&mut self, live: &Live) {
        self.valid = [0; FPS];
        for (fp, mask) in live.fps() {
            self.valid[fp.0 as usize] = Rep::best(mask) as u8;
        }
    }
}
