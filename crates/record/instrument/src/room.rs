//! Room for more program headers where they are: right behind the file's header.
//!
//! Tools that lay out files anew (`strip`, `objcopy`) know no other place for them. What lies
//! behind them is found through program headers and the dynamic section, so it can be moved: the
//! interpreter's name, notes, tables of symbols. One program header goes for nothing: the
//! `PT_NOTE` of what has a `PT_GNU_PROPERTY` of its own.

use std::ops::Range;

use crate::elf::{self, PHDR, Phdr, Sections, Shdr};

/// Where program headers lie in files that tools can lay out anew.
const TABLE_AT: u64 = 64;

/// Dynamic tags whose values are addresses of what can be moved: `DT_HASH`, `DT_STRTAB`,
/// `DT_SYMTAB`, `DT_GNU_HASH`, `DT_VERSYM`, `DT_VERDEF`, `DT_VERNEED`.
const TAGS: [u64; 7] = [4, 5, 6, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fffc, 0x6fff_fffe];

/// What has to move to make room.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of the file that move, in one piece.
    block: Range<u64>,
    /// Address of the file's first byte.
    base: u64,
    /// The program header that goes.
    dropped: Option<usize>,
}

/// A block that moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    from: u64,
    len: u64,
    to: u64,
}

impl Moved {
    /// Where the address `at` is now.
    pub fn address(self, at: u64) -> u64 {
        let inside = at.wrapping_sub(self.from);
        if inside < self.len { self.to.wrapping_add(inside) } else { at }
    }
}

impl Room {
    /// Room for `more` headers behind `headers`, if it can be made.
    pub fn find(file: &[u8], headers: &[Phdr], sections: &Sections, more: usize) -> Option<Room> {
        let first = headers.iter().find(|h| h.kind() == elf::PT_LOAD)?;
        if elf::get(file, 32, 8)? != TABLE_AT || first.offset() != 0 {
            return None;
        }
        let dropped = headers.iter().position(|note| {
            let same = |h: &Phdr| {
                h.kind() == elf::PT_GNU_PROPERTY
                    && (h.offset(), h.file_size()) == (note.offset(), note.file_size())
            };
            note.kind() == elf::PT_NOTE && headers.iter().any(same)
        });
        let table_end = |count: usize| TABLE_AT + (count * PHDR) as u64;
        let start = table_end(headers.len());
        let wanted = table_end(headers.len() + more - usize::from(dropped.is_some()));
        let base = first.at();

        // What is there must move as a whole, and with it what belongs to it.
        let mut end = start.max(wanted);
        let mut last = start;
        loop {
            let before = end;
            let meets = |range: &Range<u64>| range.start < end && range.end > start;
            let mut ends = Vec::new();
            for section in sections.headers().iter().filter(|s| s.kind() != elf::SHT_NOBITS) {
                let range = range(section.offset(), section.size())?;
                if !meets(&range) {
                    continue;
                }
                let placed = section.at() == base.wrapping_add(range.start);
                if range.start < start || !placed || !can_move(section, headers) {
                    return None;
                }
                ends.push(range.end);
            }
            let whole = |h: &&Phdr| !matches!(h.kind(), 0 | elf::PT_LOAD | elf::PT_PHDR);
            for header in headers.iter().filter(whole) {
                let range = range(header.offset(), header.file_size())?;
                if !meets(&range) {
                    continue;
                }
                if range.start < start || !is_movable(header) {
                    return None;
                }
                ends.push(range.end);
            }
            last = ends.into_iter().fold(last, u64::max);
            end = end.max(last);
            if end == before {
                break;
            }
        }
        let block = start..last;
        let fits = end <= first.file_size() && last <= file.len() as u64;
        let room = Room { block, base, dropped };
        (fits && !room.is_named(file, sections)).then_some(room)
    }

