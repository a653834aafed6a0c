//! Liveness, within functions and between them.
//!
//! Registers that a function reads before it sets them are its arguments; what its callers read
//! after a call are its results. Both depend on each other over the whole program, so they are
//! computed together until nothing changes. A method then has these parameters and this result, and
//! nothing else of the calling convention remains.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::convention::{Convention, FPS};
use crate::ir::{BlockId, Callee, End, Expr, Fp, Function, Rep, Stmt, Var};

const V0: u64 = 1 << 2;
const V1: u64 = 1 << 3;
const SP: u64 = 1 << 29;
/// What a landing pad finds: the exception, and which of its handlers is meant.
const LANDED: u64 = 1 << 4 | 1 << 5;
/// What a system call reads.
const SYSCALL_ARGUMENTS: u64 = 0xf << 4;

/// `pipe`, the one system call with a result in `v1`.
const PIPE: i32 = 4042;

/// What is live at a point: integer variables as bits, floating-point ones by how they are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// Integer variables.
    pub ints: u64,
    /// Of each floating-point variable, the `Rep`s in which it may still be read.
    pub fp: [u8; FPS],
}

impl Default for Live {
    fn default() -> Self {
        Self { ints: 0, fp: [0; FPS] }
    }
}

impl Live {
    /// Whether a variable is live.
    pub fn has(&self, var: Var) -> bool {
        self.ints & var.bit() != 0
    }

    /// Integer variables in order.
    pub fn vars(&self) -> impl Iterator<Item = Var> + use<> {
        let ints = self.ints;
        (0..64).filter(move |bit| ints & 1 << bit != 0).map(Var)
    }

    /// Floating-point variables in order, each with its masks.
    pub fn fps(&self) -> impl Iterator<Item = (Fp, u8)> + use<> {
        self.fp
            .into_iter()
            .enumerate()
            .filter(|(_, mask)| *mask != 0)
            .map(|(i, m)| (Fp(i as u8), m))
    }

    /// Makes it hold what another does as well.
    pub fn add(&mut self, other: &Self) {
        self.ints |= other.ints;
        for (mine, theirs) in self.fp.iter_mut().zip(&other.fp) {
            *mine |= theirs;
        }
    }

    fn use_expr(&mut self, e: &Expr) {
        match e {
            Expr::Var(var) => self.ints |= var.bit(),
            Expr::Fp(fp, rep) => self.fp[fp.0 as usize] |= *rep as u8,
            _ => {}
        }
    }

    /// Adds what the end of a block reads.
    pub fn use_end(&mut self, end: &End) {
        end.visit(&mut |e| self.use_expr(e));
    }
}

/// Results: bits of `v0` and `v1`, and how those in floating-point variables are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Results {
    /// Bits of integer variables.
    pub ints: u64,
    /// Of each floating-point result of the convention, a mask of `Rep`s.
    pub fp: [u8; 2],
}

impl Results {
    fn add(&mut self, other: Self) -> bool {
        let before = *self;
        self.ints |= other.ints;
        self.fp[0] |= other.fp[0];
        self.fp[1] |= other.fp[1];
        *self != before
    }

    fn and(self, other: Self) -> Self {
        let fp = |i: usize| if other.fp[i] != 0 { self.fp[i] } else { 0 };
        Self { ints: self.ints & other.ints, fp: [fp(0), fp(1)] }
    }
}

/// What is known of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// What it reads before it sets it.
    pub arguments: Live,
    /// What it, or what it calls, may set; of floating-point results, as what.
    pub defines: Results,
    /// What callers read.
    pub wanted: Results,
    /// Whether the memory may be another array after a call of it.
    pub grows: bool,
    /// Whether it is called through pointers.
    pub taken: bool,
    /// How it is called.
    pub convention: Convention,
}

impl Summary {
    /// What it has to return.
    pub fn results(&self) -> Results {
        self.wanted.and(self.defines)
    }

    /// How it returns a floating-point result.
    pub fn result_rep(&self, index: usize) -> Rep {
        Rep::best(self.defines.fp[index])
    }
}

/// What is known of all functions.
pub type Summaries = FxHashMap<u32, Summary>;

/// Liveness in one function.
pub struct Liveness<'a> {
    summaries: &'a Summaries,
    at_return: Live,
    at_start: Vec<Live>,
    /// Arguments that indirect calls may pass, by address of the call.
    passed: FxHashMap<u32, Live>,
    convention: Convention,
}

