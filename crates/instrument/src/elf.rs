//! The few ELF structures that are written: program headers, section headers, the dynamic
//! section. Reading is `fettle-image`'s work; here bytes are changed in place.

/// Bytes of a program header.
pub const PHDR: usize = 56;
/// Bytes of a section header.
pub const SHDR: usize = 64;

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_PHDR: u32 = 6;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const DT_NULL: u64 = 0;
pub const DT_INIT: u64 = 12;

/// Reads a little-endian number of `n` bytes.
pub fn get(bytes: &[u8], at: usize, n: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..n].copy_from_slice(bytes.get(at..at.checked_add(n)?)?);
    Some(u64::from_le_bytes(word))
}

/// Writes the low `n` bytes of a number.
pub fn set(bytes: &mut [u8], at: usize, n: usize, value: u64) {
    bytes[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
}

/// A program header.
#[derive(Clone, Copy, Debug)]
pub struct Phdr(pub [u8; PHDR]);

impl Phdr {
    pub fn new(kind: u32, flags: u32, offset: u64, at: u64, size: u64, align: u64) -> Phdr {
        let mut h = [0; PHDR];
        set(&mut h, 0, 4, u64::from(kind));
        set(&mut h, 4, 4, u64::from(flags));
        for (i, value) in [offset, at, at, size, size, align].into_iter().enumerate() {
            set(&mut h, 8 + i * 8, 8, value);
        }
        Phdr(h)
    }

    pub fn kind(&self) -> u32 {
        get(&self.0, 0, 4).expect("inside") as u32
    }

    pub fn flags(&self) -> u32 {
        get(&self.0, 4, 4).expect("inside") as u32
    }

    pub fn offset(&self) -> u64 {
        get(&self.0, 8, 8).expect("inside")
    }

    pub fn at(&self) -> u64 {
        get(&self.0, 16, 8).expect("inside")
    }

    pub fn file_size(&self) -> u64 {
        get(&self.0, 32, 8).expect("inside")
    }

    pub fn mem_size(&self) -> u64 {
        get(&self.0, 40, 8).expect("inside")
    }
}

/// A section header.
pub struct NewSection<'a> {
    pub name: &'a str,
    pub kind: u32,
    pub flags: u64,
    pub at: u64,
    pub offset: u64,
    pub size: u64,
    pub align: u64,
}

/// Appends a section header table with `new` sections to `file`, and its names; a file without
/// one stays without. Gives `None` if the table that is there makes no sense.
pub fn add_sections(file: &mut Vec<u8>, new: &[NewSection<'_>]) -> Option<()> {
    let table = get(file, 40, 8)? as usize;
    let count = get(file, 60, 2)? as usize;
    let names = get(file, 62, 2)? as usize;
    if table == 0 || count == 0 {
        return Some(());
    }
    if get(file, 58, 2)? as usize != SHDR || names >= count || count + new.len() >= 0xff00 {
        return None;
    }
    let mut headers = file.get(table..table.checked_add(count * SHDR)?)?.to_vec();
    let at = names * SHDR;
    let offset = get(&headers, at + 24, 8)? as usize;
    let size = get(&headers, at + 32, 8)? as usize;
    let mut strings = file.get(offset..offset.checked_add(size)?)?.to_vec();
    for section in new {
        let mut h = [0; SHDR];
        set(&mut h, 0, 4, strings.len() as u64);
        strings.extend_from_slice(section.name.as_bytes());
        strings.push(0);
        set(&mut h, 4, 4, u64::from(section.kind));
        set(&mut h, 8, 8, section.flags);
        set(&mut h, 16, 8, section.at);
        set(&mut h, 24, 8, section.offset);
        set(&mut h, 32, 8, section.size);
        set(&mut h, 48, 8, section.align);
        headers.extend_from_slice(&h);
    }
    set(&mut headers, at + 24, 8, file.len() as u64);
    set(&mut headers, at + 32, 8, strings.len() as u64);
    file.extend_from_slice(&strings);
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len() as u64;
    set(file, 40, 8, table);
    set(file, 60, 2, (count + new.len()) as u64);
    file.extend_from_slice(&headers);
    Some(())
}
