//! A span of a request, as programs that show distributed traces have them.

use serde_json::Value;

/// A span of a request.
pub(crate) struct Span {
    /// Its number within the request, from 1.
    pub number: u64,
    pub parent: Option<u64>,
    pub service: String,
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub tags: Vec<(&'static str, Value)>,
}
