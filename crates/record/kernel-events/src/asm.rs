//! An assembler for eBPF, the kernel's machine for small programs that it proves safe.
//!
//! The machine has ten registers of 64 bits and a stack of 512 bytes. R0 is what calls return; R1
//! to R5 are their arguments and are gone afterwards; R6 to R9 stay; R10 points to the stack's end.
//! An instruction has eight bytes: opcode, two registers, an offset of 16 bits, an immediate of 32.

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(u8);

/// Results of calls.
pub const R0: Reg = Reg(0);
/// First argument of a call.
pub const R1: Reg = Reg(1);
/// Second argument.
pub const R2: Reg = Reg(2);
/// Third argument.
pub const R3: Reg = Reg(3);
/// Fourth argument.
pub const R4: Reg = Reg(4);
/// Kept over calls.
pub const R6: Reg = Reg(6);
/// Kept over calls.
pub const R7: Reg = Reg(7);
/// Kept over calls.
pub const R8: Reg = Reg(8);
/// Kept over calls.
pub const R9: Reg = Reg(9);
/// The end of the stack.
pub const FP: Reg = Reg(10);

/// How many bytes a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One byte.
    B1,
    /// Two bytes.
    B2,
    /// Four bytes.
    B4,
    /// Eight bytes.
    B8,
}

impl Size {
    /// Of so many bytes.
    pub fn of(bytes: u32) -> Option<Size> {
        match bytes {
            1 => Some(Size::B1),
            2 => Some(Size::B2),
            4 => Some(Size::B4),
            8 => Some(Size::B8),
            _ => None,
        }
    }

    /// Bytes.
    pub fn bytes(self) -> i32 {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }

    fn code(self) -> u8 {
        match self {
            Size::B4 => 0x00,
            Size::B2 => 0x08,
            Size::B1 => 0x10,
            Size::B8 => 0x18,
        }
    }
}

/// When a conditional jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater, without sign.
    Gt,
    /// Greater or equal, without sign.
    Ge,
    /// Less, with sign.
    SignedLess,
    /// Some bit of the mask is set.
    Set,
}

impl If {
    fn code(self) -> u8 {
        match self {
            If::Eq => 0x10,
            If::Gt => 0x20,
            If::Ge => 0x30,
            If::Set => 0x40,
            If::Ne => 0x50,
            If::SignedLess => 0xc0,
        }
    }
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product, modulo 2^64.
    Mul,
    /// Quotient, without sign; 0 if one divides by 0.
    Div,
    /// Bits of either.
    Or,
    /// Bits of both.
    And,
    /// To the left.
    Shl,
    /// To the right, zeros coming in.
    Shr,
}

impl Alu {
    fn code(self) -> u8 {
        match self {
            Alu::Add => 0x00,
            Alu::Div => 0x30,
            Alu::Sub => 0x10,
            Alu::Mul => 0x20,
            Alu::Or => 0x40,
            Alu::And => 0x50,
            Alu::Shl => 0x60,
            Alu::Shr => 0x70,
        }
    }
}

/// A function of the kernel that programs may call, by the number that its interface gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)] // The kernel's names.
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    SmpProcessorId = 8,
    CurrentPidTgid = 14,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    ProbeReadUserStr = 114,
    ProbeReadKernelStr = 115,
    RingbufOutput = 130,
    RingbufReserve = 131,
    RingbufSubmit = 132,
    CurrentTaskBtf = 158,
    TaskPtRegs = 175,
}

/// A place in a program, perhaps not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Label(usize);

/// An instruction, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Insn>() == 8);

const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const STX_ATOMIC: u8 = 0xc3;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
/// The operand is a register.
const X: u8 = 0x08;
const MOV: u8 = 0xb0;
const LD_IMM64: u8 = 0x18;

/// A program that is being written.
#[derive(Clone, Debug, Default)]
pub struct Asm {
    code: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Asm {
    /// An empty program.
    pub fn new() -> Asm {
        Asm::default()
    }

    fn put(&mut self, code: u8, to: Reg, from: Reg, offset: i16, immediate: i32) {
        self.code.push(Insn { code, registers: to.0 | from.0 << 4, offset, immediate });
    }

    /// A place that [`Asm::place`] will fix.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) {
        let place = &mut self.labels[label.0];
        assert!(place.is_none(), "a label has one place");
        *place = Some(self.code.len());
    }

    /// `to = from`.
    pub fn mov(&mut self, to: Reg, from: Reg) {
        self.put(ALU64 | X | MOV, to, from, 0, 0);
    }

    /// `to = value`, extended with its sign.
    pub fn imm(&mut self, to: Reg, value: i32) {
        self.put(ALU64 | MOV, to, R0, 0, value);
    }

    /// `to = value`.
    pub fn imm64(&mut self, to: Reg, value: u64) {
        self.wide(to, 0, value as u32 as i32, (value >> 32) as u32 as i32);
    }

    /// `to` is the map with this descriptor.
    pub fn map(&mut self, to: Reg, descriptor: i32) {
        self.wide(to, 1, descriptor, 0);
    }

    /// `to` points into the only value of an array.
    pub fn map_value(&mut self, to: Reg, descriptor: i32, offset: i32) {
        self.wide(to, 2, descriptor, offset);
    }

    fn wide(&mut self, to: Reg, what: u8, low: i32, high: i32) {
        self.put(LD_IMM64, to, Reg(what), 0, low);
        self.put(0, R0, R0, 0, high);
    }

    /// `to = to operation from`.
    pub fn alu(&mut self, operation: Alu, to: Reg, from: Reg) {
        self.put(ALU64 | X | operation.code(), to, from, 0, 0);
    }

