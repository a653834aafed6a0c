//! Locks: what threads added up of them becomes a report.
//!
//! Threads of an observed process count, for each lock and each place that takes it, how often it
//! was taken, waited for and held (`fettle_abi::locking`). Here those tables become *lock classes*
//! ([`classes`]), places that were waited for ([`classes::Blocking`]), and lock orders with the
//! deadlocks that they make possible ([`order`]). Single events are added up to the same tables
//! ([`events`]). A process that hangs has a wait cycle ([`hung`]).
//!
//! No I/O: names come from the caller, which implements [`Names`].
#![forbid(unsafe_code)]

pub mod advice;
pub mod classes;
pub mod convoys;
pub mod drawing;
pub mod events;
pub mod futex;
pub mod graph;
pub mod hung;
pub mod kind;
pub mod lines;
pub mod order;
pub mod text;
pub mod time;

use serde::Serialize;

pub use classes::{Class, Report, report};
pub use fettle_types::ThreadTable;
pub use order::{Deadlock, deadlocks};

/// A place in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The function, demangled; the address where no name is known.
    pub function: String,
    /// The file of the program or library.
    pub module: String,
    /// Source file and line, where debug information has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl Place {
    /// For people: the function, and where it is.
    pub fn text(&self) -> String {
        let function = brief(&self.function);
        match (&self.line, self.module.is_empty()) {
            (Some(line), _) => format!("{function} ({line})"),
            (None, true) => function,
            (None, false) => format!("{function} [{}]", self.module),
        }
    }
}

/// Longer names are written without what they are for.
const LONG: usize = 60;

/// A long name of C++ without its arguments, those of templates, and what it returns.
fn brief(name: &str) -> String {
    let name = name.trim_end_matches(" const");
    let (mut out, mut depth) = (String::new(), 0_usize);
    if name.len() <= LONG || name.contains("operator") || name.contains("(anonymous") {
        return name.to_owned();
    }
    for c in name.chars() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => out.clear(),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    if out.is_empty() { name.to_owned() } else { out }
}

/// Gives addresses names.
pub trait Names {
    /// The code from which a call returns to `address`.
    fn place(&self, pid: u32, address: u64) -> Place;
    /// The variable that `address` lies in, if it is one of the program's.
    fn variable(&self, pid: u32, address: u64) -> Option<String>;
    /// The member of a structure that is the lock which the call returning to `address` is for, where that is known.
    fn member(&self, _pid: u32, _address: u64) -> Option<String> {
        None
    }
    /// The system call of a number.
    fn system_call(&self, number: u32) -> String;
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn long_names_are_brief() {
        assert_eq!(brief("Account::add(long)"), "Account::add(long)");
        let long = "v8::Handle<v8::String> v8::StringTable::LookupKey<v8::Key<unsigned char>, v8::Isolate>(v8::Key*) const";
        assert_eq!(brief(long), "v8::StringTable::LookupKey");
        let operator =
            "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)";
        assert_eq!(brief(operator), operator);
    }
}
