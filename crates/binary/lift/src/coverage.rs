//! How much of an image's code is in functions that are known.

use fettle_image::{Image, Section, SectionKind};
use serde::{Deserialize, Serialize};

/// Sections of code that linkers make: no functions.
const GLUE: [&str; 7] = [".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt", ".init", ".fini"];

/// Room between functions, and a start file's few functions that no symbol lists, are in every
/// program: so many bytes, and this share of all, are not worth a word.
const FEW_BYTES: u64 = 4096;
const FEW_PERCENT: u64 = 20;

/// Bytes of code, and those of them that lie in no known function: where neither a symbol nor an
/// unwind entry says where functions are, only those are known that data points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// All of them.
    pub code: u64,
    /// Those in no known function.
    pub unknown: u64,
}

impl Coverage {
    /// Of `image`, of which so many bytes are in functions.
    pub(crate) fn new(image: &Image, known: u64) -> Coverage {
        let mut sections =
            image.sections().iter().filter(|s| s.is_alloc() && s.is_executable()).peekable();
        let is_code =
            |s: &Section| s.kind != SectionKind::Nobits && !GLUE.contains(&s.name.as_str());
        // What a damaged file says of its sizes may be more than there can be.
        let add = |sum: u64, size: u64| sum.saturating_add(size);
        let code: u64 = match sections.peek() {
            Some(_) => sections.filter(|s| is_code(s)).map(|s| s.size).fold(0, add),
            None => {
                let segments = image.segments().iter().filter(|s| s.executable);
                segments.map(|s| s.file_size).fold(0, add)
            }
        };
        Coverage { code, unknown: code.saturating_sub(known) }
    }

    /// What to report of it, if that is much.
    pub fn note(self) -> Option<String> {
        let percent = u128::from(self.unknown) * 100 / u128::from(self.code.max(1));
        let is_much = self.unknown >= FEW_BYTES && percent > u128::from(FEW_PERCENT);
        is_much.then(|| {
            format!(
                "{} of {} bytes of code ({percent} %) lie in no known function: neither symbols nor \
                 unwind tables tell of them",
                self.unknown, self.code
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_much_is_reported() {
        let note = |code, unknown| Coverage { code, unknown }.note();
        assert_eq!(note(0, 0), None);
        assert_eq!(note(300, 200), None);
        assert_eq!(note(1 << 20, 1 << 17), None);
        let reported = note(248_005, 206_181).expect("most of it");
        assert!(reported.starts_with("206181 of 248005 bytes of code (83 %)"), "{reported}");
        assert!(note(u64::MAX, u64::MAX).is_some());
    }
}
