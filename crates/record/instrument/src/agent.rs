//! The agent's code and the layout of its data, which is that of `runtime/file/file.c`.

use fettle_abi::block::Clock;

/// The agent's code: a table of entries, then the code. It finds its data at a fixed distance.
pub const CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/file.bin"));

/// Bytes of data in front of the code.
pub const DATA_LEN: u64 = 0x4000;
/// Bytes from the agent's code to the plan's.
pub const CODE_LEN: u64 = 0x4000;
/// First eight bytes of the data: `FETTLEIN`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FETTLEIN");

/// Entries of the agent, in the order of its table.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A program's first instruction.
    Start = 0,
    /// A library's.
    Init = 1,
    /// At the entry guard of a function.
    Check = 2,
    /// At the entry guard of a library's function.
    CheckLibrary = 3,
    /// Before a call that forks.
    Before = 4,
    /// After it.
    After = 5,
}

/// Offset of an entry in [`CODE`].
pub fn offset(entry: Entry) -> u32 {
    let at = entry as usize * 4;
    u32::from_le_bytes(CODE[at..at + 4].try_into().expect("four bytes"))
}

/// The agent's parameters; the fields in order, eight bytes each.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Link address of what ran first.
    pub original: u64,
    /// Link address of the data.
    pub data_at: u64,
    /// Whether there is an original (a library may have none).
    pub has_original: bool,
    /// Link address and number of writes: address, then eight bytes of which five count.
    pub writes: (u64, u64),
    /// Link address and number of addresses of words that the load address is added to.
    pub relocs: (u64, u64),
    /// Link address and number of ranges of code: start, length, protection.
    pub ranges: (u64, u64),
    /// Link address and length of the constants.
    pub constants: (u64, u64),
    /// Names the map.
    pub map_id: u64,
    /// Link address and length of the map.
    pub map: (u64, u64),
    /// Bytes of a slot.
    pub slot_size: u64,
    /// Offset of the accumulators in it.
    pub accumulators: u64,
    /// Whether every call leaves a record.
    pub records: bool,
    /// Offset and length of what this module writes in a slot.
    pub reserve: (u64, u64),
    /// Whether it is a library.
    pub is_library: bool,
    /// Whether calls have frames on the shadow stack.
    pub timed: bool,
    /// Whether some calls are timed, in place of all.
    pub samples: bool,
    /// What probes measure that the agent makes.
    pub clock: Clock,
}

impl Parameters {
    /// The agent's data.
    pub fn data(&self) -> Vec<u8> {
        let words = [
            MAGIC,
            1,
            self.original,
            0,
            self.data_at,
            u64::from(self.has_original),
            self.writes.0,
            self.writes.1,
            self.relocs.0,
            self.relocs.1,
            self.ranges.0,
            self.ranges.1,
            self.constants.0,
            self.constants.1,
            self.map_id,
            self.map.0,
            self.map.1,
            self.slot_size,
            self.accumulators,
            u64::from(self.records),
            self.reserve.0,
            self.reserve.1,
            u64::from(self.is_library),
            u64::from(self.timed),
            u64::from(self.samples),
            self.clock as u64,
        ];
        let mut data: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        data.resize(DATA_LEN as usize, 0);
        data
    }
}
