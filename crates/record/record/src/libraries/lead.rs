//! Jumps that lead from a library into its rewritten text.

use fettle_types::{LoadBias, PAGE};

use fettle_image::{Image, LinkAddr};
use fettle_live::{HookStop, LiveAddr, Patch, Purpose};
use fettle_rewrite::Linked;

use super::candidate::Candidate;

/// What the loader's record of a module is to say of its program headers. The place is found by the
/// values there, for the record's layout differs between versions: the headers' address, the entry
/// point, the number of headers. `read` reads the process's memory, as much as there is.
pub fn headers_patch(
    (link_map, bias): (LiveAddr, LoadBias),
    image: &Image,
    linked: &Linked,
    read: impl Fn(LiveAddr, usize) -> Option<Vec<u8>>,
) -> Option<Patch> {
    const RECORD: usize = 0x500;
    let record = read(link_map, RECORD)?;
    let live = |at: LinkAddr| (at + bias).0;
    let (offset, count) = image.phdr_bytes();
    let segment = image
        .segments()
        .iter()
        .find(|s| s.file_offset <= offset && offset < s.file_offset + s.file_size)?;
    let headers = live(LinkAddr(segment.start.0 + (offset - segment.file_offset)));
    let entry = live(image.entry());
    let word =
        |at: usize| record.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8")));
    let at = (0..record.len().saturating_sub(24)).step_by(8).find(|at| {
        word(*at) == Some(headers)
            && word(at + 8) == Some(entry)
            && word(at + 16).map(|w| w & 0xffff) == Some(count as u64)
    })?;
    let before = record[at..at + 18].to_vec();
    let mut after = before.clone();
    let (new, new_count) = linked.program_headers;
    after[..8].copy_from_slice(&live(new).to_le_bytes());
    after[16..].copy_from_slice(&(new_count as u16).to_le_bytes());
    Some(Patch { at: link_map.offset(at as u64), before, after, purpose: Purpose::Unwind })
}

/// The patches that lead a library to its rewritten text. The library's code in memory must be what its
/// file says there.
pub(super) fn jumps(
    library: &Candidate,
    image: &Image,
    stop: &HookStop,
) -> Result<Vec<Patch>, String> {
    let mut page = (u64::MAX, Vec::new());
    let mut jumps = Vec::with_capacity(library.placed.linked.writes.len());
    for (at, bytes) in &library.placed.linked.writes {
        let live = library.live(*at);
        let start = live.0 & !(PAGE - 1);
        if page.0 != start {
            let read = stop.read_some(LiveAddr(start), 2 * PAGE as usize);
            page = (start, read.map_err(|e| e.to_string())?);
        }
        let from = (live.0 - start) as usize;
        let now = page.1.get(from..from + bytes.len());
        let Some(before) = now.filter(|now| Some(*now) == image.read(*at, bytes.len())) else {
            return Err(format!("its code at {at} is not what its file says"));
        };
        let (before, after) = (before.to_vec(), bytes.clone());
        jumps.push(Patch { at: live, before, after, purpose: Purpose::Jump });
    }
    Ok(jumps)
}
