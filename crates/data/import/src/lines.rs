//! Lines of a file, one after the other, with a bound on their length.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes of a line at most; what is longer is no trace of ours.
const LINE_MAX: usize = 1 << 20;

/// Reads lines.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    input: BufReader<File>,
    line: Vec<u8>,
    text: String,
    number: u64,
    /// Whether the last line had its end.
    whole: bool,
}

impl Lines {
    /// Those of a file.
    pub fn open(path: &Path) -> Result<Lines> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        Ok(Lines {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 18, file),
            line: Vec::new(),
            text: String::new(),
            number: 0,
            whole: true,
        })
    }

    /// Goes to the next line; `false` if there is none.
    pub fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        loop {
            let chunk = self.input.fill_buf().map_err(|e| Error::io("read", &self.path, e))?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            self.line.extend_from_slice(end.and_then(|end| chunk.get(..end)).unwrap_or(chunk));
            self.whole = end.is_some();
            self.input.consume(taken);
            if self.line.len() > LINE_MAX {
                let problem = "the line is longer than 1 MiB: this is no text trace";
                return Err(Error::at_line(&self.path, self.number + 1, problem));
            }
            if end.is_some() || taken == 0 {
                break;
            }
        }
        if self.line.is_empty() && !self.whole {
            return Ok(false);
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.number += 1;
        self.text.clear();
        match std::str::from_utf8(&self.line) {
            Ok(text) => self.text.push_str(text),
            Err(_) => self.text.push_str(&String::from_utf8_lossy(&self.line)),
        }
        Ok(true)
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its number, counted from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it had an end; the last one of a file that was cut off has none.
    pub fn whole(&self) -> bool {
        self.whole
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
