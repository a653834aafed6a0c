//! Constant folding, substitution of what is used once, and removal of what is not used.

use crate::flow::{Live, Liveness};
use crate::helpers;
use crate::ir::{Bin, Callee, Cmp, Cond, End, Expr, Function, Helper, Stmt, Un, Var, Width};

/// The result of an operation on constants.
pub fn integers(op: Bin, a: i32, b: i32) -> Option<i32> {
    Some(match op {
        Bin::Add => a.wrapping_add(b),
        Bin::Sub => a.wrapping_sub(b),
        Bin::Mul => a.wrapping_mul(b),
        Bin::And => a & b,
        Bin::Or => a | b,
        Bin::Xor => a ^ b,
        Bin::Shl => a.wrapping_shl(b as u32),
        Bin::Shr => a.wrapping_shr(b as u32),
        Bin::Ushr => (a as u32).wrapping_shr(b as u32) as i32,
        Bin::Rotr => a.rotate_right(b as u32 & 31),
        _ => return None,
    })
}

fn compare(cmp: Cmp, a: i32, b: i32) -> bool {
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Lt => a < b,
        Cmp::Ge => a >= b,
        Cmp::Gt => a > b,
        Cmp::Le => a <= b,
        Cmp::LtU => (a as u32) < b as u32,
        Cmp::GeU => a as u32 >= b as u32,
    }
}

