//! A folder of entries: made atomically, checked when read, evicted when there are too many.
//!
//! Rewritten text runs in the user's programs, so entries are trusted only if no other user could have
//! written them: folder and entry belong to the user and are writable by no other. Once open, the folder
//! is reached through its descriptor, so it cannot be replaced by another. An entry is written under
//! another name and renamed when whole: readers see all of it or none, and writers of the same entry do
//! not meet.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The name of an entry: a hash of all that decides what is in it.
pub type Key = blake3::Hash;

/// Bytes that a cache may take, unless said otherwise.
pub const DEFAULT_LIMIT: u64 = 1 << 30;

const MAGIC: &[u8; 16] = b"fettle cache 1\n\0";
/// Magic, key, hash of the contents.
const HEADER: usize = 16 + 32 + 32;
const SUFFIX: &str = ".plan";
const UNFINISHED: &str = ".new-";
/// Writing an entry takes no longer than this.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Where the user's cache is: `$XDG_CACHE_HOME/fettle` or `~/.cache/fettle`; `None` if nothing
/// says where, or the user has no home: `/nonexistent` is not to be made.
pub fn default_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| {
        let home = folder("HOME").filter(|home| home.is_dir())?;
        Some(home.join(".cache"))
    })?;
    Some(caches.join("fettle"))
}

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    folder: File,
    limit: u64,
}

/// An entry, as a listing shows it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its size in bytes.
    pub size: u64,
    /// When it was last used.
    pub used: SystemTime,
    name: PathBuf,
}

fn is_ours(metadata: &Metadata) -> bool {
    // SAFETY: no argument, no memory, and it cannot fail.
    let user = unsafe { libc::geteuid() };
    metadata.uid() == user && metadata.mode() & 0o022 == 0
}

