//! Where the original continues behind each call of rewritten text: the table for deoptimisation.

use crate::entry::Region;
use crate::journal::Journal;
use crate::maps::LiveAddr;
use crate::process::{Process, hash};

/// Below this, any number in memory may look like an address of code.
pub(crate) const LOWEST: u64 = 1 << 32;

/// Addresses behind calls and system calls in rewritten text, each with that behind the same call
/// of the original; jump tables that rewritten text has copies of; and landing pads of exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnTable {
    /// Ranges of rewritten text whose return addresses are all known.
    texts: Vec<(u64, u64)>,
    /// In order.
    pairs: Vec<(u64, u64)>,
    /// Jump tables whose entries are absolute addresses, in order. An entry of either table leads
    /// to the same place, in original or in rewritten text.
    whole: Vec<(u64, u64)>,
    /// Landing pads of rewritten text, with those of the original, in order. An exception in flight
    /// saves the landing pad of its handler in memory while cleanups run.
    pads: Vec<(u64, u64)>,
    /// Copies of program headers, with the originals, in order. Unwinders cache their addresses.
    headers: Vec<(u64, u64)>,
}

impl ReturnTable {
    /// All of rewritten text in `texts`: the place, or the table, of rewritten text, and that of the original;
    /// tables with `whole` addresses for entries, landing pads and program headers likewise.
    pub fn new(
        texts: impl IntoIterator<Item = Region>,
        places: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        whole: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        pads: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        headers: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
    ) -> ReturnTable {
        fn sorted(all: impl IntoIterator<Item = (LiveAddr, LiveAddr)>) -> Vec<(u64, u64)> {
            let mut all: Vec<_> = all.into_iter().map(|(new, old)| (new.0, old.0)).collect();
            all.sort_unstable();
            all
        }
        let texts = texts.into_iter().map(|text| (text.at.0, text.at.0 + text.len)).collect();
        let (pairs, whole) = (sorted(places), sorted(whole));
        ReturnTable { texts, pairs, whole, pads: sorted(pads), headers: sorted(headers) }
    }

    /// Adds the table of other rewritten text.
    pub fn extend(&mut self, other: ReturnTable) {
        self.texts.extend(other.texts);
        self.pairs.extend(other.pairs);
        self.pairs.sort_unstable();
        self.whole.extend(other.whole);
        self.whole.sort_unstable();
        self.pads.extend(other.pads);
        self.pads.sort_unstable();
        self.headers.extend(other.headers);
        self.headers.sort_unstable();
    }

    /// As bytes, to be kept beside a log.
    pub fn to_bytes(&self) -> Vec<u8> {
        let counts = [
            (self.texts.len() as u64, self.pads.len() as u64),
            (self.whole.len() as u64, self.pairs.len() as u64),
            (self.headers.len() as u64, 0),
        ];
        let lists = [&self.texts, &self.pads, &self.whole, &self.pairs, &self.headers];
        let all = [&counts[..], &lists.map(std::vec::Vec::as_slice).concat()].concat();
        let body: Vec<u8> =
            all.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()]).flatten().collect();
        [&hash(&body).to_le_bytes()[..], &body].concat()
    }

    /// From such bytes; `None` if they were damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<ReturnTable> {
        let (expected, body) = bytes.split_first_chunk()?;
        if u64::from_le_bytes(*expected) != hash(body) {
            return None;
        }
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
        let pairs = body.chunks_exact(16).map(|pair| Some((word(&pair[..8])?, word(&pair[8..])?)));
        let pairs: Vec<(u64, u64)> = pairs.collect::<Option<_>>()?;
        let ([texts, others, headers], mut rest) = pairs.split_first_chunk()?;
        let mut next = |count: u64| -> Option<Vec<(u64, u64)>> {
            let (these, others) = rest.split_at_checked(usize::try_from(count).ok()?)?;
            rest = others;
            Some(these.to_vec())
        };
        let (texts, pads) = (next(texts.0)?, next(texts.1)?);
        let (whole, pairs) = (next(others.0)?, next(others.1)?);
        let headers = next(headers.0)?;
        let sorted = [&pairs, &whole, &pads, &headers].iter().all(|all| all.is_sorted());
        sorted.then_some(ReturnTable { texts, pairs, whole, pads, headers })
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.whole.is_empty()
    }

    /// Whether an address is a return address or a landing pad; `None` if nothing is known of the
    /// code there.
    pub(crate) fn contains(&self, address: u64) -> Option<bool> {
        let known = self.texts.iter().any(|(start, end)| *start <= address && address < *end);
        known.then(|| self.original_of(address).is_some())
    }

    /// Whether it is where the copy of a jump table begins.
    pub(crate) fn is_table(&self, address: u64) -> bool {
        self.contains(address).is_none() && self.original_of(address).is_some()
    }

    /// Where copies of jump tables begin.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u64> {
        let all = self.pairs.iter().chain(&self.whole);
        all.map(|pair| pair.0).filter(|at| self.is_table(*at))
    }

    /// Whether it is where the copy of a table of offsets begins: a thread that has read one of
    /// them will add it to the address of the same table.
    pub(crate) fn is_table_of_distances(&self, address: u64) -> bool {
        self.is_table(address) && find(&self.whole, address).is_none()
    }

    /// Whether the copy of a program header is there.
    pub(crate) fn is_header(&self, address: u64) -> bool {
        find(&self.headers, address).is_some()
    }

    /// The original of a program header that `word` at `at` points at. Where addresses are small
    /// numbers the word before or behind must point at another one, as in a record of libgcc's: it
    /// has two side by side.
    pub(crate) fn header_of(&self, process: &Process, at: LiveAddr, word: u64) -> Option<u64> {
        let is_header = |at: LiveAddr| {
            let mut bytes = [0; 8];
            let read = process.memory.read_exact(at, &mut bytes);
            read.is_ok() && self.is_header(u64::from_le_bytes(bytes))
        };
        let original = find(&self.headers, word)?;
        let beside = [at.offset(8), LiveAddr(at.0.wrapping_sub(8))];
        (word >= LOWEST || beside.into_iter().any(is_header)).then_some(original)
    }

    /// Whether an address is a landing pad, and no return address.
    pub(crate) fn is_pad(&self, address: u64) -> bool {
        find(&self.pairs, address).is_none() && find(&self.pads, address).is_some()
    }

    pub(crate) fn original_of(&self, address: u64) -> Option<u64> {
        [&self.pairs, &self.whole, &self.pads].iter().find_map(|pairs| find(pairs, address))
    }
}

