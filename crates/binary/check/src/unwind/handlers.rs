//! Tables of handlers (LSDA): the same landing pads and actions for the same places.

use fettle_image::{Fde, Image, LinkAddr};

use crate::fault::{CheckError, Fault, fail};
use crate::walk::{PADDING, Pair, Walk};
use fettle_code::unwind::{INDIRECT, OMIT, PCREL4};
use fettle_code::{LandingBase, NewLsda, PartUnwind};

use super::rows::Bytes;

/// An exception table.
struct Handlers<'a> {
    pub(super) bytes: Bytes<'a>,
    /// Where call sites, actions and (end of) types begin.
    sites: usize,
    actions: usize,
    types: Option<usize>,
    site_encoding: u8,
    type_encoding: u8,
    /// What landing pads are relative to.
    pad_base: u64,
    /// Address of the first byte; 0 for a new table.
    address: u64,
}

/// What an exception that passes a call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    /// No entry: the program is terminated.
    None,
    Found {
        pad: Option<u64>,
        action: u64,
    },
}

impl<'a> Handlers<'a> {
    pub(super) fn read(bytes: &'a [u8], address: u64, function: u64) -> Option<Handlers<'a>> {
        let mut b = Bytes { bytes, at: 0 };
        let pad_base = match b.u8()? {
            0xff => function,
            // A new table's base is filled in with the start of the function's rewritten text.
            PCREL4 if address == 0 => {
                b.take(4)?;
                0
            }
            encoding => encoded(&mut b, encoding, address)?,
        };
        let type_encoding = b.u8()?;
        let types = match type_encoding {
            0xff => None,
            _ => {
                let distance = usize::try_from(b.uleb()?).ok()?;
                Some(b.at.checked_add(distance)?)
            }
        };
        let site_encoding = b.u8()?;
        let len = usize::try_from(b.uleb()?).ok()?;
        let sites = b.at;
        let actions = sites.checked_add(len).filter(|a| *a <= bytes.len())?;
        let bytes = b;
        let h = Handlers {
            bytes,
            sites,
            actions,
            types,
            site_encoding,
            type_encoding,
            pad_base,
            address,
        };
        let mut b = h.at(sites);
        while b.at < actions {
            for _ in 0..3 {
                encoded(&mut b, site_encoding, address)?;
            }
            b.uleb()?;
        }
        (b.at == actions).then_some(h)
    }

    pub(super) fn at(&self, offset: usize) -> Bytes<'a> {
        Bytes { bytes: self.bytes.bytes, at: offset }
    }

    /// Whether `table` lists the landing pads with their fields, and nothing else: they are
    /// filled in again where the code lies in several chunks.
    fn pads_are_listed(&self, table: &NewLsda) -> Option<bool> {
        let mut b = self.at(self.sites);
        let mut listed = table.pads.iter();
        while b.at < self.actions {
            for _ in 0..2 {
                encoded(&mut b, self.site_encoding, self.address)?;
            }
            let field = b.at;
            let pad = encoded(&mut b, self.site_encoding, self.address)?;
            let whole = b.at - field == 5;
            b.uleb()?;
            if pad == 0 {
                continue;
            }
            let entry = (u32::try_from(field).ok()?, u32::try_from(pad).ok()?);
            if listed.next() != Some(&entry) || !whole || self.site_encoding != 0x01 {
                return Some(false);
            }
        }
        Some(listed.next().is_none())
    }

    /// What the personality routine finds for `place` bytes past the function's start.
    fn find(&self, place: u64) -> Option<Handler> {
        let mut b = self.at(self.sites);
        while b.at < self.actions {
            let mut field = || encoded(&mut b, self.site_encoding, self.address);
            let (start, len, pad) = (field()?, field()?, field()?);
            let action = b.uleb()?;
            // The list is in order.
            if place < start {
                break;
            }
            if place - start < len {
                let pad = (pad != 0).then(|| self.pad_base.wrapping_add(pad));
                return Some(Handler::Found { pad, action });
            }
        }
        Some(Handler::None)
    }
}