    /// Whether a dynamic symbol names a place in the block.
    fn is_named(&self, file: &[u8], sections: &Sections) -> bool {
        let inside = |symbol: &[u8]| {
            let value = elf::get(symbol, 8, 8).expect("inside").wrapping_sub(self.base);
            self.block.contains(&value)
        };
        let tables = sections.headers().iter().filter(|s| s.kind() == elf::SHT_DYNSYM);
        tables.filter_map(|s| s.data(file)).any(|t| t.chunks_exact(elf::SYM).skip(1).any(inside))
    }

    /// The bytes that move; they keep their address modulo [`Room::ALIGN`].
    pub fn bytes<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[self.block.start as usize..self.block.end as usize]
    }

    /// Address of the block modulo [`Room::ALIGN`].
    pub fn phase(&self) -> u64 {
        self.base.wrapping_add(self.block.start) % Room::ALIGN
    }

    /// No table is aligned more strictly.
    pub const ALIGN: u64 = 64;

    /// The headers that are left.
    pub fn keep(&self, headers: &[Phdr]) -> Vec<Phdr> {
        let kept = |i: &usize| Some(*i) != self.dropped;
        (0..headers.len()).filter(kept).map(|i| headers[i]).collect()
    }

    /// Everything that refers to the block now refers to where it was copied: to the address
    /// `at`, at `offset` in the file.
    pub fn refer(
        &self,
        file: &mut [u8],
        headers: &mut [Phdr],
        sections: &mut Sections,
        at: u64,
        offset: u64,
    ) -> Moved {
        let from = self.base.wrapping_add(self.block.start);
        let moved = Moved { from, len: self.block.end - self.block.start, to: at };
        for header in headers.iter_mut().filter(|h| is_movable(h)) {
            if self.block.contains(&header.offset()) {
                header
                    .place(header.offset() - self.block.start + offset, moved.address(header.at()));
            }
        }
        for section in sections.headers_mut() {
            if section.flags() & elf::SHF_ALLOC != 0 && self.block.contains(&section.offset()) {
                section.place(
                    section.offset() - self.block.start + offset,
                    moved.address(section.at()),
                );
            }
        }
        let dynamic = headers.iter().find(|h| h.kind() == elf::PT_DYNAMIC);
        let range = dynamic.and_then(|h| range(h.offset(), h.file_size()));
        let entries = range.and_then(|r| file.get_mut(r.start as usize..r.end as usize));
        for entry in entries.unwrap_or_default().chunks_exact_mut(16) {
            let tag = elf::get(entry, 0, 8).expect("inside");
            if tag == elf::DT_NULL {
                break;
            }
            if TAGS.contains(&tag) {
                let value = elf::get(entry, 8, 8).expect("inside");
                elf::set(entry, 8, 8, moved.address(value));
            }
        }
        moved
    }
}

fn range(start: u64, len: u64) -> Option<Range<u64>> {
    Some(start..start.checked_add(len)?)
}

/// Whether `header` says where something is that nothing else refers to.
fn is_movable(header: &Phdr) -> bool {
    matches!(header.kind(), elf::PT_INTERP | elf::PT_NOTE | elf::PT_GNU_PROPERTY)
}

/// Whether a section is found only through program headers and the dynamic section.
fn can_move(section: &Shdr, headers: &[Phdr]) -> bool {
    let interpreter = || {
        headers.iter().any(|h| {
            h.kind() == elf::PT_INTERP
                && (h.offset(), h.file_size()) == (section.offset(), section.size())
        })
    };
    let table = || headers.iter().any(|h| h.kind() == elf::PT_DYNAMIC);
    match section.kind() {
        elf::SHT_NOTE => true,
        elf::SHT_PROGBITS => interpreter(),
        elf::SHT_HASH
        | elf::SHT_GNU_HASH
        | elf::SHT_DYNSYM
        | elf::SHT_STRTAB
        | elf::SHT_GNU_VERSYM
        | elf::SHT_GNU_VERDEF
        | elf::SHT_GNU_VERNEED => table(),
        _ => false,
    }
}
