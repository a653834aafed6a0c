//! Which functions get probes.

use std::cell::OnceCell;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use fettle_demangle::demangle;
use fettle_image::{Image, LinkAddr, unversioned};
use fettle_lift::Function;

/// A choice of functions by name, address and size.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// If not empty, only functions that one of these matches.
    pub only: Vec<Pattern>,
    /// No function that one of these matches.
    pub skip: Vec<Pattern>,
    /// No function smaller than this many bytes.
    pub min_size: u64,
}

/// A pattern for functions: a name with `*` and `?`, an address as `0x1234`, or a range of them
/// as `0x1000-0x2000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Matches the symbol name or the demangled name.
    Name(String),
    /// Matches functions that start in this range of link addresses, which is not empty; end excluded.
    Addresses(u64, u64),
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It begins like an address and is none.
    #[error("`{0}` is neither an address (0x1000) nor a range of addresses (0x1000-0x2000)")]
    Address(String),
    /// No address lies in it.
    #[error("no address lies in `{0}`: a range ends behind its beginning")]
    Empty(String),
}

impl FromStr for Pattern {
    type Err = PatternError;

    /// Reads a pattern: an address or a range of them begins with `0x`, which no function's name does.
    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        if !text.starts_with("0x") {
            return Ok(Pattern::Name(text.to_owned()));
        }
        let number = |text: &str| {
            let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
            digits.and_then(|digits| u64::from_str_radix(digits, 16).ok())
        };
        let range = match text.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)),
            None => number(text).map(|address| (address, address.saturating_add(1))),
        };
        match range {
            None => Err(PatternError::Address(text.to_owned())),
            Some((from, to)) if from >= to => Err(PatternError::Empty(text.to_owned())),
            Some((from, to)) => Ok(Pattern::Addresses(from, to)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Name(name) => f.write_str(name),
            Pattern::Addresses(from, to) if from.checked_add(1) == Some(*to) => {
                write!(f, "{from:#x}")
            }
            Pattern::Addresses(from, to) => write!(f, "{from:#x}-{to:#x}"),
        }
    }
}

/// All names of a function, for as many patterns as there are.
pub struct Names<'a> {
    entry: u64,
    /// Each with what it says to people, if it is another name. Programs have hundreds of thousands
    /// of mangled names, so they are read when a pattern asks, and once.
    names: Vec<(&'a str, OnceCell<Option<String>>)>,
}

impl<'a> Names<'a> {
    /// Those of the function of `image` that starts at `entry` and goes by this name.
    pub fn of(image: &'a Image, entry: LinkAddr, name: Option<&'a str>) -> Names<'a> {
        let others = image.symbols_at(entry).iter().map(|symbol| symbol.name.as_str());
        let all = std::iter::once(name.unwrap_or("")).chain(others);
        let names = all.map(|name| (name, OnceCell::new())).collect();
        Names { entry: entry.0, names }
    }

    /// Whether a pattern means this function, by any of its names.
    pub fn match_pattern(&self, pattern: &Pattern) -> bool {
        let pattern = match pattern {
            Pattern::Addresses(from, to) => return (*from..*to).contains(&self.entry),
            Pattern::Name(pattern) => pattern,
        };
        // What stands for people has `::` or parentheses, which a lone identifier does not match.
        let lone = pattern.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        self.names.iter().any(|(name, readable)| {
            // As the dynamic linker knows it, without its version.
            glob(pattern, name)
                || glob(pattern, unversioned(name))
                || (!lone && {
                    let read = || Some(demangle(name)).filter(|readable| readable != name);
                    let readable = readable.get_or_init(read);
                    readable.as_ref().is_some_and(|readable| glob(pattern, readable))
                })
        })
    }
}

impl Selection {
    /// Whether a function of `image` gets a probe.
    pub fn wants(&self, image: &Image, function: &Function) -> bool {
        let size = function.size();
        if size < self.min_size {
            return false;
        }
        if self.only.is_empty() && self.skip.is_empty() {
            return true;
        }
        let names = Names::of(image, function.entry, function.name.as_deref());
        let matches = |pattern: &Pattern| names.match_pattern(pattern);
        (self.only.is_empty() || self.only.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

/// Whether a pattern means the file at `path`, by the whole of it or by its last part.
pub fn names_file(pattern: &str, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    glob(pattern, &path.to_string_lossy()) || glob(pattern, &name)
}

/// Whether `text` matches `pattern`, where `*` stands for any characters and `?` for one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            // Let the last `*` stand for one character more.
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        assert!(glob("lua_*", "lua_call"));
        assert!(glob("*call", "lua_call"));
        assert!(glob("l?a_c*l", "lua_call"));
        assert!(!glob("lua", "lua_call"));
        assert!(glob("*", ""));
        assert!(!glob("?", ""));
        assert!(glob("std::*::push_back*", "std::vector<int>::push_back(int)"));
    }

    #[test]
    fn patterns() {
        assert_eq!("0x10".parse(), Ok(Pattern::Addresses(16, 17)));
        assert_eq!("0x10-0x20".parse(), Ok(Pattern::Addresses(16, 32)));
        assert_eq!("main".parse(), Ok(Pattern::Name("main".into())));
        for text in ["0x10", "0x10-0x20", "main*", "std::a-b", "0xfffffffffffffffe"] {
            assert_eq!(text.parse::<Pattern>().map(|p| p.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["0xzz", "0x", "0x10-", "0x10-20", "0x10-0x", "0x10-0x20-0x30", "0x+1"] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError::Address(text.into())));
        }
        for text in ["0x20-0x10", "0x10-0x10", "0xffffffffffffffff"] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError::Empty(text.into())));
        }
    }
}