impl<'a> Liveness<'a> {
    /// Computes it.
    pub fn of(function: &Function, summaries: &'a Summaries) -> Self {
        let mut at_return = Live::default();
        if let Some(summary) = summaries.get(&function.entry) {
            let results = summary.results();
            at_return.ints = results.ints;
            for (index, fp) in function.convention.fp_results().iter().enumerate() {
                if results.fp[index] != 0 {
                    at_return.fp[fp.0 as usize] = summary.result_rep(index) as u8;
                }
            }
        }
        let at_start = vec![Live::default(); function.blocks.len()];
        let (passed, convention) = (passed(function), function.convention);
        let mut liveness = Self { summaries, at_return, at_start, passed, convention };
        liveness.solve(function);
        liveness
    }

    fn solve(&mut self, function: &Function) {
        let mut before = vec![Vec::new(); function.blocks.len()];
        for (id, block) in function.blocks.iter().enumerate() {
            for next in block.end.successors() {
                before[next].push(id);
            }
        }
        let mut work: Vec<BlockId> = (0..function.blocks.len()).collect();
        let mut queued = vec![true; function.blocks.len()];
        while let Some(id) = work.pop() {
            queued[id] = false;
            let mut live = self.at_end(function, id);
            let block = &function.blocks[id];
            live.use_end(&block.end);
            for (_, step) in block.steps.iter().rev() {
                self.before(&mut live, step);
            }
            if live != self.at_start[id] {
                self.at_start[id] = live;
                for &earlier in &before[id] {
                    if !std::mem::replace(&mut queued[earlier], true) {
                        work.push(earlier);
                    }
                }
            }
        }
    }

    /// What is live where the function returns.
    pub fn at_return(&self) -> Live {
        self.at_return
    }

    /// What is live at the beginning of a block.
    pub fn at_start(&self, id: BlockId) -> Live {
        self.at_start[id]
    }

    /// What is live behind the end of a block.
    pub fn at_end(&self, function: &Function, id: BlockId) -> Live {
        let mut live = Live::default();
        match &function.blocks[id].end {
            End::Return => live = self.at_return,
            End::Invoke { next, pad } => {
                live.add(&self.at_start[*next]);
                // A function that catches an exception tells the runtime where the stack is.
                live.ints |= SP;
                if let Some(pad) = pad {
                    live.add(&self.at_pad(*pad));
                }
            }
            end => end.successors().iter().for_each(|&next| live.add(&self.at_start[next])),
        }
        live
    }

    /// What is live behind a call whose exception leads to a landing pad: the exception itself is set
    /// on the way, and what the call returns is not there.
    pub fn at_pad(&self, pad: BlockId) -> Live {
        let mut live = self.at_start[pad];
        live.ints &= !(LANDED | V0 | V1);
        self.convention.fp_results().iter().for_each(|fp| live.fp[fp.0 as usize] = 0);
        live
    }

    /// What is live after each step of a block.
    pub fn after_steps(&self, function: &Function, id: BlockId) -> Vec<Live> {
        let block = &function.blocks[id];
        let mut live = self.at_end(function, id);
        live.use_end(&block.end);
        let mut after = vec![live; block.steps.len()];
        for (index, (_, step)) in block.steps.iter().enumerate().rev() {
            after[index] = live;
            self.before(&mut live, step);
        }
        after
    }

    /// Goes back over a step.
    pub fn before(&self, live: &mut Live, step: &Stmt) {
        match step {
            Stmt::Set(var, _) => live.ints &= !var.bit(),
            Stmt::SetFp(fp, ..) => live.fp[fp.0 as usize] = 0,
            Stmt::SetFpIf(_, fp, rep, _) => live.fp[fp.0 as usize] |= *rep as u8,
            Stmt::SetIf(_, var, _) => live.ints |= var.bit(),
            _ => live.ints &= !self.kills(step),
        }
        if let Stmt::Call { callee, .. } = step {
            let defines = self.defines(callee);
            for (index, fp) in self.convention.fp_results().iter().enumerate() {
                if defines.fp[index] != 0 {
                    live.fp[fp.0 as usize] = 0;
                }
            }
            live.add(&self.arguments(step));
        }
        live.ints |= self.hidden_reads(step);
        step.visit(&mut |e| live.use_expr(e));
    }

    /// What a call passes.
    pub fn arguments(&self, step: &Stmt) -> Live {
        match step {
            Stmt::Call { callee: Callee::Direct(to), .. } => {
                self.summaries.get(to).map(|s| s.arguments).unwrap_or_default()
            }
            Stmt::Call { pc, .. } => {
                let mut passed = self.passed.get(pc).copied().unwrap_or_default();
                passed.ints |= SP;
                passed
            }
            _ => Live::default(),
        }
    }

