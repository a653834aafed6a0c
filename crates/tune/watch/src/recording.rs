//! Looks in a file, to try rules on: one JSON object a line. Looks in which nothing has changed are left
//! out.

use std::io::{self, BufRead, Write};

use crate::look::Look;

/// Writes looks.
#[derive(Debug)]
pub struct Recording<W: Write> {
    out: W,
    last: Option<Look>,
}

impl<W: Write> Recording<W> {
    /// Into `out`, which should be buffered.
    pub fn new(out: W) -> Recording<W> {
        Recording { out, last: None }
    }

    /// Adds a look.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn add(&mut self, look: &Look) -> io::Result<()> {
        let is_same = |last: &Look| last.processes == look.processes;
        if look.learned.is_empty() && self.last.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        serde_json::to_writer(&mut self.out, look)?;
        self.out.write_all(b"\n")?;
        self.last = Some(look.clone());
        Ok(())
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads looks, oldest first; a line that is none is an error with its number.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Look, String>> {
    input.lines().enumerate().map(|(number, line)| {
        let line = line.map_err(|error| format!("line {}: {error}", number + 1))?;
        serde_json::from_str(&line).map_err(|error| format!("line {}: {error}", number + 1))
    })
}
