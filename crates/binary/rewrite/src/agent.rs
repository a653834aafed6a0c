//! The agent: slow paths of probes, built from `runtime/agent` to a flat piece of code.

use fettle_code::AgentEntry;

/// The agent's code. A table of entries stands in front; nothing in it depends on its address.
pub const CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.bin"));

/// Offset of an entry in [`CODE`].
pub fn entry_offset(entry: AgentEntry) -> u32 {
    in_table(entry as usize)
}

/// How far from the agent's start the user probe is put.
pub const fn user_at() -> u32 {
    (CODE.len() as u32).next_multiple_of(16)
}

/// The instruction that reads texts, which may not be there, and where control goes on if so: as
/// offsets in [`CODE`].
pub fn text_read() -> (u32, u32) {
    (in_table(7), in_table(8))
}

fn in_table(index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes(CODE[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_in_the_code() {
        for entry in [
            AgentEntry::Exit,
            AgentEntry::Left,
            AgentEntry::Ring,
            AgentEntry::SampleEntry,
            AgentEntry::SampleExit,
            AgentEntry::Enter,
            AgentEntry::Leave,
            AgentEntry::Full,
        ] {
            assert!((24..CODE.len() as u32).contains(&entry_offset(entry)));
        }
    }
}
