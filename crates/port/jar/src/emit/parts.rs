//! Parts of functions that are too large for one method, and the method that calls one after the
//! other. They exchange registers through arrays.

use super::{
    A0, A1, Again, Emitter, Extent, FAULT, Program, RUNTIME, SP, Slot, THROWABLE, V0, V1,
    verification,
};
use crate::classfile::{Code, Label, Pool, Type};
use crate::convention::FPS;
use crate::flow::{Live, Liveness};
use crate::ir::{BlockId, End, Fp, Function, Rep, Stmt, Ty, Var};
use crate::landing::second_return;
use crate::op;
use crate::signature::{Returns, Signature, THREAD};
use rustc_hash::FxHashMap;

impl Emitter<'_> {
    pub(super) fn begin_part(&mut self, entries: &[BlockId], numbers: &FxHashMap<BlockId, i32>) {
        let wanted = self.fresh(Ty::I);
        let (ints, fps) = (self.fresh(Ty::I), self.fresh(Ty::I));
        self.arrays = Some((ints, fps));
        if self.uses_memory() {
            let slot = self.fresh(Ty::I);
            self.memory = Some(slot);
            self.reload_memory();
        }
        // What every entry needs is got at once, the rest where it is needed.
        let (exchanged, common) = self.exchange(entries);
        for var in exchanged.vars() {
            match common.has(var) {
                true => self.get_var(ints, var),
                false => {
                    self.zero(Ty::I);
                    self.store_var(var);
                }
            }
            let number = self.var(var);
            self.always.push(Slot { number, ty: Ty::I });
        }
        self.exchanged_vars = exchanged.ints;
        for (fp, mask) in exchanged.fps() {
            let rep = Rep::best(mask);
            match common.fp[fp.0 as usize] != 0 {
                true => self.get_fp(fps, fp, rep),
                false => {
                    self.zero(rep.ty());
                    let slot = self.fp(fp, rep);
                    self.store_local(slot, rep.ty());
                }
            }
            let number = self.fp(fp, rep);
            self.always.push(Slot { number, ty: rep.ty() });
            self.exchanged.push((fp, rep));
        }
        let mut keys: Vec<(i32, Label)> = Vec::new();
        let mut stubs = Vec::new();
        for id in entries {
            let label = self.code.label();
            keys.push((numbers[id], label));
            stubs.push((*id, label));
        }
        keys.sort_by_key(|(key, _)| *key);
        let bad = self.code.label();
        self.bad_jumps.push((bad, self.function.entry));
        self.load_local(wanted, Ty::I);
        self.code.switch(&keys, bad);
        for (id, label) in stubs {
            let live = self.liveness.at_start(id);
            self.valid = [0; FPS];
            for (fp, rep) in self.exchanged.clone() {
                self.valid[fp.0 as usize] = rep as u8;
            }
            self.place(label, &Live::default(), &[]);
            let rest = Live { ints: live.ints & !common.ints, ..Live::default() };
            rest.vars().for_each(|var| self.get_var(ints, var));
            for (fp, rep) in self.exchanged.clone() {
                let at = fp.0 as usize;
                if live.fp[at] != 0 && common.fp[at] == 0 {
                    self.get_fp(fps, fp, rep);
                }
            }
            self.make_valid(&live);
            self.code.branch(op::GOTO, self.labels[id], 0);
        }
    }

    /// What this part gets from others or leaves to them, and what of it every entry needs.
    fn exchange(&self, entries: &[BlockId]) -> (Live, Live) {
        let inside = |id: &BlockId| self.order.contains(id);
        let mut exchanged = Live::default();
        let mut common = Live { ints: u64::MAX, fp: [u8::MAX; FPS] };
        for &id in entries {
            let live = self.liveness.at_start(id);
            exchanged.add(&live);
            common.ints &= live.ints;
            for (all, live) in common.fp.iter_mut().zip(live.fp) {
                *all &= if live == 0 { 0 } else { u8::MAX };
            }
        }
        for &id in &self.order {
            for next in self.function.blocks[id].end.successors() {
                if !inside(&next) {
                    exchanged.add(&self.liveness.at_start(next));
                }
            }
        }
        (exchanged, common)
    }

    /// The label of a block, which may be one that leaves this part.
    pub(super) fn label_of(&mut self, id: BlockId) -> Label {
        if matches!(self.extent, Extent::Whole) || self.order.contains(&id) {
            return self.labels[id];
        }
        if let Some((_, label)) = self.exits.iter().find(|(to, _)| *to == id) {
            return *label;
        }
        let label = self.code.label();
        self.exits.push((id, label));
        label
    }

    /// Leaves results in the arrays, and notes that the function returns.
    pub(super) fn leave_part(&mut self, signature: &Signature, ints: u16, fps: u16) {
        let vars: &[Var] = match signature.returns {
            Returns::Int => &[V0],
            Returns::Long => &[V0, V1],
            _ => &[],
        };
        let results = self.liveness.at_return().ints;
        for &var in vars.iter().filter(|var| results & var.bit() != 0) {
            self.put_var(ints, var);
        }
        if let Returns::Fp(rep) = signature.returns {
            let result = signature.convention.fp_results()[0];
            self.ensure(result, rep);
            self.put_fp(fps, result, rep);
        }
        self.code.int(self.pool, -1);
        self.code.op(op::IRETURN, -1);
    }

    fn get_var(&mut self, ints: u16, var: Var) {
        self.code.local(op::ALOAD, ints, 1);
        self.code.int(self.pool, i32::from(var.0));
        self.code.op(op::IALOAD, -1);
        self.store_var(var);
    }

    fn get_fp(&mut self, fps: u16, fp: Fp, rep: Rep) {
        self.code.local(op::ALOAD, fps, 1);
        self.code.int(self.pool, i32::from(fp.0));
        self.code.op(op::LALOAD, 0);
        self.convert(Rep::Long, rep);
        let slot = self.fp(fp, rep);
        self.store_local(slot, rep.ty());
    }

    pub(super) fn put_var(&mut self, ints: u16, var: Var) {
        self.code.local(op::ALOAD, ints, 1);
        self.code.int(self.pool, i32::from(var.0));
        self.load_var(var);
        self.code.op(op::IASTORE, -3);
    }

    pub(super) fn put_fp(&mut self, fps: u16, fp: Fp, rep: Rep) {
        self.code.local(op::ALOAD, fps, 1);
        self.code.int(self.pool, i32::from(fp.0));
        let slot = self.fp(fp, rep);
        self.load_local(slot, rep.ty());
        self.convert(rep, Rep::Long);
        self.code.op(op::LASTORE, -4);
    }

    /// Ways out of a part: each says where to, then they leave in the arrays what is needed there and may
    /// have been set here.
    pub(super) fn finish_exits(&mut self) {
        let Extent::Part { numbers, .. } = self.extent else { return };
        let exits = std::mem::take(&mut self.exits);
        if exits.is_empty() {
            return;
        }
        let (ints, fps) = self.arrays.expect("a part has arrays");
        let set = self.sets();
        let mut ends: Vec<(Left, Label)> = Vec::new();
        for (id, label) in exits {
            let live = self.liveness.at_start(id);
            let exchanged = self.exchanged.iter().map(|(fp, _)| *fp);
            let left = Left {
                // A handler of faults reads the stack pointer.
                ints: (live.ints | SP.bit()) & self.exchanged_vars & set.ints,
                fps: exchanged
                    .filter(|fp| live.fp[fp.0 as usize] != 0 && set.fp[fp.0 as usize] != 0)
                    .fold(0, |fps, fp| fps | 1 << fp.0),
            };
            let is_full = ends.len() == ENDS_MAX;
            let end = match ends.iter().position(|(other, _)| *other == left) {
                Some(index) => index,
                None if is_full => ENDS_MAX - 1,
                None => {
                    ends.push((left, self.code.label()));
                    ends.len() - 1
                }
            };
            ends[end].0.ints |= left.ints;
            ends[end].0.fps |= left.fps;
            self.place(label, &Live::default(), &[]);
            self.code.int(self.pool, numbers[&id]);
            self.code.branch(op::GOTO, ends[end].1, 0);
        }
        for (left, label) in ends {
            self.place(label, &Live::default(), &[Type::Int]);
            let vars = Live { ints: left.ints, ..Live::default() };
            vars.vars().for_each(|var| self.put_var(ints, var));
            for (fp, rep) in self.exchanged.clone() {
                if left.fps & 1 << fp.0 != 0 {
                    self.put_fp(fps, fp, rep);
                }
            }
            self.code.op(op::IRETURN, -1);
        }
    }

    /// What the blocks of this part may set.
    pub(super) fn sets(&self) -> Live {
        let mut sets = Live::default();
        for &id in &self.order {
            if let End::Invoke { pad: Some(_), .. } = self.function.blocks[id].end {
                // On the way to the landing pad.
                sets.ints |= A0.bit() | A1.bit() | V0.bit() | V1.bit();
            }
            for (_, step) in &self.function.blocks[id].steps {
                sets.ints |= self.liveness.kills(step);
                match step {
                    Stmt::SetIf(_, var, _) => sets.ints |= var.bit(),
                    Stmt::SetFp(fp, ..) | Stmt::SetFpIf(_, fp, ..) => sets.fp[fp.0 as usize] = 1,
                    Stmt::Call { .. } => self
                        .program
                        .convention
                        .fp_results()
                        .iter()
                        .for_each(|f| sets.fp[f.0 as usize] = 1),
                    _ => {}
                }
            }
        }
        sets
    }
}

