//! Pages of the kernel's ring buffer: records with the time since the one before.

/// Reads a page's records.
#[derive(Debug, Default)]
pub struct Page {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
    time: u64,
}

/// A record: when, and where in the page its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub time: u64,
    pub from: usize,
    pub to: usize,
}

/// What is wrong with a page.
pub type Problem = &'static str;

impl Page {
    /// A page, and how many events were lost before it if it says so: `None` if it says that some were,
    /// and not how many.
    pub fn new(
        bytes: Vec<u8>,
        data_at: usize,
        commit_bytes: usize,
    ) -> Result<(Page, Option<u64>), Problem> {
        const MISSED: u64 = 1 << 31;
        const MISSED_STORED: u64 = 1 << 30;
        const LENGTH: u64 = 0xf_ffff;
        let number = |at: usize, size: usize| -> Option<u64> {
            let bytes = bytes.get(at..at + size)?;
            Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let time = number(0, 8).ok_or("a page is too short")?;
        let commit = number(8, commit_bytes.min(8)).ok_or("a page is too short")?;
        let end = data_at + (commit & LENGTH) as usize;
        if end > bytes.len() {
            return Err("a page says that it is longer than it is");
        }
        let lost = match commit & MISSED != 0 {
            false => Some(0),
            true if commit & MISSED_STORED != 0 => number(end, commit_bytes.min(8)),
            true => None,
        };
        Ok((Page { bytes, at: data_at, end, time }, lost))
    }

    /// Bytes of a record.
    pub fn data(&self, record: Record) -> &[u8] {
        self.bytes.get(record.from..record.to).unwrap_or_default()
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let four = self.bytes.get(at..at + 4).filter(|_| at + 4 <= self.end)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    }

    /// The next record with data; `None` at the page's end.
    pub fn next(&mut self) -> Result<Option<Record>, Problem> {
        const PADDING: u32 = 29;
        const TIME_EXTEND: u32 = 30;
        const TIME_STAMP: u32 = 31;
        loop {
            if self.at + 4 > self.end {
                return Ok(None);
            }
            let head = self.u32(self.at).ok_or("a record has no end")?;
            let (kind, delta) = (head & 0x1f, u64::from(head >> 5));
            let word = self.u32(self.at + 4);
            let longer = || word.map(u64::from).ok_or("a record has no end");
            match kind {
                // The rest of the page is empty.
                PADDING if delta == 0 => {
                    self.at = self.end;
                    return Ok(None);
                }
                PADDING => {
                    self.time = self.time.wrapping_add(delta);
                    self.at += 4 + longer()? as usize;
                }
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(longer()? << 27 | delta);
                    self.at += 8;
                }
                TIME_STAMP => {
                    // 59 bits; the highest are those of the time before.
                    const BITS: u64 = (1 << 59) - 1;
                    self.time = self.time & !BITS | (longer()? << 27 | delta) & BITS;
                    self.at += 8;
                }
                _ => {
                    self.time = self.time.wrapping_add(delta);
                    let (from, bytes) = match kind {
                        0 => (self.at + 8, (longer()? as usize).checked_sub(4)),
                        words => (self.at + 4, Some(words as usize * 4)),
                    };
                    let bytes = bytes.ok_or("a record is shorter than its own head")?;
                    let to = from + bytes.min(1 << 20);
                    if to > self.end {
                        return Err("a record reaches beyond its page");
                    }
                    self.at = from + bytes.next_multiple_of(4);
                    return Ok(Some(Record { time: self.time, from, to }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[u32], flags: u64) -> Vec<u8> {
        let mut bytes = 1000_u64.to_le_bytes().to_vec();
        bytes.extend(((words.len() as u64 * 4) | flags).to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    #[test]
    fn records_of_all_kinds() {
        let words = [
            10 << 5 | 1,
            0xaa, // one word, 10 later
            5 << 5 | 30,
            1, // 5 + 2^27 later
            0,
            12,
            1,
            2, // a length of its own
            3 << 5 | 29,
            8,
            0, // a discarded event
            1 << 5 | 31,
            0, // a time stamp
            1,
            7,
            29,
            99,
            99,
        ];
        let (mut page, lost) = Page::new(page(&words, 0), 16, 8).unwrap();
        assert_eq!(lost, Some(0));
        let mut found = Vec::new();
        while let Some(record) = page.next().unwrap() {
            found.push((record.time, page.data(record).len()));
        }
        assert_eq!(found, [(1010, 4), (1015 + (1 << 27), 8), (1, 4)]);
    }

    #[test]
    fn damage_is_told() {
        let (mut short, lost) = Page::new(page(&[9, 1], 1 << 31), 16, 8).unwrap();
        assert_eq!((short.next(), lost), (Err("a record reaches beyond its page"), None));
        assert!(Page::new(page(&[], 100), 16, 8).is_err());
        assert!(Page::new(vec![0; 10], 16, 8).is_err());
    }
}
