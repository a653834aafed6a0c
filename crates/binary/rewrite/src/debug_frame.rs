//! How to unwind rewritten text, for debuggers: `.debug_frame` (DWARF 5, section 6.4.1).

use crate::plan::Plan;

/// The section for the rewritten text of plans, each with the address of its text.
pub fn debug_frame<'a>(texts: impl IntoIterator<Item = (&'a Plan, u64)>) -> Vec<u8> {
    // The common entry: version 1, code in bytes, data in steps of -8, the return address in
    // column 16; the canonical frame address is rsp + 8, the return address lies below it.
    let mut bytes = Vec::new();
    entry(&mut bytes, &[&u32::MAX.to_le_bytes(), &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]]);
    for (plan, text_at) in texts {
        for (function, part) in plan.unwind.iter().filter(|(_, part)| !part.signal_frame) {
            let Some(function) = plan.functions.get(*function as usize) else { continue };
            let offset = u64::from(function.text_offset.wrapping_add(part.start));
            let start = text_at.wrapping_add(offset);
            let len = u64::from(part.end.wrapping_sub(part.start));
            let words = [&0u32.to_le_bytes()[..], &start.to_le_bytes(), &len.to_le_bytes()];
            entry(&mut bytes, &[&words.concat(), &part.program]);
        }
    }
    bytes
}

/// Appends an entry: its length, `parts`, padding of `DW_CFA_nop`.
fn entry(bytes: &mut Vec<u8>, parts: &[&[u8]]) {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = (bytes.len() - at - 4) as u32;
    bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