/// Ways to leave a part that differ in what they leave in the arrays: those beyond share the last.
const ENDS_MAX: usize = 8;

/// Registers that are left in the arrays, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    ints: u64,
    fps: u64,
}

/// Length of the arrays in which parts of a function exchange registers.
const REGISTERS: i32 = 64;
const FP_REGISTERS: i32 = FPS as i32;

/// The method of a function whose parts are methods: it calls one after the other.
pub fn emit_driver(
    program: &Program,
    function: &Function,
    parts: &[(String, Vec<i32>)],
    numbers: &FxHashMap<BlockId, i32>,
    agains: &[Again],
    pool: &mut Pool,
) -> Code {
    let method = &program.methods[&function.entry];
    let signature = &method.signature;
    let mut types = vec![Type::Object(THREAD.into())];
    types.extend(signature.ints.iter().map(|_| Type::Int));
    types.extend(signature.fps.iter().map(|(_, rep)| verification(rep.ty())));
    let mut code = Code::new(types.clone());
    if let Some(line) = program.line(function, function.entry) {
        code.line(line);
    }
    let slot: u16 = types.iter().map(Type::slots).sum();
    let (ints, fps, wanted) = (slot, slot + 1, slot + 2);
    let kept_ints: usize = agains.iter().map(|again| again.vars.len() + 1).sum();
    let kept_fps: usize = agains.iter().map(|again| again.fps.len()).sum();
    let lengths = [REGISTERS + kept_ints as i32, FP_REGISTERS + kept_fps as i32];
    for (length, kind, array) in [(lengths[0], 10, ints), (lengths[1], 11, fps)] {
        code.int(pool, length);
        code.op(op::NEWARRAY, 0);
        // The operand of this one is a byte, not an instruction.
        code.op(kind, 0);
        code.local(op::ASTORE, array, -1);
    }
    put_arguments(&mut code, pool, signature, ints, fps);
    code.int(pool, numbers[&0]);
    code.local(op::ISTORE, wanted, -1);
    let mut locals = types;
    locals.extend([Type::Object("[I".into()), Type::Object("[J".into()), Type::Int]);
    let (again, returns) = (code.label(), code.label());
    code.place(again, locals.clone(), Vec::new());
    let mut keys = Vec::new();
    let mut labels = Vec::new();
    for (_, numbers) in parts {
        let label = code.label();
        labels.push(label);
        keys.extend(numbers.iter().map(|&number| (number, label)));
    }
    keys.sort_by_key(|(key, _)| *key);
    code.local(op::ILOAD, wanted, 1);
    code.switch(&keys, returns);
    for ((name, _), label) in parts.iter().zip(labels) {
        code.place(label, locals.clone(), Vec::new());
        code.local(op::ALOAD, 0, 1);
        code.local(op::ILOAD, wanted, 1);
        code.local(op::ALOAD, ints, 1);
        code.local(op::ALOAD, fps, 1);
        let method = pool.method(&method.class, name, PART);
        code.op_index(op::INVOKESTATIC, method, -3);
        code.local(op::ISTORE, wanted, -1);
        code.branch(op::GOTO, again, 0);
    }
    let end = code.label();
    code.mark(end);
    if !agains.is_empty() {
        let driver = Driver { locals: locals.clone(), ints, fps, wanted, again };
        driver.catch_faults(&mut code, pool, (again, end));
        let end = code.label();
        code.mark(end);
        driver.catch_jumps(&mut code, pool, (again, end), numbers, agains);
    }
    code.place(returns, locals, Vec::new());
    return_results(&mut code, pool, signature, ints, fps);
    code
}