/// A pointer as exception tables encode it.
fn encoded(b: &mut Bytes<'_>, encoding: u8, address: u64) -> Option<u64> {
    let place = address.wrapping_add(b.at as u64);
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => b.unsigned(8)?,
        0x01 => b.uleb()?,
        0x02 => b.unsigned(2)?,
        0x03 => b.unsigned(4)?,
        0x09 => b.sleb()? as u64,
        0x0a => b.unsigned(2)? as i16 as u64,
        0x0b => b.unsigned(4)? as i32 as u64,
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        0x10 if value == 0 => Some(0),
        0x10 => Some(place.wrapping_add(value)),
        _ => None,
    }
}

fn original_handlers<'a>(image: &'a Image, fde: &Fde) -> Option<Handlers<'a>> {
    let at = fde.lsda?;
    let segment = image.segments().iter().find(|s| s.contains(at))?;
    let end = segment.start.0 + segment.file_size.min(segment.mem_size);
    let len = usize::try_from(end.checked_sub(at.0)?).ok()?.min(1 << 24);
    Handlers::read(image.read(at, len)?, at.0, fde.start.0)
}

/// Whether a table says what its pads are relative to: the function's start,
/// which the personality routine takes from the unwind entry if the table does not say.
fn has_base(table: &NewLsda, part: &PartUnwind) -> bool {
    let encoding = table.bytes.first().copied();
    match table.base {
        LandingBase::Part => encoding == Some(OMIT) && part.start == 0,
        LandingBase::Function => encoding == Some(PCREL4) && table.base_field() == Some(1),
        LandingBase::Text => false,
    }
}

/// Checks handlers and personality at every call.
pub(super) fn handlers(walk: &Walk<'_, '_>, image: &Image) -> Result<(), CheckError> {
    let parts = walk.claim.unwind;
    let mut tables: Vec<(&Fde, Option<Handlers<'_>>)> = Vec::new();
    let news: Vec<Option<Handlers<'_>>> = parts
        .iter()
        .map(|p| p.table.as_ref().and_then(|t| Handlers::read(&t.bytes, 0, 0)))
        .collect();
    if parts.iter().all(|p| p.table.is_none() && p.personality.is_none() && !p.signal_frame)
        && !has_handlers(walk, image)
    {
        return Ok(());
    }
    let listed = |(new, part): (&Option<Handlers<'_>>, &PartUnwind)| match (new, &part.table) {
        (Some(new), Some(table)) => {
            has_base(table, part) && new.pads_are_listed(table) == Some(true)
        }
        (None, None) => true,
        _ => false,
    };
    if !news.iter().zip(parts).all(listed) {
        return fail(walk.claim.function.entry.0, Fault::Handler);
    }
    let mut actions: Vec<(usize, u64, usize, u64)> = Vec::new();
    for (pair, start, end) in copies(walk) {
        let a = pair.insn.ip();
        let Some(fde) = image.fde_at(LinkAddr(a)) else { continue };
        let Some(i) = parts.iter().position(|p| (p.start..p.end).contains(&start)) else {
            return fail(a, Fault::Unwind);
        };
        let part = &parts[i];
        if part.personality != fde.personality
            || part.signal_frame != fde.signal_frame
            || part.table.is_some() != fde.lsda.is_some()
        {
            return fail(a, Fault::Handler);
        }
        if fde.lsda.is_none() || !pair.seen.is_call() {
            continue;
        }
        let t = match tables.iter().position(|(f, _)| f.start == fde.start) {
            Some(t) => t,
            None => {
                tables.push((fde, original_handlers(image, fde)));
                tables.len() - 1
            }
        };
        let (Some(old), Some(new)) = (&tables[t].1, &news[i]) else {
            return fail(a, Fault::Handler);
        };
        let last = pair.insn.len() as u64 - 1;
        let was = old.find(a + last - fde.start.0);
        // The unwinder finds a handler by the last byte of the call.
        let is = new.find(u64::from(end) - 1 - u64::from(part.start));
        let (was, is) = match (was, is) {
            (Some(Handler::None), Some(Handler::None)) => continue,
            (
                Some(Handler::Found { pad: p, action: x }),
                Some(Handler::Found { pad: q, action: y }),
            ) => ((p, x), (q, y)),
            _ => return fail(a, Fault::Handler),
        };
        let same_pad = match (was.0, is.0) {
            (None, None) => true,
            (Some(p), Some(q)) => block_offset(walk, p) == u32::try_from(q).ok(),
            _ => false,
        };
        if !same_pad {
            return fail(a, Fault::Handler);
        }
        let key = (t, was.1, i, is.1);
        if actions.contains(&key) {
            continue;
        }
        let table = part.table.as_ref().expect("it was read");
        if same_actions(old, was.1, new, table, is.1) != Some(true) {
            return fail(a, Fault::Handler);
        }
        actions.push(key);
    }
    Ok(())
}

/// Where each copy begins and ends; of a promoted call both calls.
fn copies<'s>(walk: &'s Walk<'_, '_>) -> impl Iterator<Item = (&'s Pair, u32, u32)> {
    let pairs = &walk.s.pairs;
    let copies = pairs.iter().filter(|p| p.new < PADDING && p.len > 0);
    let others = walk.s.promoted.iter().map(|(i, end)| (&pairs[*i as usize], end - 1, *end));
    copies.map(|p| (p, p.new, p.new + p.len)).chain(others)
}

