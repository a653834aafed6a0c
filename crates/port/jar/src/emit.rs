//! From blocks to the bytecode of one method.
//!
//! A method is a whole function, or a part of one that is too large (`split` decides the parts). A
//! part gets the registers that it needs from arrays, and puts back there what others need of it.

mod calls;
mod cond;
mod expr;
mod floats;
mod locals;
mod pads;
mod parts;
mod second;

pub use parts::{PART, agains, emit_driver};

use rustc_hash::FxHashMap;

use crate::classfile::{Code, Label, Pool, Type};
use crate::convention::{Convention, FPS};
use crate::debug::Lines;
use crate::flow::{Live, Liveness};
use crate::ir::{Bin, BlockId, Callee, Cond, End, Expr, Fp, Function, Rep, Stmt, Ty, Var};
use crate::op;
use crate::signature::{Returns, Signature, THREAD, results_in_thread, slots, thread_field};
use crate::target::Target;
use crate::unwind::Regions;

/// The package of the runtime.
pub const RUNTIME: &str = "io/github/fettle/jvm/";
/// The descriptor of indirect calls: thread, address, stack pointer, four arguments.
pub const CALL: &str = "(Lio/github/fettle/jvm/GuestThread;IIIIII)J";
const VAR_HANDLE: &str = "java/lang/invoke/VarHandle";
const THROWABLE: &str = "java/lang/Throwable";
/// The descriptor of the method that handles a fault: thread, exception, stack pointer.
const FAULT: &str = "(Lio/github/fettle/jvm/GuestThread;Ljava/lang/Throwable;I)Ljava/lang/Error;";

const V0: Var = Var(2);
const V1: Var = Var(3);
const A0: Var = Var(4);
const A1: Var = Var(5);
const A3: Var = Var(7);
const SP: Var = Var(29);

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
    /// The file that its lines are of, and the line that they count from.
    pub source: Option<(usize, u32)>,
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
    /// What names of its classes begin with: their package.
    pub folder: String,
    /// Whether loops and functions ask if they are to end.
    pub interruptible: bool,
    /// Source lines of instructions.
    pub lines: Lines,
    /// What it is to run on.
    pub target: Target,
    /// How its functions are called.
    pub convention: Convention,
    /// Whether its memory begins at 2 GB.
    pub high: bool,
    /// One past the last address that it uses, if no kernel says that.
    pub memory_top: u32,
}

impl Program {
    /// The full name of one of its classes.
    pub fn class(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    /// The line of an instruction of a function, as its class counts them. What was inlined from other files
    /// has the line of its call: a class has one file.
    pub fn line(&self, function: &Function, address: u32) -> Option<u16> {
        let (file, first) = self.methods.get(&function.entry)?.source?;
        let places = self.lines.places(address);
        let mut inside = places.iter().filter(|place| place.file == file);
        inside.find_map(|place| u16::try_from(place.line.checked_sub(first)?).ok())
    }

    /// Whether a step of a function calls what may return a second time.
    pub fn returns_again(&self, function: &Function, step: &Stmt) -> bool {
        let role = |address| self.methods.get(address).map_or(Role::Ordinary, |m: &Method| m.role);
        if let Stmt::Land { .. } = step {
            return true;
        }
        let Stmt::Call { callee: Callee::Direct(to), .. } = step else { return false };
        role(to) == Role::SetJump && role(&function.entry) == Role::Ordinary
    }
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
        /// All calls of `setjmp` in the function.
        agains: &'a [Again],
    },
}

/// A call of `setjmp` in a function of several methods. The part that calls is left before control
/// jumps back: what the second return has to find is kept in the arrays of the parts.
pub struct Again {
    /// Where the call is.
    pub pc: u32,
    /// The block behind it.
    pub block: BlockId,
    /// The variable that the address of the buffer is in at the call.
    pub buffer: Var,
    /// The variable of the result.
    pub result: Var,
    /// Where the address of the buffer is among the integers; the registers follow.
    pub ints_at: i32,
    /// Integer registers that are kept.
    pub vars: Vec<Var>,
    /// Where the floating-point registers are.
    pub fps_at: i32,
    /// Floating-point registers that are kept.
    pub fps: Vec<Fp>,
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
    /// The local with the address of the buffer, and the variables that it and the result are in.
    buffer: u16,
    from: Var,
    result: Var,
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
    valid: [u8; FPS],
    memory: Option<u16>,
    /// Arrays of a part: integer and floating-point registers.
    arrays: Option<(u16, u16)>,
    /// Locals that always have a value.
    always: Vec<Slot>,
    /// Floating-point variables that parts exchange, and as what this one keeps them.
    exchanged: Vec<(Fp, Rep)>,
    exchanged_vars: u64,
    exits: Vec<(BlockId, Label)>,
    bad_jumps: Vec<(Label, u32)>,
    pinned: bool,
    /// How many of the first slots are integer parameters.
    parameters: u16,
    sites: Vec<Site>,
    invokes: Vec<Invoke>,
    /// The instruction that is emitted.
    at: u32,
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
        let steps = || function.blocks.iter().flat_map(|block| &block.steps);
        let pinned = steps().any(|(_, step)| program.returns_again(function, step));
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
            valid: [0; FPS],
            memory: None,
            arrays: None,
            always: Vec::new(),
            exchanged: Vec::new(),
            exchanged_vars: 0,
            exits: Vec::new(),
            bad_jumps: Vec::new(),
            pinned,
            parameters: 0,
            sites: Vec::new(),
            invokes: Vec::new(),
            at: 0,
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
        self.code.note_place(self.function.entry);
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