/// Puts the parameters of a method into the arrays.
fn put_arguments(code: &mut Code, pool: &mut Pool, signature: &Signature, ints: u16, fps: u16) {
    let mut slot = 1;
    for var in &signature.ints {
        code.local(op::ALOAD, ints, 1);
        code.int(pool, i32::from(var.0));
        code.local(op::ILOAD, slot, 1);
        code.op(op::IASTORE, -3);
        slot += 1;
    }
    for (fp, rep) in &signature.fps {
        code.local(op::ALOAD, fps, 1);
        code.int(pool, i32::from(fp.0));
        let (opcode, size) = match rep.ty() {
            Ty::I => (op::ILOAD, 1),
            Ty::F => (op::FLOAD, 1),
            Ty::J => (op::LLOAD, 2),
            Ty::D => (op::DLOAD, 2),
        };
        code.local(opcode, slot, size);
        to_bits(code, pool, rep.ty());
        code.op(op::LASTORE, -4);
        slot += size as u16;
    }
}

/// What the method that calls the parts has in its locals.
struct Driver {
    locals: Vec<Type>,
    ints: u16,
    fps: u16,
    wanted: u16,
    /// Where the part is called that is wanted.
    again: Label,
}

impl Driver {
    /// A fault below a call of `setjmp` runs the program's handler, which may jump here.
    fn catch_faults(&self, code: &mut Code, pool: &mut Pool, (from, to): (Label, Label)) {
        let target = code.label();
        for class in pool.target().faults() {
            let class = pool.class(&format!("java/lang/{class}"));
            code.handler(from, to, target, class);
        }
        code.place(target, self.locals.clone(), vec![Type::Object(THROWABLE.into())]);
        code.local(op::ASTORE, self.wanted + 1, -1);
        code.local(op::ALOAD, 0, 1);
        code.local(op::ALOAD, self.wanted + 1, 1);
        element(code, pool, self.ints, i32::from(SP.0));
        let fault = pool.method(&format!("{RUNTIME}Signals"), "fault", FAULT);
        code.op_index(op::INVOKESTATIC, fault, -2);
        code.op(op::ATHROW, -1);
    }

