//! Knobs that rules have set, until they are given back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fettle_sensor::{Description, Directory, Holder};

use crate::proc::Watched;

/// How often it is asked whether the guard and programs whose knobs are held still run.
const LIFE_EVERY: Duration = Duration::from_secs(1);

/// Knobs that are held.
#[derive(Debug)]
pub(crate) struct Knobs {
    holder: Holder,
    life_at: Option<Instant>,
}

impl Knobs {
    /// None yet. `fettle` is the program that gives them back when this one is killed.
    pub(crate) fn new(fettle: PathBuf) -> Knobs {
        Knobs { holder: Holder::new(fettle), life_at: None }
    }

    /// Sets a process's knob, in all of its instances, for so long, or as long as the watcher lives.
    pub(crate) fn set(
        &mut self,
        process: &Watched,
        knob: &str,
        value: i64,
        hold: Option<Duration>,
    ) -> Result<(), String> {
        let directory = Directory::open_default().map_err(|error| error.to_string())?;
        let own = process.id.pid.unsigned();
        let files = directory.files_of(|name, pid| name == knob && pid == own);
        let files = files.map_err(|error| error.to_string())?;
        if files.is_empty() {
            let place = directory.path().display();
            return Err(format!(
                "it has no knob {knob} in {place}: it was started without FETTLE_SENSORS, or has not read it yet"
            ));
        }
        for path in files {
            self.holder.set(&path, value, hold).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Gives back those whose time is over, and says which.
    pub(crate) fn give_back(&mut self, now: Instant) -> Vec<Description> {
        if self.holder.is_empty() {
            return Vec::new();
        }
        if self.life_at.is_none_or(|at| now.duration_since(at) >= LIFE_EVERY) {
            self.life_at = Some(now);
            self.holder.look_after();
        }
        self.holder.give_back(now)
    }
}
