//! An instruction as its operation and operands.

/// A register of either file, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg(u8);

impl Reg {
    /// Always nought.
    pub const ZERO: Self = Self(0);
    /// The return address.
    pub const RA: Self = Self(1);
    /// The stack pointer.
    pub const SP: Self = Self(2);
    /// The global pointer.
    pub const GP: Self = Self(3);
    /// The thread pointer.
    pub const TP: Self = Self(4);

    /// A register by the low five bits of a number.
    pub const fn new(number: u32) -> Self {
        Self((number & 31) as u8)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The next instruction follows.
    Plain,
    /// A branch with a condition.
    Branch,
    /// A jump to a fixed place, or a call of it.
    Jump,
    /// A jump through a register, or a call.
    JumpRegister,
}

macro_rules! operations {
    ($($name:ident = $text:literal,)*) => {
        /// Operations, by the names of the manual.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Op { $($name,)* }

        impl Op {
            /// Its name in assembly.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

operations! {
    Lui = "lui", Auipc = "auipc", Jal = "jal", Jalr = "jalr",
    Beq = "beq", Bne = "bne", Blt = "blt", Bge = "bge", Bltu = "bltu", Bgeu = "bgeu",
    Lb = "lb", Lh = "lh", Lw = "lw", Lbu = "lbu", Lhu = "lhu", Sb = "sb", Sh = "sh", Sw = "sw",
    Addi = "addi", Slti = "slti", Sltiu = "sltiu", Xori = "xori", Ori = "ori", Andi = "andi",
    Slli = "slli", Srli = "srli", Srai = "srai",
    Add = "add", Sub = "sub", Sll = "sll", Slt = "slt", Sltu = "sltu", Xor = "xor", Srl = "srl",
    Sra = "sra", Or = "or", And = "and", Fence = "fence", Ecall = "ecall", Ebreak = "ebreak",
    Csrrw = "csrrw", Csrrs = "csrrs", Csrrc = "csrrc",
    Csrrwi = "csrrwi", Csrrsi = "csrrsi", Csrrci = "csrrci",
    Mul = "mul", Mulh = "mulh", Mulhsu = "mulhsu", Mulhu = "mulhu",
    Div = "div", Divu = "divu", Rem = "rem", Remu = "remu",
    LrW = "lr.w", ScW = "sc.w", AmoSwap = "amoswap.w", AmoAdd = "amoadd.w", AmoXor = "amoxor.w",
    AmoAnd = "amoand.w", AmoOr = "amoor.w", AmoMin = "amomin.w", AmoMax = "amomax.w",
    AmoMinu = "amominu.w", AmoMaxu = "amomaxu.w",
    Flw = "flw", Fsw = "fsw", Fld = "fld", Fsd = "fsd",
    FmaddS = "fmadd.s", FmsubS = "fmsub.s", FnmsubS = "fnmsub.s", FnmaddS = "fnmadd.s",
    FaddS = "fadd.s", FsubS = "fsub.s", FmulS = "fmul.s", FdivS = "fdiv.s", FsqrtS = "fsqrt.s",
    FsgnjS = "fsgnj.s", FsgnjnS = "fsgnjn.s", FsgnjxS = "fsgnjx.s", FminS = "fmin.s",
    FmaxS = "fmax.s", FcvtWS = "fcvt.w.s", FcvtWuS = "fcvt.wu.s", FmvXW = "fmv.x.w",
    FeqS = "feq.s", FltS = "flt.s", FleS = "fle.s", FclassS = "fclass.s",
    FcvtSW = "fcvt.s.w", FcvtSWu = "fcvt.s.wu", FmvWX = "fmv.w.x",
    FmaddD = "fmadd.d", FmsubD = "fmsub.d", FnmsubD = "fnmsub.d", FnmaddD = "fnmadd.d",
    FaddD = "fadd.d", FsubD = "fsub.d", FmulD = "fmul.d", FdivD = "fdiv.d", FsqrtD = "fsqrt.d",
    FsgnjD = "fsgnj.d", FsgnjnD = "fsgnjn.d", FsgnjxD = "fsgnjx.d", FminD = "fmin.d",
    FmaxD = "fmax.d", FcvtWD = "fcvt.w.d", FcvtWuD = "fcvt.wu.d",
    FeqD = "feq.d", FltD = "flt.d", FleD = "fle.d", FclassD = "fclass.d",
    FcvtDW = "fcvt.d.w", FcvtDWu = "fcvt.d.wu", FcvtSD = "fcvt.s.d", FcvtDS = "fcvt.d.s",
}

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insn {
    /// What it does.
    pub op: Op,
    /// What it sets.
    pub rd: Reg,
    /// The first operand.
    pub rs1: Reg,
    /// The second.
    pub rs2: Reg,
    /// The third, of a product and a sum.
    pub rs3: Reg,
    /// A constant, a distance, or the number of a control register.
    pub imm: i32,
    /// How a floating-point result is rounded: 0 to the nearest, 1 towards zero, 2 down, 3 up, 4 to the
    /// nearest and from the middle away from zero, 7 as the control register says.
    pub rounding: u8,
    /// How many bytes it has: 2 or 4.
    pub size: u8,
}

impl Insn {
    /// What it does to the flow of control.
    pub fn kind(self) -> Kind {
        match self.op {
            Op::Beq | Op::Bne | Op::Blt | Op::Bge | Op::Bltu | Op::Bgeu => Kind::Branch,
            Op::Jal => Kind::Jump,
            Op::Jalr => Kind::JumpRegister,
            _ => Kind::Plain,
        }
    }

    /// Whether control comes back behind it: it keeps the address there.
    pub fn is_call(self) -> bool {
        matches!(self.op, Op::Jal | Op::Jalr) && self.rd != Reg::ZERO
    }

    /// Where a branch or jump at an address leads.
    pub fn target(self, pc: u32) -> u32 {
        pc.wrapping_add(self.imm as u32)
    }
}
