//! The table: a line per instruction.
//!
//! The letters of an operand format are those that GNU's assembler uses where it has one:
//! `d s t` general registers, `<` shift amount, `j` signed and `i` unsigned immediate, `o(b)` an
//! address, `p` branch target, `a` jump target, `D S T R` floating-point registers, `M` the flag
//! that is set and `N` the flag that is read, `q` trap code, `c` break code, `B` syscall code,
//! `+A` field position, `+B` field width of `ins`, `+C` of `ext`, `K` hardware register,
//! `G` floating-point control register, `k` cache operation, `h` hint of `pref`, `H` of `prefx`, `1` kind of `sync`.

/// One line of the table.
pub(crate) struct Line {
    pub op: Op,
    pub name: &'static str,
    pub mask: u32,
    pub value: u32,
    pub operands: &'static str,
}

macro_rules! table {
    ($($op:ident $name:literal $mask:literal $value:literal $operands:literal)*) => {
        /// The instructions of MIPS32 release 2 that programs may execute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Op { $($op),* }

        pub(crate) const TABLE: &[Line] = &[
            $(Line { op: Op::$op, name: $name, mask: $mask, value: $value, operands: $operands }),*
        ];
    };
}

table! {
    Sll      "sll"      0xffe0003f 0x00000000 "d,t,<"
    Srl      "srl"      0xffe0003f 0x00000002 "d,t,<"
    Ror      "ror"      0xffe0003f 0x00200002 "d,t,<"
    Sra      "sra"      0xffe0003f 0x00000003 "d,t,<"
    Sllv     "sllv"     0xfc0007ff 0x00000004 "d,t,s"
    Srlv     "srlv"     0xfc0007ff 0x00000006 "d,t,s"
    Rorv     "rorv"     0xfc0007ff 0x00000046 "d,t,s"
    Srav     "srav"     0xfc0007ff 0x00000007 "d,t,s"
    Jr       "jr"       0xfc1fffff 0x00000008 "s"
    JrHb     "jr.hb"    0xfc1fffff 0x00000408 "s"
    Jalr     "jalr"     0xfc1f07ff 0x00000009 "d,s"
    JalrHb   "jalr.hb"  0xfc1f07ff 0x00000409 "d,s"
    Movf     "movf"     0xfc0307ff 0x00000001 "d,s,N"
    Movt     "movt"     0xfc0307ff 0x00010001 "d,s,N"
    Movz     "movz"     0xfc0007ff 0x0000000a "d,s,t"
    Movn     "movn"     0xfc0007ff 0x0000000b "d,s,t"
    Syscall  "syscall"  0xfc00003f 0x0000000c "B"
    Break    "break"    0xfc00003f 0x0000000d "c"
    Sync     "sync"     0xfffff83f 0x0000000f "1"
    Mfhi     "mfhi"     0xffff07ff 0x00000010 "d"
    Mthi     "mthi"     0xfc1fffff 0x00000011 "s"
    Mflo     "mflo"     0xffff07ff 0x00000012 "d"
    Mtlo     "mtlo"     0xfc1fffff 0x00000013 "s"
    Mult     "mult"     0xfc00ffff 0x00000018 "s,t"
    Multu    "multu"    0xfc00ffff 0x00000019 "s,t"
    Div      "div"      0xfc00ffff 0x0000001a "z,s,t"
    Divu     "divu"     0xfc00ffff 0x0000001b "z,s,t"
    Add      "add"      0xfc0007ff 0x00000020 "d,s,t"
    Addu     "addu"     0xfc0007ff 0x00000021 "d,s,t"
    Sub      "sub"      0xfc0007ff 0x00000022 "d,s,t"
    Subu     "subu"     0xfc0007ff 0x00000023 "d,s,t"
    And      "and"      0xfc0007ff 0x00000024 "d,s,t"
    Or       "or"       0xfc0007ff 0x00000025 "d,s,t"
    Xor      "xor"      0xfc0007ff 0x00000026 "d,s,t"
    Nor      "nor"      0xfc0007ff 0x00000027 "d,s,t"
    Slt      "slt"      0xfc0007ff 0x0000002a "d,s,t"
    Sltu     "sltu"     0xfc0007ff 0x0000002b "d,s,t"
    Tge      "tge"      0xfc00003f 0x00000030 "s,t,q"
    Tgeu     "tgeu"     0xfc00003f 0x00000031 "s,t,q"
    Tlt      "tlt"      0xfc00003f 0x00000032 "s,t,q"
    Tltu     "tltu"     0xfc00003f 0x00000033 "s,t,q"
    Teq      "teq"      0xfc00003f 0x00000034 "s,t,q"
    Tne      "tne"      0xfc00003f 0x00000036 "s,t,q"
    Bltz     "bltz"     0xfc1f0000 0x04000000 "s,p"
    Bgez     "bgez"     0xfc1f0000 0x04010000 "s,p"
    Bltzl    "bltzl"    0xfc1f0000 0x04020000 "s,p"
    Bgezl    "bgezl"    0xfc1f0000 0x04030000 "s,p"
    Bltzal   "bltzal"   0xfc1f0000 0x04100000 "s,p"
    Bgezal   "bgezal"   0xfc1f0000 0x04110000 "s,p"
    Tgei     "tgei"     0xfc1f0000 0x04080000 "s,j"
    Tgeiu    "tgeiu"    0xfc1f0000 0x04090000 "s,j"
    Tlti     "tlti"     0xfc1f0000 0x040a0000 "s,j"
    Tltiu    "tltiu"    0xfc1f0000 0x040b0000 "s,j"
    Teqi     "teqi"     0xfc1f0000 0x040c0000 "s,j"
    Tnei     "tnei"     0xfc1f0000 0x040e0000 "s,j"
    Synci    "synci"    0xfc1f0000 0x041f0000 "o(b)"
    J        "j"        0xfc000000 0x08000000 "a"
    Jal      "jal"      0xfc000000 0x0c000000 "a"
    Beq      "beq"      0xfc000000 0x10000000 "s,t,p"
    Bne      "bne"      0xfc000000 0x14000000 "s,t,p"
    Blez     "blez"     0xfc1f0000 0x18000000 "s,p"
    Bgtz     "bgtz"     0xfc1f0000 0x1c000000 "s,p"
    Addi     "addi"     0xfc000000 0x20000000 "t,s,j"
    Addiu    "addiu"    0xfc000000 0x24000000 "t,s,j"
    Slti     "slti"     0xfc000000 0x28000000 "t,s,j"
    Sltiu    "sltiu"    0xfc000000 0x2c000000 "t,s,j"
    Andi     "andi"     0xfc000000 0x30000000 "t,s,i"
    Ori      "ori"      0xfc000000 0x34000000 "t,s,i"
    Xori     "xori"     0xfc000000 0x38000000 "t,s,i"
    Lui      "lui"      0xffe00000 0x3c000000 "t,i"
    Beql     "beql"     0xfc000000 0x50000000 "s,t,p"
    Bnel     "bnel"     0xfc000000 0x54000000 "s,t,p"
    Blezl    "blezl"    0xfc1f0000 0x58000000 "s,p"
    Bgtzl    "bgtzl"    0xfc1f0000 0x5c000000 "s,p"
    Madd     "madd"     0xfc00ffff 0x70000000 "s,t"
    Maddu    "maddu"    0xfc00ffff 0x70000001 "s,t"
    Mul      "mul"      0xfc0007ff 0x70000002 "d,s,t"
    Msub     "msub"     0xfc00ffff 0x70000004 "s,t"
    Msubu    "msubu"    0xfc00ffff 0x70000005 "s,t"
    Clz      "clz"      0xfc0007ff 0x70000020 "d,s"
    Clo      "clo"      0xfc0007ff 0x70000021 "d,s"
    Ext      "ext"      0xfc00003f 0x7c000000 "t,s,+A,+C"
    Ins      "ins"      0xfc00003f 0x7c000004 "t,s,+A,+B"
    Wsbh     "wsbh"     0xffe007ff 0x7c0000a0 "d,t"
    Seb      "seb"      0xffe007ff 0x7c000420 "d,t"
    Seh      "seh"      0xffe007ff 0x7c000620 "d,t"
    Rdhwr    "rdhwr"    0xffe007ff 0x7c00003b "t,K"
    Lb       "lb"       0xfc000000 0x80000000 "t,o(b)"
    Lh       "lh"       0xfc000000 0x84000000 "t,o(b)"
    Lwl      "lwl"      0xfc000000 0x88000000 "t,o(b)"
    Lw       "lw"       0xfc000000 0x8c000000 "t,o(b)"
    Lbu      "lbu"      0xfc000000 0x90000000 "t,o(b)"
    Lhu      "lhu"      0xfc000000 0x94000000 "t,o(b)"
    Lwr      "lwr"      0xfc000000 0x98000000 "t,o(b)"
    Sb       "sb"       0xfc000000 0xa0000000 "t,o(b)"
    Sh       "sh"       0xfc000000 0xa4000000 "t,o(b)"
    Swl      "swl"      0xfc000000 0xa8000000 "t,o(b)"
    Sw       "sw"       0xfc000000 0xac000000 "t,o(b)"
    Swr      "swr"      0xfc000000 0xb8000000 "t,o(b)"
    Ll       "ll"       0xfc000000 0xc0000000 "t,o(b)"
    Sc       "sc"       0xfc000000 0xe0000000 "t,o(b)"
    Pref     "pref"     0xfc000000 0xcc000000 "h,o(b)"
    Lwc1     "lwc1"     0xfc000000 0xc4000000 "T,o(b)"
    Ldc1     "ldc1"     0xfc000000 0xd4000000 "T,o(b)"
    Swc1     "swc1"     0xfc000000 0xe4000000 "T,o(b)"
    Sdc1     "sdc1"     0xfc000000 0xf4000000 "T,o(b)"
    Mfc1     "mfc1"     0xffe007ff 0x44000000 "t,S"
    Cfc1     "cfc1"     0xffe007ff 0x44400000 "t,G"
    Mfhc1    "mfhc1"    0xffe007ff 0x44600000 "t,S"
    Mtc1     "mtc1"     0xffe007ff 0x44800000 "t,S"
    Ctc1     "ctc1"     0xffe007ff 0x44c00000 "t,G"
    Mthc1    "mthc1"    0xffe007ff 0x44e00000 "t,S"
    Bc1f     "bc1f"     0xffe30000 0x45000000 "N,p"
    Bc1t     "bc1t"     0xffe30000 0x45010000 "N,p"
    Bc1fl    "bc1fl"    0xffe30000 0x45020000 "N,p"
    Bc1tl    "bc1tl"    0xffe30000 0x45030000 "N,p"
    AddS     "add.s"    0xffe0003f 0x46000000 "D,S,T"
    SubS     "sub.s"    0xffe0003f 0x46000001 "D,S,T"
    MulS     "mul.s"    0xffe0003f 0x46000002 "D,S,T"
    DivS     "div.s"    0xffe0003f 0x46000003 "D,S,T"
    SqrtS    "sqrt.s"   0xffff003f 0x46000004 "D,S"
    AbsS     "abs.s"    0xffff003f 0x46000005 "D,S"
    MovS     "mov.s"    0xffff003f 0x46000006 "D,S"
    NegS     "neg.s"    0xffff003f 0x46000007 "D,S"
    RoundLS  "round.l.s" 0xffff003f 0x46000008 "D,S"
    TruncLS  "trunc.l.s" 0xffff003f 0x46000009 "D,S"
    CeilLS   "ceil.l.s" 0xffff003f 0x4600000a "D,S"
    FloorLS  "floor.l.s" 0xffff003f 0x4600000b "D,S"
    RoundWS  "round.w.s" 0xffff003f 0x4600000c "D,S"
    TruncWS  "trunc.w.s" 0xffff003f 0x4600000d "D,S"
    CeilWS   "ceil.w.s" 0xffff003f 0x4600000e "D,S"
    FloorWS  "floor.w.s" 0xffff003f 0x4600000f "D,S"
    RecipS   "recip.s"  0xffff003f 0x46000015 "D,S"
    RsqrtS   "rsqrt.s"  0xffff003f 0x46000016 "D,S"
    CvtWS    "cvt.w.s"  0xffff003f 0x46000024 "D,S"
    CvtLS    "cvt.l.s"  0xffff003f 0x46000025 "D,S"
    MovfS    "movf.s"   0xffe3003f 0x46000011 "D,S,N"
    MovtS    "movt.s"   0xffe3003f 0x46010011 "D,S,N"
    MovzS    "movz.s"   0xffe0003f 0x46000012 "D,S,t"
    MovnS    "movn.s"   0xffe0003f 0x46000013 "D,S,t"
    CvtDS    "cvt.d.s"  0xffff003f 0x46000021 "D,S"
    CFS      "c.f.s"    0xffe000ff 0x46000030 "M,S,T"
    CUnS     "c.un.s"   0xffe000ff 0x46000031 "M,S,T"
    CEqS     "c.eq.s"   0xffe000ff 0x46000032 "M,S,T"
    CUeqS    "c.ueq.s"  0xffe000ff 0x46000033 "M,S,T"
    COltS    "c.olt.s"  0xffe000ff 0x46000034 "M,S,T"
    CUltS    "c.ult.s"  0xffe000ff 0x46000035 "M,S,T"
    COleS    "c.ole.s"  0xffe000ff 0x46000036 "M,S,T"
    CUleS    "c.ule.s"  0xffe000ff 0x46000037 "M,S,T"
    CSfS     "c.sf.s"   0xffe000ff 0x46000038 "M,S,T"
    CNgleS   "c.ngle.s" 0xffe000ff 0x46000039 "M,S,T"
    CSeqS    "c.seq.s"  0xffe000ff 0x4600003a "M,S,T"
    CNglS    "c.ngl.s"  0xffe000ff 0x4600003b "M,S,T"
    CLtS     "c.lt.s"   0xffe000ff 0x4600003c "M,S,T"
    CNgeS    "c.nge.s"  0xffe000ff 0x4600003d "M,S,T"
    CLeS     "c.le.s"   0xffe000ff 0x4600003e "M,S,T"
    CNgtS    "c.ngt.s"  0xffe000ff 0x4600003f "M,S,T"
    AddD     "add.d"    0xffe0003f 0x46200000 "D,S,T"
    SubD     "sub.d"    0xffe0003f 0x46200001 "D,S,T"
    MulD     "mul.d"    0xffe0003f 0x46200002 "D,S,T"
    DivD     "div.d"    0xffe0003f 0x46200003 "D,S,T"
    SqrtD    "sqrt.d"   0xffff003f 0x46200004 "D,S"
    AbsD     "abs.d"    0xffff003f 0x46200005 "D,S"
    MovD     "mov.d"    0xffff003f 0x46200006 "D,S"
    NegD     "neg.d"    0xffff003f 0x46200007 "D,S"
    RoundLD  "round.l.d" 0xffff003f 0x46200008 "D,S"
    TruncLD  "trunc.l.d" 0xffff003f 0x46200009 "D,S"
    CeilLD   "ceil.l.d" 0xffff003f 0x4620000a "D,S"
    FloorLD  "floor.l.d" 0xffff003f 0x4620000b "D,S"
    RoundWD  "round.w.d" 0xffff003f 0x4620000c "D,S"
    TruncWD  "trunc.w.d" 0xffff003f 0x4620000d "D,S"
    CeilWD   "ceil.w.d" 0xffff003f 0x4620000e "D,S"
    FloorWD  "floor.w.d" 0xffff003f 0x4620000f "D,S"
    RecipD   "recip.d"  0xffff003f 0x46200015 "D,S"
    RsqrtD   "rsqrt.d"  0xffff003f 0x46200016 "D,S"
    CvtWD    "cvt.w.d"  0xffff003f 0x46200024 "D,S"
    CvtLD    "cvt.l.d"  0xffff003f 0x46200025 "D,S"
    MovfD    "movf.d"   0xffe3003f 0x46200011 "D,S,N"
    MovtD    "movt.d"   0xffe3003f 0x46210011 "D,S,N"
    MovzD    "movz.d"   0xffe0003f 0x46200012 "D,S,t"
    MovnD    "movn.d"   0xffe0003f 0x46200013 "D,S,t"
    CvtSD    "cvt.s.d"  0xffff003f 0x46200020 "D,S"
    CFD      "c.f.d"    0xffe000ff 0x46200030 "M,S,T"
    CUnD     "c.un.d"   0xffe000ff 0x46200031 "M,S,T"
    CEqD     "c.eq.d"   0xffe000ff 0x46200032 "M,S,T"
    CUeqD    "c.ueq.d"  0xffe000ff 0x46200033 "M,S,T"
    COltD    "c.olt.d"  0xffe000ff 0x46200034 "M,S,T"
    CUltD    "c.ult.d"  0xffe000ff 0x46200035 "M,S,T"
    COleD    "c.ole.d"  0xffe000ff 0x46200036 "M,S,T"
    CUleD    "c.ule.d"  0xffe000ff 0x46200037 "M,S,T"
    CSfD     "c.sf.d"   0xffe000ff 0x46200038 "M,S,T"
    CNgleD   "c.ngle.d" 0xffe000ff 0x46200039 "M,S,T"
    CSeqD    "c.seq.d"  0xffe000ff 0x4620003a "M,S,T"
    CNglD    "c.ngl.d"  0xffe000ff 0x4620003b "M,S,T"
    CLtD     "c.lt.d"   0xffe000ff 0x4620003c "M,S,T"
    CNgeD    "c.nge.d"  0xffe000ff 0x4620003d "M,S,T"
    CLeD     "c.le.d"   0xffe000ff 0x4620003e "M,S,T"
    CNgtD    "c.ngt.d"  0xffe000ff 0x4620003f "M,S,T"
    CvtSW    "cvt.s.w"  0xffff003f 0x46800020 "D,S"
    CvtDW    "cvt.d.w"  0xffff003f 0x46800021 "D,S"
    CvtSL    "cvt.s.l"  0xffff003f 0x46a00020 "D,S"
    CvtDL    "cvt.d.l"  0xffff003f 0x46a00021 "D,S"
    Lwxc1    "lwxc1"    0xfc00f83f 0x4c000000 "D,t(b)"
    Ldxc1    "ldxc1"    0xfc00f83f 0x4c000001 "D,t(b)"
    Prefx    "prefx"    0xfc0007ff 0x4c00000f "H,t(b)"
    Luxc1    "luxc1"    0xfc00f83f 0x4c000005 "D,t(b)"
    Swxc1    "swxc1"    0xfc0007ff 0x4c000008 "S,t(b)"
    Sdxc1    "sdxc1"    0xfc0007ff 0x4c000009 "S,t(b)"
    Suxc1    "suxc1"    0xfc0007ff 0x4c00000d "S,t(b)"
    MaddS    "madd.s"   0xfc00003f 0x4c000020 "D,R,S,T"
    MaddD    "madd.d"   0xfc00003f 0x4c000021 "D,R,S,T"
    MsubS    "msub.s"   0xfc00003f 0x4c000028 "D,R,S,T"
    MsubD    "msub.d"   0xfc00003f 0x4c000029 "D,R,S,T"
    NmaddS   "nmadd.s"  0xfc00003f 0x4c000030 "D,R,S,T"
    NmaddD   "nmadd.d"  0xfc00003f 0x4c000031 "D,R,S,T"
    NmsubS   "nmsub.s"  0xfc00003f 0x4c000038 "D,R,S,T"
    NmsubD   "nmsub.d"  0xfc00003f 0x4c000039 "D,R,S,T"
}

/// Lines by the six bits that every instruction begins with: few are left to compare.
static BY_OPCODE: std::sync::LazyLock<[Vec<u8>; 64]> = std::sync::LazyLock::new(|| {
    let mut index = [const { Vec::new() }; 64];
    for (number, line) in TABLE.iter().enumerate() {
        index[(line.value >> 26) as usize].push(number as u8);
    }
    index
});

/// Which instruction a word is.
pub(crate) fn find(word: u32) -> Option<Op> {
    BY_OPCODE[(word >> 26) as usize]
        .iter()
        .map(|&number| &TABLE[number as usize])
        .find(|line| word & line.mask == line.value)
        .map(|line| line.op)
}

impl Op {
    pub(crate) fn line(self) -> &'static Line {
        &TABLE[self as usize]
    }

    /// Its name in assembly.
    pub fn name(self) -> &'static str {
        self.line().name
    }
}
