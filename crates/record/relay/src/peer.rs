//! One connection at the collector: the protocol, and how much of it a peer may use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, FrameError, Result};
use crate::event::Happening;
use crate::frame::{AGAIN, Counts, FIRST, HEAD, Head, VERSION, read_frame};
use crate::key::{hex, same};
use crate::kind::Kind;
use crate::store::{self, Arrivals, Phase, Session};
use crate::tls::Channel;

/// Limits for one peer, and for all together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once from one address.
    pub per_address: usize,
    /// For the handshake, and until the peer is identified.
    pub hello: Duration,
    /// Without a frame from a recorder; it sends one every few seconds.
    pub idle: Duration,
    /// Bytes of one recording as it arrives.
    pub trace_bytes: u64,
    /// Bytes per second of one connection; a faster sender is slowed down.
    pub bytes_per_second: u64,
    /// How long a trace counts as being recorded after its recorder was last connected.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            per_address: 32,
            hello: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            trace_bytes: 64 << 30,
            bytes_per_second: 1 << 30,
            patience: Duration::from_secs(600),
        }
    }
}

/// Bytes after which what has arrived is written to disk without a request.
const UNCERTAIN_MAX: u64 = 32 << 20;
/// Longest name of a trace.
const NAME_MAX: usize = 96;
/// For a last frame to a peer that is disconnected.
const LAST_WORD: Duration = Duration::from_secs(2);
/// For an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Ends a connection from outside of the thread that serves it.
pub(crate) type HangUp = Box<dyn FnOnce() + Send>;

/// A recording's place among all.
struct Slot {
    folder: PathBuf,
    session: Mutex<Option<Session>>,
    hang_up: Mutex<Option<HangUp>>,
    /// When its recorder was last heard of.
    heard: Mutex<Instant>,
}

/// What all connections share.
pub struct Hub {
    folder: PathBuf,
    secret: [u8; 32],
    arrivals: Box<dyn Arrivals>,
    pub(crate) limits: Limits,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    notify: Box<dyn Fn(Happening) + Send + Sync>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hub({})", self.folder.display())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned session is repaired by rolling it back.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// A hub for the traces in `folder`; those that were arriving go on.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made or read.
    pub fn open(
        folder: &Path,
        key: &crate::CollectorKey,
        arrivals: Box<dyn Arrivals>,
        limits: Limits,
        notify: Box<dyn Fn(Happening) + Send + Sync>,
    ) -> Result<Hub> {
        std::fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
        let slots = Mutex::default();
        let secret = key.secret;
        let hub = Hub { folder: folder.to_owned(), secret, arrivals, limits, slots, notify };
        for (folder, session, phase) in store::found(folder)? {
            let mut slot = Slot::new(folder.clone());
            if matches!(phase, Phase::Arriving | Phase::Ended) {
                match Session::reopen(&folder, &*hub.arrivals) {
                    Ok(session) => slot.session = Mutex::new(Some(session)),
                    Err(error) => {
                        hub.notify(Happening::Unusable { folder, why: error.to_string() });
                    }
                }
            }
            if phase == Phase::Ended
                && let Some(session) = &mut *held(&slot.session)
            {
                // A recording that the previous collector did not finish.
                let _ = hub.finish(session);
            }
            held(&hub.slots).insert(session, Arc::new(slot));
        }
        Ok(hub)
    }

    pub(crate) fn notify(&self, happening: Happening) {
        (self.notify)(happening);
    }

    /// Closes traces whose recorders have been away for long, so that readers may have them.
    pub(crate) fn tick(&self) {
        let slots: Vec<Arc<Slot>> = held(&self.slots).values().cloned().collect();
        for slot in slots {
            let gone = held(&slot.heard).elapsed() > self.limits.patience;
            if gone && let Ok(mut session) = slot.session.try_lock() {
                session.take();
            }
        }
    }

    /// Closes every connection.
    pub(crate) fn hang_up(&self) {
        for slot in held(&self.slots).values() {
            if let Some(hang_up) = held(&slot.hang_up).take() {
                hang_up();
            }
        }
    }

    fn finish(&self, session: &mut Session) -> Result<Vec<u8>> {
        let folder = session.folder().to_owned();
        let dropped = *session.dropped();
        let reported = session.finish(&*self.arrivals);
        match &reported {
            Ok(_) => self.notify(Happening::Arrived { folder, dropped }),
            Err(error) => self.notify(Happening::Unusable { folder, why: error.to_string() }),
        }
        reported
    }
}

impl Slot {
    fn new(folder: PathBuf) -> Slot {
        Slot {
            folder,
            session: Mutex::default(),
            hang_up: Mutex::default(),
            heard: Mutex::new(Instant::now()),
        }
    }
}