    /// What a call may set.
    pub fn defines(&self, callee: &Callee) -> Results {
        match callee {
            Callee::Direct(to) => self.summaries.get(to).map(|s| s.defines).unwrap_or_default(),
            Callee::Indirect(_) => ANY_RESULT,
        }
    }

    /// Integer variables that a step reads without an expression that says so.
    pub fn hidden_reads(&self, step: &Stmt) -> u64 {
        match step {
            Stmt::Call { .. } => self.arguments(step).ints,
            Stmt::Syscall { .. } => SYSCALL_ARGUMENTS | SP,
            Stmt::Trap { .. } => SP,
            Stmt::Land { .. } => Var::FRAME.bit() | SP,
            _ => 0,
        }
    }

    /// Integer variables that a step sets to something new.
    pub fn kills(&self, step: &Stmt) -> u64 {
        match step {
            Stmt::Set(var, _) => var.bit(),
            Stmt::Land { .. } => Var::LANDED.bit(),
            Stmt::Call { callee, .. } => self.defines(callee).ints,
            Stmt::Syscall { number, .. } => {
                let second = matches!(number, Expr::Int(PIPE) | Expr::Var(_));
                V0 | 1 << 7 | if second { V1 } else { 0 }
            }
            _ => 0,
        }
    }

    /// What is read after a call of what it may set.
    fn wanted(&self, live: &Live, callee: &Callee) -> Results {
        let fp = self.convention.fp_results().map(|fp| live.fp[fp.0 as usize]);
        Results { ints: live.ints & (V0 | V1), fp }.and(self.defines(callee))
    }
}

/// What an indirect call may return.
pub const ANY_RESULT: Results = Results { ints: V0 | V1, fp: [Rep::Long as u8, Rep::Long as u8] };

/// Which arguments each indirect call may pass: those that were set since the last call,
/// or are still as the function got them.
fn passed(function: &Function) -> FxHashMap<u32, Live> {
    let (arguments, fp_arguments) =
        (function.convention.arguments(), function.convention.fp_arguments());
    let mut all = Live { ints: arguments, ..Live::default() };
    for fp in fp_arguments {
        all.fp[fp.0 as usize] = Rep::Long as u8;
    }
    let mut states: Vec<Option<Live>> = vec![None; function.blocks.len()];
    states[0] = Some(all);
    let mut work = vec![0];
    let mut passed = FxHashMap::default();
    while let Some(id) = work.pop() {
        let Some(mut state) = states[id] else { continue };
        for (_, step) in &function.blocks[id].steps {
            match step {
                Stmt::Set(var, _) | Stmt::SetIf(_, var, _) => state.ints |= var.bit() & arguments,
                Stmt::SetFp(fp, ..) | Stmt::SetFpIf(_, fp, ..) if fp_arguments.contains(fp) => {
                    state.fp[fp.0 as usize] = Rep::Long as u8;
                }
                Stmt::Call { callee, pc } => {
                    if let Callee::Indirect(_) = callee {
                        passed.insert(*pc, state);
                    }
                    state = Live::default();
                }
                _ => {}
            }
        }
        for next in function.blocks[id].end.successors() {
            let mut state = state;
            if matches!(function.blocks[id].end, End::Invoke { pad, .. } if pad == Some(next)) {
                state.ints |= LANDED;
            }
            let new = match states[next] {
                Some(mut old) => {
                    old.add(&state);
                    old
                }
                None => state,
            };
            if states[next] != Some(new) {
                states[next] = Some(new);
                work.push(next);
            }
        }
    }
    passed
}

/// Summaries of all functions of a program. `taken` are those whose addresses are data.
/// `exports` are those that Java calls, and may want any result of.
pub fn summarise(
    functions: &[Function],
    taken: &FxHashSet<u32>,
    exports: &FxHashSet<u32>,
) -> Summaries {
    let mut summaries = Summaries::default();
    for function in functions {
        let (taken, convention) = (taken.contains(&function.entry), function.convention);
        let mut own = Summary { taken, convention, ..Summary::default() };
        if exports.contains(&function.entry) {
            own.wanted = ANY_RESULT;
        }
        for (_, step) in function.blocks.iter().flat_map(|block| &block.steps) {
            own.defines.add(defined_by(convention, step));
            own.grows |= matches!(
                step,
                Stmt::Syscall { .. } | Stmt::Call { callee: Callee::Indirect(_), .. }
            );
            step.visit(&mut |e| {
                own.grows |= matches!(e, Expr::Help(helper, _) if helper.calls);
            });
        }
        summaries.insert(function.entry, own);
    }
    // What calls may set and whether memory grows: up the call graph.
    loop {
        let mut changed = false;
        for function in functions {
            for (_, step) in function.blocks.iter().flat_map(|block| &block.steps) {
                let Stmt::Call { callee: Callee::Direct(to), .. } = step else { continue };
                let Some(&callee) = summaries.get(to) else { continue };
                let Some(own) = summaries.get_mut(&function.entry) else { continue };
                changed |= own.defines.add(callee.defines) | (callee.grows && !own.grows);
                own.grows |= callee.grows;
            }
        }
        if !changed {
            break;
        }
    }
    refine(functions, &mut summaries);
    summaries
}

