//! A writer for the instructions that probes are made of.
//!
//! Probes are emitted a hundred thousand at a time and use a dozen forms, so they are written
//! byte by byte here; the checker decodes them again with an independent decoder. Operands
//! relative to `gs` reach the thread block without a register.

use crate::regs::Gpr;

/// Machine code under construction.
#[derive(Clone, Debug, Default)]
pub struct Asm {
    /// The code so far.
    pub bytes: Vec<u8>,
}

/// A memory operand relative to the `gs` base.
#[derive(Clone, Copy, Debug)]
pub struct Gs {
    /// Register added to the displacement, if any.
    pub index: Option<Gpr>,
    /// Displacement in bytes.
    pub disp: i32,
}

/// `gs:[disp]`
pub const fn gs(disp: i32) -> Gs {
    Gs { index: None, disp }
}

/// `gs:[index + disp]`
pub const fn gs_at(index: Gpr, disp: i32) -> Gs {
    Gs { index: Some(index), disp }
}

impl Asm {
    /// Offset of the next instruction.
    pub fn here(&self) -> usize {
        self.bytes.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `op reg, gs:[..]` or the reverse, by opcode; returns the offset of the displacement.
    fn gs_op(&mut self, opcode: &[u8], reg: u8, mem: Gs, wide: bool) -> usize {
        let base = mem.index.map_or(0, Gpr::number);
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | base >> 3;
        self.put(&[0x65]);
        if rex != 0x40 {
            self.put(&[rex]);
        }
        self.put(opcode);
        let reg = (reg & 7) << 3;
        match mem.index {
            // No base, no index: a 32-bit displacement, sign-extended.
            None => self.put(&[0x04 | reg, 0x25]),
            // `rsp` and `r12` as a base need the second byte; probes never use them.
            Some(index) => {
                assert!(base & 7 != 4, "{index:?} cannot be a plain base");
                self.put(&[0x80 | reg | base & 7]);
            }
        }
        let at = self.here();
        self.put(&mem.disp.to_le_bytes());
        at
    }

    /// `mov to, from` (64 bits)
    pub fn mov(&mut self, to: Gpr, from: Gpr) {
        let rex = 0x48 | (from.number() >> 3) << 2 | to.number() >> 3;
        self.put(&[rex, 0x89, 0xc0 | (from.number() & 7) << 3 | to.number() & 7]);
    }

    /// `mov to, gs:[..]` (64 bits); returns the offset of the displacement.
    pub fn load(&mut self, to: Gpr, mem: Gs) -> usize {
        self.gs_op(&[0x8b], to.number(), mem, true)
    }

    /// `mov to, gs:[..]` (32 bits, zero-extended); returns the offset of the displacement.
    pub fn load32(&mut self, to: Gpr, mem: Gs) -> usize {
        self.gs_op(&[0x8b], to.number(), mem, false)
    }

    /// `mov gs:[..], from` (64 bits); returns the offset of the displacement.
    pub fn store(&mut self, mem: Gs, from: Gpr) -> usize {
        self.gs_op(&[0x89], from.number(), mem, true)
    }

    /// `mov qword gs:[..], imm` (sign-extended); returns the offsets of displacement and
    /// immediate.
    pub fn store_imm(&mut self, mem: Gs, imm: i32) -> (usize, usize) {
        let at = self.gs_op(&[0xc7], 0, mem, true);
        let imm_at = self.here();
        self.put(&imm.to_le_bytes());
        (at, imm_at)
    }

    /// `add gs:[..], from` (64 bits)
    pub fn add_to(&mut self, mem: Gs, from: Gpr) -> usize {
        self.gs_op(&[0x01], from.number(), mem, true)
    }

    /// `sub to, gs:[..]` (64 bits)
    pub fn sub(&mut self, to: Gpr, mem: Gs) -> usize {
        self.gs_op(&[0x2b], to.number(), mem, true)
    }

    /// `cmp reg, gs:[..]` (64 bits)
    pub fn cmp(&mut self, reg: Gpr, mem: Gs) -> usize {
        self.gs_op(&[0x3b], reg.number(), mem, true)
    }

    /// `xadd gs:[..], reg` (64 bits, no lock)
    pub fn xadd(&mut self, mem: Gs, reg: Gpr) -> usize {
        self.gs_op(&[0x0f, 0xc1], reg.number(), mem, true)
    }

    /// `inc qword gs:[..]`
    pub fn inc(&mut self, mem: Gs) -> usize {
        self.gs_op(&[0xff], 0, mem, true)
    }

    /// `inc dword gs:[..]`
    pub fn inc32(&mut self, mem: Gs) -> usize {
        self.gs_op(&[0xff], 0, mem, false)
    }

    /// `dec dword gs:[..]`
    pub fn dec32(&mut self, mem: Gs) -> usize {
        self.gs_op(&[0xff], 1, mem, false)
    }

    /// `add qword gs:[..], imm8`
    pub fn add_imm8(&mut self, mem: Gs, imm: i8) {
        self.gs_op(&[0x83], 0, mem, true);
        self.put(&[imm as u8]);
    }

    /// `mov to, imm` (32 bits, zero-extended); returns the offset of the immediate.
    pub fn mov_imm32(&mut self, to: Gpr, imm: u32) -> usize {
        if to.number() >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0xb8 | to.number() & 7]);
        let at = self.here();
        self.put(&imm.to_le_bytes());
        at
    }

    /// `and reg, imm` (32 bits, zero-extended)
    pub fn and_imm32(&mut self, reg: Gpr, imm: u32) {
        self.op_imm32(reg, 4, imm, false);
    }

    /// `and reg, imm8` (32 bits, sign-extended and then zero-extended)
    pub fn and_imm8(&mut self, reg: Gpr, imm: i8) {
        if reg.number() >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x83, 0xe0 | reg.number() & 7, imm as u8]);
    }

    /// `or reg, imm` (64 bits, sign-extended); returns the offset of the immediate.
    pub fn or_imm32(&mut self, reg: Gpr, imm: u32) -> usize {
        self.op_imm32(reg, 1, imm, true)
    }

    /// `cmp reg, imm` (32 bits)
    pub fn cmp_imm32(&mut self, reg: Gpr, imm: u32) {
        self.op_imm32(reg, 7, imm, false);
    }

    fn op_imm32(&mut self, reg: Gpr, op: u8, imm: u32, wide: bool) -> usize {
        let rex = 0x40 | u8::from(wide) << 3 | reg.number() >> 3;
        if rex != 0x40 {
            self.put(&[rex]);
        }
        self.put(&[0x81, 0xc0 | op << 3 | reg.number() & 7]);
        let at = self.here();
        self.put(&imm.to_le_bytes());
        at
    }

    /// `shl reg, count` (64 bits)
    pub fn shl(&mut self, reg: Gpr, count: u8) {
        self.put(&[0x48 | reg.number() >> 3, 0xc1, 0xe0 | reg.number() & 7, count]);
    }

    /// `or to, from` (64 bits)
    pub fn or(&mut self, to: Gpr, from: Gpr) {
        let rex = 0x48 | (from.number() >> 3) << 2 | to.number() >> 3;
        self.put(&[rex, 0x09, 0xc0 | (from.number() & 7) << 3 | to.number() & 7]);
    }

    /// `sub to, from` (64 bits)
    pub fn sub_register(&mut self, to: Gpr, from: Gpr) {
        let rex = 0x48 | (from.number() >> 3) << 2 | to.number() >> 3;
        self.put(&[rex, 0x29, 0xc0 | (from.number() & 7) << 3 | to.number() & 7]);
    }

    /// `lea to, [base + disp8]` (64 bits); flags are not changed.
    pub fn lea(&mut self, to: Gpr, base: Gpr, disp: i8) {
        let rex = 0x48 | (to.number() >> 3) << 2 | base.number() >> 3;
        self.put(&[rex, 0x8d, 0x40 | (to.number() & 7) << 3 | base.number() & 7]);
        if base.number() & 7 == 4 {
            self.put(&[0x24]);
        }
        self.put(&[disp as u8]);
    }

    /// `rdtsc`: the time-stamp counter in `edx:eax`
    pub fn rdtsc(&mut self) {
        self.put(&[0x0f, 0x31]);
    }

    /// `push reg`
    pub fn push(&mut self, reg: Gpr) {
        if reg.number() >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x50 | reg.number() & 7]);
    }

    /// `push imm` (32 bits, sign-extended); returns the offset of the immediate.
    pub fn push_imm32(&mut self, imm: u32) -> usize {
        self.put(&[0x68]);
        let at = self.here();
        self.put(&imm.to_le_bytes());
        at
    }

    /// `pop reg`
    pub fn pop(&mut self, reg: Gpr) {
        if reg.number() >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x58 | reg.number() & 7]);
    }

    /// `pushfq`
    pub fn pushf(&mut self) {
        self.put(&[0x9c]);
    }

    /// `popfq`
    pub fn popf(&mut self) {
        self.put(&[0x9d]);
    }

    /// `jcc` with a 32-bit displacement to be filled in; returns its offset.
    pub fn jcc(&mut self, condition: Condition) -> usize {
        self.put(&[0x0f, 0x80 | condition as u8]);
        let at = self.here();
        self.put(&[0; 4]);
        at
    }

    /// `jmp` with a 32-bit displacement to be filled in; returns its offset.
    pub fn jmp(&mut self) -> usize {
        self.put(&[0xe9]);
        let at = self.here();
        self.put(&[0; 4]);
        at
    }

    /// `call` with a 32-bit displacement to be filled in; returns its offset.
    pub fn call(&mut self) -> usize {
        self.put(&[0xe8]);
        let at = self.here();
        self.put(&[0; 4]);
        at
    }
}

