//! From blocks to the bytecode of one method.
//!
//! A method is a whole function, or a part of one that is too large (`split` decides the parts). A
//! part gets the registers that it needs from arrays, and puts back there what others need of it.

mod pads;

use rustc_hash::FxHashMap;

use crate::classfile::{Code, Label, Pool, Type};
use crate::flow::{FP_ARGUMENTS, FP_RESULTS, Live, Liveness, Results};
use crate::ir::{
    Bin, BlockId, Callee, Cmp, Cond, End, Expr, Fp, Function, Helper, Rep, Stmt, Ty, Un, Var, Width,
};
use crate::op;
use crate::signature::{Returns, Signature, THREAD, results_in_thread, slots, thread_field};
use crate::unwind::Regions;

/// The package of the runtime.
pub const RUNTIME: &str = "io/github/fettle/jvm/";
/// The class that calls through pointers go to.
pub const DISPATCH: &str = "fettle/program/Dispatch";
/// The descriptor of calls through pointers: thread, address, stack pointer, four arguments.
pub const CALL: &str = "(Lio/github/fettle/jvm/GuestThread;IIIIII)J";
const VAR_HANDLE: &str = "java/lang/invoke/VarHandle";

const V0: Var = Var(2);
const V1: Var = Var(3);
const A0: Var = Var(4);
const A1: Var = Var(5);
const A3: Var = Var(7);
const SP: Var = Var(29);

/// Length of the arrays in which parts of a function exchange registers.
const REGISTERS: i32 = 64;
const FP_REGISTERS: i32 = 32;

/// Addresses that no program has anything at.
const NULL_PAGE: i32 = 4096;

/// A method that calls can name.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its class, with slashes.
    pub class: String,
    /// Its name.
    pub name: String,
    /// Its parameters and result.
    pub signature: Signature,
    /// Whether memory may be another array when it has returned.
    pub grows: bool,
    /// What it does beside what its code says.
    pub role: Role,
}

/// Functions that no translation of their code alone can be right for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// None of them.
    Ordinary,
    /// It may return a second time.
    SetJump,
    /// It never returns, but makes another call return.
    LongJump,
}

/// What all methods of a program share.
pub struct Program {
    /// Methods by the address of their function.
    pub methods: FxHashMap<u32, Method>,
    /// Byte order of memory.
    pub big_endian: bool,
    /// Code that exceptions do something in.
    pub regions: Regions,
}

/// What of a function becomes a method.
pub enum Extent<'a> {
    /// All of it.
    Whole,
    /// These blocks, of which others of the function reach some by number.
    Part {
        /// Its blocks.
        blocks: &'a [BlockId],
        /// Numbers of all blocks that are reached from other parts.
        numbers: &'a FxHashMap<BlockId, i32>,
        /// The blocks of this part that are.
        entries: &'a [BlockId],
    },
}

/// Code with the places of its blocks.
pub struct Emitted {
    /// The code.
    pub code: Code,
    /// Of each block its size; nought for those that are not in it.
    pub sizes: Vec<usize>,
}

/// Emits one method.
pub fn emit(
    program: &Program,
    function: &Function,
    liveness: &Liveness,
    extent: &Extent,
    pool: &mut Pool,
) -> Emitted {
    let mut emitter = Emitter::new(program, function, liveness, extent, pool);
    emitter.run();
    Emitted { code: emitter.code, sizes: emitter.sizes }
}

/// Where a call of `setjmp` was, and what it kept for the second return.
struct Site {
    /// Where the call is.
    pc: u32,
    /// The address of the buffer.
    buffer: u16,
    /// Registers that the second return gets back: from, to.
    kept: Vec<(u16, Slot)>,
    again: Label,
}

/// A call in the exception table.
struct Invoke {
    from: Label,
    to: Label,
    pc: u32,
    pad: Option<BlockId>,
}

/// A local: its slot, and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    number: u16,
    ty: Ty,
}

struct Emitter<'a> {
    program: &'a Program,
    function: &'a Function,
    liveness: &'a Liveness<'a>,
    extent: &'a Extent<'a>,
    pool: &'a mut Pool,
    code: Code,
    sizes: Vec<usize>,
    order: Vec<BlockId>,
    labels: Vec<Label>,
    next_slot: u16,
    vars: [Option<u16>; 64],
    fps: FxHashMap<(Fp, Rep), u16>,
    /// How each floating-point variable can be read at this point.
    valid: [u8; 32],
    memory: Option<u16>,
    /// Arrays of a part: integer and floating-point registers.
    arrays: Option<(u16, u16)>,
    /// Locals that always have a value.
    always: Vec<Slot>,
    /// Floating-point variables that parts exchange, and as what this one keeps them.
    exchanged: Vec<(Fp, Rep)>,
    exchanged_vars: u64,
    exits: Vec<(BlockId, Label)>,
    leave: Option<Label>,
    bad_jumps: Vec<(Label, u32)>,
    pinned: bool,
    /// How many of the first slots are integer parameters.
    parameters: u16,
    sites: Vec<Site>,
    invokes: Vec<Invoke>,
}

impl<'a> Emitter<'a> {
    fn new(
        program: &'a Program,
        function: &'a Function,
        liveness: &'a Liveness<'a>,
        extent: &'a Extent<'a>,
        pool: &'a mut Pool,
    ) -> Self {
        let thread = Type::Object(THREAD.into());
        let parameters = match extent {
            Extent::Whole => {
                let signature = &program.methods[&function.entry].signature;
                let mut types = vec![thread];
                types.extend(signature.ints.iter().map(|_| Type::Int));
                types.extend(signature.fps.iter().map(|(_, rep)| verification(rep.ty())));
                types
            }
            Extent::Part { .. } => {
                vec![thread, Type::Int, Type::Object("[I".into()), Type::Object("[J".into())]
            }
        };
        let mut order: Vec<BlockId> = match extent {
            Extent::Whole => (0..function.blocks.len()).collect(),
            Extent::Part { blocks, .. } => blocks.to_vec(),
        };
        let whole = matches!(extent, Extent::Whole);
        order.sort_by_key(|&id| (whole && id != 0, function.blocks[id].pc, id));
        let mut code = Code::new(parameters);
        let labels = function.blocks.iter().map(|_| code.label()).collect();
        let own_role = program.methods[&function.entry].role;
        let pinned = own_role == Role::Ordinary
            && function.blocks.iter().flat_map(|b| &b.steps).any(|(_, step)| {
                matches!(step, Stmt::Call { callee: Callee::Direct(to), .. }
                if program.methods.get(to).is_some_and(|m| m.role == Role::SetJump))
            });
        Self {
            program,
            function,
            liveness,
            extent,
            pool,
            code,
            sizes: vec![0; function.blocks.len()],
            order,
            labels,
            next_slot: 1,
            vars: [None; 64],
            fps: FxHashMap::default(),
            valid: [0; 32],
            memory: None,
            arrays: None,
            always: Vec::new(),
            exchanged: Vec::new(),
            exchanged_vars: 0,
            exits: Vec::new(),
            leave: None,
            bad_jumps: Vec::new(),
            pinned,
            parameters: 0,
            sites: Vec::new(),
            invokes: Vec::new(),
        }
    }

