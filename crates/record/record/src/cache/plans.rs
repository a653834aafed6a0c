//! Plans as entries of a cache.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use fettle_code::{Depth, Mode};
use fettle_image::Bytes;
use fettle_rewrite::Plan;

use super::folder::{Folder, Key};
use crate::select::Selection;

/// All that decides what a plan looks like. Plans that come from a cache are not checked again, so the
/// key must hold whatever the planner looks at.
#[derive(Clone)]
pub struct Wanted {
    /// The file's contents.
    pub file: Bytes,
    /// Its build ID.
    pub build_id: Vec<u8>,
    /// The contents of the separate debug file that gave it names.
    pub debug_file: Option<Bytes>,
    /// What probes measure.
    pub mode: Mode,
    /// How deeply nested they measure.
    pub depth: Depth,
    /// Which functions get them.
    pub selection: Selection,
    /// Whether the plan has OSR entry points and deopt points.
    pub osr_map: bool,
}

impl Wanted {
    /// The key of the plan, as `build` of Fettle makes it.
    pub fn key(&self, build: &[u8; 32]) -> Key {
        let mut hasher = blake3::Hasher::new();
        // With its length, so that no two lists of parts look alike.
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(build);
        part(&self.file);
        part(&self.build_id);
        part(self.debug_file.as_deref().unwrap_or_default());
        // Debug output shows every field, those that are yet to come, too.
        let Wanted { mode, depth, selection, osr_map, .. } = self;
        part(format!("{mode:?} {depth:?} {selection:?} {osr_map}").as_bytes());
        hasher.finalize()
    }
}

/// The running Fettle: a hash over all of its executable, so that any change whatever to lifting,
/// rewriting or checking makes other keys.
fn this_build() -> Option<[u8; 32]> {
    static BUILD: OnceLock<Option<[u8; 32]>> = OnceLock::new();
    *BUILD.get_or_init(|| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open("/proc/self/exe").ok()?).ok()?;
        Some(*hasher.finalize().as_bytes())
    })
}

/// A cache of plans.
#[derive(Debug)]
pub struct Plans {
    folder: Arc<Folder>,
    build: [u8; 32],
    /// Writes under way.
    writers: Mutex<Vec<JoinHandle<()>>>,
}

impl Plans {
    /// The cache at `path`, of at most `limit` bytes; `None` where there cannot be one.
    pub fn open(path: &Path, limit: u64) -> Option<Plans> {
        Plans::of_build(path, limit, this_build()?)
    }

    fn of_build(path: &Path, limit: u64, build: [u8; 32]) -> Option<Plans> {
        let folder = Arc::new(Folder::create(path, limit).ok()?);
        Some(Plans { folder, build, writers: Mutex::default() })
    }

    /// The key of what is wanted.
    pub fn key(&self, wanted: &Wanted) -> Key {
        wanted.key(&self.build)
    }

    /// The plan kept under `key`, if it is there and whole.
    pub fn get(&self, key: &Key) -> Option<Plan> {
        let plan: Plan = postcard::from_bytes(&self.folder.get(key)?).ok()?;
        fettle_rewrite::valid::is_valid(&plan).then_some(plan)
    }

    /// Keeps a plan, in the background: the program that waits for it need not wait for the disk.
    pub fn put(&self, key: Key, wanted: Wanted, plan: Arc<Plan>) {
        let (folder, build) = (self.folder.clone(), self.build);
        let write = move || {
            // The file may have changed while it was lifted.
            let same = wanted.key(&build) == key;
            if let Ok(bytes) = postcard::to_stdvec(&*plan)
                && same
            {
                // A full disk or a read-only home means no cache, and no more.
                let _ = folder.put(&key, &bytes);
            }
        };
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|w| !w.is_finished());
        writers.extend(std::thread::Builder::new().spawn(write));
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        let writers = self.writers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for writer in writers.drain(..) {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
