//! The kernel's memory in an ELF core file, which `/proc/kcore` is, too.

use std::io::{Read, Seek, SeekFrom};

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::error::Error;

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const TYPE_CORE: u16 = 4;
const MACHINE_X86_64: u16 = 62;
const SEGMENT_LOAD: u32 = 1;
/// No read takes more: a kernel's image has some tens of MiB.
const MOST: u64 = 1 << 30;

/// A piece of memory that the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: u64,
    size: u64,
    offset: u64,
}

/// A piece of the kernel's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Memory {
    /// The bytes from `address` on, if it has so many.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }
}

/// An ELF core file.
#[derive(Debug)]
pub struct Core<R> {
    file: R,
    segments: Vec<Segment>,
}

impl<R: Read + Seek> Core<R> {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    /// If it is no core file of x86-64.
    pub fn new(mut file: R) -> Result<Core<R>, Error> {
        let mut header = [0; HEADER];
        file.read_exact(&mut header).map_err(|_| Error::NotCore("it has no header"))?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(Error::NotCore("it is no 64-bit ELF file"));
        }
        let half = |at| u16_at(&header, at).unwrap_or(0);
        if half(16) != TYPE_CORE || half(18) != MACHINE_X86_64 {
            return Err(Error::NotCore("it is of another type or machine"));
        }
        if usize::from(half(54)) != SEGMENT {
            return Err(Error::NotCore("its segments' headers have another size"));
        }
        let table = u64_at(&header, 32).unwrap_or(0);
        let mut headers = vec![0; usize::from(half(56)) * SEGMENT];
        file.seek(SeekFrom::Start(table))
            .and_then(|_| file.read_exact(&mut headers))
            .map_err(|_| Error::NotCore("it ends in its segments' headers"))?;
        let segments = headers.chunks_exact(SEGMENT).filter_map(segment).collect();
        Ok(Core { file, segments })
    }

    /// Reads memory from `start` up to `end`, which has to lie in one segment.
    ///
    /// # Errors
    /// If the file does not have all of it.
    pub fn read(&mut self, start: u64, end: u64) -> Result<Vec<u8>, Error> {
        let missing = Error::NoMemory { start, end };
        let size = end.checked_sub(start).filter(|size| *size <= MOST).ok_or(missing.clone())?;
        let holds = |segment: &&Segment| {
            start >= segment.start
                && (start - segment.start)
                    .checked_add(size)
                    .is_some_and(|behind| behind <= segment.size)
        };
        let segment = self.segments.iter().find(holds).ok_or(missing.clone())?;
        let offset = segment.offset.checked_add(start - segment.start).ok_or(missing.clone())?;
        self.file.seek(SeekFrom::Start(offset)).map_err(|_| missing.clone())?;
        let mut bytes = Vec::new();
        // What a header claims is not allocated before it is there.
        let got =
            (&mut self.file).take(size).read_to_end(&mut bytes).map_err(|_| missing.clone())?;
        if got as u64 == size { Ok(bytes) } else { Err(missing) }
    }
}

fn segment(header: &[u8]) -> Option<Segment> {
    (u32_at(header, 0)? == SEGMENT_LOAD).then_some(Segment {
        start: u64_at(header, 16)?,
        size: u64_at(header, 32)?,
        offset: u64_at(header, 8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    use crate::made::core_file;

    #[test]
    fn memory_is_found_by_address() {
        let start = 0xffff_ffff_8100_0000;
        let mut core = Core::new(Cursor::new(core_file(start, b"kernel"))).unwrap();
        assert_eq!(core.read(start + 1, start + 4).unwrap(), b"ern");
        let beyond = Error::NoMemory { start: start + 1, end: start + 7 };
        assert_eq!(core.read(start + 1, start + 7), Err(beyond));
        assert!(core.read(start + 4, start + 1).is_err());
        assert!(core.read(0, u64::MAX).is_err());
    }

    #[test]
    fn a_shortened_file_is_refused() {
        let whole = core_file(0x1000, b"kernel");
        for length in 0..whole.len() {
            let read = Core::new(Cursor::new(&whole[..length]))
                .and_then(|mut core| core.read(0x1000, 0x1006));
            assert!(read.is_err(), "{length} bytes");
        }
    }
}
