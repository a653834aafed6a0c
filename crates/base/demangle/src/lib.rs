//! Names of C++ and Rust functions as people wrote them.
//!
//! Mangled names come from files that are not trusted: back references let a short one expand without end,
//! so both what is read and what is made are bounded.
#![forbid(unsafe_code)]

use std::fmt::Write;

use cpp_demangle::{BorrowedSymbol, DemangleOptions};

/// Longest mangled name worth the attempt, and longest result worth showing, in bytes.
const MANGLED_LEN_MAX: usize = 64 * 1024;
const DEMANGLED_LEN_MAX: usize = 256 * 1024;

/// How much of a C++ function's signature a name has. Rust's names have none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All of it: `int max<int>(int, int)`.
    Signature,
    /// Without the type of its result: `max<int>(int, int)`.
    Parameters,
    /// Only the name: `max<int>`.
    Name,
}

/// Demangles a C++ or Rust symbol name. Anything else comes back as it is, as does a name that would grow out
/// of bounds.
pub fn demangle(name: &str) -> String {
    demangled(name, Form::Signature).unwrap_or_else(|| name.to_owned())
}

/// The name that the author of a C++ or Rust function wrote; `None` for anything else, and for a name that would
/// grow out of bounds.
pub fn demangled(name: &str, form: Form) -> Option<String> {
    if name.len() > MANGLED_LEN_MAX {
        return None;
    }
    rust(name).or_else(|| cpp(name, form))
}

/// Text that stops growing.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > DEMANGLED_LEN_MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded(String::new());
    // The alternate form leaves out the hash.
    write!(text, "{demangled:#}").ok()?;
    Some(text.0)
}

fn cpp(name: &str, form: Form) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") && !name.starts_with("_GLOBAL_") {
        return None;
    }
    // GCC marks the parts it makes of one function behind a dot.
    let (base, suffix) = name.split_at(name.find('.').filter(|dot| *dot > 0).unwrap_or(name.len()));
    let (symbol, tail) = BorrowedSymbol::with_tail(base.as_bytes()).ok()?;
    if !tail.is_empty() {
        return None;
    }
    let options = match form {
        Form::Signature => DemangleOptions::new(),
        Form::Parameters => DemangleOptions::new().no_return_type(),
        Form::Name => DemangleOptions::new().no_return_type().no_params(),
    };
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options).ok()?;
    text.0.push_str(suffix);
    Some(text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_three_languages() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN3foo3barEi.cold"), "foo::bar(int).cold");
        let push_back = demangle("_ZNSt6vectorIiSaIiEE9push_backERKi");
        assert_eq!(push_back, "std::vector<int, std::allocator<int> >::push_back(int const&)");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_str17h0123456789abcdefE"),
            "core::fmt::Write::write_str"
        );
        let max = "_Z3maxIiET_S0_S0_.part.0";
        assert_eq!(demangled(max, Form::Signature).unwrap(), "int max<int>(int, int).part.0");
        assert_eq!(demangled(max, Form::Parameters).unwrap(), "max<int>(int, int).part.0");
        assert_eq!(demangled(max, Form::Name).unwrap(), "max<int>.part.0");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangle("_Znot a name"), "_Znot a name");
        assert_eq!(demangle(""), "");
    }

    /// Each level names the one before twice, so the text doubles with every four letters.
    #[test]
    fn growth_is_bounded() {
        let mut name = String::from("_Z1fP1aS_");
        for level in 0..40 {
            let digit = |n: u32| char::from_digit(n, 36).unwrap_or('z').to_ascii_uppercase();
            name.push_str(&format!("PFvS{}_S{}_E", digit(level % 36), digit(level % 36)));
        }
        assert!(demangle(&name).len() <= DEMANGLED_LEN_MAX);
        demangle(&"_Z".repeat(10_000));
        demangle(&format!("_Z1f{}", "P".repeat(60_000)));
        demangle(&format!("_RNv{}", "Ns_".repeat(20_000)));
        demangle(&format!("_ZN{}E", "1a".repeat(30_000)));
    }

    #[test]
    fn damaged_names_come_back() {
        let names = [
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "_ZZN3fooIXadL_Z3barvEEEvvENKUlvE_clEv",
            "_RNvMs_NtCs1234_7mycrate3fooNtB4_3Bar3baz",
            "_ZN4core3fmt5Write9write_str17h0123456789abcdefE",
        ];
        let mut state = 0x9e37_79b9u32;
        for round in 0..20_000 {
            let mut name = names[round % names.len()].as_bytes().to_vec();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % name.len();
                name[at] = b"_0123456789ENSTIPRKLXzstacvd.$"[(state >> 20) as usize % 30];
            }
            demangle(&String::from_utf8_lossy(&name));
        }
    }
}
