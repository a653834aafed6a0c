//! Traces that are made on another machine than the one that records.
//!
//! What a recording would put into its folder goes into a log (`fettle_relay`), whose sender is the
//! only one to wait for the network. On the other machine the same spools lie in a folder of a
//! trace, and the same [`Ending`] makes the trace of them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fettle_kernel_events::spool::SpoolWriter;
use fettle_relay::{Arrivals, Arriving, Blob, Counts, Log, Sender, SenderEvent, Stream, To};
use fettle_trace::{Content, Finish, Loss, Manifest, Outlet, TraceWriter};

use crate::ending::Ending;
use crate::error::RecordError;
use crate::kernel::spool_path;

/// Notifies the recorder when a collector goes and comes back.
pub type OnEvent = Arc<dyn Fn(SenderEvent) + Send + Sync>;

/// A collector on another machine.
#[derive(Clone)]
pub struct Remote {
    /// Where it is, and whose key it has.
    pub to: To,
    /// Bytes that may wait here for the collector.
    pub spool_bytes: u64,
    /// Notified when the collector is away, and back.
    pub notify: OnEvent,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.to.address)
    }
}

/// A recording of more records is left to its first reader: to convert this many takes the
/// better part of a second on one processor.
const CONVERTED_AT_ONCE: u64 = 8 << 20;

/// How long a recorder waits at its end for a collector that is away.
const PATIENCE: Duration = Duration::from_secs(60);

/// What has not arrived.
#[derive(Clone, Debug)]
pub struct Undelivered {
    /// Where it lies.
    pub folder: PathBuf,
    /// Why.
    pub why: String,
    /// How much it is.
    pub bytes: u64,
}

/// What became of a recording.
#[derive(Debug)]
pub struct Finished {
    /// The manifest of the trace; what is known of it here if it was made elsewhere and nothing was
    /// said.
    pub manifest: Manifest,
    /// Whether its records are still to be converted, which its first reader does.
    pub deferred: bool,
    /// What has not arrived at the other machine.
    pub undelivered: Option<Undelivered>,
    /// Records that were dropped here because the other machine was away for too long.
    pub dropped: Counts,
}

/// Where a trace is made.
pub(crate) struct Destination {
    folder: PathBuf,
    remote: Option<(Arc<Log>, Sender, OnEvent)>,
}

impl Destination {
    /// A folder on this machine, or a spool here and a connection to the other one, before
    /// anything has been run.
    pub(crate) fn create(
        folder: &Path,
        remote: Option<&Remote>,
        manifest: &Manifest,
    ) -> Result<(Destination, TraceWriter), RecordError> {
        let Some(remote) = remote else {
            let writer = TraceWriter::create(folder, manifest)?;
            return Ok((Destination { folder: folder.to_owned(), remote: None }, writer));
        };
        let begin = serde_json::to_vec(manifest).map_err(io::Error::from);
        let begin = begin.map_err(RecordError::Memory)?;
        let log = Arc::new(Log::create(folder, &name(manifest), &begin, remote.spool_bytes)?);
        let (notify, reported) = (remote.notify.clone(), remote.notify.clone());
        let sender = Sender::start(remote.to.clone(), log.clone(), Box::new(move |n| reported(n)));
        let sender = sender.inspect_err(|_| drop(log.remove()))?;
        let outlet: Arc<dyn Outlet> = Arc::new(ToLog(log.clone()));
        let writer = TraceWriter::to(&outlet);
        Ok((Destination { folder: folder.to_owned(), remote: Some((log, sender, notify)) }, writer))
    }

    /// Where kernel events are spooled.
    pub(crate) fn kernel_spool(&self) -> io::Result<SpoolWriter> {
        let Some((log, ..)) = &self.remote else {
            return SpoolWriter::create(&spool_path(&self.folder));
        };
        let log = log.clone();
        Ok(SpoolWriter::to(Box::new(move |records, frames| {
            log.append_kernel(records, frames).map_err(system_error)
        })))
    }