    // Beginnings.

    pub(super) fn uses_memory(&self) -> bool {
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

    pub(super) fn begin_whole(&mut self) {
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
    // Steps.

    pub(super) fn block(&mut self, id: BlockId, next: Option<BlockId>) {
        let function = self.function;
        let live = self.liveness.at_start(id);
        self.expect(&live);
        self.place(self.labels[id], &live, &[]);
        if self.program.interruptible && self.is_repeated(id) {
            self.ask_for_end(&live);
        }
        let after = self.liveness.after_steps(function, id);
        let block = &function.blocks[id];
        self.at = block.pc;
        self.note_line(block.pc);
        for (index, ((pc, step), live)) in block.steps.iter().zip(&after).enumerate() {
            self.at = *pc;
            self.code.note_place(*pc);
            self.note_line(*pc);
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
        self.code.note_place(self.at);
        self.end(&block.end, next);
    }

    /// Whether a loop or a call comes to a block again and again.
    fn is_repeated(&self, id: BlockId) -> bool {
        let place = |wanted: BlockId| self.order.iter().position(|&each| each == wanted);
        let entered = match self.extent {
            Extent::Whole => id == 0,
            Extent::Part { entries, .. } => entries.contains(&id),
        };
        let later = place(id).map_or(&[][..], |at| &self.order[at..]);
        entered || later.iter().any(|&b| self.function.blocks[b].end.successors().contains(&id))
    }

    /// Leaves the program if it is to end: nothing else would stop a loop without system calls.
    fn ask_for_end(&mut self, live: &Live) {
        let guest = format!("{RUNTIME}Guest");
        self.thread();
        let field = self.pool.field(THREAD, "guest", &format!("L{guest};"));
        self.code.op_index(op::GETFIELD, field, 0);
        let field = self.pool.field(&guest, "poll", "Z");
        self.code.op_index(op::GETFIELD, field, 0);
        let skip = self.code.label();
        self.code.branch(op::IFEQ, skip, -1);
        self.thread();
        self.java(&format!("{RUNTIME}Signals"), "limit", &format!("(L{THREAD};)V"), -1);
        self.place(skip, live, &[]);
    }

    /// What follows is of this instruction.
    pub(super) fn note_line(&mut self, address: u32) {
        if let Some(line) = self.program.line(self.function, address) {
            self.code.line(line);
        }
    }

    /// Makes floating-point variables what the block expects that follows.
    pub(super) fn make_ready(&mut self, to: BlockId, live: &Live) {
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
    pub(super) fn step(&mut self, step: &Stmt, live: &Live) -> bool {
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
            Stmt::Trap { cond, code } => return self.trap(cond.as_ref(), *code, live),
            Stmt::Land { pc } => self.note_landing(*pc, live),
            Stmt::Fence => self.java(VAR_HANDLE, "fullFence", "()V", 0),
        }
        true
    }

    /// Raises a signal if the condition holds. Whether anything may follow.
    fn trap(&mut self, cond: Option<&Cond>, code: u32, live: &Live) -> bool {
        let skip = cond.map(|cond| {
            let skip = self.code.label();
            self.branch_if(cond, false, skip);
            skip
        });
        let valid = self.valid;
        self.thread();
        self.code.int(self.pool, code as i32);
        self.load_var(SP);
        let descriptor = format!("(L{THREAD};II)Ljava/lang/Error;");
        self.java(&format!("{RUNTIME}Signals"), "trap", &descriptor, -2);
        self.code.op(op::ATHROW, -1);
        self.valid = valid;
        if let Some(skip) = skip {
            self.place(skip, live, &[]);
        }
        skip.is_some()
    }

    // Ends.
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
        for (fp, _) in results_in_thread(&signature) {
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
                let slot = self.ensure(signature.convention.fp_results()[0], rep);
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
}

fn verification(ty: Ty) -> Type {
    match ty {
        Ty::I => Type::Int,
        Ty::J => Type::Long,
        Ty::F => Type::Float,
        Ty::D => Type::Double,
    }
}
