//! Unwind information and exception tables of rewritten text (DWARF 5, 6.4; LSB, exception frames).

use fettle_image::Pointer;
use serde::{Deserialize, Serialize};

/// Unwind information of one part of a function's rewritten text, without addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartUnwind {
    /// The part, as offsets in the function's rewritten text.
    pub start: u32,
    /// Its end.
    pub end: u32,
    /// Call frame instructions (DWARF 5, 6.4.2).
    #[serde(with = "serde_bytes")]
    pub program: Vec<u8>,
    /// The function that decides about exceptions.
    pub personality: Option<Pointer>,
    /// The exception table.
    pub table: Option<NewLsda>,
    /// The frame is a signal handler's trampoline.
    pub signal_frame: bool,
}

/// What an exception table's landing pads are relative to. They can only be behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandingBase {
    /// The start of the part that the table is for, which is that of the function's rewritten text.
    /// The table does not say so (`LPStart` is omitted): some personality routines know no other.
    Part,
    /// The start of the function's rewritten text.
    Function,
    /// The start of all rewritten text: the function's chunks may lie in any order.
    Text,
}

/// An exception table for rewritten text; its position-dependent fields are filled in when it has
/// an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewLsda {
    /// Its bytes; 4-byte aligned where it is placed.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// What landing pads are relative to.
    pub base: LandingBase,
    /// Landing pads: the offset of each one's field, five bytes of LEB128, and what it holds.
    pub pads: Vec<(u32, u32)>,
    /// 32-bit distances to types: offset and link address.
    pub types: Vec<(u32, u64)>,
}

/// Data alignment factor of all entries written here.
pub const DATA_ALIGN: i64 = -8;

/// The field for the base of landing pads: an encoding, and a 32-bit distance.
pub const BASE: [u8; 5] = [PCREL4, 0, 0, 0, 0];

impl NewLsda {
    /// Offset of the 32-bit distance to the base of landing pads, if it is in the table.
    pub fn base_field(&self) -> Option<u32> {
        (self.base != LandingBase::Part).then_some(1)
    }

    /// Makes landing pads relative to the start of all rewritten text, and sets their offsets.
    pub fn move_pads(&mut self, place: impl Fn(u32) -> u32) {
        if self.base == LandingBase::Part {
            self.bytes.splice(..1, BASE);
            let fields = self.pads.iter_mut().map(|pad| &mut pad.0);
            fields.chain(self.types.iter_mut().map(|kind| &mut kind.0)).for_each(|at| *at += 4);
        }
        self.base = LandingBase::Text;
        for (field, offset) in &mut self.pads {
            *offset = place(*offset);
            let at = *field as usize;
            self.bytes[at..at + 5].copy_from_slice(&uleb5(*offset));
        }
    }
}

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
pub const PCREL4: u8 = 0x1b;

/// `DW_EH_PE_omit`
pub const OMIT: u8 = 0xff;

/// `DW_EH_PE_indirect`
pub const INDIRECT: u8 = 0x80;

/// An unsigned LEB128 number in exactly five bytes, for a field that is written before its value is
/// known.
pub fn uleb5(value: u32) -> [u8; 5] {
    let mut bytes = std::array::from_fn(|i| (value >> (7 * i)) as u8 | 0x80);
    bytes[4] &= 0x7f;
    bytes
}
