//! What registers are known to hold: constants, entries of jump tables, the caller's values.
//!
//! In position-independent code nearly every address is a sum with the global pointer or a word of
//! the global offset table. Both are constants of a static program, and so is what is made of them.

use fettle_mips::Reg;

use crate::fold;
use crate::image::Image;
use crate::ir::{
    Bin, Block, BlockId, Callee, Cmp, Cond, End, Expr, Fp, Function, Rep, Stmt, Var, Width,
};

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// Nothing has set it on any way so far.
    Unset,
    /// This number.
    Const(u32),
    /// An address in an array at this address.
    Element(u32),
    /// A word of an array at `base`, and `add`.
    Table {
        /// Where the array is.
        base: u32,
        /// What was added.
        add: u32,
    },
    /// Most likely this number: it, or what it was made of, was put on the stack, where a pointer may
    /// have changed it.
    Likely(u32),
    /// What this register held at the function's entry.
    Entry(Var),
    /// Nothing.
    Any,
}

impl Value {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unset, x) | (x, Self::Unset) => x,
            (a, b) if a == b => a,
            (Self::Likely(a), Self::Const(b)) | (Self::Const(b), Self::Likely(a)) if a == b => {
                Self::Likely(a)
            }
            _ => Self::Any,
        }
    }
}

const VARIABLES: usize = 64;

/// Words of the stack that are remembered at once: compilers keep few addresses of functions there.
const SLOTS_MAX: usize = 16;

#[derive(Clone, PartialEq)]
struct State {
    vars: [Value; VARIABLES],
    /// Addresses of functions, and their upper halves, that were put on the stack: the register that
    /// points there, the distance.
    slots: Vec<((Var, i32), u32)>,
    /// Floating-point registers that still hold what they held at the entry.
    fp_entry: u64,
}

