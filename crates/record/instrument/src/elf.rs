//! The few ELF structures that are written: program headers, section headers, the dynamic section.
//! Reading is done by `fettle-image`; here bytes are changed in place.

/// Bytes of a program header.
pub const PHDR: usize = 56;
/// Bytes of a section header.
pub const SHDR: usize = 64;
/// Bytes of a symbol.
pub const SYM: usize = 24;

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_INTERP: u32 = 3;
pub const PT_NOTE: u32 = 4;
pub const PT_PHDR: u32 = 6;
pub const PT_GNU_PROPERTY: u32 = 0x6474_e553;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const DT_NULL: u64 = 0;
pub const DT_INIT: u64 = 12;
pub const SHT_PROGBITS: u32 = 1;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_STRTAB: u32 = 3;
pub const SHT_HASH: u32 = 5;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHT_DYNSYM: u32 = 11;
pub const SHT_GNU_HASH: u32 = 0x6fff_fff6;
pub const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
pub const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
pub const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
pub const SHF_ALLOC: u64 = 2;

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

    /// Sets its place in the file and its address.
    pub fn place(&mut self, offset: u64, at: u64) {
        for (field, value) in [(8, offset), (16, at), (24, at)] {
            set(&mut self.0, field, 8, value);
        }
    }
}

/// A section header.
#[derive(Clone, Copy, Debug)]
pub struct Shdr(pub [u8; SHDR]);

impl Shdr {
    fn get(&self, at: usize, n: usize) -> u64 {
        get(&self.0, at, n).expect("inside")
    }

    pub fn kind(&self) -> u32 {
        self.get(4, 4) as u32
    }

    pub fn flags(&self) -> u64 {
        self.get(8, 8)
    }

    pub fn at(&self) -> u64 {
        self.get(16, 8)
    }

    pub fn offset(&self) -> u64 {
        self.get(24, 8)
    }

    pub fn size(&self) -> u64 {
        self.get(32, 8)
    }

    pub fn link(&self) -> u32 {
        self.get(40, 4) as u32
    }

    /// Its bytes in the file, if they are there.
    pub fn data<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.offset() as usize;
        file.get(start..start.checked_add(self.size() as usize)?)
    }

    /// Sets its place in the file and its address.
    pub fn place(&mut self, offset: u64, at: u64) {
        set(&mut self.0, 16, 8, at);
        set(&mut self.0, 24, 8, offset);
    }

    /// Appends `bytes` to the file as the section's content.
    pub fn hold(&mut self, file: &mut Vec<u8>, bytes: &[u8]) {
        file.resize(file.len().next_multiple_of(8), 0);
        set(&mut self.0, 24, 8, file.len() as u64);
        set(&mut self.0, 32, 8, bytes.len() as u64);
        file.extend_from_slice(bytes);
    }

    /// Sets the related section, extra information and the size of an entry.
    pub fn relate(&mut self, link: u32, info: u32, entry: u64) {
        set(&mut self.0, 40, 4, u64::from(link));
        set(&mut self.0, 44, 4, u64::from(info));
        set(&mut self.0, 56, 8, entry);
    }
}

/// A section to be added.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewSection<'a> {
    pub name: &'a str,
    pub kind: u32,
    pub flags: u64,
    pub at: u64,
    pub offset: u64,
    pub size: u64,
    pub align: u64,
}

/// A file's section headers, to be changed and added to. A file without any gets none.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    headers: Vec<Shdr>,
    /// Index of the section that holds names.
    names: usize,
    strings: Vec<u8>,
}

impl Sections {
    /// The section headers of `file`; `None` if those that are there make no sense.
    pub fn read(file: &[u8]) -> Option<Sections> {
        let table = get(file, 40, 8)? as usize;
        let count = get(file, 60, 2)? as usize;
        let names = get(file, 62, 2)? as usize;
        if table == 0 || count == 0 {
            return Some(Sections::default());
        }
        if get(file, 58, 2)? as usize != SHDR || names >= count {
            return None;
        }
        let bytes = file.get(table..table.checked_add(count * SHDR)?)?;
        let headers: Vec<Shdr> =
            bytes.chunks_exact(SHDR).map(|h| Shdr(h.try_into().expect("exact"))).collect();
        let strings = headers[names].data(file)?.to_vec();
        Some(Sections { headers, names, strings })
    }

    pub fn headers(&self) -> &[Shdr] {
        &self.headers
    }

    pub fn headers_mut(&mut self) -> &mut [Shdr] {
        &mut self.headers
    }

    /// Whether the section of this index holds the names of sections.
    pub fn holds_names(&self, index: usize) -> bool {
        index == self.names
    }

    /// Whether there is a section of this name.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|h| {
            let rest = self.strings.get(h.get(0, 4) as usize..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// Adds a section; gives its index. Nothing happens in a file without section headers.
    pub fn add(&mut self, section: &NewSection<'_>) -> usize {
        if self.headers.is_empty() {
            return 0;
        }
        let mut h = [0; SHDR];
        set(&mut h, 0, 4, self.strings.len() as u64);
        self.strings.extend_from_slice(section.name.as_bytes());
        self.strings.push(0);
        set(&mut h, 4, 4, u64::from(section.kind));
        set(&mut h, 8, 8, section.flags);
        set(&mut h, 16, 8, section.at);
        set(&mut h, 24, 8, section.offset);
        set(&mut h, 32, 8, section.size);
        set(&mut h, 48, 8, section.align);
        self.headers.push(Shdr(h));
        self.headers.len() - 1
    }

    /// Appends the table and its names to `file`; `None` if there are too many sections.
    pub fn write(mut self, file: &mut Vec<u8>) -> Option<()> {
        if self.headers.is_empty() {
            return Some(());
        }
        if self.headers.len() >= 0xff00 {
            return None;
        }
        self.headers[self.names].hold(file, &self.strings);
        file.resize(file.len().next_multiple_of(8), 0);
        let table = file.len() as u64;
        set(file, 40, 8, table);
        set(file, 60, 2, self.headers.len() as u64);
        file.extend(self.headers.iter().flat_map(|h| h.0));
        Some(())
    }
}
