//! A recording that goes on, as it stands: a trace of what it has stored so far.
//!
//! Spools only grow, so what they hold at a time can be read while they do, and made into a trace as
//! that of a recording that was cut off. Of the kernel's events those are taken that are older than the
//! last round over all rings but one: nothing earlier than that can still come, so whatever looks at the
//! copy sees the same events in the same order as in the whole trace, up to that time.
//!
//! That takes as long as there is data. To see a recording grow, a reader takes one copy after another,
//! with pauses in proportion.

use std::fs;
use std::io;
use std::path::Path;

use fettle_trace::{Error, Manifest, Recovered, Result, Trace, recover_with};

use crate::{clock, kernel};

/// Makes a trace in the empty folder `into` of what the recording in `from` has stored so far.
///
/// # Errors
///
/// When nothing can be read yet, or nothing be written.
pub fn snapshot(from: &Path, into: &Path) -> Result<Trace> {
    let failed = |path, reason| Error::Io { action: "copy", path, reason };
    let from = &fs::canonicalize(from).map_err(|reason| failed(from.to_owned(), reason))?;
    copy(from, into).map_err(|(path, reason)| failed(path, reason))?;
    advance(from, into).map_err(|reason| failed(from.join("manifest.json"), reason))?;
    let mut other = |trace: &Path, manifest: &mut Manifest| -> Result<Option<Recovered>> {
        kernel::recover_so_far(trace, manifest)
    };
    recover_with(into, &mut |_, _| {}, &mut other)?;
    Trace::open(into)
}

type Failed = (std::path::PathBuf, io::Error);

/// Copies the tables, and lets the spools be seen where they lie. They may be large, and only grow: a
/// reader sees what they hold when it opens them.
fn copy(from: &Path, into: &Path) -> std::result::Result<(), Failed> {
    let spools = from.join("spool");
    let to = into.join("spool");
    fs::create_dir_all(&to).map_err(|reason| (to.clone(), reason))?;
    for (folder, into) in [(from, into), (spools.as_path(), to.as_path())] {
        let entries = fs::read_dir(folder).map_err(|reason| (folder.to_owned(), reason))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
            let other = name.to_str().is_none_or(|name| {
                name == "lock" || name.ends_with(".partial") || name.ends_with(".part")
            });
            if !plain || other {
                continue;
            }
            let copied = match folder == spools {
                true => std::os::unix::fs::symlink(&path, into.join(name)),
                false => fs::copy(&path, into.join(name)).map(drop),
            };
            match copied {
                // Spools go when the recording ends; another request finds a whole trace.
                Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
                    return Err((path, reason));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// On the machine that records, both clocks say how far the recording has come.
fn advance(from: &Path, into: &Path) -> io::Result<()> {
    if from.join("relay.json").exists() {
        // It arrives from another machine, with clocks of its own.
        return Ok(());
    }
    let path = into.join("manifest.json");
    let mut manifest: Manifest = serde_json::from_slice(&fs::read(&path)?)?;
    let end = clock::now();
    manifest.clock.end = Some(end);
    manifest.duration_ns = manifest.clock.converter().since_start_ns(end.tsc);
    fs::write(&path, serde_json::to_vec(&manifest)?)
}
