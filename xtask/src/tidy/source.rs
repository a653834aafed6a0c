//! Text files, and what is wrong with them.

/// A text file of the repository.
pub struct Source {
    /// Path from the root.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Something to put right.
pub struct Problem {
    /// File and line, or file.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(source: &Source, line: usize, what: impl Into<String>) -> Problem {
        Problem { place: format!("{}:{}", source.name, line + 1), what: what.into() }
    }
}
