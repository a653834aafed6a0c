//! Callers of a thread, from its stack pointer and its program counter, and from its frame pointer where that
//! is known.
//!
//! By unwind tables. What a caller needs of other registers is known as far as functions further in have saved
//! it; where that is not enough, the walk ends. Code without tables, as compilers make it at run time, is
//! walked by frame pointers if there are any.

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

/// A frame that is walked by frame pointers is not larger.
const FRAME_MAX: u64 = 1 << 20;

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, if it is known.
    pub rbp: Option<u64>,
    /// Whether the program counter is that of the next instruction to run, not one behind a system call.
    pub is_next: bool,
}

/// Return addresses, innermost first, at most `most`; `read` gives a word of the thread's memory.
pub fn callers(
    files: &Files,
    pid: u32,
    start: Start,
    most: usize,
    read: impl Fn(u64) -> Option<u64>,
) -> Vec<u64> {
    let mut found = Vec::new();
    let Start { mut pc, mut sp, mut rbp, is_next } = start;
    while found.len() < most {
        // Of a caller the instruction before counts; of the innermost one that is the system call.
        let back_by = u64::from(!(is_next && found.is_empty()));
        let rules = files.module(pid, pc).and_then(|(module, bias)| {
            rules(module.image, (LiveAddr(pc) - bias).0.saturating_sub(back_by))
        });
        let next = match rules {
            Some(rules) => by_table(&rules, sp, rbp, &read),
            None => by_frame_pointer(sp, rbp, &read),
        };
        let Some(next) = next else { break };
        // A stack goes up.
        if next.sp <= sp || next.pc == 0 {
            break;
        }
        Start { pc, sp, rbp, .. } = next;
        found.push(pc);
    }
    found
}

fn by_table(
    rules: &Rules,
    sp: u64,
    rbp: Option<u64>,
    read: &impl Fn(u64) -> Option<u64>,
) -> Option<Start> {
    let base = match rules.base {
        RSP => sp,
        RBP => rbp?,
        _ => return None,
    };
    let cfa = base.wrapping_add_signed(rules.offset);
    let pc = read(cfa.wrapping_add_signed(rules.back))?;
    let rbp = match rules.rbp {
        Some(saved) => read(cfa.wrapping_add_signed(saved)),
        None => rbp,
    };
    Some(Start { pc, sp: cfa, rbp, is_next: false })
}

/// As compilers lay out frames that have a frame pointer: it leads to the caller's one, with the return address
/// behind.
fn by_frame_pointer(
    sp: u64,
    rbp: Option<u64>,
    read: &impl Fn(u64) -> Option<u64>,
) -> Option<Start> {
    let at = rbp.filter(|rbp| *rbp >= sp && rbp - sp < FRAME_MAX && rbp % 8 == 0)?;
    let pc = read(at.checked_add(8)?)?;
    Some(Start { pc, sp: at.checked_add(16)?, rbp: read(at), is_next: false })
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