    /// `to = to operation value`.
    pub fn alu_imm(&mut self, operation: Alu, to: Reg, value: i32) {
        self.put(ALU64 | operation.code(), to, R0, 0, value);
    }

    /// `to = *(base + offset)`, zeros above.
    pub fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) {
        self.put(LDX_MEM | size.code(), to, base, offset, 0);
    }

    /// `*(base + offset) = from`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, from: Reg) {
        self.put(STX_MEM | size.code(), base, from, offset, 0);
    }

    /// `*(base + offset) = value`.
    pub fn store_imm(&mut self, size: Size, base: Reg, offset: i16, value: i32) {
        self.put(ST_MEM | size.code(), base, R0, offset, value);
    }

    /// `*(base + offset) += from`, eight bytes in one piece.
    pub fn atomic_add(&mut self, base: Reg, offset: i16, from: Reg) {
        self.put(STX_ATOMIC | Size::B8.code(), base, from, offset, 0);
    }

    /// Goes on at `label`. A jump that nothing leads to is left out: the kernel refuses those.
    pub fn jump(&mut self, label: Label) {
        let closed = self.code.last().is_some_and(|last| last.code == JMP);
        if closed && !self.labels.contains(&Some(self.code.len())) {
            return;
        }
        self.jumps.push((self.code.len(), label));
        self.put(JMP, R0, R0, 0, 0);
    }

    /// Goes on at `label` if `a` and `value` are so.
    pub fn jump_if(&mut self, when: If, a: Reg, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(JMP | when.code(), a, R0, 0, value);
    }

    /// Goes on at `label` if `a` and `b` are so.
    pub fn jump_if_reg(&mut self, when: If, a: Reg, b: Reg, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(JMP | X | when.code(), a, b, 0, 0);
    }

    /// Calls a helper.
    pub fn call(&mut self, helper: Helper) {
        self.put(JMP | 0x80, R0, R0, 0, helper as i32);
    }

    /// Calls one of the kernel's own functions that are open to programs.
    pub fn call_kernel(&mut self, id: u32) {
        self.put(JMP | 0x80, R0, Reg(2), 0, id as i32);
    }

    /// Ends the program with 0.
    pub fn exit(&mut self) {
        self.imm(R0, 0);
        self.put(JMP | 0x90, R0, R0, 0, 0);
    }

    /// The instructions, with all jumps resolved.
    ///
    /// # Panics
    ///
    /// When a label that is jumped to has no place, or lies more than 32767 instructions away: mistakes
    /// in the code that writes the program.
    pub fn finish(mut self) -> Vec<Insn> {
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].expect("a label that is jumped to has a place");
            let distance = to as i64 - (*at as i64 + 1);
            self.code[*at].offset = i16::try_from(distance).expect("a jump within reach");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(asm: Asm) -> Vec<[u8; 8]> {
        let word = |i: &Insn| {
            let mut bytes = [0; 8];
            bytes[0] = i.code;
            bytes[1] = i.registers;
            bytes[2..4].copy_from_slice(&i.offset.to_le_bytes());
            bytes[4..].copy_from_slice(&i.immediate.to_le_bytes());
            bytes
        };
        asm.finish().iter().map(word).collect()
    }

    /// Bytes as LLVM's assembler writes them.
    #[test]
    fn encodings() {
        let mut a = Asm::new();
        a.mov(R6, R1);
        a.imm(R2, -1);
        a.load(Size::B8, R3, R6, 16);
        a.load(Size::B1, R3, R6, 1);
        a.store(Size::B4, FP, -8, R3);
        a.store_imm(Size::B2, R9, 4, 7);
        a.atomic_add(R0, 0, R1);
        a.alu_imm(Alu::And, R0, 0xf000);
        a.alu(Alu::Add, R1, R2);
        a.call(Helper::KtimeGetNs);
        assert_eq!(
            bytes(a),
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0xb7, 0x02, 0, 0, 0xff, 0xff, 0xff, 0xff],
                [0x79, 0x63, 0x10, 0, 0, 0, 0, 0],
                [0x71, 0x63, 0x01, 0, 0, 0, 0, 0],
                [0x63, 0x3a, 0xf8, 0xff, 0, 0, 0, 0],
                [0x6a, 0x09, 0x04, 0, 0x07, 0, 0, 0],
                [0xdb, 0x10, 0, 0, 0, 0, 0, 0],
                [0x57, 0x00, 0, 0, 0, 0xf0, 0, 0],
                [0x0f, 0x21, 0, 0, 0, 0, 0, 0],
                [0x85, 0x00, 0, 0, 0x05, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn jumps_forward_and_backward() {
        let mut a = Asm::new();
        let (top, out) = (a.label(), a.label());
        a.place(top);
        a.jump_if(If::Eq, R0, 3, out);
        a.imm64(R1, 0x1234_5678_9abc_def0);
        a.jump(top);
        a.place(out);
        a.exit();
        assert_eq!(
            bytes(a),
            [
                [0x15, 0x00, 3, 0, 3, 0, 0, 0],
                [0x18, 0x01, 0, 0, 0xf0, 0xde, 0xbc, 0x9a],
                [0x00, 0x00, 0, 0, 0x78, 0x56, 0x34, 0x12],
                [0x05, 0x00, 0xfc, 0xff, 0, 0, 0, 0],
                [0xb7, 0x00, 0, 0, 0, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    #[should_panic(expected = "has a place")]
    fn a_label_without_a_place() {
        let mut a = Asm::new();
        let nowhere = a.label();
        a.jump(nowhere);
        a.finish();
    }
}