fn find(pairs: &[(u64, u64)], address: u64) -> Option<u64> {
    let at = pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
    Some(pairs[at].1)
}

/// Whether a word at `at` is where an exception of C++ saves its landing pad: it is followed by the
/// object's address, and the class of exceptions of GCC or Clang (Itanium C++ ABI, 2.2.1).
pub(crate) fn is_kept_by_exception(process: &Process, at: LiveAddr) -> bool {
    // The last byte says whether the object is another exception's.
    const CLASSES: [u64; 2] =
        [u64::from_be_bytes(*b"GNUCC++\0"), u64::from_be_bytes(*b"CLNGC++\0")];
    let mut class = [0; 8];
    let read = process.memory.read_exact(at.offset(16), &mut class);
    read.is_ok() && CLASSES.contains(&(u64::from_le_bytes(class) & !1))
}

impl Journal {
    /// The return addresses in rewritten text, that of libraries which were opened later included.
    pub(crate) fn returns(&self) -> ReturnTable {
        let read = |kind| ReturnTable::from_bytes(&self.beside(kind).ok()?.1);
        let mut all = read("returns").unwrap_or_default();
        all.extend(read("opened").unwrap_or_default());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let prot = crate::Prot { read: true, write: false, exec: true };
        let text = Region { at: LiveAddr(0x1000), len: 0x2000, prot, shared: false };
        let place = |new: u64, old: u64| (LiveAddr(new), LiveAddr(old));
        let places = [place(0x2000, 7), place(0x1000, 5)];
        let pads = [place(0x1800, 6), place(0x2000, 7)];
        let headers = [place(0x6000, 0x40), place(0x6038, 0x78)];
        let returns = ReturnTable::new([text], places, [place(0x5000, 8)], pads, headers);
        assert!(returns.is_header(0x6038) && !returns.is_header(0x6039));
        let original = |at| returns.original_of(at);
        assert_eq!([0x1000, 0x1800, 0x5000].map(original), [Some(5), Some(6), Some(8)]);
        assert_eq!([0x1000, 0x5000].map(|at| returns.is_table(at)), [false, true]);
        assert!(!returns.is_table_of_distances(0x5000));
        assert_eq!([0x1000, 0x1800, 0x2000].map(|at| returns.is_pad(at)), [false, true, false]);
        assert_eq!(
            [0x1000, 0x1800, 0x1001, 0x3000].map(|at| returns.contains(at)),
            [Some(true), Some(true), Some(false), None]
        );
        let mut bytes = returns.to_bytes();
        assert_eq!(ReturnTable::from_bytes(&bytes), Some(returns));
        assert_eq!(ReturnTable::from_bytes(&bytes[..bytes.len() - 1]), None);
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(ReturnTable::from_bytes(&bytes), None);
        assert_eq!(ReturnTable::from_bytes(&[]), None);
        assert_eq!(
            ReturnTable::from_bytes(&ReturnTable::default().to_bytes()),
            Some(ReturnTable::default())
        );
    }
}
