//! Instructions as an assembler takes them, registers by number.

use crate::insn::{Insn, Op};

impl Insn {
    /// Its text. Where a branch leads is said by the distance.
    pub fn text(self) -> String {
        use Op::*;
        let name = self.op.name();
        let [rd, rs1, rs2, rs3] = [self.rd, self.rs1, self.rs2, self.rs3].map(|r| r.number());
        let imm = self.imm;
        match self.op {
            Lui | Auipc => format!("{name} x{rd}, {:#x}", imm as u32 >> 12),
            Jal => format!("{name} x{rd}, . + {imm}"),
            Jalr if rd == 0 && imm == 0 => format!("jr x{rs1}"),
            Jalr if rd == 1 && imm == 0 => format!("jalr x{rs1}"),
            Jalr | Lb | Lh | Lw | Lbu | Lhu => format!("{name} x{rd}, {imm}(x{rs1})"),
            Flw | Fld => format!("{name} f{rd}, {imm}(x{rs1})"),
            Beq | Bne | Blt | Bge | Bltu | Bgeu => format!("{name} x{rs1}, x{rs2}, . + {imm}"),
            Sb | Sh | Sw => format!("{name} x{rs2}, {imm}(x{rs1})"),
            Fsw | Fsd => format!("{name} f{rs2}, {imm}(x{rs1})"),
            Addi | Slti | Sltiu | Xori | Ori | Andi | Slli | Srli | Srai => {
                format!("{name} x{rd}, x{rs1}, {imm}")
            }
            Fence | Ecall | Ebreak => name.to_owned(),
            Csrrw | Csrrs | Csrrc => format!("{name} x{rd}, {imm:#x}, x{rs1}"),
            Csrrwi | Csrrsi | Csrrci => format!("{name} x{rd}, {imm:#x}, {rs1}"),
            LrW => format!("{name} x{rd}, (x{rs1})"),
            ScW | AmoSwap | AmoAdd | AmoXor | AmoAnd | AmoOr | AmoMin | AmoMax | AmoMinu
            | AmoMaxu => format!("{name} x{rd}, x{rs2}, (x{rs1})"),
            FmaddS | FmsubS | FnmsubS | FnmaddS | FmaddD | FmsubD | FnmsubD | FnmaddD => {
                format!("{name} f{rd}, f{rs1}, f{rs2}, f{rs3}{}", self.mode())
            }
            FaddS | FsubS | FmulS | FdivS | FaddD | FsubD | FmulD | FdivD => {
                format!("{name} f{rd}, f{rs1}, f{rs2}{}", self.mode())
            }
            FsgnjS | FsgnjnS | FsgnjxS | FminS | FmaxS | FsgnjD | FsgnjnD | FsgnjxD | FminD
            | FmaxD => format!("{name} f{rd}, f{rs1}, f{rs2}"),
            FsqrtS | FsqrtD | FcvtSD => format!("{name} f{rd}, f{rs1}{}", self.mode()),
            FcvtDS => format!("{name} f{rd}, f{rs1}"),
            FcvtWS | FcvtWuS | FcvtWD | FcvtWuD => {
                format!("{name} x{rd}, f{rs1}{}", self.mode())
            }
            FcvtSW | FcvtSWu => format!("{name} f{rd}, x{rs1}{}", self.mode()),
            FcvtDW | FcvtDWu | FmvWX => format!("{name} f{rd}, x{rs1}"),
            FmvXW | FclassS | FclassD => format!("{name} x{rd}, f{rs1}"),
            FeqS | FltS | FleS | FeqD | FltD | FleD => format!("{name} x{rd}, f{rs1}, f{rs2}"),
            Add | Sub | Sll | Slt | Sltu | Xor | Srl | Sra | Or | And | Mul | Mulh | Mulhsu
            | Mulhu | Div | Divu | Rem | Remu => format!("{name} x{rd}, x{rs1}, x{rs2}"),
        }
    }

    /// The rounding as the last operand.
    fn mode(self) -> &'static str {
        match self.rounding {
            0 => ", rne",
            1 => ", rtz",
            2 => ", rdn",
            3 => ", rup",
            4 => ", rmm",
            _ => ", dyn",
        }
    }
}
