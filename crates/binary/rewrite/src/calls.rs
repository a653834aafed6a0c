//! Calls in original text that can lead to rewritten text at once, without the entry patch. So
//! functions are reached, too, whose entry has no room for one.

use std::collections::HashMap;

use fettle_image::{Image, LinkAddr};
use fettle_lift::{Block, Function};

use crate::link::Linked;
use crate::plan::Plan;

/// Calls and jumps in original text to the entries of functions of `plan`: where their distance stands,
/// and what it is to be. `wants` chooses, by the function and block that they are in and the entry
/// that they lead to. Each place is given once.
pub fn calls_to_new<'a>(
    image: &Image,
    functions: impl Iterator<Item = &'a Function>,
    (plan, linked): (&Plan, &Linked),
    wants: &dyn Fn(&Function, &Block, LinkAddr) -> bool,
) -> Vec<(LinkAddr, [u8; 4])> {
    let new: HashMap<u64, u64> = plan
        .functions
        .iter()
        .map(|f| (f.entry.0, linked.text_at.0.wrapping_add(u64::from(f.text_offset))))
        .collect();
    let mut taken: Vec<(u64, u64)> =
        linked.writes.iter().map(|(at, bytes)| (at.0, at.0 + bytes.len() as u64)).collect();
    taken.sort_unstable();
    let is_taken = |start: u64, end: u64| {
        let next = taken.partition_point(|(_, taken_end)| *taken_end <= start);
        taken.get(next).is_some_and(|(taken_start, _)| *taken_start < end)
    };
    let mut calls = Vec::new();
    for function in functions {
        for block in &function.blocks {
            let range = block.insns.start as usize..block.insns.end as usize;
            for insn in &function.insns[range] {
                let (start, end) = (insn.ip(), insn.next_ip());
                if insn.len() != 5 || is_taken(start, end) {
                    continue;
                }
                let target = insn.near_branch_target();
                let Some(to) = new.get(&target) else { continue };
                // call and jmp with a distance of four bytes.
                let bytes = image.read(LinkAddr(start), 5);
                if !bytes.is_some_and(|b| matches!(b[0], 0xe8 | 0xe9)) {
                    continue;
                }
                let Ok(distance) = i32::try_from(to.wrapping_sub(end) as i64) else { continue };
                if wants(function, block, LinkAddr(target)) {
                    calls.push((LinkAddr(start + 1), distance.to_le_bytes()));
                }
            }
        }
    }
    // Parts that functions share are lifted with each.
    calls.sort_unstable();
    calls.dedup_by_key(|call| call.0);
    calls
}
