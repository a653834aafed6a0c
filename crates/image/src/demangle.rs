//! Names as people wrote them.

use std::fmt::Write;

/// Longest mangled name worth the attempt, and longest result worth showing.
const MANGLED_LEN_MAX: usize = 64 * 1024;
const DEMANGLED_LEN_MAX: usize = 256 * 1024;

/// Demangles a C++ or Rust symbol name. Anything else comes back as it is, as does a name that
/// would grow out of bounds: back-references let a short hostile name expand without end.
pub fn demangle(name: &str) -> String {
    if name.len() > MANGLED_LEN_MAX {
        return name.to_owned();
    }
    rust(name).or_else(|| cpp(name)).unwrap_or_else(|| name.to_owned())
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

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") && !name.starts_with("_GLOBAL_") {
        return None;
    }
    // GCC marks the parts it makes of one function behind a dot.
    let (base, suffix) = match name.find('.') {
        Some(dot) if dot > 0 => name.split_at(dot),
        _ => (name, ""),
    };
    let symbol = cpp_demangle::BorrowedSymbol::with_tail(base.as_bytes()).ok();
    let (symbol, tail) = symbol?;
    if !tail.is_empty() {
        return None;
    }
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::new()).ok()?;
    text.0.push_str(suffix);
    Some(text.0)
}
