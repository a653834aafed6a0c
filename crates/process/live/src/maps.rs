//! The mappings of a process: `/proc/PID/maps` as data.
//!
//! A line is `start-end perms offset device inode path`; the path begins with `/` for a file and
//! with `[` for what the kernel names itself (`[stack]`, `[vdso]`). A file that has been removed
//! since carries ` (deleted)` behind its name.

pub(crate) use fettle_types::PAGE;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub use fettle_types::LiveAddr;
use fettle_types::Pid;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: LiveAddr,
    /// One past the last address.
    pub end: LiveAddr,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Writes reach the file and other processes; otherwise they are private copies.
    pub shared: bool,
    /// Where in the file the mapping begins.
    pub offset: u64,
    /// The file's device: major and minor number.
    pub device: (u32, u32),
    /// The file's inode number, 0 without a file.
    pub inode: u64,
    /// The mapped file, without the kernel's ` (deleted)`.
    pub path: Option<PathBuf>,
    /// The file's name is gone from its directory.
    pub deleted: bool,
    /// The kernel's own name for the mapping, without brackets: `stack`, `vdso`, `heap`.
    pub name: Option<String>,
}

impl Mapping {
    /// Whether the address lies in the mapping.
    pub fn contains(&self, address: LiveAddr) -> bool {
        self.start <= address && address < self.end
    }
}

/// Reads the mappings of a process.
pub fn of_process(pid: Pid) -> io::Result<Vec<Mapping>> {
    Ok(parse(&read_proc(&format!("/proc/{pid}/maps"))?))
}

/// Identifies a file: its device, major and minor number, and its inode.
pub type FileId = ((u32, u32), u64);

/// Where a mapping begins and ends, and which part of which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: LiveAddr,
    pub end: LiveAddr,
    pub offset: u64,
    pub device: (u32, u32),
    /// 0 without a file.
    pub inode: u64,
}

impl Extent {
    pub(crate) fn contains(&self, address: LiveAddr) -> bool {
        self.start <= address && address < self.end
    }
}

/// Looks up single mappings of a process; the process may run.
#[derive(Debug)]
pub(crate) struct Extents {
    pid: Pid,
    /// Belongs to the address space that the process had when it was opened.
    file: File,
}

/// The kernel's structure for a query of one mapping, and its answer.
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// Where a name and a build id would go.
    rest: [u64; 3],
}

impl Extents {
    pub(crate) fn open(pid: Pid) -> io::Result<Extents> {
        Ok(Extents { pid, file: File::open(format!("/proc/{pid}/maps"))? })
    }

    /// The mapping that an address is in. Kernels before 6.11 have no query for a single one.
    pub(crate) fn of(&self, at: LiveAddr) -> Option<Extent> {
        const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
        let size = size_of::<Query>() as u64;
        let mut query = Query { size, address: at.0, ..Query::default() };
        // SAFETY: the kernel reads and fills a structure that we own, of the size that it states.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY, &mut query) };
        if done == 0 {
            return Some(Extent {
                start: LiveAddr(query.start),
                end: LiveAddr(query.end),
                offset: query.offset,
                device: query.device.into(),
                inode: query.inode,
            });
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => None,
            _ => {
                let maps = of_process(self.pid).ok()?;
                let mapping = maps.iter().find(|mapping| mapping.contains(at))?;
                let Mapping { start, end, offset, device, inode, .. } = *mapping;
                Some(Extent { start, end, offset, device, inode })
            }
        }
    }
}

/// Reads a file of `/proc`, whose size is not known before, in few steps.
pub(crate) fn read_proc(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(8192);
    // A plain file would be asked for its size first, and `/proc` has none.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first number behind a name in `/proc/PID/status`.
pub(crate) fn status_field(status: &[u8], name: &str) -> Option<u64> {
    status_text(status, name)?.split_ascii_whitespace().next()?.parse().ok()
}

/// All numbers behind a name.
pub(crate) fn status_fields<'a>(
    status: &'a [u8],
    name: &str,
) -> impl Iterator<Item = u64> + use<'a> {
    let text = status_text(status, name).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|number| number.parse().ok())
}