/// Serves one peer until it has sent everything or must be disconnected, which is reported to it.
///
/// # Errors
///
/// Why the connection ended before everything was received.
pub fn serve(channel: &mut dyn Channel, peer: &str, hub: &Hub, hang_up: HangUp) -> Result<()> {
    let mut channel = Frames { channel };
    let result = talk(&mut channel, peer, hub, hang_up);
    if let Err(error) = &result
        && !matches!(error, Error::Cut(_))
    {
        channel.channel.within(LAST_WORD);
        let passing = error.is_passing();
        // A refused peer reports the reason itself.
        let why = match error {
            Error::Refused { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let why = &why.as_bytes()[..why.floor_char_boundary(2048)];
        let flags = if passing { AGAIN } else { 0 };
        let _ = channel.send(Head { flags, ..Head::new(Kind::Refused, why.len()) }, why);
    }
    result
}

/// A channel that speaks frames.
struct Frames<'a> {
    channel: &'a mut dyn Channel,
}

impl Frames<'_> {
    fn send(&mut self, head: Head, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(HEAD + payload.len());
        bytes.extend_from_slice(&head.encode());
        bytes.extend_from_slice(payload);
        let sent = self.channel.write_all(&bytes).and_then(|()| self.channel.flush());
        sent.map_err(Error::Cut)
    }

    fn offset(&mut self, kind: Kind, flags: u16, offset: u64) -> Result<()> {
        self.channel.within(ANSWER);
        self.send(Head { flags, ..Head::new(kind, 8) }, &offset.to_le_bytes())
    }

    fn read(&mut self, payload: &mut Vec<u8>) -> Result<Head> {
        let mut channel = &mut *self.channel;
        read_frame(&mut channel, payload)
    }
}

/// What a recorder says about itself.
struct Hello {
    session: String,
    name: String,
}

/// Reads the first frame: nothing is done for a peer before its secret is verified.
fn hello(head: Head, payload: &[u8], hub: &Hub) -> Result<Hello> {
    if head.kind != Kind::Hello {
        return Err(FrameError::Unexpected { found: head.kind, expected: "Hello" }.into());
    }
    let wrong = |reason: String| Error::Refused { reason, again: false };
    if head.number != VERSION {
        return Err(wrong(format!(
            "it speaks version {} of the protocol, this collector version {VERSION}: use the same \
             fettle on both sides",
            head.number
        )));
    }
    let bad = || Error::from(FrameError::Payload(Kind::Hello));
    let (secret, rest) = payload.split_first_chunk::<32>().ok_or_else(bad)?;
    let (session, name) = rest.split_first_chunk::<16>().ok_or_else(bad)?;
    if !same(secret, &hub.secret) {
        return Err(wrong("it does not know the secret of this collector's key".to_owned()));
    }
    let name = std::str::from_utf8(name).map_err(|_| bad())?;
    Ok(Hello { session: hex(session), name: clean(name) })
}

/// A name for a folder, made of the name that a peer sent.
fn clean(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().map(|c| if good(c) { c } else { '_' }).take(NAME_MAX).collect();
    let name = name.trim_start_matches('.').to_owned();
    if name.is_empty() { "recording".to_owned() } else { name }
}

fn talk(channel: &mut Frames<'_>, peer: &str, hub: &Hub, hang_up: HangUp) -> Result<()> {
    channel.channel.within(hub.limits.hello);
    let mut payload = Vec::new();
    let head = channel.read(&mut payload)?;
    let Hello { session, name } = hello(head, &payload, hub)?;
    let known = held(&hub.slots).get(&session).cloned();
    let slot = match known {
        Some(slot) => slot,
        None => {
            channel.offset(Kind::Welcome, FIRST, 0)?;
            channel.channel.within(hub.limits.idle);
            let head = channel.read(&mut payload)?;
            if head.kind != Kind::Begin {
                return Err(FrameError::Unexpected { found: head.kind, expected: "Begin" }.into());
            }
            let begun = Session::begin(&hub.folder, &name, &session, &payload, &*hub.arrivals)?;
            let mut slot = Slot::new(begun.folder().to_owned());
            let folder = slot.folder.clone();
            slot.session = Mutex::new(Some(begun));
            let slot = Arc::new(slot);
            held(&hub.slots).insert(session, slot.clone());
            hub.notify(Happening::Began { peer: peer.to_owned(), folder });
            slot
        }
    };
    // An older connection of the same recorder, which this side has not noticed to be broken.
    if let Some(old) = held(&slot.hang_up).replace(hang_up) {
        old();
    }
    let mut session = held(&slot.session);
    *held(&slot.heard) = Instant::now();
    if session.is_none() {
        *session = Some(Session::reopen(&slot.folder, &*hub.arrivals)?);
    }
    let session = session.as_mut().expect("opened above");
    session.roll_back()?;
    if session.phase() == Phase::Closed {
        let reason = "this recording was closed here: no more of it is taken".to_owned();
        return Err(Error::Refused { reason, again: false });
    }
    channel.offset(Kind::Welcome, 0, session.offset())?;
    if session.offset() > 0 {
        let (peer, folder) = (peer.to_owned(), slot.folder.clone());
        hub.notify(Happening::Resumed { peer, folder, offset: session.offset() });
    }
    let result = take(channel, session, hub, &slot);
    match &result {
        Ok(()) => {}
        // Whole frames that came before the connection broke are kept: over a line that keeps
        // breaking, nothing would ever arrive otherwise.
        Err(Error::Cut(_)) => drop(session.commit()),
        // What is not on disk is sent again.
        Err(_) => drop(session.roll_back()),
    }
    *held(&slot.heard) = Instant::now();
    result
}

