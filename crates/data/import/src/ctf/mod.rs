//! The Common Trace Format: 1.8, as LTTng and barectf write it, and 2.
//!
//! ```text
//! metadata ── tsdl | json ──> model ── plan ──> steps per kind of event ── decode ──> values by slot
//! ```
//!
//! Most of what could be decided while events are read is decided once per kind of event, when its
//! [`plan`] is made. [`Trace`] and [`Stream`] read alone, without a Fettle trace:
//!
//! ```no_run
//! let folder = std::path::Path::new("lttng-traces/session/ust");
//! let trace = std::rc::Rc::new(fettle_import::ctf::Trace::open(folder)?);
//! for file in trace.files() {
//!     let mut stream = trace.stream(file)?;
//!     while let Some(event) = stream.next()? {
//!         println!("{} {}", event.time_ns, event.plan.name);
//!     }
//! }
//! # Ok::<(), fettle_import::Error>(())
//! ```

mod batch;
mod decode;
pub(crate) mod import;
mod json;
mod kinds;
mod lex;
pub mod model;
mod pieces;
pub mod plan;
mod position;
mod reader;
mod show;
mod steps;
mod tsdl;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub use reader::{Event, Events, Stream, Trace};
pub use show::show;

/// How deep folders may be within a folder of traces.
const DEPTH_MAX: usize = 8;

/// The folders that have a `metadata` in or below a folder.
pub(crate) fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    search(path, 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn search(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if path.join("metadata").is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth >= DEPTH_MAX {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|e| Error::io("list", path, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("list", path, e))?;
        if entry.file_type().is_ok_and(|of| of.is_dir()) {
            search(&entry.path(), depth + 1, found)?;
        }
    }
    Ok(())
}

/// The first number of metadata in packets.
const METADATA_MAGIC: u32 = 0x75d1_1d57;
/// The first number of a packet of events.
const PACKET_MAGIC: u64 = 0xc1fc_1fc1;

/// Whether bytes are those of metadata or of a packet.
pub(crate) fn is_metadata(head: &[u8]) -> bool {
    let first = head.get(..4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    let magic = |number: u32| {
        let known = [METADATA_MAGIC, PACKET_MAGIC as u32];
        known.contains(&number) || known.contains(&number.swap_bytes())
    };
    head.starts_with(b"/* CTF 1.8") || head.starts_with(b"\x1e{") || first.is_some_and(magic)
}

/// The types that metadata declares.
///
/// # Errors
///
/// What is wrong, with its place in the text.
pub fn parse(bytes: &[u8]) -> std::result::Result<model::Model, tsdl::Problem> {
    let text = unpacked(bytes)?;
    let text = String::from_utf8_lossy(&text);
    match text.starts_with('\u{1e}') {
        true => json::parse(&text),
        false => tsdl::parse(&text),
    }
}

/// The text of metadata, out of its packets if it is in some.
fn unpacked(bytes: &[u8]) -> std::result::Result<std::borrow::Cow<'_, [u8]>, tsdl::Problem> {
    /// Bytes of a packet's header.
    const HEADER: usize = 37;
    let number = |at: usize| {
        let four: Option<[u8; 4]> = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map(u32::from_le_bytes)
    };
    let little = match number(0) {
        Some(METADATA_MAGIC) => true,
        Some(magic) if magic.swap_bytes() == METADATA_MAGIC => false,
        _ => return Ok(bytes.into()),
    };
    let mut text = Vec::new();
    let mut at = 0;
    while at + HEADER <= bytes.len() {
        let field = |offset: usize| {
            let number = number(at + offset).unwrap_or(0);
            (if little { number } else { number.swap_bytes() }) as usize / 8
        };
        let (content, packet) = (field(24), field(28));
        let packed = bytes.get(at + 32..at + 34).is_none_or(|kinds| kinds != [0, 0]);
        if packed {
            return Err((at + 32, "compressed or encrypted metadata cannot be read".into()));
        }
        let whole = (HEADER..=packet).contains(&content) && packet <= bytes.len() - at;
        if !whole {
            return Err((at, "a packet of metadata says that it is longer than it is".into()));
        }
        text.extend_from_slice(bytes.get(at + HEADER..at + content).unwrap_or_default());
        at += packet;
    }
    Ok(text.into())
}
