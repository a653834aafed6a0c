//! Notes that a process which records itself writes: its modules, its forks and its end.

use fettle_trace::ClockPair;
use fettle_types::LoadBias;

/// A note of a process; see `struct note` in `runtime/file/file.c`.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) kind: u32,
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) tsc: u64,
    pub(crate) monotonic_ns: u64,
    pub(crate) unix_ns: u64,
    pub(crate) end: Option<ClockPair>,
    pub(crate) map_id: u64,
    pub(crate) bias: LoadBias,
    pub(crate) process_tsc: u64,
    pub(crate) boot: Vec<u8>,
    pub(crate) path: String,
    pub(crate) command: String,
}

pub(crate) const NOTE_MAGIC: u64 = u64::from_le_bytes(*b"FETTNOTE");

pub(crate) const NOTE_LEN: usize = 136;

impl Note {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Note> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != NOTE_MAGIC || half(8)? != 1 {
            return None;
        }
        let path_end = NOTE_LEN.checked_add(half(128)? as usize)?;
        let text = |from: usize, to: usize| {
            let bytes = bytes.get(from..to.min(bytes.len())).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let command_end = path_end.checked_add(half(132)? as usize)?;
        let (tsc, monotonic_ns) = (word(48)?, word(56)?);
        Some(Note {
            kind: half(12)?,
            pid: half(16)?,
            parent: half(20)?,
            tsc: word(24)?,
            monotonic_ns: word(32)?,
            unix_ns: word(40)?,
            end: (tsc != 0).then_some(ClockPair { tsc, monotonic_ns }),
            map_id: word(64)?,
            bias: LoadBias(word(72)?),
            process_tsc: word(80)?,
            boot: bytes.get(88..128)?.split(|b| *b == 0).next()?.to_vec(),
            path: text(NOTE_LEN, path_end),
            command: text(path_end, command_end).trim_end_matches('\0').replace('\0', " "),
        })
    }
}
