//! What machine code is lifted to: expressions over variables, in blocks.
//!
//! A variable is a register. Expressions are trees, since the target is a stack machine: whatever
//! is used once and at once never needs a local. Nothing here is about MIPS: a front end of another
//! machine makes the same form.

use smallvec::{SmallVec, smallvec};

use crate::convention::Convention;
pub use crate::vars::{Fp, Var};

/// How the content of a floating-point variable is seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Rep {
    /// Low 32 bits, as an integer.
    Int = 1,
    /// Low 32 bits, as a float.
    Float = 2,
    /// All bits, as a double.
    Double = 4,
    /// All bits, as an integer.
    Long = 8,
}

impl Rep {
    /// The best one for a variable that is still to be seen in all these ways.
    pub fn best(mask: u8) -> Self {
        if mask & Self::Double as u8 != 0 {
            Self::Double
        } else if mask & Self::Long as u8 != 0 {
            Self::Long
        } else if mask & Self::Float as u8 != 0 {
            Self::Float
        } else {
            Self::Int
        }
    }

    /// The type of its local.
    pub fn ty(self) -> Ty {
        match self {
            Self::Int => Ty::I,
            Self::Float => Ty::F,
            Self::Double => Ty::D,
            Self::Long => Ty::J,
        }
    }
}

/// Types of the Java virtual machine that values have here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ty {
    /// int
    I,
    /// long
    J,
    /// float
    F,
    /// double
    D,
}

/// What a load or store moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Width {
    S8,
    U8,
    S16,
    U16,
    I32,
    /// A word that need not be aligned.
    Unaligned,
    F32,
    F64,
}

/// Operations with one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Un {
    /// Sign-extends the low byte.
    I2B,
    /// Sign-extends the low half.
    I2S,
    Clz,
    /// int to long, signed.
    I2L,
    /// int to long, unsigned.
    U2L,
    /// High word of a long.
    LHi,
    FNeg,
    FAbs,
    FSqrt,
    DNeg,
    DAbs,
    DSqrt,
    F2D,
    D2F,
    I2F,
    I2D,
    L2F,
    L2D,
}

/// Operations with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Bin {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Ushr,
    Rotr,
    Div,
    Rem,
    DivU,
    RemU,
    /// High word, low word: a long.
    Pair,
    LAdd,
    LSub,
    LMul,
    FAdd,
    FSub,
    FMul,
    FDiv,
    DAdd,
    DSub,
    DMul,
    DDiv,
}

/// Comparisons of integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Ge,
    Gt,
    Le,
    LtU,
    GeU,
}

impl Cmp {
    /// The comparison that holds when this one does not.
    pub fn negated(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Lt => Self::Ge,
            Self::Ge => Self::Lt,
            Self::Gt => Self::Le,
            Self::Le => Self::Gt,
            Self::LtU => Self::GeU,
            Self::GeU => Self::LtU,
        }
    }
}

/// A condition.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Cond {
    /// Between integers.
    Int(Cmp, Expr, Expr),
    /// Between doubles or floats: true if `less`, `equal` or `unordered` says so for what is found.
    Float {
        double: bool,
        less: bool,
        equal: bool,
        unordered: bool,
        negated: bool,
        a: Expr,
        b: Expr,
    },
}

impl Cond {
    /// The opposite condition.
    pub fn negated(self) -> Self {
        match self {
            Self::Int(cmp, a, b) => Self::Int(cmp.negated(), a, b),
            Self::Float { double, less, equal, unordered, negated, a, b } => {
                Self::Float { double, less, equal, unordered, negated: !negated, a, b }
            }
        }
    }
}

/// A static method of the runtime that is part of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Helper {
    /// Simple name of its class.
    pub class: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its descriptor, without the memory in front if `memory`.
    pub descriptor: &'static str,
    /// What it returns.
    pub result: Option<Ty>,
    /// Whether its first argument is the memory.
    pub memory: bool,
    /// Whether its first argument is the thread.
    pub thread: bool,
    /// Whether it does more than compute its result.
    pub effect: bool,
    /// Whether it may call functions of the program.
    pub calls: bool,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// A constant.
    Int(i32),
    /// A constant.
    Float(u32),
    /// A constant, by its bits.
    Double(u64),
    /// Content of an integer variable.
    Var(Var),
    /// Content of a floating-point variable.
    Fp(Fp, Rep),
    /// An operation.
    Un(Un, Box<Expr>),
    /// An operation.
    Bin(Bin, Box<Expr>, Box<Expr>),
    /// 1 if the condition holds, else 0.
    Cond(Box<Cond>),
    /// Content of memory, and the address of the instruction that reads it, if it is one.
    Load(Width, Box<Expr>, u32),
    /// What the runtime's method returns.
    Help(&'static Helper, Vec<Expr>),
    /// Base of the thread's local storage.
    Tls,
}