/// Receives what a recorder sends.
fn take(channel: &mut Frames<'_>, session: &mut Session, hub: &Hub, slot: &Slot) -> Result<()> {
    let mut payload = Vec::new();
    let mut pace = Pace::new(hub.limits.bytes_per_second);
    loop {
        channel.channel.within(hub.limits.idle);
        let head = channel.read(&mut payload)?;
        pace.keep(head.frame_bytes());
        match head.kind {
            Kind::Append | Kind::Blob => {
                if session.offset() + head.frame_bytes() > hub.limits.trace_bytes {
                    let most = hub.limits.trace_bytes >> 20;
                    let reason = format!(
                        "the recording is larger than the {most} MiB that this collector takes of \
                         one"
                    );
                    return Err(Error::Refused { reason, again: false });
                }
                session.put(&*hub.arrivals, &head, &payload)?;
                if session.uncertain() > UNCERTAIN_MAX {
                    session.commit()?;
                }
            }
            Kind::Gap => {
                let (from, to, counts) = gap(&payload)?;
                session.gap(from, to, &counts)?;
                session.commit()?;
                hub.notify(Happening::Gap { folder: slot.folder.clone(), counts });
            }
            Kind::Sync | Kind::Bye => {
                let offset = session.commit()?;
                *held(&slot.heard) = Instant::now();
                if head.kind == Kind::Bye && session.phase() == Phase::Arriving {
                    session.close()?;
                    let (folder, dropped) = (slot.folder.clone(), *session.dropped());
                    hub.notify(match offset {
                        0 => Happening::Nothing { folder },
                        _ => Happening::Closed { folder, dropped },
                    });
                }
                channel.offset(Kind::Ack, 0, offset)?;
                match session.phase() {
                    Phase::Arriving => {}
                    Phase::Ended => return done(channel, session, hub),
                    Phase::Done | Phase::Closed => {
                        return channel.send(Head::new(Kind::Done, 0), &[]);
                    }
                }
            }
            found => {
                return Err(FrameError::Unexpected { found, expected: "records" }.into());
            }
        }
    }
}

/// Everything has arrived; it becomes a trace while the recorder waits for the result.
fn done(channel: &mut Frames<'_>, session: &mut Session, hub: &Hub) -> Result<()> {
    let reported = hub.finish(session)?;
    let reported = if reported.len() > crate::kind::MANIFEST_MAX { Vec::new() } else { reported };
    channel.channel.within(ANSWER);
    channel.send(Head::new(Kind::Done, reported.len()), &reported)
}

/// Reads what a gap tells.
fn gap(payload: &[u8]) -> Result<(u64, u64, Counts)> {
    let words = payload.as_chunks::<8>().0;
    let [from, to, counts @ ..] = words else {
        return Err(FrameError::Payload(Kind::Gap).into());
    };
    let counts = <[[u8; 8]; 4]>::try_from(counts).map_err(|_| FrameError::Payload(Kind::Gap))?;
    let counts = Counts(counts.map(u64::from_le_bytes));
    Ok((u64::from_le_bytes(*from), u64::from_le_bytes(*to), counts))
}

/// Limits a peer's rate by reading no faster.
struct Pace {
    rate: u64,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: u64) -> Pace {
        Pace { rate: rate.max(1), since: Instant::now(), bytes: 0 }
    }

    fn keep(&mut self, bytes: u64) {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
        let ahead = due.saturating_sub(self.since.elapsed());
        if ahead > Duration::from_millis(5) {
            std::thread::sleep(ahead.min(Duration::from_secs(1)));
        }
        // A rate that was not used for a second is not saved up.
        if self.since.elapsed() > due + Duration::from_secs(1) {
            (self.since, self.bytes) = (Instant::now(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        assert_eq!(clean("host-prog"), "host-prog");
        assert_eq!(clean("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(clean(".."), "recording");
        assert_eq!(clean("a/b\0c\n"), "a_b_c_");
        assert_eq!(clean(&"x".repeat(500)).len(), NAME_MAX);
    }
}
