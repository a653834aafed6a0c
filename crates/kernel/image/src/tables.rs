//! The kernel's tables about its text: where faults go on, what static keys and static calls change, and
//! which traps are warnings.

use crate::bytes::{chunk, i32_at, u16_at, u32_at};
use crate::error::Error;

/// One `struct exception_table_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The instruction that may fault.
    pub at: u64,
    /// Where control goes on then.
    pub fixup: u64,
    /// How, as the kernel has it.
    pub data: u32,
}

/// One `struct jump_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpLabel {
    /// The nop or jump.
    pub at: u64,
    /// Where it jumps to when it is a jump.
    pub target: u64,
    /// Address of the static key, with two flag bits: which way is the likely one, and whether the entry
    /// lay in init text.
    pub key: u64,
}

impl JumpLabel {
    /// The address of its `struct static_key`.
    pub fn key_address(&self) -> u64 {
        self.key & !3
    }
}

/// One `struct static_call_site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticCall {
    /// The call or jump.
    pub at: u64,
    /// Address of its key, with two flag bits: whether it is a tail call, and in init text.
    pub key: u64,
}

/// One `struct bug_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bug {
    /// The `ud2`.
    pub at: u64,
    /// Address of the file's name.
    pub file: u64,
    /// Line in it.
    pub line: u16,
    /// Flags of `struct bug_entry`.
    pub flags: u16,
}

impl Bug {
    /// It only warns: control goes on behind the `ud2` (`BUGFLAG_WARNING`).
    pub fn goes_on(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// All tables, each by address.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    exceptions: Vec<Exception>,
    jump_labels: Vec<JumpLabel>,
    static_calls: Vec<StaticCall>,
    bugs: Vec<Bug>,
}

/// A table's bytes, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Address of the first.
    pub at: u64,
}

impl<'a> Raw<'a> {
    /// Its entries of `N` bytes with their addresses.
    fn entries<const N: usize>(
        self,
        what: &'static str,
    ) -> Result<impl Iterator<Item = (u64, &'a [u8; N])>, Error> {
        let (entries, rest) = self.bytes.as_chunks::<N>();
        if !rest.is_empty() {
            return Err(Error::Table(what));
        }
        Ok(entries
            .iter()
            .enumerate()
            .map(move |(i, entry)| (self.at.wrapping_add((i * N) as u64), entry)))
    }
}

/// What a field of an entry at `at` says, which holds the distance from itself.
fn near(entry: &[u8], at: u64, field: usize) -> u64 {
    let place = at.wrapping_add(field as u64);
    place.wrapping_add_signed(i32_at(entry, field).unwrap_or(0).into())
}

impl Tables {
    /// Reads the four tables.
    ///
    /// # Errors
    /// If the length of one is not that of a number of entries.
    pub fn parse(
        exceptions: Raw<'_>,
        jump_labels: Raw<'_>,
        static_calls: Raw<'_>,
        bugs: Raw<'_>,
    ) -> Result<Tables, Error> {
        let exceptions = exceptions.entries::<12>("exceptions")?.map(|(at, e)| Exception {
            at: near(e, at, 0),
            fixup: near(e, at, 4),
            data: u32_at(e, 8).unwrap_or(0),
        });
        let jump_labels = jump_labels.entries::<16>("jump labels")?.map(|(at, e)| {
            let key = chunk(e, 8).map_or(0, i64::from_le_bytes);
            let key = at.wrapping_add(8).wrapping_add_signed(key);
            JumpLabel { at: near(e, at, 0), target: near(e, at, 4), key }
        });
        let static_calls = static_calls
            .entries::<8>("static calls")?
            .map(|(at, e)| StaticCall { at: near(e, at, 0), key: near(e, at, 4) });
        let bugs = bugs.entries::<12>("bugs")?.map(|(at, e)| Bug {
            at: near(e, at, 0),
            file: near(e, at, 4),
            line: u16_at(e, 8).unwrap_or(0),
            flags: u16_at(e, 10).unwrap_or(0),
        });
        let mut tables = Tables {
            exceptions: exceptions.collect(),
            jump_labels: jump_labels.collect(),
            static_calls: static_calls.collect(),
            bugs: bugs.collect(),
        };
        tables.sort();
        Ok(tables)
    }

    /// Takes those of a module in.
    pub fn extend(&mut self, others: Tables) {
        self.exceptions.extend(others.exceptions);
        self.jump_labels.extend(others.jump_labels);
        self.static_calls.extend(others.static_calls);
        self.bugs.extend(others.bugs);
        self.sort();
    }

    /// Jump labels are in order of their keys, and bugs in none.
    fn sort(&mut self) {
        self.exceptions.sort_by_key(|entry| entry.at);
        self.jump_labels.sort_by_key(|entry| entry.at);
        self.static_calls.sort_by_key(|entry| entry.at);
        self.bugs.sort_by_key(|entry| entry.at);
    }

    /// What happens to faults at `at`.
    pub fn exception(&self, at: u64) -> Option<&Exception> {
        find(&self.exceptions, at, |entry| entry.at)
    }

    /// The branch of a static key at `at`.
    pub fn jump_label(&self, at: u64) -> Option<&JumpLabel> {
        find(&self.jump_labels, at, |entry| entry.at)
    }

    /// The static call at `at`.
    pub fn static_call(&self, at: u64) -> Option<&StaticCall> {
        find(&self.static_calls, at, |entry| entry.at)
    }

    /// The trap at `at`.
    pub fn bug(&self, at: u64) -> Option<&Bug> {
        find(&self.bugs, at, |entry| entry.at)
    }

    /// All exceptions, by address.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// All jump labels, by address.
    pub fn jump_labels(&self) -> &[JumpLabel] {
        &self.jump_labels
    }

    /// All static calls, by address.
    pub fn static_calls(&self) -> &[StaticCall] {
        &self.static_calls
    }

    /// All traps, by address.
    pub fn bugs(&self) -> &[Bug] {
        &self.bugs
    }
}

fn find<T>(table: &[T], at: u64, address: impl Fn(&T) -> u64) -> Option<&T> {
    let i = table.binary_search_by_key(&at, address).ok()?;
    table.get(i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_from_the_field() {
        let at = 0xffff_ffff_8200_0000;
        let words = [0x100i32, -0x100, 7];
        let exceptions: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut jumps = exceptions[..8].to_vec();
        jumps.extend_from_slice(&0x2001i64.to_le_bytes());
        let raw = |bytes| Raw { bytes, at };
        let tables =
            Tables::parse(raw(&exceptions), raw(&jumps), raw(&exceptions[..8]), raw(&[])).unwrap();
        let exception = Exception { at: at + 0x100, fixup: at + 4 - 0x100, data: 7 };
        assert_eq!(tables.exception(at + 0x100), Some(&exception));
        let label = tables.jump_label(at + 0x100).unwrap();
        assert_eq!(
            (label.target, label.key_address(), label.key & 3),
            (at + 4 - 0x100, at + 0x2008, 1)
        );
        assert_eq!(tables.static_calls()[0].key, at + 4 - 0x100);
        assert!(tables.bug(at).is_none());
        assert!(Tables::parse(raw(&jumps[..13]), raw(&[]), raw(&[]), raw(&[])).is_err());
    }
}
