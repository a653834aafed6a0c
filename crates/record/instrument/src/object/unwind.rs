//! Unwind entries in object files: new ones behind the old, under the old common entries.

use crate::elf::get;

/// What a common entry (CIE) says about the entries under it, as far as it is one that we can
/// add to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Where it starts in the section.
    pub at: u64,
    /// Entries have augmentation data.
    pub augmented: bool,
    /// How exception tables' addresses are written.
    pub table: Option<TablePointer>,
}

/// How an entry holds the address of an exception table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablePointer {
    /// A 32-bit distance.
    Distance,
    /// A 32-bit address.
    Address,
}

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
const PCREL4: u8 = 0x1b;
/// At a function's entry the frame is at rsp + 8 and the return address below it:
/// `DW_CFA_def_cfa rsp, 8; DW_CFA_offset 16, 1`.
const INITIAL: [u8; 5] = [0x0c, 7, 8, 0x90, 1];

/// A common entry as compilers write it for code without exceptions, to go at the end of a
/// section.
pub const PLAIN: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, PCREL4, 0x0c, 7, 8, 0x90, 1, 0, 0];

/// The common entry of the entry at `entry`; `None` if new entries cannot be put under it.
pub fn common(section: &[u8], entry: u64) -> Option<Common> {
    let back = get(section, usize::try_from(entry).ok()?.checked_add(4)?, 4)?;
    let at = (entry + 4).checked_sub(back)?;
    let start = usize::try_from(at).ok()?;
    let len = get(section, start, 4)? as usize;
    let body = section.get(start + 4..)?.get(..len)?;
    // Identifier 0, version 1, a name, factors 1 and -8, return address in column 16.
    if get(body, 0, 4)? != 0 || *body.get(4)? != 1 {
        return None;
    }
    let name_end = 5 + body.get(5..)?.iter().position(|b| *b == 0)?;
    let name = &body[5..name_end];
    let mut rest = body.get(name_end + 1..)?;
    if rest.get(..3)? != [1, 0x78, 16] {
        return None;
    }
    rest = &rest[3..];
    let mut common = Common { at, augmented: false, table: None };
    let mut pointer = None;
    if let Some((b'z', letters)) = name.split_first() {
        common.augmented = true;
        let len = usize::from(*rest.first()?);
        let mut data = rest.get(1..1 + len).filter(|_| len < 128)?;
        rest = &rest[1 + len..];
        for letter in letters {
            let (first, after) = data.split_first()?;
            match letter {
                b'R' => pointer = Some(*first),
                b'L' => {
                    common.table = Some(match first {
                        0x1b => TablePointer::Distance,
                        0x03 => TablePointer::Address,
                        _ => return None,
                    });
                }
                b'P' => {
                    let width = match first & 0x0f {
                        0x0 | 0x4 | 0xc => 8,
                        0x3 | 0xb => 4,
                        _ => return None,
                    };
                    data = after.get(width..)?;
                    continue;
                }
                b'S' | b'B' => continue,
                _ => return None,
            }
            data = after;
        }
    } else if !name.is_empty() {
        return None;
    }
    let plain = rest.starts_with(&INITIAL) && rest[INITIAL.len()..].iter().all(|b| *b == 0);
    (plain && pointer == Some(PCREL4)).then_some(common)
}

/// Whether the section ends with the mark that linkers' start files put behind all entries, or
/// cannot be walked: nothing may be added then.
pub fn is_closed(section: &[u8]) -> bool {
    let mut at = 0usize;
    while at < section.len() {
        match get(section, at, 4) {
            Some(len @ 1..0xffff_fff0) => at += 4 + len as usize,
            _ => return true,
        }
    }
    at != section.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_entry_can_be_added_to() {
        let mut section = PLAIN.to_vec();
        section.extend_from_slice(&[16, 0, 0, 0, 28, 0, 0, 0]);
        section.extend_from_slice(&[0; 12]);
        let found = common(&section, 24);
        assert_eq!(found, Some(Common { at: 0, augmented: true, table: None }));
        assert!(!is_closed(&section));
        section.extend_from_slice(&[0; 4]);
        assert!(is_closed(&section));
    }
}