fn has_handlers(walk: &Walk<'_, '_>, image: &Image) -> bool {
    let fdes = image.fdes();
    walk.claim.function.ranges.iter().any(|range| {
        let from = fdes.partition_point(|f| f.end <= range.start);
        fdes[from..]
            .iter()
            .take_while(|f| f.start < range.end)
            .any(|f| f.lsda.is_some() || f.personality.is_some() || f.signal_frame)
    })
}

fn block_offset(walk: &Walk<'_, '_>, at: u64) -> Option<u32> {
    let block = walk.claim.function.block_at(LinkAddr(at))?;
    walk.claim.emitted.block_offsets.get(block.index()).copied()
}

/// Whether two chains of actions catch the same types in the same order.
fn same_actions(
    old: &Handlers<'_>,
    was: u64,
    new: &Handlers<'_>,
    table: &NewLsda,
    is: u64,
) -> Option<bool> {
    if was == 0 || is == 0 {
        return Some(was == is);
    }
    if (old.type_encoding == 0xff) != (new.type_encoding == 0xff) {
        return Some(false);
    }
    let mut a = old.at(old.actions.checked_add(usize::try_from(was - 1).ok()?)?);
    let mut b = new.at(new.actions.checked_add(usize::try_from(is - 1).ok()?)?);
    for _ in 0..4096 {
        let (filter, other) = (a.sleb()?, b.sleb()?);
        // How types are numbered is kept, which compares lists of types, too.
        if filter != other {
            return Some(false);
        }
        if filter > 0 && !same_type(old, new, table, filter as u64)? {
            return Some(false);
        }
        if filter < 0 {
            let skip = usize::try_from(-filter - 1).ok()?;
            let mut s = old.at(old.types?.checked_add(skip)?);
            let mut t = new.at(new.types?.checked_add(skip)?);
            loop {
                let (n, m) = (s.uleb()?, t.uleb()?);
                if n != m {
                    return Some(false);
                }
                if n == 0 {
                    break;
                }
                if !same_type(old, new, table, n)? {
                    return Some(false);
                }
            }
        }
        let (from_a, from_b) = (a.at, b.at);
        let (x, y) = (a.sleb()?, b.sleb()?);
        if x == 0 || y == 0 {
            return Some(x == y);
        }
        a = old.at(from_a.checked_add_signed(isize::try_from(x).ok()?)?);
        b = new.at(from_b.checked_add_signed(isize::try_from(y).ok()?)?);
    }
    None
}

/// Whether type number `n` is the same in both tables.
fn same_type(old: &Handlers<'_>, new: &Handlers<'_>, table: &NewLsda, n: u64) -> Option<bool> {
    if new.type_encoding & !INDIRECT != PCREL4
        || (new.type_encoding ^ old.type_encoding) & INDIRECT != 0
    {
        return Some(false);
    }
    let size: u64 = match old.type_encoding & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    let n = usize::try_from(n).ok()?;
    let mut a = old.at(old.types?.checked_sub(n.checked_mul(size as usize)?)?);
    let was = encoded(&mut a, old.type_encoding & !INDIRECT, old.address)?;
    let field = new.types?.checked_sub(n.checked_mul(4)?)?;
    let is = table.types.iter().find(|(at, _)| *at as usize == field)?.1;
    // What is zero is not filled in.
    let bytes = new.at(field).take(4)?;
    Some(was == is && (is != 0 || bytes == [0; 4]))
}