impl Expr {
    /// An operation with one operand.
    pub fn un(op: Un, a: Expr) -> Self {
        Self::Un(op, Box::new(a))
    }

    /// An operation with two operands.
    pub fn bin(op: Bin, a: Expr, b: Expr) -> Self {
        Self::Bin(op, Box::new(a), Box::new(b))
    }

    /// Calls `f` with each part of the tree, the tree itself first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match self {
            Self::Un(_, a) | Self::Load(_, a, _) => a.visit(f),
            Self::Bin(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Self::Cond(cond) => cond.visit(f),
            Self::Help(_, arguments) => arguments.iter().for_each(|a| a.visit(f)),
            Self::Int(_) | Self::Float(_) | Self::Double(_) => {}
            Self::Var(_) | Self::Fp(..) | Self::Tls => {}
        }
    }

    /// Calls `f` with each part of the tree, leaves first.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::Un(_, a) | Self::Load(_, a, _) => a.visit_mut(f),
            Self::Bin(_, a, b) => {
                a.visit_mut(f);
                b.visit_mut(f);
            }
            Self::Cond(cond) => cond.visit_mut(f),
            Self::Help(_, arguments) => arguments.iter_mut().for_each(|a| a.visit_mut(f)),
            Self::Int(_) | Self::Float(_) | Self::Double(_) => {}
            Self::Var(_) | Self::Fp(..) | Self::Tls => {}
        }
        f(self);
    }

    /// How many parts the tree has.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.visit(&mut |_| size += 1);
        size
    }

    /// Whether it reads memory.
    pub fn loads(&self) -> bool {
        let mut loads = false;
        self.visit(&mut |e| {
            loads |= match e {
                Self::Load(..) => true,
                Self::Help(helper, _) => helper.memory,
                _ => false,
            }
        });
        loads
    }

    /// Whether evaluating it does more than give its value.
    pub fn has_effect(&self) -> bool {
        let mut effect = false;
        self.visit(&mut |e| effect |= matches!(e, Self::Help(helper, _) if helper.effect));
        effect
    }
}

impl Cond {
    /// As for expressions.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        let (Self::Int(_, a, b) | Self::Float { a, b, .. }) = self;
        a.visit(f);
        b.visit(f);
    }

    /// As for expressions.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        let (Self::Int(_, a, b) | Self::Float { a, b, .. }) = self;
        a.visit_mut(f);
        b.visit_mut(f);
    }
}

/// What a call leads to.
#[derive(Clone, PartialEq, Debug)]
pub enum Callee {
    /// A function.
    Direct(u32),
    /// The function at this address.
    Indirect(Expr),
}

/// One step.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Stmt {
    /// Sets a variable.
    Set(Var, Expr),
    /// Sets a floating-point variable.
    SetFp(Fp, Rep, Expr),
    /// Sets a variable if the condition holds.
    SetIf(Cond, Var, Expr),
    /// Sets a floating-point variable if the condition holds.
    SetFpIf(Cond, Fp, Rep, Expr),
    /// Writes memory: where, what.
    Store(Width, Expr, Expr),
    /// Evaluates for its effects.
    Do(Expr),
    /// Calls.
    Call { callee: Callee, pc: u32 },
    /// Calls the kernel.
    Syscall { number: Expr, pc: u32 },
    /// Raises a signal if the condition holds.
    Trap { cond: Option<Cond>, code: u32 },
    /// Orders memory accesses.
    Fence,
    /// Notes the state that jumps of other functions to labels of this one come back to: the variable
    /// [`Var::LANDED`] says to which.
    Land { pc: u32 },
}

/// Index of a block in its function.
pub type BlockId = usize;

/// How a block ends.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum End {
    /// With another block.
    Goto(BlockId),
    /// With one block if the condition holds, else with the other.
    If(Cond, BlockId, BlockId),
    /// With the block at the value of the expression.
    Jump { to: Expr, targets: Vec<(u32, BlockId)> },
    /// With a call, its last step, behind which a block follows, or a landing pad where an
    /// exception passes; without one an exception ends the program.
    Invoke { next: BlockId, pad: Option<BlockId> },
    /// With the function.
    Return,
    /// Nowhere: what is at this address cannot be executed.
    Nowhere(u32),
}

