//! The consumer's side of sensors: find them, drain lists, read scalars and histograms, set knobs.
//!
//! A sensor is a file in a folder that only its user may enter; programs make them with the crate
//! `fettle` or the header `fettle.h`. Its producer is another program, which may be broken or
//! gone: whatever it left in the file is a claim, checked before use. [`fettle_abi::sensor`] has
//! the layouts, `docs/internals/sensors.md` the protocol and its guarantees.
//!
//! ```no_run
//! let directory = fettle_sensor::Directory::open_default()?;
//! for sensor in directory.find("web.request")?.sensors {
//!     let mut list = sensor.into_list()?;
//!     let drained = list.drain(|event| println!("{} {:?}", event.timestamp, event.words))?;
//!     println!("{} events, {} lost", drained.read, drained.lost);
//! }
//! # Ok::<(), fettle_sensor::Error>(())
//! ```

mod clock;
mod directory;
mod error;
mod guard;
mod heart;
mod histogram;
mod holder;
mod knob;
mod list;
mod map;
mod process;
mod sensor;

pub use clock::Clock;
pub use directory::{Directory, Found, Skipped};
pub use error::Error;
pub use histogram::{Bucket, Histogram};
pub use holder::{Holder, guard};
pub use knob::{Knob, KnobState};
pub use list::{Account, Drained, Event, EventId, List};
pub use process::ProcessId;
pub use sensor::{Description, Sensor};

pub use fettle_abi::ring::Policy;
pub use fettle_abi::sensor::{Kind, is_name};
