//! A file with the names of rewritten text for perf: `/tmp/perf-PID.map`, in the process's own root
//! directory and by the number that it has there.
//!
//! Every user may write to that folder, so links that another process may have put there are not
//! followed, and only the very file that we made is ever removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fettle_types::Pid;

use crate::entry::Entry;
use crate::error::LiveError;
use crate::journal::Journal;
use crate::maps;
use crate::process::Process;

/// Writes the file, which `fettle undo` removes. Returns its name as the process sees it.
///
/// # Errors
///
/// When there is one already, perhaps of the program itself, or it cannot be written.
pub fn write_perf_map(
    process: &Process,
    journal: &mut Journal,
    text: &str,
) -> Result<PathBuf, LiveError> {
    let pid = process.pid();
    let name = format!("perf-{}.map", own_number(pid).unwrap_or(pid));
    let shown = Path::new("/tmp").join(&name);
    let failed = |source: io::Error| LiveError::PerfMap { path: shown.clone(), source };
    let folder = tmp_of(pid).map_err(failed)?;
    let path = within(&folder, &name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let noted = journal.add([Entry::PerfMap(name.clone(), meta.dev(), meta.ino())]);
    let written = file.write_all(text.as_bytes()).map_err(failed);
    if noted.is_err() || written.is_err() {
        let _ = fs::remove_file(&path);
    }
    noted.and(written).map(|()| shown)
}

/// Removes the files that a journal records, as far as they are still the same files. The file of a
/// process that has ended is looked for in our own root directory.
pub(crate) fn remove(journal: &Journal, pid: Pid) {
    for entry in journal.entries() {
        let Entry::PerfMap(name, device, inode) = entry else { continue };
        if name.contains('/') {
            continue;
        }
        let Ok(folder) = tmp_of(pid).or_else(|_| open_folder(Path::new("/tmp"))) else { continue };
        let path = within(&folder, name);
        let same = fs::symlink_metadata(&path)
            .is_ok_and(|m| m.is_file() && (m.dev(), m.ino()) == (*device, *inode));
        if same {
            let _ = fs::remove_file(&path);
        }
    }
}

/// The number that a process has in its own namespace.
fn own_number(pid: Pid) -> Option<Pid> {
    let status = maps::read_proc(&format!("/proc/{pid}/status")).ok()?;
    let text = std::str::from_utf8(&status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// The folder `/tmp` of a process, which must be one and no link.
fn tmp_of(pid: Pid) -> io::Result<File> {
    // The slash at the end has the link be followed, which the kernel itself has put there.
    let root = open_folder(&Path::new(&format!("/proc/{pid}/root")).join(""))?;
    open_folder(&within(&root, "tmp"))
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// A path to a file in a folder that is open, even if the folder is moved.
fn within(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}
