//! What was usual for programs, kept across watchers: a file for each program, by what its executable is and how
//! what is watched was started. Only files count that are the user's own and that no one else may write.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fettle_types::Pid;
use serde::{Deserialize, Serialize};

use crate::judge::Judge;
use crate::look::{LearnedLimit, Look};

/// How often what was learned is written down.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// A file is not larger.
const FILE_MAX: u64 = 1 << 20;
/// Files that are kept: the oldest goes when there is another program.
const FILES_MAX: usize = 256;

/// What was learned, by program.
#[derive(Debug)]
pub(crate) struct Learned {
    folder: PathBuf,
    /// How what is watched was started.
    command: u64,
    /// The programs that were seen, with the file of each, what identifies it, and marks when it was written.
    programs: BTreeMap<String, Program>,
    saved_at: Instant,
}

#[derive(Debug)]
struct Program {
    path: PathBuf,
    identity: String,
    marks: u64,
}

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    identity: String,
    limit: LearnedLimit,
}

impl Learned {
    /// In this folder, for what these processes have started.
    pub(crate) fn new(state: &Path, pids: &[Pid]) -> Learned {
        let commands: Vec<u8> = pids.iter().flat_map(|pid| command(*pid)).collect();
        Learned {
            folder: state.join("learned"),
            command: hash(&commands),
            programs: BTreeMap::new(),
            saved_at: Instant::now(),
        }
    }

    /// Adds to a look what earlier watchers have learned of programs that it shows for the first time.
    pub(crate) fn recall(&mut self, look: &mut Look) {
        for process in &look.processes {
            if self.programs.contains_key(&process.program) {
                continue;
            }
            let Some(identity) = identity(process.id.pid, self.command) else { continue };
            let name: String = process.program.chars().filter(|c| is_of_name(*c)).collect();
            let file = format!("{:.64}-{:016x}.json", name, hash(identity.as_bytes()));
            let path = self.folder.join(file);
            let limit = read(&self.folder, &path, &identity);
            let marks = limit.as_ref().map_or(0, |limit| limit.marks);
            let limit = limit.filter(|limit| limit.program == process.program);
            look.learned.extend(limit);
            self.programs.insert(process.program.clone(), Program { path, identity, marks });
        }
    }

    /// Writes down what the judge knows by now, if it is time, or if it is the end. What cannot be written is
    /// learned again.
    pub(crate) fn save(&mut self, judge: &Judge, now: Instant, is_end: bool) {
        if !is_end && now.duration_since(self.saved_at) < SAVE_EVERY {
            return;
        }
        self.saved_at = now;
        for (name, program) in &mut self.programs {
            let limit = judge.limit_of(name);
            if !limit.is_learned() || limit.marks() == program.marks {
                continue;
            }
            let limit = limit.learned(name);
            let marks = limit.marks;
            let kept = Kept { version: 1, identity: program.identity.clone(), limit };
            if write(&self.folder, &program.path, &kept).is_ok() {
                program.marks = marks;
            }
        }
    }
}

/// Whether a character stands in a file's name as it is.
fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// How a process was started.
fn command(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// What a process's executable is: another one, or an upgraded one, may need longer. What one interpreter runs is distinguished by
/// the command that runs them.
fn identity(pid: Pid, command: u64) -> Option<String> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link).ok()?;
    let meta = fs::metadata(&link).ok()?;
    Some(format!(
        "{} inode {} bytes {} time {}.{} command {command:016x}",
        path.display(),
        meta.ino(),
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec()
    ))
}

/// FNV-1a, which stays the same.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Whether a file or folder is the user's own, and no one else's to write.
pub(crate) fn is_own(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn read(folder: &Path, path: &Path, identity: &str) -> Option<LearnedLimit> {
    fs::symlink_metadata(folder).ok().filter(|meta| meta.is_dir() && is_own(meta))?;
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags as i32).open(path).ok()?;
    file.metadata().ok().filter(|meta| meta.is_file() && is_own(meta))?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    let kept: Kept = serde_json::from_slice(&bytes).ok()?;
    (kept.version == 1 && kept.identity == identity).then_some(kept.limit)
}

/// Replaces the file, whole.
fn write(folder: &Path, path: &Path, kept: &Kept) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if !is_own(&fs::symlink_metadata(folder)?) {
        return Err(io::Error::other("the folder is another user's"));
    }
    make_room(folder, path);
    let other = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&other);
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&other)?;
    let written =
        file.write_all(&serde_json::to_vec(kept)?).and_then(|()| fs::rename(&other, path));
    written.inspect_err(|_| drop(fs::remove_file(&other)))
}

/// Removes the oldest files where there are too many.
fn make_room(folder: &Path, path: &Path) {
    if path.exists() {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(FILES_MAX);
    for (_, path) in files.into_iter().take(surplus) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::limit::Limit;

    fn kept(identity: &str) -> Kept {
        let mut limit = Limit::default();
        limit.passed(5_000_000, 2000);
        Kept { version: 1, identity: identity.to_owned(), limit: limit.learned("app") }
    }

    #[test]
    fn what_is_written_is_read_by_its_owner_alone() {
        let state = tempfile::tempdir().unwrap();
        let (folder, path) = (state.path().join("learned"), state.path().join("learned/app.json"));
        assert!(read(&folder, &path, "a").is_none());
        write(&folder, &path, &kept("a")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&folder, &path, "a"), Some(kept("a").limit));
        // Another executable.
        assert!(read(&folder, &path, "b").is_none());
        // Others may write it, or it is a link, or something else.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        assert!(read(&folder, &path, "a").is_none());
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let link = folder.join("link.json");
        symlink(&path, &link).unwrap();
        assert!(read(&folder, &link, "a").is_none());
        for text in ["", "{", "[]", "{\"version\":1}"] {
            fs::write(&path, text).unwrap();
            assert!(read(&folder, &path, "a").is_none(), "{text}");
        }
        write(&folder, &path, &kept("a")).unwrap();
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(read(&folder, &path, "a").is_none());
        assert!(write(&folder, &path, &kept("a")).is_err());
    }

    #[test]
    fn there_are_not_more_and_more_files() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("learned");
        for n in 0..FILES_MAX + 5 {
            write(&folder, &folder.join(format!("{n}.json")), &kept("a")).unwrap();
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), FILES_MAX);
    }
}