    fn run(&mut self) {
        match self.extent {
            Extent::Whole => self.begin_whole(),
            Extent::Part { entries, numbers, .. } => self.begin_part(entries, numbers),
        }
        let start = self.code.label();
        self.code.mark(start);
        for index in 0..self.order.len() {
            let id = self.order[index];
            let from = self.code.len();
            self.block(id, self.order.get(index + 1).copied());
            self.sizes[id] = self.code.len() - from;
        }
        self.finish_invokes();
        self.catch_faults(start);
        let end = self.code.label();
        self.code.mark(end);
        self.finish_exits();
        self.finish_sites(start, end);
        for (label, pc) in std::mem::take(&mut self.bad_jumps) {
            self.place(label, &Live::default(), &[]);
            self.nowhere(pc);
        }
    }

    // Locals.

    fn var(&mut self, var: Var) -> u16 {
        if let Some(slot) = self.vars[var.0 as usize] {
            return slot;
        }
        let slot = self.fresh(Ty::I);
        self.vars[var.0 as usize] = Some(slot);
        slot
    }

    fn fresh(&mut self, ty: Ty) -> u16 {
        let slot = self.next_slot;
        self.next_slot += slots(ty) as u16;
        slot
    }

    fn fp(&mut self, fp: Fp, rep: Rep) -> u16 {
        if let Some(&slot) = self.fps.get(&(fp, rep)) {
            return slot;
        }
        let slot = self.fresh(rep.ty());
        self.fps.insert((fp, rep), slot);
        slot
    }

    fn load_local(&mut self, slot: u16, ty: Ty) {
        let opcode = match ty {
            Ty::I => op::ILOAD,
            Ty::J => op::LLOAD,
            Ty::F => op::FLOAD,
            Ty::D => op::DLOAD,
        };
        self.code.local(opcode, slot, slots(ty));
    }

    fn store_local(&mut self, slot: u16, ty: Ty) {
        let opcode = match ty {
            Ty::I => op::ISTORE,
            Ty::J => op::LSTORE,
            Ty::F => op::FSTORE,
            Ty::D => op::DSTORE,
        };
        self.code.local(opcode, slot, -slots(ty));
    }

    fn load_var(&mut self, var: Var) {
        let slot = self.var(var);
        self.load_local(slot, Ty::I);
    }

    fn store_var(&mut self, var: Var) {
        let slot = self.var(var);
        self.store_local(slot, Ty::I);
    }

    fn zero(&mut self, ty: Ty) {
        match ty {
            Ty::I => self.code.int(self.pool, 0),
            Ty::J => self.code.long(self.pool, 0),
            Ty::F => self.code.float(self.pool, 0),
            Ty::D => self.code.double(self.pool, 0),
        }
    }

    fn thread(&mut self) {
        self.code.local(op::ALOAD, 0, 1);
    }

    fn load_memory(&mut self) {
        let slot = self.memory.expect("a method that reads memory has it");
        self.code.local(op::ALOAD, slot, 1);
    }

    fn reload_memory(&mut self) {
        let Some(slot) = self.memory else { return };
        self.thread();
        let field = self.pool.field(THREAD, "memory", "[B");
        self.code.op_index(op::GETFIELD, field, 0);
        self.code.local(op::ASTORE, slot, -1);
    }

