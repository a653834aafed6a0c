//! The report of `fettle locks`, which a trace may have beside its tables: `locks.json`, as the command writes it.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::column::open_regular;
use crate::error::{Error, Result};

/// A report larger than this is not read.
const BYTES_MAX: u64 = 256 << 20;
/// Version of the report.
const VERSION: u64 = 1;

/// Where it is.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("locks.json")
}

/// Writes it to a trace.
///
/// # Errors
///
/// [`Error::Io`] if that cannot be done.
pub fn write(folder: &Path, report: &Value) -> Result<()> {
    let path = path(folder);
    std::fs::write(&path, report.to_string()).map_err(|e| Error::io("write", &path, e))
}

/// Reads it, if there is one.
pub(crate) fn read(folder: &Path) -> Result<Option<Value>> {
    let path = path(folder);
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", &path, e)),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| Error::io("read", &path, e))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::file(&path, "it is too large"));
    }
    let report: Value = serde_json::from_slice(&bytes).map_err(|e| Error::file(&path, e))?;
    if report["version"] != VERSION || !report["classes"].is_array() {
        return Err(Error::file(&path, "it is no report of locks that this fettle knows"));
    }
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_none());
        let report = json!({ "version": 1, "classes": [{ "name": "a" }] });
        write(folder.path(), &report).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(report));
        for wrong in ["{}", "[", r#"{"version":2,"classes":[]}"#] {
            std::fs::write(path(folder.path()), wrong).unwrap();
            assert!(read(folder.path()).is_err(), "{wrong}");
        }
    }
}
