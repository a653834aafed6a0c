//! A session with the schemas that the user named, or that suit the trace.

use std::path::Path;

use fettle_follow::{Session, choose};
use fettle_requests::Source;

use crate::schema;

/// The schemas that were named, or the one that suits the trace, with the reason.
pub fn sources(
    named: &[String],
    trace: &fettle_trace::Trace,
) -> anyhow::Result<(Vec<Source>, Option<String>)> {
    if named.is_empty() {
        let choice = choose(trace)?;
        return Ok((choice.sources, Some(choice.reason)));
    }
    let sources: anyhow::Result<Vec<Source>> =
        named.iter().map(|name| schema::source(name)).collect();
    Ok((sources?, None))
}

/// A session with the schemas, whose files may use those next to them.
pub fn open<'a>(
    trace: &'a fettle_trace::Trace,
    sources: &[Source],
    named: &[String],
) -> anyhow::Result<Session<'a>> {
    let files: Vec<&Path> = named.iter().map(Path::new).collect();
    Session::open(trace, sources, &schema::library(&files)).map_err(schema_error)
}

/// What is wrong with a schema stands in lines of its own.
pub(crate) fn schema_error(error: fettle_follow::Error) -> anyhow::Error {
    match error {
        fettle_follow::Error::Schema(report) => anyhow::anyhow!("the schema is wrong:\n{report}"),
        error => error.into(),
    }
}
