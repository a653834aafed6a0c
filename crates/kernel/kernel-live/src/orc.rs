//! ORC rows for the module's own core.
//!
//! The kernel walks stacks by ORC tables, which its build makes with a tool of its own. The core comes from
//! a plain compiler, so its rows are made from the compiler's `.eh_frame`. Without them, return-address
//! patching could not get past the core's frames in the thread that asked for it.

use fettle_btf::Btf;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
    X86_64,
};

use crate::error::Result;

/// How the kernel packs the last two bytes of `struct orc_entry`: first bits of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    sp_reg: u32,
    bp_reg: u32,
    kind: u32,
    /// The type of a frame that a call made.
    call: u16,
}

/// Registers of ORC.
const SP: u16 = 5;
const BP: u16 = 4;
const PREVIOUS_SP: u16 = 1;

impl Format {
    /// That of kernels before 6.4.
    pub const OLD: Format = Format { sp_reg: 0, bp_reg: 4, kind: 8, call: 0 };

    /// What the kernel's types say.
    ///
    /// # Errors
    ///
    /// When there is no such structure: the kernel unwinds in another way.
    pub fn find(btf: &Btf) -> Result<Format> {
        let bit = |name| btf.bit_field("orc_entry", name).map(|(bit, _)| bit - 32);
        // Before 6.4 the end of a stack was a bit of its own, and a call the first type.
        let call = if btf.bit_field("orc_entry", "end").is_ok() { 0 } else { 2 };
        Ok(Format { sp_reg: bit("sp_reg")?, bp_reg: bit("bp_reg")?, kind: bit("type")?, call })
    }
}

/// A row: from which offset in the core's text on it holds, and the kernel's six bytes.
pub type Row = (u64, [u8; 6]);

/// No unwinding from here on.
pub const UNKNOWN: [u8; 6] = [0; 6];

/// Turns `.eh_frame`, whose addresses are offsets in the text, into rows.
pub fn rows(eh_frame: &[u8], format: Format) -> Vec<Row> {
    let section = EhFrame::new(eh_frame, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(0).set_text(0);
    let mut context = UnwindContext::new();
    let mut rows = Vec::new();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let Ok(mut table) = fde.rows(&section, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            rows.push((row.start_address(), encode(row, format)));
        }
        rows.push((fde.initial_address() + fde.len(), UNKNOWN));
    }
    // Where one function ends and the next begins, the latter counts.
    rows.sort_by_key(|(at, row)| (*at, *row != UNKNOWN));
    rows.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            *earlier = *later;
        }
        same
    });
    rows
}

fn encode(row: &gimli::UnwindTableRow<usize>, format: Format) -> [u8; 6] {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return UNKNOWN };
    let (Ok(sp_offset), Some(sp_reg)) = (
        i16::try_from(*offset),
        match *register {
            X86_64::RSP => Some(SP),
            X86_64::RBP => Some(BP),
            _ => None,
        },
    ) else {
        return UNKNOWN;
    };
    let saved = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(at)) => i16::try_from(at).ok(),
        _ => None,
    };
    let bp_reg = if saved.is_some() { PREVIOUS_SP } else { 0 };
    let packed = sp_reg << format.sp_reg | bp_reg << format.bp_reg | format.call << format.kind;
    let mut bytes = [0; 6];
    bytes[..2].copy_from_slice(&sp_offset.to_le_bytes());
    bytes[2..4].copy_from_slice(&saved.unwrap_or(0).to_le_bytes());
    bytes[4..].copy_from_slice(&packed.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_object::Core;

    #[test]
    fn every_function_of_the_core_has_rows() {
        let rows = rows(&Core::new().eh_frame(), Format::OLD);
        assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "one row for each place");
        // At a function's begin the return address is the last word.
        assert_eq!(rows[0], (0, [8, 0, 0, 0, 5, 0]));
        let begins = rows.iter().filter(|(_, row)| *row == [8, 0, 0, 0, 5, 0]).count();
        assert!(begins >= 10, "{begins} rows of a function's begin or end");
        assert_eq!(rows.last().map(|(_, row)| *row), Some(UNKNOWN));
        // A frame that saved rbp finds it below the caller's stack pointer.
        assert!(rows.iter().any(|(_, row)| row[4] == 0x15 && row[3] == 0xff));
    }
}
