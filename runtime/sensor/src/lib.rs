//! Commit events of your own program to Fettle's sensors.
//!
//! ```
//! use fettle::{List, Policy, Scalar, Sensor};
//!
//! static REQUESTS: List = Sensor::list("web.request", 7, 1).policy(Policy::Drop).open();
//! static OPEN: Scalar = Sensor::scalar("web.open", 7, 2).open();
//!
//! OPEN.add(1);
//! REQUESTS.commit(1, &[42, 4096]); // event number 1, two words
//! OPEN.add(-1);
//! ```
//!
//! Nothing happens before a sensor's first use, and nothing but a branch happens then, unless the
//! environment has `FETTLE_SENSORS`: with `FETTLE_SENSORS=1` the first use makes a file in
//! `$XDG_RUNTIME_DIR/fettle` (or `/dev/shm/fettle-UID`), with `FETTLE_SENSORS=/path` in that
//! folder. `fettle sensors read web.request` reads it, also after the program was killed.
//!
//! Everything here may be used in signal handlers, the first use too, and keeps `errno`. A child of a
//! fork has sensors of its own. The C header `fettle.h` next to this crate does the same in the same
//! words; [`fettle_abi::sensor`] has the layouts and `docs/internals/sensors.md` the guarantees.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("fettle knows x86-64 Linux only");

mod commit;
mod inject;
mod knob;
mod make;
mod origin;
mod process;
mod shared;
mod sys;
mod thread;

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::*;

use fettle_abi::sensor::{
    DEFAULT_CELL_LOG2, DEFAULT_RING_LOG2, DEFAULT_SLOTS, Head, HistogramSlot, Kind, Shape, bucket,
    is_name,
};

pub use fettle_abi::ring::Policy;
pub use knob::Knob;

use origin::Origin;

/// A sensor to be: its name, numbers and sizes. Begin with [`Sensor::list`], [`Sensor::scalar`] or
/// [`Sensor::histogram`], end with `open`.
///
/// `K` is the type that `open` gives.
#[derive(Clone, Copy, Debug)]
pub struct Sensor<K> {
    name: &'static str,
    major: u32,
    minor: u32,
    instance: u32,
    policy: Policy,
    slots: u32,
    cell_log2: u32,
    ring_log2: u32,
    kind: std::marker::PhantomData<K>,
}

impl Sensor<()> {
    /// A list of events. The numbers identify what its events mean, for every reader: `major` names
    /// a group of sensors, `minor` the sensor in it.
    pub const fn list(name: &'static str, major: u32, minor: u32) -> Sensor<List> {
        Sensor::new(name, major, minor, DEFAULT_CELL_LOG2, DEFAULT_RING_LOG2)
    }

    /// One number.
    pub const fn scalar(name: &'static str, major: u32, minor: u32) -> Sensor<Scalar> {
        Sensor::new(name, major, minor, 0, 0)
    }

    /// How often each magnitude occurs.
    pub const fn histogram(name: &'static str, major: u32, minor: u32) -> Sensor<Histogram> {
        Sensor::new(name, major, minor, 0, 0)
    }

    /// A number that others set and this program reads.
    pub const fn knob(name: &'static str, major: u32, minor: u32) -> Sensor<Knob> {
        Sensor::new(name, major, minor, 0, 0)
    }
}

impl<K> Sensor<K> {
    const fn new(
        name: &'static str,
        major: u32,
        minor: u32,
        cell_log2: u32,
        ring_log2: u32,
    ) -> Sensor<K> {
        assert!(is_name(name.as_bytes()), "a sensor's name is 1 to 63 of A-Z a-z 0-9 . - _");
        let (policy, slots, kind) = (Policy::Drop, DEFAULT_SLOTS, std::marker::PhantomData);
        Sensor { name, major, minor, instance: 0, policy, slots, cell_log2, ring_log2, kind }
    }

    /// Distinguishes sensors with the same name and numbers in one process.
    pub const fn instance(self, instance: u32) -> Sensor<K> {
        Sensor { instance, ..self }
    }

    /// How many threads get room of their own (up to 255); the others share one, which is slower.
    pub const fn threads(self, threads: u32) -> Sensor<K> {
        Sensor { slots: threads + 1, ..self }
    }

    const fn origin(&self, kind: Kind) -> Origin {
        let shape = Shape::checked(
            kind as u32,
            self.policy as u32,
            self.slots,
            self.cell_log2,
            self.ring_log2,
        );
        Origin::new(self.name, [self.major, self.minor, self.instance], shape.expect("its sizes"))
    }
}

