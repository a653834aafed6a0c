//! Where undo logs are, and the audit log.
//!
//! Who reverts a change may have another environment than who made it (`sudo`, `su`, a service), so
//! logs are in one place for each user: `/run/fettle/UID/live`, which goes with the machine's start, as
//! the processes do. `XDG_CACHE_HOME` leads elsewhere where it is set. Where `/run/fettle` cannot be
//! used, and as long as logs of an older Fettle are there, they are in `~/.cache/fettle/live`.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fettle_live::Journal;
use fettle_types::Pid;
use serde::Serialize;

/// The folder of all users.
const SHARED: &str = "/run/fettle";
/// The audit log of the machine's administrator.
const AUDIT: &str = "/var/log/fettle/audit.jsonl";
/// The bits of [`SHARED`]: each user may add a folder, and remove no other's.
const STICKY: u32 = 0o1777;

/// Where Fettle keeps what it knows of changed processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolders {
    /// The undo logs.
    pub logs: PathBuf,
    /// What was done to which process, and by whom.
    pub audit: PathBuf,
}

impl StateFolders {
    /// This user's; `None` if there is no place for them.
    pub fn of_user() -> Option<StateFolders> {
        let cache = fettle_record::cache::default_path();
        let in_cache = |cache: PathBuf| StateFolders {
            logs: cache.join("live"),
            audit: cache.join("audit.jsonl"),
        };
        if std::env::var_os("XDG_CACHE_HOME").is_some_and(|path| Path::new(&path).is_absolute()) {
            return cache.map(in_cache);
        }
        let old = cache.clone().filter(|cache| !Journal::list(&cache.join("live")).is_empty());
        let shared = || {
            let folder = own_folder(Path::new(SHARED))?;
            let audit = match fettle_live::user() {
                0 => PathBuf::from(AUDIT),
                _ => cache.clone().unwrap_or_else(|| folder.clone()).join("audit.jsonl"),
            };
            Some(StateFolders { logs: folder.join("live"), audit })
        };
        old.map(in_cache).or_else(shared).or_else(|| cache.clone().map(in_cache))
    }

    /// Undo logs of other users, by their folders, each with the user's number and the processes. They
    /// are not read: another user may have written anything there.
    pub fn of_others() -> Vec<(u32, PathBuf, Vec<Pid>)> {
        let entries = std::fs::read_dir(SHARED).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let user: u32 = entry.file_name().to_str()?.parse().ok()?;
                let meta = entry.metadata().ok().filter(std::fs::Metadata::is_dir)?;
                let is_other = meta.uid() == user && user != fettle_live::user();
                let logs = entry.path().join("live");
                let pids = Journal::list(&logs);
                (is_other && !pids.is_empty()).then_some((user, logs, pids))
            })
            .collect();
        all.sort();
        all
    }
}

/// The user's own folder in `shared`, if both are what they should be. The administrator makes `shared`.
fn own_folder(shared: &Path) -> Option<PathBuf> {
    let is_fit = |path: &Path, user: u32, mode: u32| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o7777 == mode)
    };
    let user = fettle_live::user();
    if user == 0 && DirBuilder::new().create(shared).is_ok() {
        let all = std::fs::Permissions::from_mode(STICKY);
        std::fs::set_permissions(shared, all).ok()?;
    }
    let own = shared.join(user.to_string());
    let _ = DirBuilder::new().mode(0o700).create(&own);
    (is_fit(shared, 0, STICKY) && is_fit(&own, user, 0o700)).then_some(own)
}

/// A line of the audit log.
#[derive(Clone, Debug, Serialize)]
pub struct Audit<'a> {
    /// *tune*, *recheck* or *undo*.
    pub what: &'a str,
    /// The process.
    pub pid: Pid,
    /// Its program.
    pub program: String,
    /// Whether it has rewritten text now.
    pub changed: bool,
    /// What came of it.
    pub result: String,
    /// Why it was done, if that was said.
    pub reason: Option<&'a str>,
    /// The user who did it, and the one who was logged in first.
    pub user: (u32, Option<u32>),
    /// When, as RFC 3339 has it.
    pub at: String,
}

impl<'a> Audit<'a> {
    /// A line about what is done now.
    pub fn now(what: &'a str, pid: Pid, reason: Option<&'a str>) -> Audit<'a> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let login = std::fs::read_to_string("/proc/self/loginuid").ok();
        let login =
            login.and_then(|text| text.trim().parse().ok()).filter(|user| *user != u32::MAX);
        Audit {
            what,
            pid,
            program: program.to_string_lossy().into_owned(),
            changed: false,
            result: String::new(),
            reason,
            user: (fettle_live::user(), login),
            at: fettle_trace::rfc3339(now_ns()),
        }
    }

    /// Adds it to the audit log, in one write.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn append(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        file.write_all(&line)
    }
}

fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_prepared_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("fettle");
        std::fs::create_dir(&shared).unwrap();
        // Not for everybody, or not only the administrator's.
        assert_eq!(own_folder(&shared), None);
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(STICKY)).unwrap();
        let own = shared.join(fettle_live::user().to_string());
        if fettle_live::user() == 0 {
            assert_eq!(own_folder(&shared), Some(own.clone()));
        }
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(own_folder(&shared), None);
        std::fs::remove_dir(&own).unwrap();
        std::os::unix::fs::symlink("/tmp", &own).unwrap();
        assert_eq!(own_folder(&shared), None);
    }

    #[test]
    fn what_is_done_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log/audit.jsonl");
        for result in ["faster", "undecided"] {
            let line = Audit::now("tune", Pid::own(), Some("rule a"));
            Audit { result: result.to_owned(), ..line }.append(&path).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[1]["result"]), (2, &"undecided".into()));
        assert!(lines[0]["program"].as_str().unwrap().contains("fettle_tune"), "{text}");
    }
}