impl End {
    /// Blocks that may follow.
    pub fn successors(&self) -> SmallVec<[BlockId; 2]> {
        match self {
            Self::Goto(to) => smallvec![*to],
            Self::If(_, yes, no) => smallvec![*yes, *no],
            Self::Invoke { next, pad } => std::iter::once(*next).chain(*pad).collect(),
            Self::Jump { targets, .. } => targets.iter().map(|(_, block)| *block).collect(),
            Self::Return | Self::Nowhere(_) => SmallVec::new(),
        }
    }

    /// Makes it lead to another block wherever it led to one.
    pub fn redirect(&mut self, from: BlockId, to: BlockId) {
        let change = |id: &mut BlockId| {
            if *id == from {
                *id = to;
            }
        };
        match self {
            Self::Goto(next) => change(next),
            Self::If(_, yes, no) => [yes, no].into_iter().for_each(change),
            Self::Invoke { next, pad } => std::iter::once(next).chain(pad).for_each(change),
            Self::Jump { targets, .. } => targets.iter_mut().for_each(|(_, id)| change(id)),
            Self::Return | Self::Nowhere(_) => {}
        }
    }

    /// Calls `f` with the expressions in it.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        match self {
            Self::If(cond, ..) => cond.visit(f),
            Self::Jump { to, .. } => to.visit(f),
            Self::Goto(_) | Self::Invoke { .. } | Self::Return | Self::Nowhere(_) => {}
        }
    }

    /// Calls `f` with the expressions in it.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::If(cond, ..) => cond.visit_mut(f),
            Self::Jump { to, .. } => to.visit_mut(f),
            Self::Goto(_) | Self::Invoke { .. } | Self::Return | Self::Nowhere(_) => {}
        }
    }
}

impl Stmt {
    /// Calls `f` with the expressions in it.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        match self {
            Self::Set(_, e) | Self::SetFp(_, _, e) | Self::Do(e) => e.visit(f),
            Self::Syscall { number, .. } => number.visit(f),
            Self::SetIf(cond, _, e) | Self::SetFpIf(cond, _, _, e) => {
                cond.visit(f);
                e.visit(f);
            }
            Self::Store(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Self::Call { callee: Callee::Indirect(e), .. } => e.visit(f),
            Self::Trap { cond: Some(cond), .. } => cond.visit(f),
            Self::Call { .. } | Self::Trap { .. } | Self::Fence | Self::Land { .. } => {}
        }
    }

    /// Calls `f` with the expressions in it.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::Set(_, e) | Self::SetFp(_, _, e) | Self::Do(e) => e.visit_mut(f),
            Self::Syscall { number, .. } => number.visit_mut(f),
            Self::SetIf(cond, _, e) | Self::SetFpIf(cond, _, _, e) => {
                cond.visit_mut(f);
                e.visit_mut(f);
            }
            Self::Store(_, a, b) => {
                a.visit_mut(f);
                b.visit_mut(f);
            }
            Self::Call { callee: Callee::Indirect(e), .. } => e.visit_mut(f),
            Self::Trap { cond: Some(cond), .. } => cond.visit_mut(f),
            Self::Call { .. } | Self::Trap { .. } | Self::Fence | Self::Land { .. } => {}
        }
    }
}

/// A block: what is executed from one address on, up to the next branch.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Where it begins.
    pub pc: u32,
    /// Its steps, each with the address of its instruction.
    pub steps: Vec<(u32, Stmt)>,
    /// How it ends.
    pub end: End,
}

impl Block {
    /// How many loads and stores it has.
    pub fn accesses(&self) -> usize {
        let mut count = 0;
        let mut look = |e: &Expr| count += usize::from(matches!(e, Expr::Load(..)));
        self.end.visit(&mut look);
        self.steps.iter().for_each(|(_, step)| step.visit(&mut look));
        count + self.steps.iter().filter(|(_, step)| matches!(step, Stmt::Store(..))).count()
    }
}

/// A function: its blocks, the entry first.
#[derive(Clone, Debug)]
pub struct Function {
    /// Where it begins.
    pub entry: u32,
    /// Its name, or one made of its address.
    pub name: String,
    /// Its blocks.
    pub blocks: Vec<Block>,
    /// How it is called, and calls.
    pub convention: Convention,
}