    /// Locals of a frame: what always has a value, and what is live.
    fn locals(&mut self, live: &Live) -> Vec<Type> {
        let mut by_slot: Vec<(u16, Type)> = vec![(0, Type::Object(THREAD.into()))];
        if let Some(slot) = self.memory {
            by_slot.push((slot, Type::Object("[B".into())));
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

    fn place(&mut self, label: Label, live: &Live, stack: &[Type]) {
        let locals = self.locals(live);
        self.code.place(label, locals, stack.to_vec());
    }

    /// At the beginning of a block each floating-point variable is there in one way.
    fn expect(&mut self, live: &Live) {
        self.valid = [0; 32];
        for (fp, mask) in live.fps() {
            self.valid[fp.0 as usize] = Rep::best(mask) as u8;
        }
    }

    // Beginnings.

    fn uses_memory(&self) -> bool {
        let mut uses = self.pinned;
        for &id in &self.order {
            let block = &self.function.blocks[id];
            let mut look = |e: &Expr| {
                uses |= matches!(e, Expr::Load(..))
                    || matches!(e, Expr::Help(helper, _) if helper.memory);
            };
            block.end.visit(&mut look);
            for (_, step) in &block.steps {
                step.visit(&mut look);
            }
            uses |= block.steps.iter().any(|(_, step)| matches!(step, Stmt::Store(..)));
        }
        uses
    }

    fn begin_whole(&mut self) {
        let signature = self.program.methods[&self.function.entry].signature.clone();
        for &var in &signature.ints {
            let slot = self.fresh(Ty::I);
            self.vars[var.0 as usize] = Some(slot);
        }
        for &(fp, rep) in &signature.fps {
            self.fp(fp, rep);
            self.valid[fp.0 as usize] = rep as u8;
        }
        if self.uses_memory() {
            let slot = self.fresh(Ty::I);
            self.memory = Some(slot);
            self.reload_memory();
        }
        let live = self.liveness.at_start(0);
        if self.pinned {
            self.pin(&signature);
        }
        for var in live.vars() {
            if !signature.ints.contains(&var) && !self.pinned {
                self.zero(Ty::I);
                self.store_var(var);
            }
        }
        for (fp, mask) in live.fps() {
            if !signature.fps.iter().any(|(parameter, _)| *parameter == fp) {
                let rep = Rep::best(mask);
                self.zero(rep.ty());
                let slot = self.fp(fp, rep);
                self.store_local(slot, rep.ty());
                self.valid[fp.0 as usize] = rep as u8;
            }
        }
    }

    /// Gives every integer variable a value at once: whoever catches a jump finds all of them.
    fn pin(&mut self, signature: &Signature) {
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
        used |= V0.bit() | 1 << 4 | SP.bit();
        for var in (Live { ints: used, fp: [0; 32] }).vars() {
            let number = self.var(var);
            self.always.push(Slot { number, ty: Ty::I });
        }
        self.parameters = signature.ints.len() as u16;
        self.prepare_sites();
    }

    fn begin_part(&mut self, entries: &[BlockId], numbers: &FxHashMap<BlockId, i32>) {
        let wanted = self.fresh(Ty::I);
        let (ints, fps) = (self.fresh(Ty::I), self.fresh(Ty::I));
        self.arrays = Some((ints, fps));
        if self.uses_memory() {
            let slot = self.fresh(Ty::I);
            self.memory = Some(slot);
            self.reload_memory();
        }
        let inside = |id: &BlockId| self.order.contains(id);
        let mut exchanged = Live::default();
        let mut add = |live: Live| {
            exchanged.ints |= live.ints;
            for (mine, theirs) in exchanged.fp.iter_mut().zip(live.fp) {
                *mine |= theirs;
            }
        };
        entries.iter().for_each(|&id| add(self.liveness.at_start(id)));
        for &id in &self.order {
            for next in self.function.blocks[id].end.successors() {
                if !inside(&next) {
                    add(self.liveness.at_start(next));
                }
            }
        }
        for var in exchanged.vars() {
            self.code.local(op::ALOAD, ints, 1);
            self.code.int(self.pool, i32::from(var.0));
            self.code.op(op::IALOAD, -1);
            self.store_var(var);
            let number = self.var(var);
            self.always.push(Slot { number, ty: Ty::I });
        }
        self.exchanged_vars = exchanged.ints;
        for (fp, mask) in exchanged.fps() {
            let rep = Rep::best(mask);
            self.code.local(op::ALOAD, fps, 1);
            self.code.int(self.pool, i32::from(fp.0));
            self.code.op(op::LALOAD, 0);
            self.convert(Rep::Long, rep);
            let number = self.fp(fp, rep);
            self.store_local(number, rep.ty());
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
            self.valid = [0; 32];
            for (fp, rep) in self.exchanged.clone() {
                self.valid[fp.0 as usize] = rep as u8;
            }
            self.place(label, &Live::default(), &[]);
            self.make_valid(&live);
            self.code.branch(op::GOTO, self.labels[id], 0);
        }
    }

    // Floating-point variables.

    /// Makes them readable in the way that a block expects.
    fn make_valid(&mut self, live: &Live) {
        for (fp, mask) in live.fps() {
            self.ensure(fp, Rep::best(mask));
        }
    }

    /// Makes a variable readable as `rep`; its slot.
    fn ensure(&mut self, fp: Fp, rep: Rep) -> u16 {
        let valid = self.valid[fp.0 as usize];
        if valid & rep as u8 == 0 {
            let from = [Rep::Double, Rep::Long, Rep::Float, Rep::Int]
                .into_iter()
                .find(|&from| valid & from as u8 != 0);
            match from {
                Some(from) => {
                    let slot = self.fp(fp, from);
                    self.load_local(slot, from.ty());
                    self.convert(from, rep);
                }
                None => self.zero(rep.ty()),
            }
            let slot = self.fp(fp, rep);
            self.store_local(slot, rep.ty());
            self.valid[fp.0 as usize] |= rep as u8;
        }
        self.fp(fp, rep)
    }

    /// Converts the bits on the operand stack.
    fn convert(&mut self, from: Rep, to: Rep) {
        match (from, to) {
            (Rep::Int, Rep::Float) => {
                self.java("java/lang/Float", "intBitsToFloat", "(I)F", 0);
            }
            (Rep::Float, Rep::Int) => {
                self.java(&format!("{RUNTIME}Mips"), "bits", "(F)I", 0);
            }
            (Rep::Double, Rep::Long) => {
                self.java(&format!("{RUNTIME}Mips"), "bits", "(D)J", 0);
            }
            (Rep::Long, Rep::Double) => {
                self.java("java/lang/Double", "longBitsToDouble", "(J)D", 0);
            }
            (Rep::Int, Rep::Long) => self.unsigned_long(),
            (Rep::Long, Rep::Int) => self.code.op(op::L2I, -1),
            (from, to) if from == to => {}
            // By way of the bits.
            (Rep::Float, _) => {
                self.convert(Rep::Float, Rep::Int);
                self.convert(Rep::Int, to);
            }
            (Rep::Double, _) => {
                self.convert(Rep::Double, Rep::Long);
                self.convert(Rep::Long, to);
            }
            (Rep::Int, _) => {
                self.convert(Rep::Int, Rep::Long);
                self.convert(Rep::Long, to);
            }
            (Rep::Long, _) => {
                self.convert(Rep::Long, Rep::Int);
                self.convert(Rep::Int, to);
            }
        }
    }

    fn java(&mut self, class: &str, name: &str, descriptor: &str, change: i32) {
        let method = self.pool.method(class, name, descriptor);
        self.code.op_index(op::INVOKESTATIC, method, change);
    }

    fn unsigned_long(&mut self) {
        self.code.op(op::I2L, 1);
        self.code.long(self.pool, 0xffff_ffff);
        self.code.op(op::LAND, -2);
    }

    // Expressions.

    /// Leaves the value on the operand stack.
    fn expr(&mut self, e: &Expr) -> Ty {
        match e {
            Expr::Int(value) => {
                self.code.int(self.pool, *value);
                Ty::I
            }
            Expr::Float(bits) => {
                self.code.float(self.pool, *bits);
                Ty::F
            }
            Expr::Double(bits) => {
                self.code.double(self.pool, *bits);
                Ty::D
            }
            Expr::Var(var) => {
                self.load_var(*var);
                Ty::I
            }
            Expr::Fp(fp, rep) => {
                let slot = self.ensure(*fp, *rep);
                self.load_local(slot, rep.ty());
                rep.ty()
            }
            Expr::Un(un, a) => self.unary(*un, a),
            Expr::Bin(bin, a, b) => self.binary(*bin, a, b),
            Expr::Cond(cond) => {
                self.truth(cond);
                Ty::I
            }
            Expr::Load(width, address) => self.load(*width, address),
            Expr::Help(helper, arguments) => {
                self.help(helper, arguments);
                helper.result.unwrap_or(Ty::I)
            }
            Expr::Tls => {
                self.thread();
                let field = self.pool.field(THREAD, "tls", "I");
                self.code.op_index(op::GETFIELD, field, 0);
                Ty::I
            }
        }
    }

    fn unary(&mut self, un: Un, a: &Expr) -> Ty {
        self.expr(a);
        match un {
            Un::I2B => self.code.op(op::I2B, 0),
            Un::I2S => self.code.op(op::I2S, 0),
            Un::Clz => self.java("java/lang/Integer", "numberOfLeadingZeros", "(I)I", 0),
            Un::I2L => self.code.op(op::I2L, 1),
            Un::U2L => self.unsigned_long(),
            Un::LHi => {
                self.code.int(self.pool, 32);
                self.code.op(op::LUSHR, -1);
                self.code.op(op::L2I, -1);
            }
            Un::FNeg => self.code.op(op::FNEG, 0),
            Un::DNeg => self.code.op(op::DNEG, 0),
            Un::FAbs => self.java("java/lang/Math", "abs", "(F)F", 0),
            Un::DAbs => self.java("java/lang/Math", "abs", "(D)D", 0),
            Un::DSqrt => self.java("java/lang/Math", "sqrt", "(D)D", 0),
            Un::FSqrt => {
                // Exact: a double has more than twice the bits of a float.
                self.code.op(op::F2D, 1);
                self.java("java/lang/Math", "sqrt", "(D)D", 0);
                self.code.op(op::D2F, -1);
            }
            Un::F2D => self.code.op(op::F2D, 1),
            Un::D2F => self.code.op(op::D2F, -1),
            Un::I2F => self.code.op(op::I2F, 0),
            Un::I2D => self.code.op(op::I2D, 1),
            Un::L2F => self.code.op(op::L2F, -1),
            Un::L2D => self.code.op(op::L2D, 0),
        }
        match un {
            Un::I2B | Un::I2S | Un::Clz | Un::LHi => Ty::I,
            Un::I2L | Un::U2L => Ty::J,
            Un::FNeg | Un::FAbs | Un::FSqrt | Un::D2F | Un::I2F | Un::L2F => Ty::F,
            Un::DNeg | Un::DAbs | Un::DSqrt | Un::F2D | Un::I2D | Un::L2D => Ty::D,
        }
    }

    fn binary(&mut self, bin: Bin, a: &Expr, b: &Expr) -> Ty {
        if bin == Bin::Pair {
            self.expr(a);
            self.code.op(op::I2L, 1);
            self.code.int(self.pool, 32);
            self.code.op(op::LSHL, -1);
            self.expr(b);
            self.unsigned_long();
            self.code.op(op::LOR, -2);
            return Ty::J;
        }
        self.expr(a);
        self.expr(b);
        let (opcode, ty) = match bin {
            Bin::Add => (op::IADD, Ty::I),
            Bin::Sub => (op::ISUB, Ty::I),
            Bin::Mul => (op::IMUL, Ty::I),
            Bin::And => (op::IAND, Ty::I),
            Bin::Or => (op::IOR, Ty::I),
            Bin::Xor => (op::IXOR, Ty::I),
            Bin::Shl => (op::ISHL, Ty::I),
            Bin::Shr => (op::ISHR, Ty::I),
            Bin::Ushr => (op::IUSHR, Ty::I),
            Bin::Div => (op::IDIV, Ty::I),
            Bin::Rem => (op::IREM, Ty::I),
            Bin::Rotr | Bin::DivU | Bin::RemU => {
                let name = match bin {
                    Bin::Rotr => "rotateRight",
                    Bin::DivU => "divideUnsigned",
                    _ => "remainderUnsigned",
                };
                self.java("java/lang/Integer", name, "(II)I", -1);
                return Ty::I;
            }
            Bin::LAdd => (op::LADD, Ty::J),
            Bin::LSub => (op::LSUB, Ty::J),
            Bin::LMul => (op::LMUL, Ty::J),
            Bin::FAdd => (op::FADD, Ty::F),
            Bin::FSub => (op::FSUB, Ty::F),
            Bin::FMul => (op::FMUL, Ty::F),
            Bin::FDiv => (op::FDIV, Ty::F),
            Bin::DAdd => (op::DADD, Ty::D),
            Bin::DSub => (op::DSUB, Ty::D),
            Bin::DMul => (op::DMUL, Ty::D),
            Bin::DDiv => (op::DDIV, Ty::D),
            Bin::Pair => unreachable!("made above"),
        };
        self.code.op(opcode, -slots(ty));
        ty
    }

    /// The handle through which memory is accessed, its type letter, and the type of the value.
    fn handle(&mut self, width: Width) -> (&'static str, Ty) {
        let (name, letter, ty) = match width {
            Width::S16 => ("SHORT", "S", Ty::I),
            Width::U16 => ("CHAR", "C", Ty::I),
            Width::I32 => ("INT", "I", Ty::I),
            Width::F32 => ("FLOAT", "F", Ty::F),
            Width::F64 => ("DOUBLE", "D", Ty::D),
            Width::S8 | Width::U8 => unreachable!("bytes are elements"),
        };
        let class = if self.program.big_endian { "MemoryBig" } else { "Memory" };
        let class = format!("{RUNTIME}{class}");
        let field = self.pool.field(&class, name, &format!("L{VAR_HANDLE};"));
        self.code.op_index(op::GETSTATIC, field, 1);
        (letter, ty)
    }

    /// An index of memory. The array begins at address zero; what the compiler knows to be a null
    /// pointer still has to fault.
    fn address(&mut self, address: &Expr) {
        match address {
            Expr::Int(null @ 0..NULL_PAGE) => self.code.int(self.pool, *null | i32::MIN),
            _ => {
                self.expr(address);
            }
        }
    }

    fn load(&mut self, width: Width, address: &Expr) -> Ty {
        if matches!(width, Width::S8 | Width::U8) {
            self.load_memory();
            self.address(address);
            self.code.op(op::BALOAD, -1);
            if width == Width::U8 {
                self.code.int(self.pool, 255);
                self.code.op(op::IAND, -1);
            }
            return Ty::I;
        }
        let (letter, ty) = self.handle(width);
        self.load_memory();
        self.address(address);
        let method = self.pool.method(VAR_HANDLE, "get", &format!("([BI){letter}"));
        self.code.op_index(op::INVOKEVIRTUAL, method, slots(ty) - 3);
        ty
    }

    fn store(&mut self, width: Width, address: &Expr, value: &Expr) {
        if matches!(width, Width::S8 | Width::U8) {
            self.load_memory();
            self.address(address);
            self.expr(value);
            self.code.op(op::BASTORE, -3);
            return;
        }
        let (letter, ty) = self.handle(width);
        self.load_memory();
        self.address(address);
        self.expr(value);
        let copied = matches!(value, Expr::Load(..) | Expr::Float(_) | Expr::Double(_));
        match width {
            Width::S16 => self.code.op(op::I2S, 0),
            // The host's result of an invalid operation is not that of MIPS.
            Width::F32 if !copied => self.java(&format!("{RUNTIME}Mips"), "nan", "(F)F", 0),
            Width::F64 if !copied => self.java(&format!("{RUNTIME}Mips"), "nan", "(D)D", 0),
            _ => {}
        }
        let method = self.pool.method(VAR_HANDLE, "set", &format!("([BI{letter})V"));
        self.code.op_index(op::INVOKEVIRTUAL, method, -3 - slots(ty));
    }

    fn help(&mut self, helper: &'static Helper, arguments: &[Expr]) {
        let mut change = helper.result.map_or(0, slots);
        let mut descriptor = String::from("(");
        if helper.thread {
            self.thread();
            descriptor += &format!("L{THREAD};");
            change -= 1;
        }
        if helper.memory {
            self.load_memory();
            descriptor += "[B";
            change -= 1;
        }
        for argument in arguments {
            change -= slots(self.expr(argument));
        }
        descriptor += &helper.descriptor[1..];
        let class = match helper.class.contains('/') {
            true => helper.class.to_owned(),
            false => format!("{RUNTIME}{}", helper.class),
        };
        self.java(&class, helper.name, &descriptor, change);
    }

    /// 1 or 0.
    fn truth(&mut self, cond: &Cond) {
        match cond {
            Cond::Int(cmp, a, b) => {
                let zero = *b == Expr::Int(0);
                match cmp {
                    Cmp::Eq | Cmp::Ne => {
                        self.expr(a);
                        if !zero {
                            self.expr(b);
                            self.code.op(op::ISUB, -1);
                        }
                        self.java("java/lang/Integer", "numberOfLeadingZeros", "(I)I", 0);
                        self.code.int(self.pool, 5);
                    }
                    Cmp::Lt | Cmp::Ge if zero => {
                        self.expr(a);
                        self.code.int(self.pool, 31);
                    }
                    _ => {
                        let swapped = matches!(cmp, Cmp::Gt | Cmp::Le);
                        let unsigned = matches!(cmp, Cmp::LtU | Cmp::GeU);
                        let (a, b) = if swapped { (b, a) } else { (a, b) };
                        self.expr(a);
                        self.expr(b);
                        let name = if unsigned { "compareUnsigned" } else { "compare" };
                        self.java("java/lang/Integer", name, "(II)I", -1);
                        self.code.int(self.pool, 31);
                    }
                }
                self.code.op(op::IUSHR, -1);
                if matches!(cmp, Cmp::Ne | Cmp::Ge | Cmp::Le | Cmp::GeU) {
                    self.code.int(self.pool, 1);
                    self.code.op(op::IXOR, -1);
                }
            }
            Cond::Float { double, less, equal, unordered, negated, a, b } => {
                self.expr(a);
                self.expr(b);
                let mask = i32::from(*less) << 2 | i32::from(*equal) << 1 | i32::from(*unordered);
                self.code.int(self.pool, mask);
                let (descriptor, change) = if *double { ("(DDI)I", -4) } else { ("(FFI)I", -2) };
                self.java(&format!("{RUNTIME}Mips"), "compare", descriptor, change);
                if *negated {
                    self.code.int(self.pool, 1);
                    self.code.op(op::IXOR, -1);
                }
            }
        }
    }

    /// Branches if the condition is as said.
    fn branch_if(&mut self, cond: &Cond, when: bool, label: Label) {
        match cond {
            Cond::Int(cmp, a, b) => {
                let cmp = if when { *cmp } else { cmp.negated() };
                self.expr(a);
                let signed = !matches!(cmp, Cmp::LtU | Cmp::GeU);
                if signed && *b == Expr::Int(0) {
                    return self.code.branch(against_zero(cmp), label, -1);
                }
                self.expr(b);
                match cmp {
                    Cmp::LtU | Cmp::GeU => {
                        self.java("java/lang/Integer", "compareUnsigned", "(II)I", -1);
                        let opcode = if cmp == Cmp::LtU { op::IFLT } else { op::IFGE };
                        self.code.branch(opcode, label, -1);
                    }
                    _ => self.code.branch(against_zero(cmp) + 6, label, -2),
                }
            }
            Cond::Float { double, less, equal, unordered, negated, a, b } => {
                let when = when != *negated;
                let opcode = match (less, equal) {
                    (true, true) => op::IFLE,
                    (true, false) => op::IFLT,
                    (false, true) if !unordered => op::IFEQ,
                    _ => {
                        let cond = Cond::Float {
                            double: *double,
                            less: *less,
                            equal: *equal,
                            unordered: *unordered,
                            negated: false,
                            a: a.clone(),
                            b: b.clone(),
                        };
                        self.truth(&cond);
                        let opcode = if when { op::IFNE } else { op::IFEQ };
                        return self.code.branch(opcode, label, -1);
                    }
                };
                self.expr(a);
                self.expr(b);
                // What is unordered compares as less with one, as greater with the other.
                let compare = match (double, unordered) {
                    (true, true) => op::DCMPL,
                    (true, false) => op::DCMPG,
                    (false, true) => op::FCMPL,
                    (false, false) => op::FCMPG,
                };
                self.code.op(compare, if *double { -3 } else { -1 });
                // Each of these opcodes has its opposite beside it.
                let opcode = if when { opcode } else { opposite(opcode) };
                self.code.branch(opcode, label, -1);
            }
        }
    }

    // Steps.

    fn block(&mut self, id: BlockId, next: Option<BlockId>) {
        let function = self.function;
        let live = self.liveness.at_start(id);
        self.expect(&live);
        self.place(self.labels[id], &live, &[]);
        let after = self.liveness.after_steps(function, id);
        let block = &function.blocks[id];
        for (index, ((_, step), live)) in block.steps.iter().zip(&after).enumerate() {
            let last = index + 1 == block.steps.len();
            match (step, &block.end) {
                (Stmt::Call { pc, .. }, End::Invoke { pad, .. }) if last => {
                    let from = self.begin_invoke(*pad);
                    let start = self.code.len();
                    if !self.step(step, live) {
                        return;
                    }
                    self.code.note_call(start, *pc);
                    self.end_invoke(from, *pc, *pad);
                }
                _ if self.step(step, live) => {}
                _ => return,
            }
        }
        match &block.end {
            // The way to a landing pad was made ready before the call.
            End::Invoke { next, .. } => self.make_ready(*next, &self.liveness.at_start(*next)),
            end => {
                for to in end.successors() {
                    self.make_ready(to, &self.liveness.at_start(to));
                }
            }
        }
        self.end(&block.end, next);
    }

    /// Makes floating-point variables what the block expects that follows.
    fn make_ready(&mut self, to: BlockId, live: &Live) {
        self.make_valid(live);
        if let Extent::Part { numbers, .. } = self.extent
            && numbers.contains_key(&to)
            && !self.order.contains(&to)
        {
            for (fp, rep) in self.exchanged.clone() {
                if live.fp[fp.0 as usize] != 0 {
                    self.ensure(fp, rep);
                }
            }
        }
    }

    /// Whether anything may follow.
    fn step(&mut self, step: &Stmt, live: &Live) -> bool {
        match step {
            Stmt::Set(var, e) => {
                self.expr(e);
                match live.has(*var) {
                    true => self.store_var(*var),
                    false => self.code.op(op::POP, -1),
                }
            }
            Stmt::SetFp(fp, rep, e) => {
                self.expr(e);
                let slot = self.fp(*fp, *rep);
                self.store_local(slot, rep.ty());
                self.valid[fp.0 as usize] = *rep as u8;
            }
            Stmt::SetIf(cond, var, e) => {
                let skip = self.code.label();
                self.branch_if(cond, false, skip);
                let valid = self.valid;
                self.expr(e);
                self.store_var(*var);
                self.valid = valid;
                self.place(skip, live, &[]);
            }
            Stmt::SetFpIf(cond, fp, rep, e) => {
                let skip = self.code.label();
                let slot = self.ensure(*fp, *rep);
                self.branch_if(cond, false, skip);
                let valid = self.valid;
                self.expr(e);
                self.store_local(slot, rep.ty());
                self.valid = valid;
                // Other ways to see the variable are out of date.
                self.valid[fp.0 as usize] = *rep as u8;
                self.place(skip, live, &[]);
            }
            Stmt::Store(width, address, value) => self.store(*width, address, value),
            Stmt::Do(e) => {
                let result = match e {
                    Expr::Help(helper, _) => helper.result,
                    _ => Some(Ty::I),
                };
                self.expr(e);
                if result.is_some() {
                    self.code.op(op::POP, -1);
                }
            }
            Stmt::Call { callee: Callee::Direct(to), pc } => {
                return self.call(step, *to, *pc, live);
            }
            Stmt::Call { callee: Callee::Indirect(to), .. } => self.call_pointer(step, to, live),
            Stmt::Syscall { number, .. } => self.syscall(number, live),
            Stmt::Trap { cond, code } => {
                let skip = cond.as_ref().map(|cond| {
                    let skip = self.code.label();
                    self.branch_if(cond, false, skip);
                    skip
                });
                let valid = self.valid;
                self.thread();
                self.code.int(self.pool, *code as i32);
                self.load_var(SP);
                let descriptor = format!("(L{THREAD};II)Ljava/lang/Error;");
                self.java(&format!("{RUNTIME}Signals"), "trap", &descriptor, -2);
                self.code.op(op::ATHROW, -1);
                self.valid = valid;
                match skip {
                    Some(skip) => self.place(skip, live, &[]),
                    None => return false,
                }
            }
            Stmt::Fence => self.java(VAR_HANDLE, "fullFence", "()V", 0),
        }
        true
    }

    fn call(&mut self, step: &Stmt, to: u32, pc: u32, live: &Live) -> bool {
        let program = self.program;
        let Some(method) = program.methods.get(&to) else {
            self.nowhere(pc);
            return false;
        };
        self.thread();
        for &var in &method.signature.ints {
            self.load_var(var);
        }
        for &(fp, rep) in &method.signature.fps {
            let slot = self.ensure(fp, rep);
            self.load_local(slot, rep.ty());
        }
        let result = method.signature.result();
        let change = result.map_or(0, slots) - 1 - method.signature.parameter_slots();
        let descriptor = method.signature.descriptor();
        self.java(&method.class, &method.name, &descriptor, change);
        match method.signature.returns {
            Returns::Nothing => {}
            Returns::Int => self.keep_or_pop(V0, live),
            Returns::Long => self.keep_pair(live),
            Returns::Fp(rep) => self.set_fp(Fp(0), rep),
        }
        for (fp, _) in results_in_thread(method.signature.in_thread) {
            self.result_from_thread(fp, live);
        }
        let Stmt::Call { callee, .. } = step else { unreachable!("a call") };
        self.forget(self.liveness.defines(callee), method.signature.returns);
        if method.grows {
            self.reload_memory();
        }
        if method.role == Role::SetJump && self.pinned {
            self.setjmp_returned(pc, live);
        }
        true
    }

    /// Results that a call may have set and nobody reads are worth nothing now.
    fn forget(&mut self, defines: Results, returns: Returns) {
        for (index, fp) in FP_RESULTS.iter().enumerate() {
            let kept = index == 0 && matches!(returns, Returns::Fp(_));
            let from_thread = self.valid[fp.0 as usize] == FROM_THREAD;
            if from_thread {
                self.valid[fp.0 as usize] = Rep::Long as u8;
            } else if defines.fp[index] != 0 && !kept {
                self.valid[fp.0 as usize] = 0;
            }
        }
    }

    fn keep_or_pop(&mut self, var: Var, live: &Live) {
        match live.has(var) {
            true => self.store_var(var),
            false => self.code.op(op::POP, -1),
        }
    }

    /// Takes apart a long with `v0` and `v1`.
    fn keep_pair(&mut self, live: &Live) {
        match (live.has(V0), live.has(V1)) {
            (false, false) => self.code.op(op::POP2, -2),
            (true, false) => {
                self.code.op(op::L2I, -1);
                self.store_var(V0);
            }
            (low, true) => {
                if low {
                    self.code.op(op::DUP2, 2);
                    self.code.op(op::L2I, -1);
                    self.store_var(V0);
                }
                self.code.int(self.pool, 32);
                self.code.op(op::LUSHR, -1);
                self.code.op(op::L2I, -1);
                self.store_var(V1);
            }
        }
    }

    fn set_fp(&mut self, fp: Fp, rep: Rep) {
        let slot = self.fp(fp, rep);
        self.store_local(slot, rep.ty());
        self.valid[fp.0 as usize] = rep as u8;
    }

    fn result_from_thread(&mut self, fp: Fp, live: &Live) {
        if live.fp[fp.0 as usize] == 0 {
            return;
        }
        self.thread();
        let field = self.pool.field(THREAD, thread_field(fp), "J");
        self.code.op_index(op::GETFIELD, field, 1);
        self.set_fp(fp, Rep::Long);
        self.valid[fp.0 as usize] = FROM_THREAD;
    }

    fn call_pointer(&mut self, step: &Stmt, to: &Expr, live: &Live) {
        let passed = self.liveness.arguments(step);
        for fp in FP_ARGUMENTS {
            if passed.fp[fp.0 as usize] != 0 {
                let slot = self.ensure(fp, Rep::Long);
                self.thread();
                self.load_local(slot, Ty::J);
                let field = self.pool.field(THREAD, thread_field(fp), "J");
                self.code.op_index(op::PUTFIELD, field, -3);
            }
        }
        self.thread();
        self.expr(to);
        self.load_var(SP);
        for number in 4..8 {
            match passed.has(Var(number)) {
                true => self.load_var(Var(number)),
                false => self.code.int(self.pool, 0),
            }
        }
        self.java(DISPATCH, "call", CALL, -5);
        self.keep_pair(live);
        for fp in FP_RESULTS {
            self.result_from_thread(fp, live);
        }
        let Stmt::Call { callee, .. } = step else { unreachable!("a call") };
        self.forget(self.liveness.defines(callee), Returns::Long);
        self.reload_memory();
    }

    fn syscall(&mut self, number: &Expr, live: &Live) {
        self.thread();
        self.expr(number);
        for register in 4..8 {
            self.load_var(Var(register));
        }
        self.load_var(SP);
        let descriptor = format!("(L{THREAD};IIIIII)J");
        self.java(&format!("{RUNTIME}Kernel"), "call", &descriptor, -5);
        match (live.has(V0), live.has(A3)) {
            (false, false) => self.code.op(op::POP2, -2),
            (value, error) => {
                if value {
                    if error {
                        self.code.op(op::DUP2, 2);
                    }
                    self.code.op(op::L2I, -1);
                    self.store_var(V0);
                }
                if error {
                    self.code.int(self.pool, 32);
                    self.code.op(op::LUSHR, -1);
                    self.code.op(op::L2I, -1);
                    self.store_var(A3);
                }
            }
        }
        let step = Stmt::Syscall { number: number.clone(), pc: 0 };
        if live.has(V1) && self.liveness.kills(&step) & V1.bit() != 0 {
            self.thread();
            let field = self.pool.field(THREAD, "v1", "I");
            self.code.op_index(op::GETFIELD, field, 0);
            self.store_var(V1);
        }
        self.reload_memory();
    }

    /// Throws: what is at this address cannot be executed.
    fn nowhere(&mut self, pc: u32) {
        self.thread();
        self.code.int(self.pool, pc as i32);
        let descriptor = format!("(L{THREAD};I)Ljava/lang/Error;");
        self.java(&format!("{RUNTIME}Mips"), "nowhere", &descriptor, -1);
        self.code.op(op::ATHROW, -1);
    }

    // Ends.

    /// The label of a block, which may be one that leaves this part.
    fn label_of(&mut self, id: BlockId) -> Label {
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

    fn end(&mut self, end: &End, next: Option<BlockId>) {
        match end {
            End::Goto(to) | End::Invoke { next: to, .. } => {
                if Some(*to) != next {
                    let label = self.label_of(*to);
                    self.code.branch(op::GOTO, label, 0);
                }
            }
            End::If(cond, yes, no) => {
                if Some(*yes) == next {
                    let label = self.label_of(*no);
                    self.branch_if(cond, false, label);
                } else {
                    let label = self.label_of(*yes);
                    self.branch_if(cond, true, label);
                    if Some(*no) != next {
                        let label = self.label_of(*no);
                        self.code.branch(op::GOTO, label, 0);
                    }
                }
            }
            End::Jump { to, targets } => {
                let mut keys: Vec<(i32, Label)> =
                    targets.iter().map(|&(pc, id)| (pc as i32, self.label_of(id))).collect();
                keys.sort_by_key(|(key, _)| *key);
                let bad = self.code.label();
                self.bad_jumps.push((bad, self.function.entry));
                self.expr(to);
                self.code.switch(&keys, bad);
            }
            End::Return => self.leave_function(),
            End::Nowhere(pc) => self.nowhere(*pc),
        }
    }

    fn leave_function(&mut self) {
        let signature = self.program.methods[&self.function.entry].signature.clone();
        for (fp, _) in results_in_thread(signature.in_thread) {
            let slot = self.ensure(fp, Rep::Long);
            self.thread();
            self.load_local(slot, Ty::J);
            let field = self.pool.field(THREAD, thread_field(fp), "J");
            self.code.op_index(op::PUTFIELD, field, -3);
        }
        if let Some((ints, fps)) = self.arrays {
            return self.leave_part(&signature, ints, fps);
        }
        match signature.returns {
            Returns::Nothing => self.code.op(op::RETURN, 0),
            Returns::Int => {
                self.load_var(V0);
                self.code.op(op::IRETURN, -1);
            }
            Returns::Long => {
                let results = self.liveness.at_return().ints;
                let result = |var: Var| match results & var.bit() {
                    0 => Expr::Int(0),
                    _ => Expr::Var(var),
                };
                self.binary(Bin::Pair, &result(V1), &result(V0));
                self.code.op(op::LRETURN, -2);
            }
            Returns::Fp(rep) => {
                let slot = self.ensure(Fp(0), rep);
                self.load_local(slot, rep.ty());
                let opcode = match rep.ty() {
                    Ty::I => op::IRETURN,
                    Ty::J => op::LRETURN,
                    Ty::F => op::FRETURN,
                    Ty::D => op::DRETURN,
                };
                self.code.op(opcode, -slots(rep.ty()));
            }
        }
    }

    /// Leaves results in the arrays, and tells that the function returns.
    fn leave_part(&mut self, signature: &Signature, ints: u16, fps: u16) {
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
            self.ensure(Fp(0), rep);
            self.put_fp(fps, Fp(0), rep);
        }
        self.code.int(self.pool, -1);
        self.code.op(op::IRETURN, -1);
    }

    fn put_var(&mut self, ints: u16, var: Var) {
        self.code.local(op::ALOAD, ints, 1);
        self.code.int(self.pool, i32::from(var.0));
        self.load_var(var);
        self.code.op(op::IASTORE, -3);
    }

    fn put_fp(&mut self, fps: u16, fp: Fp, rep: Rep) {
        self.code.local(op::ALOAD, fps, 1);
        self.code.int(self.pool, i32::from(fp.0));
        let slot = self.fp(fp, rep);
        self.load_local(slot, rep.ty());
        self.convert(rep, Rep::Long);
        self.code.op(op::LASTORE, -4);
    }

    /// Ways out of a part: each says where to, then all leave their registers in the arrays.
    fn finish_exits(&mut self) {
        let Extent::Part { numbers, .. } = self.extent else { return };
        let leave = self.code.label();
        for (id, label) in std::mem::take(&mut self.exits) {
            self.place(label, &Live::default(), &[]);
            self.code.int(self.pool, numbers[&id]);
            self.code.branch(op::GOTO, leave, 0);
            self.leave = Some(leave);
        }
        if self.leave.is_none() {
            return;
        }
        self.place(leave, &Live::default(), &[Type::Int]);
        let (ints, fps) = self.arrays.expect("a part has arrays");
        let set = self.sets();
        let exchanged = Live { ints: self.exchanged_vars & set.ints, fp: [0; 32] };
        for var in exchanged.vars() {
            self.put_var(ints, var);
        }
        for (fp, rep) in self.exchanged.clone() {
            if set.fp[fp.0 as usize] != 0 {
                self.put_fp(fps, fp, rep);
            }
        }
        self.code.op(op::IRETURN, -1);
    }

    /// What the blocks of this part may set.
    fn sets(&self) -> Live {
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
                    Stmt::Call { .. } => FP_RESULTS.iter().for_each(|f| sets.fp[f.0 as usize] = 1),
                    _ => {}
                }
            }
        }
        sets
    }

    // Second returns.

    /// Gives locals to what each call of `setjmp` has to keep.
    fn prepare_sites(&mut self) {
        for id in 0..self.function.blocks.len() {
            let after = self.liveness.after_steps(self.function, id);
            for ((pc, step), live) in self.function.blocks[id].steps.iter().zip(after) {
                let Stmt::Call { callee: Callee::Direct(to), .. } = step else { continue };
                if self.program.methods.get(to).is_none_or(|m| m.role != Role::SetJump) {
                    continue;
                }
                let mut kept = Vec::new();
                for var in live.vars().filter(|&var| var != V0) {
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
                self.sites.push(Site { pc: *pc, buffer, kept, again });
            }
        }
        for slot in self.always.clone() {
            if !(1..=self.parameters).contains(&slot.number) {
                self.zero(slot.ty);
                self.store_local(slot.number, slot.ty);
            }
        }
    }

    /// Behind a call of `setjmp`: keeps what the second return has to find.
    fn setjmp_returned(&mut self, pc: u32, live: &Live) {
        let Some(at) = self.sites.iter().position(|site| site.pc == pc) else { return };
        let (buffer, again) = (self.sites[at].buffer, self.sites[at].again);
        self.forget_buffer(at);
        self.load_var(Var(4));
        self.store_local(buffer, Ty::I);
        self.make_valid(live);
        for (fp, mask) in live.fps() {
            self.valid[fp.0 as usize] = Rep::best(mask) as u8;
        }
        for (copy, slot) in self.sites[at].kept.clone() {
            self.load_local(slot.number, slot.ty);
            self.store_local(copy, slot.ty);
        }
        if !live.has(V0) {
            self.zero(Ty::I);
            self.store_var(V0);
        }
        let mut with_result = *live;
        with_result.ints |= V0.bit();
        self.place(again, &with_result, &[]);
    }

    /// A buffer that is filled again means the call that fills it last.
    fn forget_buffer(&mut self, site: usize) {
        let others: Vec<u16> = (0..self.sites.len())
            .filter(|&other| other != site)
            .map(|other| self.sites[other].buffer)
            .collect();
        for buffer in others {
            // buffer = buffer == a0 ? 0 : buffer, without a branch: 0 and -1 select.
            self.load_local(buffer, Ty::I);
            self.load_local(buffer, Ty::I);
            self.load_var(Var(4));
            self.java(&format!("{RUNTIME}Mips"), "differs", "(II)I", -1);
            self.code.op(op::IAND, -1);
            self.store_local(buffer, Ty::I);
        }
    }

    /// A fault below a call of `setjmp` runs the program's handler, which may jump here.
    fn catch_faults(&mut self, start: Label) {
        if self.sites.is_empty() {
            return;
        }
        let end = self.code.label();
        self.code.mark(end);
        let target = self.code.label();
        for class in ["IndexOutOfBoundsException", "ArithmeticException", "StackOverflowError"] {
            let class = self.pool.class(&format!("java/lang/{class}"));
            self.code.handler(start, end, target, class);
        }
        let throwable = "java/lang/Throwable";
        self.valid = [0; 32];
        self.place(target, &Live::default(), &[Type::Object(throwable.into())]);
        let fault = self.fresh(Ty::I);
        self.code.local(op::ASTORE, fault, -1);
        self.thread();
        self.code.local(op::ALOAD, fault, 1);
        self.load_var(SP);
        let descriptor = format!("(L{THREAD};L{throwable};I)Ljava/lang/Error;");
        self.java(&format!("{RUNTIME}Signals"), "fault", &descriptor, -2);
        self.code.op(op::ATHROW, -1);
    }

    /// Whoever jumps to a buffer that was filled here gets a second return.
    fn finish_sites(&mut self, start: Label, end: Label) {
        if self.sites.is_empty() {
            return;
        }
        let jump = format!("{RUNTIME}GuestJump");
        let class = self.pool.class(&jump);
        let target = self.code.label();
        let kept = self.fresh(Ty::I);
        self.code.handler(start, end, target, class);
        self.valid = [0; 32];
        self.place(target, &Live::default(), &[Type::Object(jump.clone())]);
        self.code.local(op::ASTORE, kept, -1);
        for site in std::mem::take(&mut self.sites) {
            let other = self.code.label();
            self.code.local(op::ALOAD, kept, 1);
            let field = self.pool.field(&jump, "buffer", "I");
            self.code.op_index(op::GETFIELD, field, 0);
            self.load_local(site.buffer, Ty::I);
            self.code.branch(op::IF_ICMPNE, other, -2);
            for (copy, slot) in site.kept {
                self.load_local(copy, slot.ty);
                self.store_local(slot.number, slot.ty);
            }
            self.code.local(op::ALOAD, kept, 1);
            let field = self.pool.field(&jump, "value", "I");
            self.code.op_index(op::GETFIELD, field, 0);
            self.store_var(V0);
            self.reload_memory();
            self.code.branch(op::GOTO, site.again, 0);
            let mut locals = self.locals(&Live::default());
            let next = locals.iter().map(Type::slots).sum::<u16>();
            locals.extend((next..kept).map(|_| Type::Top));
            locals.push(Type::Object(jump.clone()));
            self.code.place(other, locals, Vec::new());
        }
        self.code.local(op::ALOAD, kept, 1);
        self.code.op(op::ATHROW, -1);
    }
}