fn defined_by(convention: Convention, step: &Stmt) -> Results {
    let mut results = Results::default();
    match step {
        Stmt::Set(var, _) | Stmt::SetIf(_, var, _) => results.ints = var.bit() & (V0 | V1),
        Stmt::SetFp(fp, rep, _) | Stmt::SetFpIf(_, fp, rep, _) => {
            if let Some(index) = convention.fp_results().iter().position(|result| result == fp) {
                results.fp[index] = *rep as u8;
            }
        }
        Stmt::Syscall { .. } => results.ints = V0 | V1,
        Stmt::Call { callee: Callee::Indirect(_), .. } => results = ANY_RESULT,
        _ => {}
    }
    results
}

/// Arguments upwards, wanted results downwards, until nothing changes. A function is looked at again only
/// when what it calls reads something else, or its callers do.
fn refine(functions: &[Function], summaries: &mut Summaries) {
    let index: FxHashMap<u32, usize> =
        functions.iter().enumerate().map(|(i, function)| (function.entry, i)).collect();
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); functions.len()];
    for (caller, function) in functions.iter().enumerate() {
        for (_, step) in function.blocks.iter().flat_map(|block| &block.steps) {
            if let Stmt::Call { callee: Callee::Direct(to), .. } = step
                && let Some(&callee) = index.get(to)
            {
                callers[callee].push(caller);
            }
        }
    }
    let mut stale = vec![true; functions.len()];
    let mut wanted_of_pointers = Results::default();
    while stale.contains(&true) {
        for (id, function) in functions.iter().enumerate() {
            if !std::mem::replace(&mut stale[id], false) {
                continue;
            }
            let Needs { arguments, wanted, of_pointers } = needs(function, summaries);
            wanted_of_pointers.add(of_pointers);
            if let Some(own) = summaries.get_mut(&function.entry)
                && own.arguments != arguments
            {
                own.arguments = arguments;
                callers[id].iter().for_each(|&caller| stale[caller] = true);
            }
            for (to, read) in wanted {
                if let Some(callee) = summaries.get_mut(&to)
                    && callee.wanted.add(read)
                    && let Some(&callee) = index.get(&to)
                {
                    stale[callee] = true;
                }
            }
        }
        for (entry, summary) in summaries.iter_mut().filter(|(_, summary)| summary.taken) {
            if summary.wanted.add(wanted_of_pointers)
                && let Some(&id) = index.get(entry)
            {
                stale[id] = true;
            }
        }
    }
}

/// What one function makes others give.
struct Needs {
    /// What it reads before it sets it.
    arguments: Live,
    /// What it reads of the results of those that it calls.
    wanted: Vec<(u32, Results)>,
    /// What it reads of indirect calls.
    of_pointers: Results,
}

fn needs(function: &Function, summaries: &Summaries) -> Needs {
    let (mut wanted, mut of_pointers) = (Vec::new(), Results::default());
    let liveness = Liveness::of(function, summaries);
    for (id, block) in function.blocks.iter().enumerate() {
        let calls = block.steps.iter().any(|(_, step)| matches!(step, Stmt::Call { .. }));
        if !calls {
            continue;
        }
        for ((_, step), live) in block.steps.iter().zip(liveness.after_steps(function, id)) {
            let Stmt::Call { callee, .. } = step else { continue };
            let read = liveness.wanted(&live, callee);
            match callee {
                Callee::Direct(to) => wanted.push((*to, read)),
                Callee::Indirect(_) => drop(of_pointers.add(read)),
            }
        }
    }
    let mut arguments = liveness.at_start(0);
    arguments.ints &= function.convention.passed();
    for (fp, _) in arguments.fps().collect::<Vec<_>>() {
        if !function.convention.passes_fp(fp) {
            arguments.fp[fp.0 as usize] = 0;
        }
    }
    Needs { arguments, wanted, of_pointers }
}