impl Sensor<List> {
    /// What a thread does when its ring is full. [`Policy::Drop`] if nothing else is said.
    pub const fn policy(self, policy: Policy) -> Sensor<List> {
        Sensor { policy, ..self }
    }

    /// Room for events of this many words, up to 30; 2 if nothing else is said. Each event takes
    /// room for 2, 6, 14 or 30 words.
    pub const fn words(self, words: u32) -> Sensor<List> {
        Sensor { cell_log2: (8 * (words + 2)).next_power_of_two().ilog2(), ..self }
    }

    /// Bytes of each thread's ring: a power of two from 4 KiB to 1 GiB; 256 KiB if nothing else is
    /// said.
    pub const fn ring_bytes(self, bytes: u64) -> Sensor<List> {
        assert!(bytes.is_power_of_two(), "a ring's size is a power of two");
        Sensor { ring_log2: bytes.ilog2(), ..self }
    }

    /// One ring for all threads.
    pub const fn shared(self) -> Sensor<List> {
        self.threads(0)
    }

    /// The sensor. Can make a `static`.
    pub const fn open(self) -> List {
        List(self.origin(Kind::List))
    }
}

impl Sensor<Knob> {
    /// The knob, with its default and the values that it may be set to. Makes a `static`.
    pub const fn values(self, default: i64, values: std::ops::RangeInclusive<i64>) -> Knob {
        let origin = Origin::new(self.name, [self.major, self.minor, self.instance], knob::shape());
        Knob::new(origin, [default, *values.start(), *values.end()])
    }
}

impl Sensor<Scalar> {
    /// The sensor. Can make a `static`.
    pub const fn open(self) -> Scalar {
        Scalar(self.origin(Kind::Scalar))
    }
}

impl Sensor<Histogram> {
    /// The sensor. Can make a `static`.
    pub const fn open(self) -> Histogram {
        Histogram(self.origin(Kind::Histogram))
    }
}

/// A list of events, each with a timestamp.
#[derive(Debug)]
pub struct List(Origin);

/// A type of events of a [`List`].
pub trait Event {
    /// Its number in the sensor.
    const NUMBER: u16;
    /// An array of words.
    type Words: AsRef<[u64]>;
    /// What to commit.
    fn words(&self) -> Self::Words;
}

impl List {
    /// Commits an event: its number in the sensor, and words, which are cut to what the sensor
    /// has room for ([`Sensor::words`]).
    #[inline]
    pub fn commit(&self, number: u16, words: &[u64]) {
        if self.0.is_on() {
            commit::commit(&self.0, number, words);
        }
    }

    /// Commits an event of a type.
    #[inline]
    pub fn emit<E: Event>(&self, event: &E) {
        if self.0.is_on() {
            commit::commit(&self.0, E::NUMBER, event.words().as_ref());
        }
    }

    /// Whether a monitor asked for events; true until the first use has found out.
    pub fn is_on(&self) -> bool {
        self.0.is_on()
    }
}

/// One number: a level that is set, plus all that was added. Use one of the two, or both.
#[derive(Debug)]
pub struct Scalar(Origin);

impl Scalar {
    /// Adds. Each thread adds to a word of its own, so threads do not slow each other.
    #[inline]
    pub fn add(&self, delta: i64) {
        if self.0.is_on() {
            match thread::own_slot(&self.0) {
                Some(slot) => slot.add_local(0, delta as u64),
                None => self.add_slow(delta),
            }
        }
    }

    /// Sets the level.
    #[inline]
    pub fn set(&self, level: i64) {
        if self.0.is_on()
            && let Some(process) = thread::process(&self.0)
        {
            process.head().word(std::mem::offset_of!(Head, level)).store(level as u64, Relaxed);
        }
    }

    #[cold]
    fn add_slow(&self, delta: i64) {
        if let Some(writer) = thread::writer(&self.0) {
            writer.any_slot().word(0).fetch_add(delta as u64, Relaxed);
        }
    }
}

/// How often each magnitude occurred: eight buckets to each power of two.
#[derive(Debug)]
pub struct Histogram(Origin);

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&self, value: u64) {
        if self.0.is_on() {
            let offset = std::mem::offset_of!(HistogramSlot, buckets) + 8 * bucket(value);
            match thread::own_slot(&self.0) {
                Some(slot) => {
                    slot.add_local(offset, 1);
                    slot.add_local(0, value);
                }
                None => self.record_slow(offset, value),
            }
        }
    }

    #[cold]
    fn record_slow(&self, offset: usize, value: u64) {
        if let Some(writer) = thread::writer(&self.0) {
            writer.any_slot().word(offset).fetch_add(1, Relaxed);
            writer.any_slot().word(0).fetch_add(value, Relaxed);
        }
    }
}