    /// Nothing has been recorded, and nothing is left of it.
    pub(crate) fn give_up(self, writer: TraceWriter) {
        drop(writer);
        if let Some((log, sender, _)) = self.remote {
            log.close();
            let _ = sender.finish(Duration::from_secs(2), &AtomicBool::new(false), || {});
        }
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Makes the trace, or waits until it has been made; `stop` ends the waiting.
    pub(crate) fn finish(
        self,
        mut writer: TraceWriter,
        ending: Ending,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Finished, fettle_trace::Error> {
        let Some((log, sender, notify)) = self.remote else {
            let (manifest, deferred) = ending.write(writer, CONVERTED_AT_ONCE, progress)?;
            let dropped = Counts::default();
            return Ok(Finished { manifest, deferred, undelivered: None, dropped });
        };
        let mut manifest = ending.manifest().clone();
        let whole = writer.flush().map_err(|error| error.to_string()).and_then(|()| {
            let bytes = postcard::to_stdvec(&ending).map_err(|error| error.to_string())?;
            log.append_blob(Blob::Ending, &bytes).map_err(|error| error.to_string())
        });
        drop(writer);
        if let Err(why) = &whole {
            manifest.notes.push(format!("the recording has no proper ending: {why}"));
            log.close();
        }
        // The signal that ended the program has done its work; the next one is meant for this.
        stop.store(false, Ordering::Relaxed);
        let waiting = || notify(SenderEvent::Waiting { bytes: log.standing().waiting_bytes });
        let delivery = sender.finish(PATIENCE, stop, waiting);
        let dropped = log.standing().dropped;
        let undelivered = match delivery {
            Ok(delivery) => {
                if let Ok(reported) = serde_json::from_slice(&delivery.reported) {
                    manifest = reported;
                }
                let _ = log.remove();
                None
            }
            Err(error) => Some(Undelivered {
                folder: log.folder().to_owned(),
                why: error.to_string(),
                bytes: log.standing().waiting_bytes,
            }),
        };
        Ok(Finished { manifest, deferred: false, undelivered, dropped })
    }
}

/// What the trace is to be called: by machine and program.
fn name(manifest: &Manifest) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let program = manifest.command.first().map(String::as_str).unwrap_or_default();
    let program = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or("recording");
    match host.trim() {
        "" => program.to_owned(),
        host => format!("{host}-{program}"),
    }
}

/// Puts what a trace's writer is given into a log.
#[derive(Debug)]
struct ToLog(Arc<Log>);

impl Outlet for ToLog {
    fn append(&self, content: Content, thread: u32, records: &[u8]) -> io::Result<()> {
        let content = match content {
            Content::Calls => fettle_relay::Content::Calls,
            Content::Values => fettle_relay::Content::Values,
            Content::Switches => fettle_relay::Content::Switches,
        };
        self.0.append(Stream { content, thread }, records).map_err(system_error)
    }

    fn checkpoint(&self, tables: &Finish) -> io::Result<()> {
        let bytes = postcard::to_stdvec(tables).map_err(io::Error::other)?;
        self.0.append_blob(Blob::Checkpoint, &bytes).map_err(system_error)
    }
}

fn system_error(error: fettle_relay::Error) -> io::Error {
    match error {
        fettle_relay::Error::File { reason, .. } => reason,
        other => io::Error::other(other),
    }
}

/// Makes traces of what arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traces;

/// A trace that arrives. Its writer holds the recording's lock.
struct Arriver(TraceWriter);

impl Arrivals for Traces {
    fn begin(&self, folder: &Path, begin: &[u8]) -> Result<Box<dyn Arriving>, String> {
        let manifest: Manifest = serde_json::from_slice(begin)
            .map_err(|error| format!("the recording's manifest cannot be read: {error}"))?;
        let writer = TraceWriter::create(folder, &manifest).map_err(|error| error.to_string())?;
        Ok(Box::new(Arriver(writer)))
    }

    fn reopen(&self, folder: &Path) -> Result<Box<dyn Arriving>, String> {
        let writer = TraceWriter::reopen(folder).map_err(|error| error.to_string())?;
        Ok(Box::new(Arriver(writer)))
    }

    fn file_of(&self, stream: Stream) -> String {
        let content = match stream.content {
            fettle_relay::Content::Calls => Content::Calls,
            fettle_relay::Content::Values => Content::Values,
            fettle_relay::Content::Switches => Content::Switches,
            fettle_relay::Content::Kernel => return "spool/kernel.events".to_owned(),
        };
        fettle_trace::spool_file(content, stream.thread)
    }
}

impl Arriving for Arriver {
    fn checkpoint(&mut self, tables: &[u8]) -> Result<(), String> {
        let tables: Finish = postcard::from_bytes(tables)
            .map_err(|error| format!("the recording's tables cannot be read: {error}"))?;
        self.0.checkpoint(&tables).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>, ending: &[u8], dropped: &Counts) -> Result<Vec<u8>, String> {
        let mut ending: Ending = postcard::from_bytes(ending).map_err(|error| {
            format!("the recording's ending cannot be read: {error}; is it another fettle's?")
        })?;
        let manifest = ending.manifest_mut();
        for (content, count) in dropped.some() {
            let noun = content.noun();
            let reason = format!("{noun} that the recorder's spool had no room for");
            match content {
                // As if their ring had been full.
                fettle_relay::Content::Calls => {
                    manifest.totals.lost = manifest.totals.lost.saturating_add(count);
                    manifest.notes.push(format!("lost were {count} {reason}"));
                }
                _ => manifest.losses.push(Loss { reason, count }),
            }
        }
        let written = ending.write(self.0, CONVERTED_AT_ONCE, &mut |_, _| {});
        let (manifest, _) = written.map_err(|error| error.to_string())?;
        serde_json::to_vec(&manifest).map_err(|error| error.to_string())
    }
}
