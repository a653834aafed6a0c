//! The folder that a user's sensors lie in.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::sensor::check_trust;
use crate::{Error, Sensor};

/// A folder of sensors that only its user may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
}

/// A listing of a directory.
#[derive(Debug, Default)]
pub struct Found {
    /// Sensors, by name, then by producer, then by age.
    pub sensors: Vec<Sensor>,
    /// Files that are not sensors that we can read.
    pub skipped: Vec<Skipped>,
}

/// A file that was skipped.
#[derive(Debug)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: Error,
}

impl Directory {
    /// Where producers put their sensors: the folder that `FETTLE_SENSORS` names, else
    /// `$XDG_RUNTIME_DIR/fettle`, else `/dev/shm/fettle-UID`.
    pub fn default_path() -> PathBuf {
        let absolute = |name| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        // SAFETY: geteuid has no preconditions.
        let uid = unsafe { libc::geteuid() };
        absolute("FETTLE_SENSORS")
            .or_else(|| absolute("XDG_RUNTIME_DIR").map(|run| run.join("fettle")))
            .unwrap_or_else(|| PathBuf::from(format!("/dev/shm/fettle-{uid}")))
    }

    /// Opens the default directory, which is made if there is none.
    pub fn open_default() -> Result<Directory, Error> {
        Directory::create(&Directory::default_path())
    }

    /// Opens a directory, which is made with mode 0700 if there is none.
    pub fn create(path: &Path) -> Result<Directory, Error> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io(path)(error))
            }
            _ => Directory::open(path),
        }
    }

    /// Opens a directory that exists, is ours, and which others may not enter.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        let metadata = fs::symlink_metadata(path).map_err(Error::io(path))?;
        if !metadata.is_dir() {
            let reason = "not a folder";
            return Err(Error::NotTrusted { path: path.to_path_buf(), reason });
        }
        check_trust(path, &metadata)?;
        Ok(Directory { path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All sensors, those of dead producers too.
    pub fn sensors(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        for entry in fs::read_dir(&self.path).map_err(Error::io(&self.path))? {
            let path = entry.map_err(Error::io(&self.path))?.path();
            match Sensor::open(&path) {
                Ok(sensor) => found.sensors.push(sensor),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(reason) => found.skipped.push(Skipped { path, reason }),
            }
        }
        found.sensors.sort_by_cached_key(|sensor| {
            let d = sensor.description();
            (d.name.clone(), d.producer.start_time, d.producer.pid, sensor.path().to_path_buf())
        });
        Ok(found)
    }

    /// The files of sensors whose name and producer's PID are wanted, without opening others: there may be very many
    /// of dead producers. Producers name their files `NAME.PID.TIME`.
    pub fn files_of(&self, is_wanted: impl Fn(&str, u32) -> bool) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(Error::io(&self.path))? {
            let file = entry.map_err(Error::io(&self.path))?.file_name();
            let parts = file.to_str().and_then(|text| {
                let (rest, _) = text.rsplit_once('.')?;
                let (name, pid) = rest.rsplit_once('.')?;
                Some((name, pid.parse().ok()?))
            });
            if parts.is_some_and(|(name, pid)| is_wanted(name, pid)) {
                found.push(self.path.join(file));
            }
        }
        Ok(found)
    }

    /// The sensors of this name: one to each process that has made it, and to each instance.
    pub fn find(&self, name: &str) -> Result<Found, Error> {
        let mut found = self.sensors()?;
        found.sensors.retain(|sensor| sensor.description().name == name);
        Ok(found)
    }
}