/// The same of a set of signals, or of capabilities.
pub(crate) fn status_signals(status: &[u8], name: &str) -> Option<u64> {
    u64::from_str_radix(status_text(status, name)?, 16).ok()
}

fn status_text<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
    Some(std::str::from_utf8(value).ok()?.trim())
}

/// Parses the text of `/proc/PID/maps`. Lines of another form are left out.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (start, end) = split_at_byte(fields.next()?, b'-')?;
    let permissions = fields.next()?;
    let offset = hex(fields.next()?)?;
    let (major, minor) = split_at_byte(fields.next()?, b':')?;
    let inode = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let rest = fields.next().unwrap_or(b"");
    let label = &rest[rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len())..];
    let permission = |index: usize, letter: u8| permissions.get(index) == Some(&letter);

    let mut mapping = Mapping {
        start: LiveAddr(hex(start)?),
        end: LiveAddr(hex(end)?),
        readable: permission(0, b'r'),
        writable: permission(1, b'w'),
        executable: permission(2, b'x'),
        shared: permission(3, b's'),
        offset,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode,
        path: None,
        deleted: false,
        name: None,
    };
    match label.first() {
        Some(b'/') => {
            let whole = label.strip_suffix(b" (deleted)");
            mapping.deleted = whole.is_some();
            mapping.path = Some(PathBuf::from(OsStr::from_bytes(whole.unwrap_or(label))));
        }
        Some(b'[') => {
            let name = label[1..].strip_suffix(b"]").unwrap_or(&label[1..]);
            mapping.name = Some(String::from_utf8_lossy(name).into_owned());
        }
        _ => {}
    }
    Some(mapping)
}

fn split_at_byte(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// What a mapping allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prot {
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub exec: bool,
}

impl Prot {
    pub(crate) fn bits(self) -> u64 {
        let bit = |allowed: bool, bit: i32| if allowed { bit as u64 } else { 0 };
        bit(self.read, libc::PROT_READ)
            | bit(self.write, libc::PROT_WRITE)
            | bit(self.exec, libc::PROT_EXEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_each_kind() {
        let maps = parse(
            b"555555554000-555555556000 r-xp 00002000 fe:01 1234   /usr/bin/a name (deleted)\n\
              7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0      [vdso]\n\
              7ffff7d00000-7ffff7d01000 rw-s 00000000 00:05 99     /memfd:ring (deleted)\n\
              7ffff7000000-7ffff7001000 ---p 00000000 00:00 0 \n\
              broken\n",
        );
        assert_eq!(maps.len(), 4);
        assert_eq!(maps[0].path.as_deref(), Some("/usr/bin/a name".as_ref()));
        assert!(maps[0].deleted && maps[0].executable && !maps[0].writable && !maps[0].shared);
        assert_eq!((maps[0].offset, maps[0].inode, maps[0].device), (0x2000, 1234, (0xfe, 1)));
        assert_eq!(maps[1].name.as_deref(), Some("vdso"));
        assert!(maps[2].shared && maps[2].writable);
        assert_eq!((&maps[3].path, &maps[3].name), (&None, &None));
        assert!(maps[3].contains(LiveAddr(0x7ffff7000fff)));
        assert!(!maps[3].contains(LiveAddr(0x7ffff7001000)));
    }

    #[test]
    fn our_own() {
        let maps = of_process(Pid::own()).unwrap();
        let here = LiveAddr(our_own as *const () as u64);
        let mapping = maps.iter().find(|mapping| mapping.contains(here)).unwrap();
        assert!(mapping.executable);
        let extents = Extents::open(Pid::own()).unwrap();
        let Mapping { start, end, offset, device, inode, .. } = *mapping;
        assert_eq!(extents.of(here), Some(Extent { start, end, offset, device, inode }));
        assert_eq!(extents.of(LiveAddr(16)), None);
    }
}