/// Makes an expression whose operands are simple already simpler.
pub fn simplify(e: &mut Expr) {
    let simpler = match e {
        Expr::Bin(op, a, b) => match (&mut **a, *op, &mut **b) {
            (Expr::Int(a), op, Expr::Int(b)) => integers(op, *a, *b).map(Expr::Int),
            (a, Bin::Add | Bin::Sub | Bin::Or | Bin::Xor, Expr::Int(0)) => Some(take(a)),
            (Expr::Int(0), Bin::Add | Bin::Or | Bin::Xor, b) => Some(take(b)),
            (Expr::Int(c), Bin::Add, b) => Some(Expr::bin(Bin::Add, take(b), Expr::Int(*c))),
            // (x + c) + d
            (Expr::Bin(Bin::Add, x, c), Bin::Add, Expr::Int(d)) => match **c {
                Expr::Int(c) => Some(Expr::bin(Bin::Add, take(x), Expr::Int(c.wrapping_add(*d)))),
                _ => None,
            },
            (a, Bin::Shl | Bin::Shr | Bin::Ushr, Expr::Int(0)) => Some(take(a)),
            _ => None,
        },
        Expr::Un(Un::I2B, a) => match **a {
            Expr::Int(value) => Some(Expr::Int(i32::from(value as i8))),
            _ => None,
        },
        Expr::Un(Un::I2S, a) => match **a {
            Expr::Int(value) => Some(Expr::Int(i32::from(value as i16))),
            _ => None,
        },
        Expr::Help(helper, arguments) => whole_word(helper, arguments),
        Expr::Cond(cond) => {
            simplify_cond(cond);
            match **cond {
                Cond::Int(cmp, Expr::Int(a), Expr::Int(b)) => {
                    Some(Expr::Int(i32::from(compare(cmp, a, b))))
                }
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(simpler) = simpler {
        *e = simpler;
    }
}

/// Two halves of a word that is not aligned are a word: Java has no need of two loads.
fn whole_word(helper: &Helper, arguments: &[Expr]) -> Option<Expr> {
    let [outer, Expr::Help(other, inner)] = arguments else { return None };
    let inner = inner.first()?;
    let (high, low, big) = helpers::LOAD_HALVES.iter().find_map(|&(high, low, big)| {
        if (helper, *other) == (high, low) {
            Some((outer, inner, big))
        } else if (helper, *other) == (low, high) {
            Some((inner, outer, big))
        } else {
            None
        }
    })?;
    Some(Expr::Load(Width::Unaligned, Box::new(word_start(high, low, big)?), 0))
}

/// The same of stores, which follow one another.
fn whole_stores(steps: &mut Vec<(u32, Stmt)>) {
    let mut at = 0;
    while at + 1 < steps.len() {
        if let Some(store) = whole_store(&steps[at].1, &steps[at + 1].1) {
            steps[at].1 = store;
            steps.remove(at + 1);
        }
        at += 1;
    }
}

fn whole_store(first: &Stmt, second: &Stmt) -> Option<Stmt> {
    let (Stmt::Do(Expr::Help(one, a)), Stmt::Do(Expr::Help(other, b))) = (first, second) else {
        return None;
    };
    let ([a, value], [b, same]) = (&a[..], &b[..]) else { return None };
    let (high, low, big) = helpers::STORE_HALVES.iter().find_map(|&(high, low, big)| {
        if (*one, *other) == (high, low) {
            Some((a, b, big))
        } else if (*one, *other) == (low, high) {
            Some((b, a, big))
        } else {
            None
        }
    })?;
    if value != same || value.loads() {
        return None;
    }
    Some(Stmt::Store(Width::Unaligned, word_start(high, low, big)?, value.clone()))
}

/// Where the word begins whose most and least significant bytes are at these addresses.
fn word_start(high: &Expr, low: &Expr, big: bool) -> Option<Expr> {
    let (first, last) = if big { (high, low) } else { (low, high) };
    let mut end = Expr::bin(Bin::Add, first.clone(), Expr::Int(3));
    simplify(&mut end);
    (end == *last).then(|| first.clone())
}

fn take(e: &mut Expr) -> Expr {
    std::mem::replace(e, Expr::Int(0))
}

/// A comparison of a condition's value with zero is that condition.
pub fn simplify_cond(cond: &mut Cond) {
    loop {
        let Cond::Int(cmp @ (Cmp::Eq | Cmp::Ne), Expr::Cond(inner), Expr::Int(0)) = cond else {
            return;
        };
        let inner = std::mem::replace(&mut **inner, Cond::Int(Cmp::Eq, Expr::Int(0), Expr::Int(0)));
        *cond = if *cmp == Cmp::Ne { inner } else { inner.negated() };
    }
}

fn simplify_step(step: &mut Stmt) {
    match step {
        Stmt::SetIf(cond, ..) | Stmt::SetFpIf(cond, ..) => simplify_cond(cond),
        Stmt::Trap { cond: Some(cond), .. } => simplify_cond(cond),
        _ => {}
    }
}

/// Removes what is not used, and puts what is used once where it is used.
pub fn function(function: &mut Function, liveness: &Liveness) {
    for id in 0..function.blocks.len() {
        let out = liveness.at_end(function, id);
        let block = &mut function.blocks[id];
        remove_unused(&mut block.steps, &block.end, out, liveness);
        substitute(&mut block.steps, &mut block.end, out, liveness);
        remove_unused(&mut block.steps, &block.end, out, liveness);
        whole_stores(&mut block.steps);
        for (_, step) in &mut block.steps {
            step.visit_mut(&mut simplify);
            simplify_step(step);
        }
        if let End::If(cond, yes, no) = &mut block.end {
            cond.visit_mut(&mut simplify);
            simplify_cond(cond);
            let (yes, no) = (*yes, *no);
            if let Cond::Int(cmp, Expr::Int(a), Expr::Int(b)) = cond {
                block.end = End::Goto(if compare(*cmp, *a, *b) { yes } else { no });
            } else if yes == no {
                block.end = End::Goto(yes);
            }
        }
    }
}

fn remove_unused(steps: &mut Vec<(u32, Stmt)>, end: &End, out: Live, liveness: &Liveness) {
    let mut live = out;
    live.use_end(end);
    let mut kept = Vec::with_capacity(steps.len());
    while let Some((pc, step)) = steps.pop() {
        let unused = match &step {
            Stmt::Set(var, e) | Stmt::SetIf(_, var, e) => !live.has(*var) && !e.has_effect(),
            Stmt::SetFp(fp, _, e) | Stmt::SetFpIf(_, fp, _, e) => {
                live.fp[fp.0 as usize] == 0 && !e.has_effect()
            }
            _ => false,
        };
        if unused {
            continue;
        }
        liveness.before(&mut live, &step);
        kept.push((pc, step));
    }
    kept.reverse();
    *steps = kept;
}

/// What an expression needs unchanged until it is evaluated.
struct Needs {
    vars: u64,
    fps: u64,
    memory: bool,
}

fn needs(e: &Expr) -> Needs {
    let mut needs = Needs { vars: 0, fps: 0, memory: e.loads() };
    e.visit(&mut |e| match e {
        Expr::Var(var) => needs.vars |= var.bit(),
        Expr::Fp(fp, _) => needs.fps |= 1 << fp.0,
        Expr::Tls => needs.memory = true,
        _ => {}
    });
    needs
}

/// How often a step reads an integer variable in its expressions.
fn reads(step: &Stmt, var: Var) -> usize {
    let mut count = 0;
    step.visit(&mut |e| count += usize::from(*e == Expr::Var(var)));
    count
}

/// Expressions larger than this are not made: the operand stack has limits, and so have readers.
const TREE_MAX: usize = 48;

/// Steps that an expression is moved over at most.
const DISTANCE_MAX: usize = 48;

fn substitute(steps: &mut Vec<(u32, Stmt)>, end: &mut End, out: Live, liveness: &Liveness) {
    let mut at = 0;
    while at < steps.len() {
        match single_use(steps, end, at, out, liveness) {
            Some(user) => {
                let (_, Stmt::Set(var, value)) = steps.remove(at) else { unreachable!() };
                let mut value = Some(value);
                let mut put = |e: &mut Expr| {
                    if *e == Expr::Var(var)
                        && let Some(value) = value.take()
                    {
                        *e = value;
                    }
                };
                match user {
                    Some(user) => {
                        steps[user - 1].1.visit_mut(&mut put);
                        steps[user - 1].1.visit_mut(&mut simplify);
                        simplify_step(&mut steps[user - 1].1);
                    }
                    None => {
                        end.visit_mut(&mut put);
                        end.visit_mut(&mut simplify);
                        if let End::If(cond, ..) = end {
                            simplify_cond(cond);
                        }
                    }
                }
            }
            None => at += 1,
        }
    }
}

/// The only user of what a step sets, if it may be evaluated there: a step, or the end.
fn single_use(
    steps: &[(u32, Stmt)],
    end: &End,
    at: usize,
    out: Live,
    liveness: &Liveness,
) -> Option<Option<usize>> {
    let (_, Stmt::Set(var, value)) = &steps[at] else { return None };
    if value.has_effect() || value.size() > TREE_MAX {
        return None;
    }
    let needs = needs(value);
    let mut may_move = true;
    let mut user = None;
    for (index, (_, step)) in steps.iter().enumerate().skip(at + 1) {
        if index - at > DISTANCE_MAX {
            return None;
        }
        let count = reads(step, *var);
        // Calls read registers that no expression shows.
        let hidden = liveness.hidden_reads(step) & var.bit() != 0;
        if hidden || count > 1 || (count == 1 && (user.is_some() || !may_move)) {
            return None;
        }
        if count == 1 {
            let total: usize = value.size() + size(step);
            if total > TREE_MAX * 2 {
                return None;
            }
            user = Some(index);
        }
        let kills = match step {
            Stmt::Set(set, _) => set == var,
            _ => liveness.kills(step) & var.bit() != 0,
        };
        if let Stmt::SetIf(_, set, _) = step
            && set == var
        {
            return None;
        }
        if kills {
            return user.map(Some);
        }
        may_move &= !changes(step, &needs, liveness);
    }
    let mut at_end = 0;
    end.visit(&mut |e| at_end += usize::from(*e == Expr::Var(*var)));
    if out.has(*var) {
        return None;
    }
    match (user, at_end) {
        (Some(user), 0) => Some(Some(user)),
        (None, 1) if may_move => Some(None),
        _ => None,
    }
}

fn size(step: &Stmt) -> usize {
    let mut size = 0;
    step.visit(&mut |_| size += 1);
    size
}

/// Whether a step changes what an expression needs.
fn changes(step: &Stmt, needs: &Needs, liveness: &Liveness) -> bool {
    let memory = match step {
        Stmt::Store(..) | Stmt::Call { .. } | Stmt::Syscall { .. } | Stmt::Fence => true,
        Stmt::Do(_) | Stmt::Land { .. } => true,
        Stmt::Set(_, e) | Stmt::SetFp(_, _, e) => e.has_effect(),
        Stmt::SetIf(..) | Stmt::SetFpIf(..) | Stmt::Trap { .. } => false,
    };
    let vars = match step {
        Stmt::Set(var, _) | Stmt::SetIf(_, var, _) => var.bit(),
        _ => liveness.kills(step),
    };
    let fps = match step {
        Stmt::SetFp(fp, ..) | Stmt::SetFpIf(_, fp, ..) => 1 << fp.0,
        // The results of all conventions.
        Stmt::Call { .. } => 0b111 | 3 << 32,
        _ => 0,
    };
    (memory && needs.memory) || vars & needs.vars != 0 || fps & needs.fps != 0
}

/// What the function may add to the upper halves of addresses that it has as constants. Compilers keep
/// such halves where the analysis of constants does not see them again: on the stack.
fn sums_with_pages(function: &Function) -> Vec<u32> {
    let (mut pages, mut distances) = (Vec::new(), Vec::new());
    for (_, step) in function.blocks.iter().flat_map(|block| &block.steps) {
        match step {
            Stmt::Set(_, Expr::Int(page)) | Stmt::Store(Width::I32, _, Expr::Int(page))
                if page & 0xffff == 0 && *page != 0 =>
            {
                pages.push(*page as u32);
            }
            Stmt::Set(_, Expr::Bin(Bin::Add, _, distance)) => {
                if let Expr::Int(distance) = **distance {
                    distances.push(distance as u32);
                }
            }
            _ => {}
        }
    }
    pages.sort_unstable();
    pages.dedup();
    distances.sort_unstable();
    distances.dedup();
    let sums = |page: &u32| {
        let page = *page;
        distances.iter().map(move |distance| page.wrapping_add(*distance)).collect::<Vec<_>>()
    };
    pages.iter().flat_map(sums).collect()
}

/// The functions whose addresses a function's code holds, other than to call them.
pub fn addresses(function: &Function) -> Vec<u32> {
    // Where calls were merged, one of several functions is called.
    let steps = || function.blocks.iter().flat_map(|block| &block.steps);
    let t9 = Callee::Indirect(Expr::Var(Var(25)));
    let merged = steps().any(|(_, s)| matches!(s, Stmt::Call { callee, .. } if *callee == t9));
    let mut found = Vec::new();
    let mut look = |e: &Expr| {
        if let Expr::Int(value) = e {
            found.push(*value as u32);
        }
    };
    for block in &function.blocks {
        for (_, step) in &block.steps {
            match step {
                // Of position-independent calls.
                Stmt::Set(Var(25), Expr::Int(_)) if !merged => {}
                Stmt::Call { callee: Callee::Direct(_), .. } => {}
                _ => step.visit(&mut look),
            }
        }
        block.end.visit(&mut look);
    }
    found.extend(sums_with_pages(function));
    found.sort_unstable();
    found.dedup();
    found
}
