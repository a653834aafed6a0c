//! Callers of a thread that waits in the kernel, from its stack pointer and its program counter.
//!
//! By unwind tables alone. What a caller needs of other registers is known as far as functions further
//! in have saved it; where that is not enough, the walk ends.

use fettle_image::Image;
use fettle_types::LiveAddr;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};

use crate::locks::names::Files;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN: Register = Register(16);

/// Return addresses, innermost first, at most `most`; `read` gives a word of the thread's memory.
pub fn callers(
    files: &Files,
    pid: u32,
    (mut pc, mut sp): (u64, u64),
    most: usize,
    read: impl Fn(u64) -> Option<u64>,
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut rbp: Option<u64> = None;
    while found.len() < most {
        let Some((module, bias)) = files.module(pid, pc) else { break };
        // Of a caller the instruction before counts; of the innermost one that is the system call.
        let at = (LiveAddr(pc) - bias).0.saturating_sub(1);
        let Some(rules) = rules(module.image, at) else { break };
        let base = match rules.base {
            RSP => Some(sp),
            RBP => rbp,
            _ => None,
        };
        let Some(cfa) = base.map(|base| base.wrapping_add_signed(rules.offset)) else { break };
        let Some(back) = read(cfa.wrapping_add_signed(rules.back)) else { break };
        if let Some(saved) = rules.rbp {
            rbp = read(cfa.wrapping_add_signed(saved));
        }
        // A stack goes up.
        if cfa <= sp || back == 0 {
            break;
        }
        (pc, sp) = (back, cfa);
        found.push(back);
    }
    found
}

/// Where a frame's caller is.
struct Rules {
    base: Register,
    offset: i64,
    back: i64,
    rbp: Option<i64>,
}

fn rules(image: &Image, at: u64) -> Option<Rules> {
    let (_, bytes) = image.eh_frame()?;
    let table = EhFrame::new(bytes, LittleEndian);
    let bases: BaseAddresses = image.unwind_bases();
    let mut context = UnwindContext::new();
    let row = table
        .unwind_info_for_address(&bases, &mut context, at, |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        })
        .ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let Some(RegisterRule::Offset(back)) = row.register(RETURN) else { return None };
    let rbp = match row.register(RBP) {
        Some(RegisterRule::Offset(at)) => Some(at),
        _ => None,
    };
    Some(Rules { base: *register, offset: *offset, back, rbp })
}
