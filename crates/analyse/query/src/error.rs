//! What can go wrong with a question.

use datafusion::error::DataFusionError;

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// The requests could not be found.
    #[error(transparent)]
    Tables(#[from] fettle_tables::Error),
    /// The question is wrong; the text points at the place where that is known.
    #[error("{0}")]
    Question(String),
    /// The engine could not answer.
    #[error("cannot answer: {0}")]
    Engine(String),
    /// No thread could be started.
    #[error("cannot start the engine: {0}")]
    Start(std::io::Error),
    /// A part of the trace cannot be read, and an executor of parts has no way to report that as a
    /// warning.
    #[error("{0}; without --cluster and --parts the rest of the trace is followed")]
    Part(String),
    /// The user has seen enough.
    #[error("interrupted")]
    Interrupted,
    /// Something about the cluster.
    #[error("{0}")]
    Cluster(String),
}

impl From<fettle_follow::Error> for Error {
    fn from(error: fettle_follow::Error) -> Error {
        Error::Tables(error.into())
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        Error::Engine(plainly(&error))
    }
}

impl Error {
    /// An error of ours on its way through the engine.
    pub(crate) fn passed(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }

    /// What is wrong with a question, with the place if the engine knows it. `tables` are those that
    /// there are.
    pub(crate) fn question(error: &DataFusionError, sql: &str, tables: &[String]) -> Error {
        let text = plainly(error);
        if let Some(what) = NOT_ASKED.iter().find_map(|mark| text.strip_prefix(mark)) {
            return Error::Question(format!(
                "{what} is no question: SELECT, SHOW TABLES, DESCRIBE and EXPLAIN are answered, nothing \
                 is written or defined, and no other files are read"
            ));
        }
        // The parser says it in words, which the arrow says better.
        let text = text.split(" at Line:").next().unwrap_or_default();
        let mut lines = text.lines();
        let mut reported = lines.next().unwrap_or_default().to_owned();
        if let Some((line, column)) = place(error, sql) {
            let shown = sql.lines().nth(line.saturating_sub(1)).unwrap_or_default();
            let arrow = format!("{}^", " ".repeat(column.saturating_sub(1)));
            reported
                .push_str(&format!("\n  --> line {line}, column {column}\n  {shown}\n  {arrow}"));
        }
        for line in lines {
            reported.push('\n');
            reported.push_str(line);
        }
        if missing_table(text).is_some() {
            reported.push_str(&format!("\nThere are {}", tables.join(", ")));
        }
        Error::Question(reported)
    }
}

/// What the engine says of what was not allowed to it, before it names that.
const NOT_ASKED: [&str; 3] =
    ["DDL not supported: ", "DML not supported: ", "Statement not supported: "];

/// Of `table 'datafusion.public.request' not found`, the last name.
fn missing_table(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once("table '")?.1.split_once('\'')?;
    rest.trim_start().starts_with("not found").then(|| name.rsplit('.').next())?
}

/// The innermost error's text, without the names of the layers above.
fn plainly(error: &DataFusionError) -> String {
    let root = error.find_root();
    let text = match root {
        DataFusionError::External(ours) => ours.to_string(),
        DataFusionError::SQL(error, _) => error.to_string(),
        DataFusionError::Plan(text) => text.clone(),
        other => other.strip_backtrace(),
    };
    let text = text.trim_start_matches("sql parser error: ");
    text.trim_start_matches("Schema error: ").trim_end_matches('.').to_owned()
}

/// Line and column, from 1: where the engine says, or where the name stands that it does not know.
fn place(error: &DataFusionError, sql: &str) -> Option<(usize, usize)> {
    if let Some(span) = error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        return Some((span.start.line as usize, span.start.column as usize));
    }
    let text = error.to_string();
    let after = |text: &str, mark: &str| -> Option<usize> {
        let digits: String = text
            .split_once(mark)?
            .1
            .trim_start()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().ok()
    };
    if let (Some(line), Some(column)) = (after(&text, "Line:"), after(&text, "Column:")) {
        return Some((line, column));
    }
    // `No field named wall.` and `table 'datafusion.public.request' not found` name what they mean.
    let name = text
        .split_once("No field named ")
        .map(|(_, rest)| rest.split([' ', '.', ',']).next().unwrap_or_default())
        .or_else(|| missing_table(&text))
        .or_else(|| text.split_once("Invalid function '")?.1.split('\'').next())?;
    let name = name.trim_matches('"');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (n, line) in sql.lines().enumerate() {
        for (at, _) in line.match_indices(name).filter(|_| !name.is_empty()) {
            let before = line[..at].chars().next_back().is_some_and(is_word);
            let behind = line[at + name.len()..].chars().next().is_some_and(is_word);
            if !before && !behind {
                return Some((n + 1, line[..at].chars().count() + 1));
            }
        }
    }
    None
}
