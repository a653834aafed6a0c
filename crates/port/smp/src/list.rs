//! Lists of processors as Linux writes them: `2,4-7`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Numbers above this are no processors of any Linux.
const MOST: u32 = 8191;

/// A set of processors, by Linux's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List(BTreeSet<u32>);

impl FromStr for List {
    type Err = Error;

    fn from_str(text: &str) -> Result<List, Error> {
        let wrong = || Error::List(text.to_string());
        let mut numbers = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| wrong())?;
            let last: u32 = last.parse().map_err(|_| wrong())?;
            if first > last || last > MOST {
                return Err(wrong());
            }
            numbers.extend(first..=last);
        }
        Ok(List(numbers))
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_linux_does() {
        for (text, same) in [("2", "2"), ("2-5", "2-5"), ("5,2,3,4", "2-5"), ("1,3-4,9", "1,3-4,9")]
        {
            let list: List = text.parse().expect("a list");
            assert_eq!(list.to_string(), same);
        }
        for text in ["", "a", "3-1", "1-", "-1", "1,,2", "99999", "0-4294967295"] {
            assert!(text.parse::<List>().is_err(), "{text}");
        }
    }
}
