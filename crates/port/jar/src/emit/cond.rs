//! Conditions: as numbers, and as branches.

use super::{Emitter, RUNTIME};
use crate::classfile::Label;
use crate::ir::{Cmp, Cond, Expr};
use crate::op;

impl Emitter<'_> {
    /// 1 or 0.
    pub(super) fn truth(&mut self, cond: &Cond) {
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
    pub(super) fn branch_if(&mut self, cond: &Cond, when: bool, label: Label) {
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
