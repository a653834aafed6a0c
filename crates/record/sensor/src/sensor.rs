//! One sensor: its file, checked, and what its head says.

use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use fettle_abi::sensor::{
    BUCKETS, CLOCK_MONOTONIC, Head, HistogramSlot, Kind, NAME_BYTES, SLOTS, ScalarSlot, Shape,
    VERSION, is_name,
};

use crate::map::Map;
use crate::{Clock, Error, Histogram, ProcessId};

/// What a sensor says about itself; read once, when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name, in the characters that [`is_name`] allows.
    pub name: String,
    /// First half of its global number.
    pub major: u32,
    /// Second half of its global number.
    pub minor: u32,
    /// Tells sensors with the same numbers in one process apart.
    pub instance: u32,
    /// The process that it belongs to.
    pub producer: ProcessId,
    /// Its sizes, kind and policy.
    pub shape: Shape,
}

/// An open sensor.
#[derive(Debug)]
pub struct Sensor {
    pub(crate) map: Arc<Map>,
    pub(crate) file: File,
    path: PathBuf,
    description: Description,
}

impl Sensor {
    /// Opens the sensor in a file of ours that no other user may write to.
    pub fn open(path: &Path) -> Result<Sensor, Error> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(Error::io(path))?;
        let metadata = file.metadata().map_err(Error::io(path))?;
        check_trust(path, &metadata)?;
        let not = |reason| Error::NotASensor { path: path.to_path_buf(), reason };
        if !metadata.is_file() {
            return Err(not("not a regular file"));
        }
        if metadata.len() < u64::from(SLOTS) {
            return Err(not("too short"));
        }
        let map = Map::new(&file, metadata.len() as usize).map_err(Error::io(path))?;
        let map = Arc::new(map);
        if map.u64(0).load(Acquire) != fettle_abi::MAGIC {
            return Err(not("no magic number (yet)"));
        }
        let half = |offset: usize| map.u32(offset as u64).load(Relaxed);
        if half(offset_of!(Head, version_min)) > VERSION {
            let version = half(offset_of!(Head, version));
            return Err(Error::TooNew { path: path.to_path_buf(), version });
        }
        let shape = Shape::checked(
            half(offset_of!(Head, kind)),
            half(offset_of!(Head, policy)),
            half(offset_of!(Head, slots)),
            half(offset_of!(Head, cell_log2)),
            half(offset_of!(Head, ring_log2)),
        )
        .ok_or_else(|| not("impossible sizes"))?;
        if shape.file_bytes() > metadata.len() {
            return Err(not("shorter than it says"));
        }
        let description = Description {
            name: name(&map).ok_or_else(|| not("impossible name"))?,
            major: half(offset_of!(Head, major)),
            minor: half(offset_of!(Head, minor)),
            instance: half(offset_of!(Head, instance)),
            producer: ProcessId {
                pid: half(offset_of!(Head, pid)),
                start_time: map.u64(offset_of!(Head, start_time) as u64).load(Relaxed),
            },
            shape,
        };
        Ok(Sensor { map, file, path: path.to_path_buf(), description })
    }

    /// What the sensor says about itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The sensor's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its producer runs. What a dead one left stays readable until [`Sensor::remove`].
    pub fn is_alive(&self) -> bool {
        self.description.producer.is_alive()
    }

    /// Translates the sensor's time stamps.
    pub fn clock(&self) -> Clock {
        let which = (self.head(offset_of!(Head, ring_log2)) >> 32) as u32;
        if which == CLOCK_MONOTONIC {
            return Clock::monotonic(
                self.head(offset_of!(Head, monotonic_ns_at_open)),
                self.head(offset_of!(Head, realtime_ns_at_open)),
            );
        }
        Clock::since(
            self.head(offset_of!(Head, tsc_at_open)),
            self.head(offset_of!(Head, monotonic_ns_at_open)),
            self.head(offset_of!(Head, realtime_ns_at_open)),
        )
    }

    /// A scalar's value: its level plus all that was added, modulo 2^64.
    ///
    /// Each thread's part is one word, so no part is torn; parts are read one after another.
    pub fn scalar(&self) -> Result<i64, Error> {
        self.expect(Kind::Scalar)?;
        let mut value = self.head(offset_of!(Head, level));
        for slot in self.used_slots() {
            let at = self.shape().slot(slot) + offset_of!(ScalarSlot, sum) as u64;
            value = value.wrapping_add(self.map.u64(at).load(Relaxed));
        }
        self.expect_whole()?;
        Ok(value as i64)
    }

    /// A histogram's buckets, summed over all threads.
    pub fn histogram(&self) -> Result<Histogram, Error> {
        self.expect(Kind::Histogram)?;
        let (mut sum, mut counts) = (0u64, vec![0u64; BUCKETS]);
        for slot in self.used_slots() {
            let slot = self.shape().slot(slot);
            let word = |offset: usize| self.map.u64(slot + offset as u64).load(Relaxed);
            sum = sum.wrapping_add(word(offset_of!(HistogramSlot, sum)));
            for (i, count) in counts.iter_mut().enumerate() {
                *count = count.wrapping_add(word(offset_of!(HistogramSlot, buckets) + 8 * i));
            }
        }
        self.expect_whole()?;
        Ok(Histogram::new(sum, counts))
    }

    /// Deletes the file. A producer that lives goes on, and what it commits is not seen.
    pub fn remove(&self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::io(&self.path))
    }

    /// A word of the head.
    pub(crate) fn head(&self, offset: usize) -> u64 {
        self.map.u64(offset as u64).load(Relaxed)
    }

    /// The checked sizes.
    pub(crate) fn shape(&self) -> &Shape {
        &self.description.shape
    }

    /// Thread that last claimed a slot; 0 for none.
    pub(crate) fn owner(&self, slot: u32) -> u32 {
        self.map.u32(offset_of!(Head, owners) as u64 + 4 * u64::from(slot)).load(Acquire)
    }

    /// The threads that have slots of their own, in no order; one may have ended.
    pub fn owners(&self) -> Vec<u32> {
        let owners = (0..self.shape().slots()).map(|slot| self.owner(slot));
        owners.filter(|owner| *owner != 0).collect()
    }

    /// Slots that were ever written to: the shared one, and those with an owner. The others are not
    /// read, because reading would allocate their pages.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = u32> {
        (0..self.shape().slots()).filter(|&slot| slot == 0 || self.owner(slot) != 0)
    }

    /// Fails if the file became shorter.
    pub(crate) fn expect_whole(&self) -> Result<(), Error> {
        if self.map.was_truncated() {
            return Err(Error::Truncated { name: self.description.name.clone() });
        }
        Ok(())
    }

    /// That the sensor measures this.
    pub(crate) fn expect(&self, wanted: Kind) -> Result<(), Error> {
        let found = self.shape().kind();
        if found == wanted {
            return Ok(());
        }
        Err(Error::WrongKind { name: self.description.name.clone(), found, wanted })
    }
}

/// That a file or folder is ours alone.
pub(crate) fn check_trust(path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
    // SAFETY: geteuid has no preconditions.
    let reason = if metadata.uid() != unsafe { libc::geteuid() } {
        "it belongs to another user"
    } else if metadata.mode() & 0o077 != 0 {
        "others may use it (its mode should be 0700 for a folder, 0600 for a file)"
    } else {
        return Ok(());
    };
    Err(Error::NotTrusted { path: path.to_path_buf(), reason })
}

fn name(map: &Map) -> Option<String> {
    let at = offset_of!(Head, name) as u64;
    let bytes: Vec<u8> = (0..NAME_BYTES as u64 / 8)
        .flat_map(|i| map.u64(at + 8 * i).load(Relaxed).to_le_bytes())
        .take_while(|&b| b != 0)
        .collect();
    if is_name(&bytes) { String::from_utf8(bytes).ok() } else { None }
}
