//! Weaving: calls of the languages' libraries are put into what the languages' own generators wrote, at
//! places that are known. A place that is not as it should be is an error with its line, and nothing is woven.

pub mod cpp;
pub mod go;
pub mod java;
pub mod python;
pub mod rust;

use fettle_abi::rpc::HOOKS;

use crate::error::{Error, Place, Result};
use crate::hooks::Hooks;
use crate::model::{File, Method, Service};
use crate::options::{Id, Mode};

/// What is woven into a generated file.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Whose stubs the file has.
    pub file: &'a File,
    /// What they record.
    pub mode: Mode,
    /// What they send.
    pub id: Id,
    /// Code of one's own.
    pub hooks: &'a Hooks,
}

impl<'a> Job<'a> {
    /// All methods with their services and their numbers.
    pub fn methods(&self) -> impl Iterator<Item = (&'a Service, usize, &'a Method)> + use<'a> {
        let numbered = |service: &'a Service| {
            service
                .methods
                .iter()
                .enumerate()
                .map(move |(number, method)| (service, number, method))
        };
        self.file.services.iter().flat_map(numbered)
    }

    /// Whether the moments around the user's own method are wanted.
    pub fn wants_components(&self) -> bool {
        self.mode == Mode::Cflow
            || self.hooks.moments().any(|hook| HOOKS[hook].ends_with("_component"))
    }
}

/// A generated file in which places are looked for.
#[derive(Clone, Debug)]
pub struct Text {
    /// Who wrote it.
    pub generator: &'static str,
    /// Its name.
    pub file: String,
    /// What stands in it.
    pub text: String,
}

impl Text {
    /// An error about a place in the file, by its byte.
    pub fn unknown(&self, at: usize, problem: impl Into<String>) -> Error {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::Unknown {
            place: Place::line(&self.file, line),
            generator: self.generator.to_owned(),
            problem: problem.into(),
        }
    }

    /// Where a text stands behind a place.
    pub fn find(&self, from: usize, wanted: &str) -> Result<usize> {
        let found = self.text.get(from..).and_then(|rest| rest.find(wanted));
        found.map(|at| from + at).ok_or_else(|| {
            let wanted = wanted.trim();
            self.unknown(from, format!("from here on there should be `{wanted}`, and is not"))
        })
    }

    /// Replaces a text that has to be there just once.
    pub fn replace(&mut self, wanted: &str, by: &str) -> Result<()> {
        let at = self.find(0, wanted)?;
        if let Some(again) = self.text[at + wanted.len()..].find(wanted) {
            let problem = format!("`{}` is there a second time", wanted.trim());
            return Err(self.unknown(at + wanted.len() + again, problem));
        }
        self.text.replace_range(at..at + wanted.len(), by);
        Ok(())
    }

    /// Replaces a text wherever it is; it has to be there.
    pub fn replace_all(&mut self, wanted: &str, by: &str) -> Result<()> {
        self.find(0, wanted)?;
        self.text = self.text.replace(wanted, by);
        Ok(())
    }

    /// Puts a text behind another that has to be there.
    pub fn insert_after(&mut self, wanted: &str, what: &str) -> Result<()> {
        let at = self.find(0, wanted)? + wanted.len();
        self.text.insert_str(at, what);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_there_twice_is_reported_with_its_line() {
        let text = "a\nb\nb\n".to_owned();
        let mut text = Text { generator: "g", file: "f".into(), text };
        let error = text.replace("b\n", "c\n").unwrap_err().to_string();
        assert!(error.starts_with("f:3 (as g wrote it): `b` is there a second time"), "{error}");
        let error = text.find(2, "x").unwrap_err().to_string();
        assert!(error.starts_with("f:2 "), "{error}");
        text.replace("a", "x").unwrap();
        assert_eq!(text.text, "x\nb\nb\n");
    }
}