/// A condition of a conditional jump; the discriminant is its machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Below (carry)
    Below = 2,
    /// Above or equal (no carry)
    AboveOrEqual = 3,
    /// Equal (zero)
    Equal = 4,
    /// Not equal (not zero)
    NotEqual = 5,
    /// Sign set
    Negative = 8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};

    fn text(asm: &Asm) -> String {
        let mut out = String::new();
        let mut formatter = NasmFormatter::new();
        for instruction in &mut Decoder::with_ip(64, &asm.bytes, 0, DecoderOptions::NONE) {
            formatter.format(&instruction, &mut out);
            out.push('\n');
        }
        out
    }

    #[test]
    fn decodes_to_what_was_meant() {
        let mut a = Asm::default();
        a.mov(Gpr::R11, Gpr::Rdx);
        a.load32(Gpr::R10, gs(0x20));
        a.store(gs_at(Gpr::R10, 0x1008), Gpr::Rsp);
        a.store_imm(gs_at(Gpr::Rcx, 0x1010), 7);
        a.add_to(gs(0x500000), Gpr::Rax);
        a.sub(Gpr::Rax, gs_at(Gpr::R8, 0x1000));
        a.cmp(Gpr::Rsp, gs_at(Gpr::Rcx, 0x1008));
        a.xadd(gs(0x40), Gpr::Rcx);
        a.inc(gs(0x600000));
        a.dec32(gs(0x18));
        a.add_imm8(gs(0x20), 32);
        a.mov_imm32(Gpr::R9, 16);
        a.and_imm32(Gpr::Rcx, 0x7fffff);
        a.and_imm8(Gpr::R11, 0x70);
        a.and_imm8(Gpr::Rcx, 0x70);
        a.or_imm32(Gpr::R9, 0xfff);
        a.cmp_imm32(Gpr::R10, 0x400000);
        a.shl(Gpr::Rdx, 32);
        a.or(Gpr::Rax, Gpr::Rdx);
        a.lea(Gpr::Rsp, Gpr::Rsp, -128);
        a.push(Gpr::R9);
        a.push_imm32(5);
        a.pop(Gpr::Rcx);
        let expected = "mov r11,rdx\nmov r10d,[gs:20h]\nmov [gs:r10+1008h],rsp\nmov qword [gs:rcx+1010h],7\nadd [gs:500000h],rax\nsub rax,[gs:r8+1000h]\ncmp rsp,[gs:rcx+1008h]\nxadd [gs:40h],rcx\ninc qword [gs:600000h]\ndec dword [gs:18h]\nadd qword [gs:20h],20h\nmov r9d,10h\nand ecx,7FFFFFh\nand r11d,70h\nand ecx,70h\nor r9,0FFFh\ncmp r10d,400000h\nshl rdx,20h\nor rax,rdx\nlea rsp,[rsp-80h]\npush r9\npush 5\npop rcx\n";
        assert_eq!(text(&a), expected);
    }
}
