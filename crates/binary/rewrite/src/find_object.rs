//! Code that stands before the C library's `_dl_find_object`.
//!
//! Unwinders ask this function which module some code belongs to and where its unwind tables
//! are. The loader does not know the rewritten text of libraries, so the function is
//! made to begin with a search of a table of our own, a *region* for each library's rewritten text.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock,
};

/// A range of rewritten text, as the table holds it. An unused entry is one whose `start` is the
/// highest address there is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The loader's record of the library.
    pub link_map: u64,
    /// Address of the `.eh_frame_hdr` that lists the code.
    pub eh_frame_hdr: u64,
}

impl Region {
    /// Bytes of an entry. The table's first entry holds nothing but the number of the others.
    pub const SIZE: u64 = size_of::<Region>() as u64;
    /// What an entry holds that is not used.
    pub const UNUSED: Region = Region { start: u64::MAX, end: 0, link_map: 0, eh_frame_hdr: 0 };

    /// As in memory.
    pub fn to_bytes(self) -> Vec<u8> {
        let words = [self.start, self.end, self.link_map, self.eh_frame_hdr];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// How many bytes its code begins with that stay where they are: `endbr64`, which indirect calls want to find.
pub fn kept_bytes(original: &[u8]) -> usize {
    let landing = crate::planning::ENDBR64;
    if original.starts_with(&landing) { landing.len() } else { 0 }
}

/// The code that looks a program counter up in the table at `table` and fills a
/// `struct dl_find_object`, to lie at `at`; for what it does not find it does what `original`,
/// the code at `original_at`, begins with, and goes on behind. Also gives how many bytes of the
/// original may be written over: at least `room`. `None` if they cannot be moved.
pub fn code(
    at: u64,
    table: u64,
    original_at: u64,
    original: &[u8],
    room: usize,
) -> Option<(Vec<u8>, usize)> {
    let mut code = vec![
        0xf3, 0x0f, 0x1e, 0xfa, // endbr64
        0x48, 0xb8, // mov rax, table
    ];
    code.extend_from_slice(&table.to_le_bytes());
    code.extend_from_slice(&[
        0x48, 0x8b, 0x08, //             mov rcx, [rax]
        0x48, 0x83, 0xc0, 0x20, // next: add rax, 32
        0x48, 0xff, 0xc9, //             dec rcx
        0x78, 0x34, //                   js  none
        0x48, 0x3b, 0x38, //             cmp rdi, [rax]
        0x72, 0xf2, //                   jb  next
        0x48, 0x3b, 0x78, 0x08, //       cmp rdi, [rax + 8]
        0x73, 0xec, //                   jae next
        0x48, 0xc7, 0x06, 0, 0, 0, 0, // mov qword [rsi], 0        dlfo_flags
        0x48, 0x8b, 0x08, //             mov rcx, [rax]
        0x48, 0x89, 0x4e, 0x08, //       mov [rsi + 8], rcx        dlfo_map_start
        0x48, 0x8b, 0x48, 0x08, //       mov rcx, [rax + 8]
        0x48, 0x89, 0x4e, 0x10, //       mov [rsi + 16], rcx       dlfo_map_end
        0x48, 0x8b, 0x48, 0x10, //       mov rcx, [rax + 16]
        0x48, 0x89, 0x4e, 0x18, //       mov [rsi + 24], rcx       dlfo_link_map
        0x48, 0x8b, 0x40, 0x18, //       mov rax, [rax + 24]
        0x48, 0x89, 0x46, 0x20, //       mov [rsi + 32], rax       dlfo_eh_frame
        0x31, 0xc0, //                   xor eax, eax
        0xc3, //                         ret
    ]);
    // none:
    let (moved, len) = displaced(original, original_at, at + code.len() as u64, room)?;
    code.extend(moved);
    Some((code, len))
}

/// The instructions that the first `room` bytes of `original` belong to, to be run at `at`, with
/// a jump behind to where the original goes on; and how many bytes they had.
fn displaced(original: &[u8], original_at: u64, at: u64, room: usize) -> Option<(Vec<u8>, usize)> {
    let mut decoder = Decoder::with_ip(64, original, original_at, DecoderOptions::NONE);
    let mut instructions = Vec::new();
    let mut len = 0;
    while len < room {
        let instruction = decoder.decode();
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        len += instruction.len();
        instructions.push(instruction);
    }
    let back = original_at + len as u64;
    instructions.push(Instruction::with_branch(Code::Jmp_rel32_64, back).ok()?);
    let block = InstructionBlock::new(&instructions, at);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::DONT_FIX_BRANCHES).ok()?;
    Some((encoded.code_buffer, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_where_they_should() {
        // What glibc 2.36 has: mov rax, [rip + 0x100]; jmp [rax + 8]
        let original = [0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xff, 0x60, 0x08];
        let (code, len) = super::code(0x10_0000, 0x1234, 0x20_0000, &original, 5).unwrap();
        assert_eq!(len, 7);
        let decoder = Decoder::with_ip(64, &code, 0x10_0000, DecoderOptions::NONE);
        let all: Vec<Instruction> = decoder.into_iter().collect();
        let ret = all.iter().position(|i| i.code() == Code::Retnq).unwrap();
        let none = all[ret + 1];
        assert_eq!(none.ip_rel_memory_address(), 0x20_0107);
        assert_eq!(all[ret + 2].near_branch_target(), 0x20_0007);
        let branches: Vec<u64> = all[..ret]
            .iter()
            .filter(|i| i.flow_control() == FlowControl::ConditionalBranch)
            .map(iced_x86::Instruction::near_branch_target)
            .collect();
        let next = all.iter().find(|i| i.code() == Code::Add_rm64_imm8).unwrap().ip();
        assert_eq!(branches, [none.ip(), next, next]);
    }
}
