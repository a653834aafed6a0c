//! Calls of functions, through pointers, and of the kernel.

use super::{A3, CALL, Emitter, RUNTIME, Role, SP, V0, V1};
use crate::flow::{Live, Results};
use crate::ir::{Expr, Fp, Rep, Stmt, Ty, Var};
use crate::op;
use crate::signature::{Returns, THREAD, argument_field, results_in_thread, slots, thread_field};

impl Emitter<'_> {
    pub(super) fn call(&mut self, step: &Stmt, to: u32, pc: u32, live: &Live) -> bool {
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
            Returns::Fp(rep) => self.set_fp(program.convention.fp_results()[0], rep),
        }
        for (fp, _) in results_in_thread(&method.signature) {
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

    /// Results that a call may have set and nothing reads are worth nothing now.
    pub(super) fn forget(&mut self, defines: Results, returns: Returns) {
        for (index, fp) in self.program.convention.fp_results().iter().enumerate() {
            let kept = index == 0 && matches!(returns, Returns::Fp(_));
            let from_thread = self.valid[fp.0 as usize] == FROM_THREAD;
            if from_thread {
                self.valid[fp.0 as usize] = Rep::Long as u8;
            } else if defines.fp[index] != 0 && !kept {
                self.valid[fp.0 as usize] = 0;
            }
        }
    }

    pub(super) fn keep_or_pop(&mut self, var: Var, live: &Live) {
        match live.has(var) {
            true => self.store_var(var),
            false => self.code.op(op::POP, -1),
        }
    }

    /// Takes apart a long with `v0` and `v1`.
    pub(super) fn keep_pair(&mut self, live: &Live) {
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

    pub(super) fn set_fp(&mut self, fp: Fp, rep: Rep) {
        let slot = self.fp(fp, rep);
        self.store_local(slot, rep.ty());
        self.valid[fp.0 as usize] = rep as u8;
    }

    pub(super) fn result_from_thread(&mut self, fp: Fp, live: &Live) {
        if live.fp[fp.0 as usize] == 0 {
            return;
        }
        self.thread();
        let field = self.pool.field(THREAD, thread_field(fp), "J");
        self.code.op_index(op::GETFIELD, field, 1);
        self.set_fp(fp, Rep::Long);
        self.valid[fp.0 as usize] = FROM_THREAD;
    }

    pub(super) fn call_pointer(&mut self, step: &Stmt, to: &Expr, live: &Live) {
        let passed = self.liveness.arguments(step);
        for &fp in self.program.convention.fp_arguments() {
            if passed.fp[fp.0 as usize] != 0 {
                let slot = self.ensure(fp, Rep::Long);
                self.thread();
                self.load_local(slot, Ty::J);
                let field = self.pool.field(THREAD, thread_field(fp), "J");
                self.code.op_index(op::PUTFIELD, field, -3);
            }
        }
        for var in self.program.convention.arguments_in_thread() {
            if passed.has(var) {
                self.thread();
                self.load_var(var);
                let field = self.pool.field(THREAD, argument_field(var), "I");
                self.code.op_index(op::PUTFIELD, field, -2);
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
        let dispatch = self.program.class("Dispatch");
        self.java(&dispatch, "call", CALL, -5);
        self.keep_pair(live);
        for fp in self.program.convention.fp_results() {
            self.result_from_thread(fp, live);
        }
        let Stmt::Call { callee, .. } = step else { unreachable!("a call") };
        self.forget(self.liveness.defines(callee), Returns::Long);
        self.reload_memory();
    }

    pub(super) fn syscall(&mut self, number: &Expr, live: &Live) {
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
    pub(super) fn nowhere(&mut self, pc: u32) {
        self.thread();
        self.code.int(self.pool, pc as i32);
        let descriptor = format!("(L{THREAD};I)Ljava/lang/Error;");
        self.java(&format!("{RUNTIME}Mips"), "nowhere", &descriptor, -1);
        self.code.op(op::ATHROW, -1);
    }
}

/// Marks a result that was just read from the thread, so that it is not forgotten.
const FROM_THREAD: u8 = 0x80 | Rep::Long as u8;
