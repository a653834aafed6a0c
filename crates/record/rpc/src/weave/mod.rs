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

/// How comments of a language look, as its generator writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comments {
    /// Lines that begin with `//`.
    Slashes,
    /// These, and lines between `/*` and `*/`, which begin with `*`.
    Stars,
    /// Lines that begin with `#`, and texts between `"""`.
    Docstrings,
}

/// A generated file in which places are looked for.
#[derive(Clone, Debug)]
pub struct Text {
    /// Who wrote it.
    pub generator: &'static str,
    /// How comments in it look.
    pub comments: Comments,
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

    /// Whether a comment has this byte. Generators copy comments of descriptions, which may look like code.
    fn in_comment(&self, at: usize) -> bool {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
        match self.comments {
            Comments::Slashes => line.starts_with("//"),
            Comments::Stars => ["//", "/*", "*"].iter().any(|mark| line.starts_with(mark)),
            Comments::Docstrings => {
                line.starts_with('#') || before.matches("\"\"\"").count() % 2 == 1
            }
        }
    }

    /// Where a text stands in code behind a place, if it does.
    fn in_code(&self, from: usize, wanted: &str) -> Option<usize> {
        // The end of the line before belongs to that line, which may be a comment.
        let begin = wanted.len() - wanted.trim_start_matches('\n').len();
        let mut places = self.text.get(from..)?.match_indices(wanted).map(|(at, _)| from + at);
        places.find(|at| !self.in_comment(at + begin))
    }

    /// Where a text stands behind a place. What is in comments does not count.
    pub fn find(&self, from: usize, wanted: &str) -> Result<usize> {
        self.in_code(from, wanted).ok_or_else(|| {
            let wanted = wanted.trim();
            self.unknown(from, format!("from here on there should be `{wanted}`, and is not"))
        })
    }

    /// Replaces a text that has to be there just once.
    pub fn replace(&mut self, wanted: &str, by: &str) -> Result<()> {
        let at = self.find(0, wanted)?;
        if let Some(again) = self.in_code(at + wanted.len(), wanted) {
            let problem = format!("`{}` is there a second time", wanted.trim());
            return Err(self.unknown(again, problem));
        }
        self.text.replace_range(at..at + wanted.len(), by);
        Ok(())
    }

    /// Replaces a text wherever it is; it has to be there.
    pub fn replace_all(&mut self, wanted: &str, by: &str) -> Result<()> {
        let mut at = self.find(0, wanted)?;
        loop {
            self.text.replace_range(at..at + wanted.len(), by);
            match self.in_code(at + by.len(), wanted) {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
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
        let mut text = Text { generator: "g", comments: Comments::Slashes, file: "f".into(), text };
        let error = text.replace("b\n", "c\n").unwrap_err().to_string();
        assert!(error.starts_with("f:3 (as g wrote it): `b` is there a second time"), "{error}");
        let error = text.find(2, "x").unwrap_err().to_string();
        assert!(error.starts_with("f:2 "), "{error}");
        text.replace("a", "x").unwrap();
        assert_eq!(text.text, "x\nb\nb\n");
    }

    #[test]
    fn comments_are_not_taken_for_code() {
        for (comments, comment) in [
            (Comments::Slashes, "\t// a();\n"),
            (Comments::Slashes, "  /// a();\n"),
            (Comments::Stars, "/**\n * <pre>\n *a();\n */\n"),
            (Comments::Docstrings, "\"\"\"a();\na();\n\"\"\"\n# a();\n"),
        ] {
            let text = format!("{comment}a();\n{comment}");
            let mut text = Text { generator: "g", comments, file: "f".into(), text };
            text.replace("a();", "b();").unwrap();
            assert_eq!(text.text, format!("{comment}b();\n{comment}"));
            text.insert_after("\nb();\n", "a();\na();\n").unwrap();
            text.replace_all("a();", "a(a();").unwrap();
            assert_eq!(text.text, format!("{comment}b();\na(a();\na(a();\n{comment}"));
            assert!(text.find(0, "a();\n\n").is_err());
        }
    }
}
