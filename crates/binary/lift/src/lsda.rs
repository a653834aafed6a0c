//! Exception tables: the language-specific data area that C++ and Rust personalities read.
//!
//! The layout is that of the Itanium C++ ABI's exception handling and of GCC's `unwind-pe.h`:
//! a header, call sites (code range, landing pad, action), an action table, and a table of types
//! that actions index backwards from its end.

use fettle_image::{Image, LinkAddr};

/// One call site: a range of code and the handler for exceptions that leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// First address of the range.
    pub start: LinkAddr,
    /// End of the range.
    pub end: LinkAddr,
    /// The handler; `None` lets the exception pass.
    pub landing_pad: Option<LinkAddr>,
    /// Offset of the first action, plus one; 0 is a cleanup.
    pub action: u64,
}

/// An exception table, decoded as far as code is concerned.
#[derive(Clone, Debug, Default)]
pub struct Lsda {
    /// Call sites in order of address.
    pub call_sites: Vec<CallSite>,
    /// The action table's bytes, unchanged.
    pub actions: Vec<u8>,
    /// How type entries are encoded (`DW_EH_PE_*`), and the types themselves, nearest to the
    /// action table's end last: entry `n` is `types[n - 1]`.
    pub type_encoding: u8,
    /// Values of the type entries as link addresses before any indirection; 0 is "any type".
    pub types: Vec<u64>,
    /// Bytes after the type table: exception specifications.
    pub specifications: Vec<u8>,
}

const OMIT: u8 = 0xff;

/// A reader over an image at a link address.
struct Reader<'a> {
    bytes: &'a [u8],
    start: u64,
    at: usize,
}

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= -1 << shift;
                }
                return Some(value);
            }
            if shift > 63 {
                return None;
            }
        }
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..self.at + N)?;
        self.at += N;
        bytes.try_into().ok()
    }

    /// A pointer in encoding `enc`, without following an indirection.
    fn pointer(&mut self, enc: u8) -> Option<u64> {
        let place = self.start + self.at as u64;
        let value = match enc & 0x0f {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.fixed()?),
            0x01 => self.uleb()?,
            0x02 => u64::from(u16::from_le_bytes(self.fixed()?)),
            0x03 => u64::from(u32::from_le_bytes(self.fixed()?)),
            0x09 => self.sleb()? as u64,
            0x0a => i16::from_le_bytes(self.fixed()?) as u64,
            0x0b => i32::from_le_bytes(self.fixed()?) as u64,
            _ => return None,
        };
        match enc & 0x70 {
            0x00 => Some(value),
            0x10 if value == 0 => Some(0),
            0x10 => Some(place.wrapping_add(value)),
            _ => None,
        }
    }
}

/// Size of a fixed-size pointer encoding.
pub fn encoded_size(enc: u8) -> Option<usize> {
    match enc & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

/// Reads the exception table at `at`, which belongs to the code that starts at `function`.
///
/// Returns `None` for anything that is not wholly understood.
pub fn parse(image: &Image, at: LinkAddr, function: LinkAddr) -> Option<Lsda> {
    // The size is not stated anywhere; take what the segment has.
    let segment = image.segments().iter().find(|s| s.contains(at))?;
    let rest = segment.start.0 + segment.file_size.min(segment.mem_size);
    let len = usize::try_from(rest.checked_sub(at.0)?).ok()?.min(1 << 24);
    let bytes = image.read(at, len)?;
    let mut r = Reader { bytes, start: at.0, at: 0 };

    let base = match r.u8()? {
        OMIT => function.0,
        enc => r.pointer(enc)?,
    };
    let mut lsda = Lsda { type_encoding: r.u8()?, ..Lsda::default() };
    let types_end = match lsda.type_encoding {
        OMIT => None,
        _ => {
            let distance = usize::try_from(r.uleb()?).ok()?;
            Some(r.at.checked_add(distance)?)
        }
    };
    let site_encoding = r.u8()?;
    let sites_len = usize::try_from(r.uleb()?).ok()?;
    let sites_end = r.at.checked_add(sites_len).filter(|e| *e <= bytes.len())?;
    while r.at < sites_end {
        let start = base_plus(function.0, r.pointer(site_encoding)?)?;
        let end = base_plus(start, r.pointer(site_encoding)?)?;
        let pad = match r.pointer(site_encoding)? {
            0 => None,
            offset => Some(LinkAddr(base_plus(base, offset)?)),
        };
        let action = r.uleb()?;
        lsda.call_sites.push(CallSite {
            start: LinkAddr(start),
            end: LinkAddr(end),
            landing_pad: pad,
            action,
        });
    }
    if r.at != sites_end {
        return None;
    }
    read_actions(&mut lsda, bytes, at, sites_end, types_end)?;
    Some(lsda)
}

fn base_plus(base: u64, offset: u64) -> Option<u64> {
    base.checked_add(offset)
}

/// Walks every action chain to learn how far the action table, the type table and the exception
/// specifications reach: none of them states its size.
fn read_actions(
    lsda: &mut Lsda,
    bytes: &[u8],
    at: LinkAddr,
    actions_start: usize,
    types_end: Option<usize>,
) -> Option<()> {
    let mut actions_end = actions_start;
    let mut types = 0usize;
    let mut specs_end = 0usize;
    for site in &lsda.call_sites {
        let mut next = site.action.checked_sub(1).map(|o| actions_start + o as usize);
        let mut hops = 0;
        while let Some(offset) = next {
            hops += 1;
            if hops > 4096 || offset > bytes.len() {
                return None;
            }
            let mut r = Reader { bytes, start: at.0, at: offset };
            let filter = r.sleb()?;
            let link_at = r.at;
            let link = r.sleb()?;
            actions_end = actions_end.max(r.at);
            if filter > 0 {
                types = types.max(usize::try_from(filter).ok()?);
            } else if filter < 0 {
                // An exception specification: a list of type numbers that ends with 0.
                let start = types_end?.checked_add(usize::try_from(-filter - 1).ok()?)?;
                let mut s = Reader { bytes, start: at.0, at: start };
                loop {
                    match s.uleb()? {
                        0 => break,
                        n => types = types.max(usize::try_from(n).ok()?),
                    }
                }
                specs_end = specs_end.max(s.at);
            }
            next = match link {
                0 => None,
                l => Some(link_at.checked_add_signed(isize::try_from(l).ok()?)?),
            };
        }
    }
    lsda.actions = bytes.get(actions_start..actions_end)?.to_vec();
    if let Some(end) = types_end {
        let size = encoded_size(lsda.type_encoding)?;
        if types > 1 << 16 {
            return None;
        }
        for n in 1..=types {
            let mut r = Reader { bytes, start: at.0, at: end.checked_sub(n.checked_mul(size)?)? };
            lsda.types.push(r.pointer(lsda.type_encoding & 0x7f)?);
        }
        if specs_end > end {
            lsda.specifications = bytes.get(end..specs_end)?.to_vec();
        }
    } else if types > 0 {
        return None;
    }
    Some(())
}