/// A place on the stack: the register that points there, and the distance.
fn stack_slot(address: &Expr) -> Option<(Var, i32)> {
    match address {
        Expr::Bin(Bin::Add, base, distance) => match (&**base, &**distance) {
            (Expr::Var(base @ Var(29 | 30)), Expr::Int(distance)) => Some((*base, *distance)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an address of code may be this and a signed half: what a local entry of the global offset
/// table gives.
fn is_page_of_code(image: &Image, value: u32) -> bool {
    let ends = [value.wrapping_sub(0x8000), value, value.wrapping_add(0x7ffc)];
    value & 0xffff == 0 && ends.into_iter().any(|end| image.is_code(end))
}

/// What is known at the beginning of each block; nothing of blocks that are never reached.
pub struct Known {
    states: Vec<Option<State>>,
}

/// Computes what is known.
pub fn solve(image: &Image, function: &Function) -> Known {
    let mut entry = State { vars: [Value::Unset; VARIABLES], slots: Vec::new(), fp_entry: !0 };
    for number in (1..32).chain(48..64) {
        entry.vars[number] = Value::Entry(Var(number as u8));
    }
    entry.vars[Reg::T9.number() as usize] = Value::Const(function.entry);
    entry.vars[Reg::GP.number() as usize] = Value::Const(image.gp);
    let mut states: Vec<Option<State>> = vec![None; function.blocks.len()];
    states[0] = Some(entry);
    let mut work = vec![0];
    while let Some(id) = work.pop() {
        let Some(mut state) = states[id].clone() else { continue };
        for (_, step) in &function.blocks[id].steps {
            state.step(image, step);
        }
        for next in function.blocks[id].end.successors() {
            let mut state = state.clone();
            if matches!(function.blocks[id].end, End::Invoke { pad, .. } if pad == Some(next)) {
                // The exception is there.
                state.set(crate::mips::var(Reg::A0), Value::Any);
                state.set(crate::mips::var(Reg::A1), Value::Any);
            }
            let changed = match &mut states[next] {
                Some(old) => old.join(&state),
                empty => {
                    *empty = Some(state);
                    true
                }
            };
            if changed {
                work.push(next);
            }
        }
    }
    Known { states }
}

impl Known {
    /// Whether a block can be reached at all.
    pub fn is_reached(&self, id: BlockId) -> bool {
        self.states[id].is_some()
    }

    /// What a variable holds at the end of a block.
    pub fn at_end(&self, image: &Image, function: &Function, id: BlockId, var: Var) -> Value {
        let Some(mut state) = self.states[id].clone() else { return Value::Unset };
        for (_, step) in &function.blocks[id].steps {
            state.step(image, step);
        }
        state.vars[var.0 as usize]
    }
}

/// Puts constants where they are read, calls constant addresses directly, and drops stores that only
/// save the caller's registers: methods have their own.
pub fn apply(image: &Image, function: &mut Function, known: &Known) {
    let mut likely = Vec::new();
    for (id, block) in function.blocks.iter_mut().enumerate() {
        let Some(mut state) = known.states[id].clone() else {
            block.steps.clear();
            block.end = End::Nowhere(block.pc);
            continue;
        };
        let mut steps = Vec::with_capacity(block.steps.len());
        for (pc, mut step) in std::mem::take(&mut block.steps) {
            if state.saves_callers_register(&step) {
                continue;
            }
            if let Stmt::Call { callee: Callee::Indirect(Expr::Var(var)), .. } = &step
                && let Value::Likely(to) = state.vars[var.0 as usize]
                && image.function_at(to).is_some()
            {
                likely.push((id, steps.len(), to));
            }
            let before = state.clone();
            state.step(image, &step);
            step.visit_mut(&mut |e| before.replace(image, e));
            if let Stmt::Call { callee, .. } = &mut step
                && let Callee::Indirect(Expr::Int(to)) = callee
                && image.is_code(*to as u32)
            {
                *callee = Callee::Direct(*to as u32);
            }
            // A step that only says where a jump is.
            if matches!(&step, Stmt::Set(var, Expr::Var(from)) if var == from) {
                continue;
            }
            steps.push((pc, step));
        }
        block.steps = steps;
        block.end.visit_mut(&mut |e| state.replace(image, e));
        if let End::Jump { targets, .. } = &block.end
            && let [(_, only)] = targets[..]
        {
            block.end = End::Goto(only);
        }
    }
    // The last first, so that positions before it stay valid.
    for (id, at, to) in likely.into_iter().rev() {
        call_directly(function, id, at, to);
    }
}

/// Makes an indirect call two calls: a direct one where the address is what it most likely is. That
/// one knows what the function changes, on which compilers count (GCC's `-fipa-ra`).
fn call_directly(function: &mut Function, id: BlockId, at: usize, to: u32) {
    let count = function.blocks.len();
    let (direct, indirect) = (count, count + 1);
    let block = &mut function.blocks[id];
    let rest = block.steps.split_off(at + 1);
    let Some((pc, call)) = block.steps.pop() else { return };
    let Stmt::Call { callee: Callee::Indirect(target), .. } = &call else { return };
    let is_it = Cond::Int(Cmp::Eq, target.clone(), Expr::Int(to as i32));
    let start = block.pc;
    let end = std::mem::replace(&mut block.end, End::If(is_it, direct, indirect));
    let behind = if rest.is_empty() { end.clone() } else { End::Goto(count + 2) };
    let certain = Stmt::Call { callee: Callee::Direct(to), pc };
    for call in [certain, call] {
        function.blocks.push(Block { pc, steps: vec![(pc, call)], end: behind.clone() });
    }
    if !rest.is_empty() {
        function.blocks.push(Block { pc: pc.max(start), steps: rest, end });
    }
}

impl State {
    /// Whether anything has changed.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.vars.iter_mut().zip(&other.vars) {
            *mine = mine.join(*theirs);
        }
        self.slots.retain(|slot| other.slots.contains(slot));
        self.fp_entry &= other.fp_entry;
        *self != before
    }

    fn set(&mut self, var: Var, value: Value) {
        self.slots.retain(|((base, _), _)| *base != var);
        self.vars[var.0 as usize] = value;
    }

    fn step(&mut self, image: &Image, step: &Stmt) {
        match step {
            Stmt::Set(var, value) => {
                let value = self.value(image, value);
                self.set(*var, value);
            }
            Stmt::SetIf(_, var, value) => {
                let value = self.value(image, value).join(self.vars[var.0 as usize]);
                self.set(*var, value);
            }
            Stmt::SetFp(fp, ..) | Stmt::SetFpIf(_, fp, ..) => self.fp_entry &= !(1 << fp.0),
            Stmt::Call { .. } => {
                for var in [Reg::V0, Reg::V1] {
                    self.set(crate::mips::var(var), Value::Any);
                }
                self.fp_entry &= !0b111;
            }
            Stmt::Syscall { .. } => {
                for var in [Reg::V0, Reg::V1, Reg::A3] {
                    self.set(crate::mips::var(var), Value::Any);
                }
            }
            Stmt::Store(width, address, value) => {
                let Some(slot) = stack_slot(address) else { return };
                self.slots.retain(|(known, _)| *known != slot);
                if let (Width::I32, Value::Const(to)) = (width, self.value(image, value))
                    && (image.function_at(to).is_some() || is_page_of_code(image, to))
                    && self.slots.len() < SLOTS_MAX
                {
                    self.slots.push((slot, to));
                    self.slots.sort_unstable();
                }
            }
            Stmt::Land { .. } => self.set(Var::LANDED, Value::Any),
            Stmt::Do(_) | Stmt::Trap { .. } | Stmt::Fence => {}
        }
    }

    fn value(&self, image: &Image, e: &Expr) -> Value {
        match e {
            Expr::Int(value) => Value::Const(*value as u32),
            Expr::Var(var) => self.vars[var.0 as usize],
            Expr::Bin(op, a, b) => {
                let (a, b) = (self.value(image, a), self.value(image, b));
                match (op, a, b) {
                    (_, Value::Const(a), Value::Const(b)) => {
                        fold::integers(*op, a as i32, b as i32)
                            .map_or(Value::Any, |value| Value::Const(value as u32))
                    }
                    (Bin::Add, Value::Likely(likely), Value::Const(c))
                    | (Bin::Add, Value::Const(c), Value::Likely(likely)) => {
                        Value::Likely(likely.wrapping_add(c))
                    }
                    (Bin::Add, Value::Element(base), Value::Const(c))
                    | (Bin::Add, Value::Const(c), Value::Element(base)) => {
                        Value::Element(base.wrapping_add(c))
                    }
                    (Bin::Add, Value::Table { base, add }, Value::Const(c))
                    | (Bin::Add, Value::Const(c), Value::Table { base, add }) => {
                        Value::Table { base, add: add.wrapping_add(c) }
                    }
                    (Bin::Add, Value::Const(c), _) | (Bin::Add, _, Value::Const(c))
                        if image.word(c & !3).is_some() =>
                    {
                        Value::Element(c)
                    }
                    _ => Value::Any,
                }
            }
            Expr::Load(Width::I32, address, _) if self.likely(address).is_some() => {
                self.likely(address).map_or(Value::Any, Value::Likely)
            }
            Expr::Load(Width::I32, address, _) => match self.value(image, address) {
                Value::Const(at) => image.constant(at).map_or(Value::Any, Value::Const),
                Value::Element(base) => Value::Table { base, add: 0 },
                _ => Value::Any,
            },
            Expr::Cond(_) | Expr::Un(..) | Expr::Load(..) | Expr::Help(..) => Value::Any,
            Expr::Float(_) | Expr::Double(_) | Expr::Fp(..) | Expr::Tls => Value::Any,
        }
    }

    /// The address that is on the stack there.
    fn likely(&self, address: &Expr) -> Option<u32> {
        let slot = stack_slot(address)?;
        self.slots.iter().find(|(known, _)| *known == slot).map(|(_, to)| *to)
    }

    fn replace(&self, image: &Image, e: &mut Expr) {
        match e {
            Expr::Var(var) => {
                if let Value::Const(value) = self.vars[var.0 as usize] {
                    *e = Expr::Int(value as i32);
                }
            }
            Expr::Load(width, address, _) => {
                if let Expr::Int(at) = **address {
                    let at = at as u32;
                    let other = at.wrapping_add(4);
                    match width {
                        Width::I32 => {
                            if let Some(word) = image.constant(at) {
                                *e = Expr::Int(word as i32);
                            }
                        }
                        Width::F32 => {
                            if let Some(word) = image.constant(at) {
                                *e = Expr::Float(word);
                            }
                        }
                        Width::F64 => {
                            if let (Some(a), Some(b)) = (image.constant(at), image.constant(other))
                            {
                                let (high, low) = if image.big_endian { (a, b) } else { (b, a) };
                                *e = Expr::Double(u64::from(high) << 32 | u64::from(low));
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => fold::simplify(e),
        }
    }

    /// Whether a store only saves a register that a function has to give back to its caller.
    fn saves_callers_register(&self, step: &Stmt) -> bool {
        let to_stack = |address: &Expr| {
            let mut stack = false;
            address.visit(&mut |e| stack |= matches!(e, Expr::Var(Var(29 | 30))));
            stack
        };
        match step {
            Stmt::Store(Width::I32, address, Expr::Var(var)) => {
                let saved = matches!(var.0, 16..=23 | 30 | 31 | 52..=55);
                saved && to_stack(address) && self.vars[var.0 as usize] == Value::Entry(*var)
            }
            Stmt::Store(Width::F32 | Width::F64, address, value) => {
                let register = match value {
                    Expr::Fp(fp, _) => *fp,
                    Expr::Help(_, arguments) => match &arguments[..] {
                        [Expr::Un(_, whole)] => match **whole {
                            Expr::Fp(fp, Rep::Long) => fp,
                            _ => return false,
                        },
                        _ => return false,
                    },
                    _ => return false,
                };
                let Fp(number) = register;
                number >= 20 && to_stack(address) && self.fp_entry & 1 << number != 0
            }
            _ => false,
        }
    }
}
