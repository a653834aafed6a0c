//! What can go wrong.

use std::fmt;

/// This crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// A place in a text, as compilers write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Line, from 1; 0 if it is not known.
    pub line: u64,
    /// Column, from 1; 0 if it is not known.
    pub column: u64,
}

impl Place {
    /// A line of a file.
    pub fn line(file: &str, line: usize) -> Place {
        Place { file: file.to_owned(), line: line as u64, column: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().take_while(|number| *number > 0) {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// An error of the plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compiler's request, or a generator's answer, cannot be read.
    #[error("the message cannot be read: {0}")]
    Wire(&'static str),
    /// An option on the command line.
    #[error("option {option}: {problem}")]
    Option {
        /// The option as it was given.
        option: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A description of services.
    #[error("{place}: {problem}")]
    Description {
        /// Where in the `.proto` file.
        place: Place,
        /// What is wrong there.
        problem: String,
    },
    /// A generator wrote something that we do not know.
    #[error(
        "{place} (as {generator} wrote it): {problem}; nothing was woven. This version of {generator} is not \
         known, or writes this service in a way that is not: use one of those in docs/user/rpc.md, or leave \
         the service to it"
    )]
    Unknown {
        /// Where in the generated file.
        place: Place,
        /// Whose text that is.
        generator: String,
        /// What was expected there.
        problem: String,
    },
    /// What generators wrote of a service that cannot be woven.
    #[error("{place}: {of} cannot be woven: {error}")]
    Service {
        /// Where in the `.proto` file.
        place: Place,
        /// The service, a method of it, or all services.
        of: String,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// A file of hooks.
    #[error("{place}: {problem}")]
    Hooks {
        /// Where in the file.
        place: Place,
        /// What is wrong there.
        problem: String,
    },
    /// The language's own generator.
    #[error("{generator}: {problem}")]
    Generator {
        /// The program.
        generator: String,
        /// What it said, or why it did not run.
        problem: String,
    },
}
