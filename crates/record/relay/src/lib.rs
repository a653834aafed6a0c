//! Sending a recording from the machine that records to the one that collects.
//!
//! The recorder appends what it would have written into a trace folder to a [`Log`], which has a
//! limit. A thread of its own, the [`Sender`], reads behind and sends, so that recording waits for
//! the local disk and for nothing else. The collector ([`Collector`]) appends what arrives to the
//! same files that a recording on its own machine would have, and acknowledges the offset up to
//! which everything is on disk. After a lost connection both resume at exactly that byte.
//!
//! Connections are TLS 1.3 with a pinned key on one side and a secret on the other; there is no
//! other way to connect. What arrives is bounded before it is trusted: the wire has no paths, only
//! the content of a stream and the number of a thread.
//!
//! The crate knows frames and files, not their content: the caller says by [`Arrivals`] what a
//! trace is.
#![forbid(unsafe_code)]

mod error;
mod event;
pub mod frame;
mod key;
mod kind;
mod log;
mod peer;
mod sender;
mod server;
mod signing;
mod store;
mod tls;

pub use error::{Error, Result};
pub use event::Happening;
pub use frame::{Blob, Content, Counts, Stream};
pub use key::{CollectorKey, RECORDER, RecorderKey};
pub use kind::PAYLOAD_MAX;
pub use log::{Gap, Identity, Log, Next, Standing};
pub use peer::{Hub, Limits, serve};
pub use sender::{Delivery, Sender, SenderEvent, To};
pub use server::Collector;
pub use store::{Arrivals, Arriving};
pub use tls::Channel;
