//! Knobs: numbers that a program reads and others set.
//!
//! A knob is held by the process that has locked its file. The kernel gives the lock back when the holder ends, however it
//! does; a knob that says it is held while no process has the lock was left by a holder that died, and goes back to
//! what it rests at as soon as anybody looks ([`crate::Holder`] has a guard that does so at once).

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use fettle_abi::sensor::{KNOB_UNOPENED, Kind, KnobSlot, SLOTS};

use crate::{Description, Error, Sensor};

/// Who only looks has the lock for some microseconds: taking it is tried again after so long, ...
const AGAIN: Duration = Duration::from_millis(1);
/// ... so many times.
const TRIES: u32 = 5;

/// What a knob is set to, and what it may be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobState {
    /// What the program reads.
    pub value: i64,
    /// What the program has chosen.
    pub default: i64,
    /// The least value that may be set.
    pub least: i64,
    /// The greatest value that may be set.
    pub greatest: i64,
    /// What it is set to while no process holds it.
    pub resting: i64,
    /// Whether a process holds it.
    pub is_held: bool,
}

/// A knob that this process holds; dropping it gives it back.
#[derive(Debug)]
pub struct Knob {
    sensor: Sensor,
}

impl Sensor {
    /// A knob's state. What a holder that died has left is put right first.
    pub fn knob(&self) -> Result<KnobState, Error> {
        let state = self.knob_as_is()?;
        if !state.is_held || self.file.try_lock().is_err() {
            return Ok(state);
        }
        let found = self.rest().and_then(|()| self.knob_as_is());
        // The lock goes with the file at the latest.
        let _ = self.file.unlock();
        found
    }

    /// Becomes the knob's holder. Its value stays what it is until [`Knob::set`].
    ///
    /// # Errors
    ///
    /// [`Error::Held`] while another process holds it.
    pub fn into_knob(self) -> Result<Knob, Error> {
        self.expect(Kind::Knob)?;
        let mut tries = 1;
        while self.file.try_lock().is_err() {
            if tries == TRIES {
                return Err(Error::Held { name: self.description().name.clone() });
            }
            tries += 1;
            std::thread::sleep(AGAIN);
        }
        let knob = Knob { sensor: self };
        knob.sensor.rest()?;
        Ok(knob)
    }

    fn knob_as_is(&self) -> Result<KnobState, Error> {
        self.expect(Kind::Knob)?;
        let state = KnobState {
            value: self.knob_word(offset_of!(KnobSlot, value)),
            default: self.knob_word(offset_of!(KnobSlot, default_value)),
            least: self.knob_word(offset_of!(KnobSlot, least)),
            greatest: self.knob_word(offset_of!(KnobSlot, greatest)),
            resting: self.knob_word(offset_of!(KnobSlot, resting)),
            is_held: self.knob_word(offset_of!(KnobSlot, held)) != 0,
        };
        self.expect_whole()?;
        let bounds = state.least..=state.greatest;
        let is_possible = state.least > KNOB_UNOPENED
            && [state.value, state.default, state.resting].iter().all(|v| bounds.contains(v));
        match is_possible {
            true => Ok(state),
            false => Err(Error::NotASensor {
                path: self.path().to_path_buf(),
                reason: "a knob outside of its bounds",
            }),
        }
    }

    /// Back to what it is while no process holds it. For who has the lock.
    fn rest(&self) -> Result<(), Error> {
        let state = self.knob_as_is()?;
        if state.is_held {
            self.store_knob(offset_of!(KnobSlot, value), state.resting);
            self.store_knob(offset_of!(KnobSlot, held), 0);
        }
        self.expect_whole()
    }

    fn knob_word(&self, offset: usize) -> i64 {
        self.map.u64(u64::from(SLOTS) + offset as u64).load(Acquire) as i64
    }

    fn store_knob(&self, offset: usize, value: i64) {
        self.map.u64(u64::from(SLOTS) + offset as u64).store(value as u64, Release);
    }

    fn check_bounds(&self, value: i64) -> Result<(), Error> {
        let KnobState { least, greatest, .. } = self.knob_as_is()?;
        match (least..=greatest).contains(&value) {
            true => Ok(()),
            false => {
                let name = self.description().name.clone();
                Err(Error::OutOfBounds { name, value, least, greatest })
            }
        }
    }
}

impl Knob {
    /// What it says about itself.
    pub fn description(&self) -> &Description {
        self.sensor.description()
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        self.sensor.path()
    }

    /// Whether its program runs.
    pub fn is_alive(&self) -> bool {
        self.sensor.is_alive()
    }

    /// Sets it for as long as this lives.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] for a value that its program has not declared; nothing is changed then.
    pub fn set(&mut self, value: i64) -> Result<(), Error> {
        self.sensor.check_bounds(value)?;
        // First that it is held, so that a death in between leaves nothing that no process would put right.
        self.sensor.store_knob(offset_of!(KnobSlot, held), 1);
        self.sensor.store_knob(offset_of!(KnobSlot, value), value);
        self.count_set()
    }

    /// Sets it for good: until its program ends, or it is set again. No process holds it from then on.
    ///
    /// # Errors
    ///
    /// As [`Knob::set`].
    pub fn set_for_good(self, value: i64) -> Result<(), Error> {
        self.sensor.check_bounds(value)?;
        self.sensor.store_knob(offset_of!(KnobSlot, resting), value);
        self.sensor.store_knob(offset_of!(KnobSlot, value), value);
        self.count_set()
    }

    fn count_set(&self) -> Result<(), Error> {
        let sets = self.sensor.knob_word(offset_of!(KnobSlot, sets));
        self.sensor.store_knob(offset_of!(KnobSlot, sets), sets.wrapping_add(1));
        self.sensor.expect_whole()
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        // What is broken by now is its program's affair.
        let _ = self.sensor.rest();
        let _ = self.sensor.file.unlock();
    }
}