impl Folder {
    /// Opens the folder at `path`, without making it.
    ///
    /// # Errors
    ///
    /// When there is none, or one that others could write to.
    pub fn open(path: &Path, limit: u64) -> io::Result<Folder> {
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)?;
        match is_ours(&folder.metadata()?) {
            true => Ok(Folder { folder, limit }),
            false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        }
    }

    /// Opens the folder at `path`, and makes it if it is not there; for the user alone.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or others could write to it.
    pub fn create(path: &Path, limit: u64) -> io::Result<Folder> {
        if let Some(above) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Folder::open(path, limit),
        }
    }

    /// The path of `name` in this very folder, whatever became of its own path.
    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(name)
    }

    /// The contents of an entry; `None` if it is not there or not to be believed.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let mut file = OpenOptions::new()
            .read(true)
            // What should not be there must not block Fettle, either.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path(file_name(key)))
            .ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !is_ours(&metadata) || metadata.len() > self.limit {
            return None;
        }
        let mut header = [0; HEADER];
        file.read_exact(&mut header).ok()?;
        let mut contents = Vec::with_capacity((metadata.len() as usize).saturating_sub(HEADER));
        (&file).take(self.limit).read_to_end(&mut contents).ok()?;
        if header != self::header(key, &contents) {
            return None;
        }
        // For eviction; where it cannot be noted, the entry only looks older than it is.
        let _ = file.set_modified(SystemTime::now());
        Some(contents)
    }

    /// Keeps `contents` under `key`, and evicts what was not used for longest if there is too
    /// much.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then nothing is left of it.
    pub fn put(&self, key: &Key, contents: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if (HEADER + contents.len()) as u64 > self.limit {
            return Ok(());
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.path(format!("{UNFINISHED}{}-{number}", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&unfinished)
            .and_then(|mut file| {
                file.write_all(&header(key, contents))?;
                file.write_all(contents)
            })
            .and_then(|()| fs::rename(&unfinished, self.path(file_name(key))));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        self.evict();
        written
    }

    /// What is there, the oldest-used first.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let is_entry = |name: &OsStr| name.to_string_lossy().ends_with(SUFFIX);
        self.files(is_entry)
    }

    fn files(&self, wanted: impl Fn(&OsStr) -> bool) -> io::Result<Vec<Entry>> {
        let mut files = Vec::new();
        for item in fs::read_dir(self.path(""))?.flatten().filter(|i| wanted(&i.file_name())) {
            // Others may be evicting, too.
            let Ok(metadata) = item.metadata() else { continue };
            let used = metadata.modified()?;
            files.push(Entry { size: metadata.len(), used, name: item.file_name().into() });
        }
        files.sort_by_key(|e| e.used);
        Ok(files)
    }

    /// Removes all entries; how many.
    ///
    /// # Errors
    ///
    /// When one cannot be removed.
    pub fn clear(&self) -> io::Result<usize> {
        let entries = self.entries()?;
        for entry in &entries {
            self.remove(entry)?;
        }
        self.evict();
        Ok(entries.len())
    }

    fn remove(&self, entry: &Entry) -> io::Result<()> {
        match fs::remove_file(self.path(&entry.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what is too much, and what killed writers left behind.
    fn evict(&self) {
        let unfinished = |name: &OsStr| name.to_string_lossy().starts_with(UNFINISHED);
        let now = SystemTime::now();
        for entry in self.files(unfinished).unwrap_or_default() {
            if now.duration_since(entry.used).is_ok_and(|age| age > ABANDONED) {
                let _ = self.remove(&entry);
            }
        }
        let entries = self.entries().unwrap_or_default();
        let mut size: u64 = entries.iter().map(|e| e.size).sum();
        for entry in entries {
            if size <= self.limit {
                break;
            }
            let _ = self.remove(&entry);
            size -= entry.size;
        }
    }
}

fn file_name(key: &Key) -> String {
    format!("{}{SUFFIX}", key.to_hex())
}

fn header(key: &Key, contents: &[u8]) -> [u8; HEADER] {
    // The key is hashed along, so that no entry passes for another.
    let hash = *blake3::Hasher::new_keyed(key.as_bytes()).update(contents).finalize().as_bytes();
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(MAGIC);
    header[16..48].copy_from_slice(key.as_bytes());
    header[48..].copy_from_slice(&hash);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn key(n: u8) -> Key {
        blake3::hash(&[n])
    }

    fn file_of(path: &Path, n: u8) -> PathBuf {
        path.join(file_name(&key(n)))
    }

    #[test]
    fn keeps_what_it_is_given() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        let folder = Folder::create(&path, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(folder.get(&key(1)), None);
        folder.put(&key(1), b"one").unwrap();
        folder.put(&key(2), b"").unwrap();
        assert_eq!(folder.get(&key(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(folder.get(&key(2)).as_deref(), Some(&b""[..]));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
        assert_eq!(folder.clear().unwrap(), 2);
        assert_eq!(folder.get(&key(1)), None);
    }

    #[test]
    fn damage_is_a_miss() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::create(temporary.path(), 1 << 20).unwrap();
        folder.put(&key(1), &[7; 500]).unwrap();
        let file = file_of(temporary.path(), 1);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&file, &bytes).unwrap();
            assert_eq!(folder.get(&key(1)), None, "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert_eq!(folder.get(&key(1)), None, "cut at {at}");
        }
        // Another entry's file under this name.
        folder.put(&key(2), &[7; 500]).unwrap();
        fs::copy(file_of(temporary.path(), 2), &file).unwrap();
        assert_eq!(folder.get(&key(1)), None);
        // It is replaced.
        folder.put(&key(1), &[7; 500]).unwrap();
        assert!(folder.get(&key(1)).is_some());
    }

    #[test]
    fn what_others_could_write_is_not_believed() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("cache");
        let folder = Folder::create(&path, 1 << 20).unwrap();
        folder.put(&key(1), b"one").unwrap();
        let file = file_of(&path, 1);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(folder.get(&key(1)), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(folder.get(&key(1)).is_some());
        fs::rename(&file, temporary.path().join("elsewhere")).unwrap();
        symlink(temporary.path().join("elsewhere"), &file).unwrap();
        assert_eq!(folder.get(&key(1)), None);

        symlink(&path, temporary.path().join("link")).unwrap();
        assert!(Folder::create(&temporary.path().join("link"), 1).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Folder::create(&path, 1).is_err());
    }

    #[test]
    fn the_oldest_go_first() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::create(temporary.path(), 3 * (HEADER as u64 + 100)).unwrap();
        for n in 0..3 {
            folder.put(&key(n), &[n; 100]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(1000 - u64::from(n));
            File::open(file_of(temporary.path(), n)).unwrap().set_modified(used).unwrap();
        }
        // Being read is being used.
        assert!(folder.get(&key(0)).is_some());
        folder.put(&key(3), &[3; 100]).unwrap();
        let there: Vec<bool> = (0..4).map(|n| folder.get(&key(n)).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
        // What can never fit is not even written.
        folder.put(&key(4), &[0; 1000]).unwrap();
        assert_eq!(folder.get(&key(4)), None);
        assert_eq!(folder.entries().unwrap().len(), 3);
    }

    #[test]
    fn writers_and_readers_do_not_meet() {
        let temporary = tempfile::tempdir().unwrap();
        let contents: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let folder = Folder::create(temporary.path(), 1 << 20).unwrap();
                    for _ in 0..50 {
                        folder.put(&key(1), &contents).unwrap();
                        // From the first write on there always is a whole one.
                        assert_eq!(folder.get(&key(1)).as_ref(), Some(&contents));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }
}