    /// A `longjmp` to a buffer that was filled here comes to a second return: the part behind the call
    /// is called with the registers that were kept.
    fn catch_jumps(
        &self,
        code: &mut Code,
        pool: &mut Pool,
        (from, to): (Label, Label),
        numbers: &FxHashMap<BlockId, i32>,
        agains: &[Again],
    ) {
        let name = format!("{RUNTIME}GuestJump");
        let caught = self.wanted + 1;
        let target = code.label();
        let class = pool.class(&name);
        code.handler(from, to, target, class);
        code.place(target, self.locals.clone(), vec![Type::Object(name.clone().into())]);
        code.local(op::ASTORE, caught, -1);
        let mut locals = self.locals.clone();
        locals.push(Type::Object(name.clone().into()));
        for again in agains {
            let other = code.label();
            code.local(op::ALOAD, caught, 1);
            element(code, pool, self.ints, again.ints_at);
            let method = pool.method(&name, "isTo", "(I)Z");
            code.op_index(op::INVOKEVIRTUAL, method, -1);
            code.branch(op::IFEQ, other, -1);
            for (var, at) in again.vars.iter().zip(again.ints_at + 1..) {
                code.local(op::ALOAD, self.ints, 1);
                code.int(pool, i32::from(var.0));
                element(code, pool, self.ints, at);
                code.op(op::IASTORE, -3);
            }
            for (fp, at) in again.fps.iter().zip(again.fps_at..) {
                code.local(op::ALOAD, self.fps, 1);
                code.int(pool, i32::from(fp.0));
                code.local(op::ALOAD, self.fps, 1);
                code.int(pool, at);
                code.op(op::LALOAD, 0);
                code.op(op::LASTORE, -4);
            }
            code.local(op::ALOAD, self.ints, 1);
            code.int(pool, i32::from(again.result.0));
            code.local(op::ALOAD, caught, 1);
            let field = pool.field(&name, "value", "I");
            code.op_index(op::GETFIELD, field, 0);
            code.op(op::IASTORE, -3);
            code.int(pool, numbers[&again.block]);
            code.local(op::ISTORE, self.wanted, -1);
            code.branch(op::GOTO, self.again, 0);
            code.place(other, locals.clone(), Vec::new());
        }
        code.local(op::ALOAD, caught, 1);
        code.op(op::ATHROW, -1);
    }
}

