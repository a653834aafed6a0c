//! What a census finds in a file.

use serde::Serialize;

use crate::kinds::{Kind, Operation};

/// An operation on a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The kind of lock.
    pub kind: Kind,
    /// What it does.
    pub operation: Operation,
    /// Its line, from 1.
    pub line: u32,
    /// The function or macro that it is in, as an index into [`FileCensus::functions`].
    pub function: u32,
    /// How many locks are held behind it, this one among them, by the function's text. 0 for what takes
    /// none.
    pub depth: u8,
    /// Whether the function is itself an operation on locks: then this is how a lock is made.
    pub implementation: bool,
}

/// A function, or a macro.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: Box<str>,
    /// The line of its name.
    pub line: u32,
    /// Its last line.
    pub last_line: u32,
    /// Whether it is a macro.
    pub is_macro: bool,
}

/// How a function may leave with a lock held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// It lets go of no lock of that kind anywhere: its callers may.
    Always,
    /// It lets go on other ways out.
    OnOneWay,
}

/// A lock that a function may leave held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The kind of lock.
    pub kind: Kind,
    /// The function, as an index into [`FileCensus::functions`].
    pub function: u32,
    /// The lock as the text names it.
    pub lock: Box<str>,
    /// The line that takes it.
    pub line: u32,
    /// The line that leaves.
    pub exit: u32,
    /// How.
    pub leaving: Leaving,
}

/// What is in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCensus {
    /// Its size.
    pub bytes: u64,
    /// Its lines.
    pub lines: u32,
    /// Lines with something besides comments and blanks, that the preprocessor leaves.
    pub code_lines: u32,
    /// Functions and macros with operations, in the order in which they begin.
    pub functions: Vec<Function>,
    /// How many functions there are, those without operations among them.
    pub function_count: u32,
    /// Operations.
    pub sites: Vec<Site>,
    /// Locks that may stay held.
    pub candidates: Vec<Candidate>,
}

/// A name for people.
pub(crate) fn text_of(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
