//! Expressions, whose values are left on the operand stack, and accesses of memory.

use super::{Emitter, RUNTIME};
use crate::ir::{Bin, Expr, Helper, Ty, Un, Width};
use crate::op;
use crate::signature::{THREAD, slots};
use crate::target::Target;

/// Addresses that no program has anything at.
const NULL_PAGE: i32 = 4096;

impl Emitter<'_> {
    pub(super) fn java(&mut self, class: &str, name: &str, descriptor: &str, change: i32) {
        let method = self.pool.method(class, name, descriptor);
        self.code.op_index(op::INVOKESTATIC, method, change);
    }

    pub(super) fn unsigned_long(&mut self) {
        self.code.op(op::I2L, 1);
        self.code.long(self.pool, 0xffff_ffff);
        self.code.op(op::LAND, -2);
    }

    /// Leaves the value on the operand stack.
    pub(super) fn expr(&mut self, e: &Expr) -> Ty {
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
            Expr::Load(width, address, pc) => self.load(*width, address, *pc),
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

    pub(super) fn unary(&mut self, un: Un, a: &Expr) -> Ty {
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

    pub(super) fn binary(&mut self, bin: Bin, a: &Expr, b: &Expr) -> Ty {
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

    /// The class of the runtime that reads and writes memory in the program's byte order.
    fn memory_class(&self) -> String {
        let class = if self.program.big_endian { "MemoryBig" } else { "Memory" };
        format!("{RUNTIME}{class}")
    }

    /// An index of memory. The array begins at address zero; what the compiler knows to be a null
    /// pointer still has to fault.
    pub(super) fn address(&mut self, address: &Expr) {
        match address {
            Expr::Int(constant) if self.program.high => {
                self.code.int(self.pool, *constant ^ i32::MIN);
            }
            Expr::Int(null @ 0..NULL_PAGE) => self.code.int(self.pool, *null | i32::MIN),
            _ => {
                self.expr(address);
                if self.program.high {
                    self.code.int(self.pool, i32::MIN);
                    self.code.op(op::IXOR, -1);
                }
            }
        }
    }

    /// Reads memory. The load may be part of an expression that another instruction uses: where it
    /// fails has a line of its own.
    pub(super) fn load(&mut self, width: Width, address: &Expr, pc: u32) -> Ty {
        let is_byte = matches!(width, Width::S8 | Width::U8);
        self.load_memory();
        self.address(address);
        self.note_line(pc);
        let words = self.program.target == Target::Cldc;
        let ty = if is_byte && !words {
            self.code.op(op::BALOAD, -1);
            Ty::I
        } else if width == Width::I32 && words {
            self.index_of_word();
            self.code.op(op::IALOAD, -1);
            Ty::I
        } else {
            let (name, letter, ty) = accessor(width);
            let letter = match width {
                Width::U16 => 'I',
                _ => letter,
            };
            let class = self.memory_class();
            let descriptor = format!("({}I){letter}", self.program.target.memory());
            self.java(&class, &format!("load{name}"), &descriptor, slots(ty) - 2);
            ty
        };
        self.note_line(self.at);
        if width == Width::U8 {
            self.code.int(self.pool, 255);
            self.code.op(op::IAND, -1);
        }
        ty
    }

    pub(super) fn store(&mut self, width: Width, address: &Expr, value: &Expr) {
        let words = self.program.target == Target::Cldc;
        self.load_memory();
        self.address(address);
        if words && width == Width::I32 {
            self.index_of_word();
        }
        self.expr(value);
        match width {
            Width::S8 | Width::U8 if !words => return self.code.op(op::BASTORE, -3),
            Width::I32 if words => return self.code.op(op::IASTORE, -3),
            _ => {}
        }
        let (name, letter, ty) = accessor(width);
        let numbers = format!("{RUNTIME}{}", self.program.convention.class());
        let copied = matches!(value, Expr::Load(..) | Expr::Float(_) | Expr::Double(_));
        match width {
            // The host's result of an invalid operation is not that of MIPS.
            Width::F32 if !copied => self.java(&numbers, "nan", "(F)F", 0),
            Width::F64 if !copied => self.java(&numbers, "nan", "(D)D", 0),
            _ => {}
        }
        let letter = if matches!(letter, 'S' | 'B') { 'I' } else { letter };
        let class = self.memory_class();
        let descriptor = format!("({}I{letter})V", self.program.target.memory());
        self.java(&class, &format!("store{name}"), &descriptor, -2 - slots(ty));
    }

    /// From the address of a word to its index, where memory is an array of words. The address is
    /// aligned, or the program would fault.
    fn index_of_word(&mut self) {
        self.code.int(self.pool, 2);
        self.code.op(op::IUSHR, -1);
    }

    pub(super) fn help(&mut self, helper: &'static Helper, arguments: &[Expr]) {
        let mut change = helper.result.map_or(0, slots);
        let mut descriptor = String::from("(");
        if helper.thread {
            self.thread();
            descriptor += &format!("L{THREAD};");
            change -= 1;
        }
        if helper.memory {
            self.load_memory();
            descriptor += self.program.target.memory();
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
}

/// What the methods for a width are called, and the type of their value.
fn accessor(width: Width) -> (&'static str, char, Ty) {
    match width {
        Width::S16 => ("Short", 'S', Ty::I),
        Width::U16 => ("Char", 'C', Ty::I),
        Width::I32 | Width::Unaligned => ("Int", 'I', Ty::I),
        Width::F32 => ("Float", 'F', Ty::F),
        Width::F64 => ("Double", 'D', Ty::D),
        Width::S8 | Width::U8 => ("Byte", 'B', Ty::I),
    }
}