/// Pushes an element of an array of integers.
fn element(code: &mut Code, pool: &mut Pool, array: u16, index: i32) {
    code.local(op::ALOAD, array, 1);
    code.int(pool, index);
    code.op(op::IALOAD, -1);
}

/// Where a call of `setjmp` in a function keeps what its second return has to find; `function` ends
/// a block with each such call.
pub fn agains(program: &Program, function: &Function, liveness: &Liveness) -> Vec<Again> {
    let mut agains = Vec::new();
    let (mut ints_at, mut fps_at) = (REGISTERS, FP_REGISTERS);
    for block in &function.blocks {
        let Some((pc, step)) = block.steps.last() else { continue };
        let (End::Goto(next) | End::Invoke { next, .. }) = block.end else { continue };
        if !program.returns_again(function, step) {
            continue;
        }
        let live = liveness.at_start(next);
        let (buffer, result) = second_return(step);
        let vars: Vec<Var> = live.vars().filter(|&var| var != result).collect();
        let fps: Vec<Fp> = live.fps().map(|(fp, _)| fp).collect();
        let (ints, floats) = (vars.len() as i32 + 1, fps.len() as i32);
        agains.push(Again { pc: *pc, block: next, buffer, result, ints_at, vars, fps_at, fps });
        ints_at += ints;
        fps_at += floats;
    }
    agains
}

/// The descriptor of a part of a function.
pub const PART: &str = "(Lio/github/fettle/jvm/GuestThread;I[I[J)I";

fn to_bits(code: &mut Code, pool: &mut Pool, ty: Ty) {
    match ty {
        Ty::J => {}
        Ty::I => code.op(op::I2L, 1),
        Ty::F => {
            let method = pool.method("java/lang/Float", "floatToRawIntBits", "(F)I");
            code.op_index(op::INVOKESTATIC, method, 0);
            code.op(op::I2L, 1);
        }
        Ty::D => {
            let method = pool.method("java/lang/Double", "doubleToRawLongBits", "(D)J");
            code.op_index(op::INVOKESTATIC, method, 0);
        }
    }
}

fn return_results(code: &mut Code, pool: &mut Pool, signature: &Signature, ints: u16, fps: u16) {
    let load = |code: &mut Code, pool: &mut Pool, var: Var| {
        code.local(op::ALOAD, ints, 1);
        code.int(pool, i32::from(var.0));
        code.op(op::IALOAD, -1);
    };
    match signature.returns {
        Returns::Nothing => code.op(op::RETURN, 0),
        Returns::Int => {
            load(code, pool, V0);
            code.op(op::IRETURN, -1);
        }
        Returns::Long => {
            load(code, pool, V1);
            code.op(op::I2L, 1);
            code.int(pool, 32);
            code.op(op::LSHL, -1);
            load(code, pool, V0);
            code.op(op::I2L, 1);
            code.long(pool, 0xffff_ffff);
            code.op(op::LAND, -2);
            code.op(op::LOR, -2);
            code.op(op::LRETURN, -2);
        }
        Returns::Fp(rep) => {
            code.local(op::ALOAD, fps, 1);
            code.int(pool, i32::from(signature.convention.fp_results()[0].0));
            code.op(op::LALOAD, 0);
            match rep.ty() {
                Ty::J => code.op(op::LRETURN, -2),
                Ty::D => {
                    let method = pool.method("java/lang/Double", "longBitsToDouble", "(J)D");
                    code.op_index(op::INVOKESTATIC, method, 0);
                    code.op(op::DRETURN, -2);
                }
                Ty::I => {
                    code.op(op::L2I, -1);
                    code.op(op::IRETURN, -1);
                }
                Ty::F => {
                    code.op(op::L2I, -1);
                    let method = pool.method("java/lang/Float", "intBitsToFloat", "(I)F");
                    code.op_index(op::INVOKESTATIC, method, 0);
                    code.op(op::FRETURN, -1);
                }
            }
        }
    }
}
