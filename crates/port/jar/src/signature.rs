//! The parameters and the result of the method that a function becomes.

use crate::convention::Convention;
use crate::flow::Summary;
use crate::ir::{Fp, Rep, Ty, Var};

/// The class of the thread that every method is given.
pub const THREAD: &str = "io/github/fettle/jvm/GuestThread";

const SP: Var = Var(29);

/// What a method returns; what does not fit is left in fields of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// Nothing.
    Nothing,
    /// `v0`.
    Int,
    /// `v0`, and `v1` above it.
    Long,
    /// The convention's first floating-point result.
    Fp(Rep),
}

/// Parameters and result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Integer parameters: the stack pointer first if it is one.
    pub ints: Vec<Var>,
    /// Floating-point parameters behind them.
    pub fps: Vec<(Fp, Rep)>,
    /// The result.
    pub returns: Returns,
    /// Which of the floating-point results are left in the thread.
    pub in_thread: [Option<Rep>; 2],
    /// How it is called.
    pub convention: Convention,
}

/// The letter of a type in descriptors.
pub fn letter(ty: Ty) -> char {
    match ty {
        Ty::I => 'I',
        Ty::J => 'J',
        Ty::F => 'F',
        Ty::D => 'D',
    }
}

/// How many slots of locals or of the operand stack a value takes.
pub fn slots(ty: Ty) -> i32 {
    match ty {
        Ty::I | Ty::F => 1,
        Ty::J | Ty::D => 2,
    }
}

impl Signature {
    /// What the summary of a function makes it.
    pub fn of(summary: &Summary) -> Self {
        let arguments = summary.arguments;
        let mut ints: Vec<Var> = arguments.vars().collect();
        ints.sort_by_key(|&var| (var != SP, var));
        let fps = arguments.fps().map(|(fp, mask)| (fp, Rep::best(mask))).collect();
        let results = summary.results();
        let reps = [0, 1].map(|i| (results.fp[i] != 0).then(|| summary.result_rep(i)));
        let (returns, in_thread) = match (results.ints, reps) {
            (0, [None, second]) => (Returns::Nothing, [None, second]),
            (0, [Some(rep), second]) => (Returns::Fp(rep), [None, second]),
            (4, reps) => (Returns::Int, reps),
            (_, reps) => (Returns::Long, reps),
        };
        Self { ints, fps, returns, in_thread, convention: summary.convention }
    }

    /// The descriptor of the method.
    pub fn descriptor(&self) -> String {
        let mut out = format!("(L{THREAD};");
        out.extend(self.ints.iter().map(|_| 'I'));
        out.extend(self.fps.iter().map(|(_, rep)| letter(rep.ty())));
        out.push(')');
        out.push(self.result().map_or('V', letter));
        out
    }

    /// The type of the result.
    pub fn result(&self) -> Option<Ty> {
        match self.returns {
            Returns::Nothing => None,
            Returns::Int => Some(Ty::I),
            Returns::Long => Some(Ty::J),
            Returns::Fp(rep) => Some(rep.ty()),
        }
    }

    /// Slots of the parameters behind the thread.
    pub fn parameter_slots(&self) -> i32 {
        self.ints.len() as i32 + self.fps.iter().map(|(_, rep)| slots(rep.ty())).sum::<i32>()
    }
}

/// The field of the thread that a floating-point register is passed in.
pub fn thread_field(fp: Fp) -> &'static str {
    match fp.0 {
        0 | 32 => "f0",
        2 | 33 => "f2",
        10 => "f10",
        11 => "f11",
        12 => "f12",
        13 => "f13",
        15 => "f15",
        16 => "f16",
        17 => "f17",
        _ => "f14",
    }
}

/// The field of the thread that an integer argument is passed in.
pub fn argument_field(var: Var) -> &'static str {
    match var.0 {
        48 => "a4",
        49 => "a5",
        50 => "a6",
        _ => "a7",
    }
}

/// Floating-point results that are left in the thread.
pub fn results_in_thread(signature: &Signature) -> impl Iterator<Item = (Fp, Rep)> + use<> {
    let results = signature.convention.fp_results().into_iter();
    results.zip(signature.in_thread).filter_map(|(fp, rep)| rep.map(|rep| (fp, rep)))
}