/// Marks a result that was just read from the thread, so that it is not forgotten.
const FROM_THREAD: u8 = 0x80 | Rep::Long as u8;

fn verification(ty: Ty) -> Type {
    match ty {
        Ty::I => Type::Int,
        Ty::J => Type::Long,
        Ty::F => Type::Float,
        Ty::D => Type::Double,
    }
}

/// The branch that compares with zero; six further on is the one that compares two integers.
fn against_zero(cmp: Cmp) -> u8 {
    match cmp {
        Cmp::Eq => op::IFEQ,
        Cmp::Ne => op::IFNE,
        Cmp::Lt => op::IFLT,
        Cmp::Ge => op::IFGE,
        Cmp::Gt => op::IFGT,
        Cmp::Le => op::IFLE,
        Cmp::LtU | Cmp::GeU => unreachable!("compared by a method"),
    }
}

fn opposite(opcode: u8) -> u8 {
    match opcode {
        op::IFEQ => op::IFNE,
        op::IFLT => op::IFGE,
        _ => op::IFGT,
    }
}

/// The method of a function whose parts are methods: it calls one after the other.
pub fn emit_driver(
    program: &Program,
    function: &Function,
    parts: &[(String, Vec<i32>)],
    first: i32,
    pool: &mut Pool,
) -> Code {
    let method = &program.methods[&function.entry];
    let signature = &method.signature;
    let mut types = vec![Type::Object(THREAD.into())];
    types.extend(signature.ints.iter().map(|_| Type::Int));
    types.extend(signature.fps.iter().map(|(_, rep)| verification(rep.ty())));
    let mut code = Code::new(types.clone());
    let mut slot: u16 = types.iter().map(Type::slots).sum();
    let (ints, fps, wanted) = (slot, slot + 1, slot + 2);
    for (length, kind, array) in [(REGISTERS, 10, ints), (FP_REGISTERS, 11, fps)] {
        code.int(pool, length);
        code.op(op::NEWARRAY, 0);
        // The operand of this one is a byte, not an instruction.
        code.op(kind, 0);
        code.local(op::ASTORE, array, -1);
    }
    slot = 1;
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
        to_bits(&mut code, pool, rep.ty());
        code.op(op::LASTORE, -4);
        slot += size as u16;
    }
    code.int(pool, first);
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
    code.place(returns, locals, Vec::new());
    return_results(&mut code, pool, signature.returns, ints, fps);
    code
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

fn return_results(code: &mut Code, pool: &mut Pool, returns: Returns, ints: u16, fps: u16) {
    let load = |code: &mut Code, pool: &mut Pool, var: Var| {
        code.local(op::ALOAD, ints, 1);
        code.int(pool, i32::from(var.0));
        code.op(op::IALOAD, -1);
    };
    match returns {
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
            code.int(pool, 0);
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
