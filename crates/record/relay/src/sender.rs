//! The recorder's thread that sends.
//!
//! It sends a batch, asks for the acknowledged offset, and waits for the answer; no other thread
//! waits for it. When the connection breaks it connects again, asks for that offset, and resumes
//! there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::error::{Error, FrameError, Result};
use crate::frame::{AGAIN, FIRST, HEAD, Head, VERSION, read_frame};
use crate::key::{RecorderKey, unhex};
use crate::kind::Kind;
use crate::log::{Gap, Log, Next, Standing};
use crate::tls::{self, Channel, Timed};

/// For a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// For an acknowledgement, in which the collector writes to its disk.
const ANSWER: Duration = Duration::from_secs(60);
/// For making a whole trace of what has arrived.
const FINISH: Duration = Duration::from_secs(3600);
/// Something is said at least as often as this.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Until what is little is sent all the same.
const LINGER: Duration = Duration::from_millis(100);
/// Between two attempts to connect: at first, and at most.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// Where to send to.
#[derive(Clone, Debug)]
pub struct To {
    /// Host and port.
    pub address: String,
    /// Whose key it has, and the secret.
    pub key: RecorderKey,
}

/// Events that the recorder gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SenderEvent {
    /// The connection broke, or could not be made again.
    Away {
        /// Why.
        why: String,
    },
    /// There is a connection again.
    Back {
        /// Offset at which it goes on.
        offset: u64,
    },
    /// The recording has ended, and its rest waits for a collector that is away.
    Waiting {
        /// How much that is.
        bytes: u64,
    },
    /// The collector wants no more of this recording, whatever is tried.
    Refused {
        /// Why.
        why: String,
    },
}

/// A recording that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What the collector says of it; empty if it does not.
    pub reported: Vec<u8>,
    /// What was dropped on the way, because the log was full.
    pub dropped: crate::Counts,
}

#[derive(Debug, Default)]
struct Shared {
    /// The rest is not to be sent.
    abandoned: AtomicBool,
    /// When something was last acknowledged.
    heard: Mutex<Option<Instant>>,
    /// Why there is no connection now.
    trouble: Mutex<Option<String>>,
}

/// Sends a log.
#[derive(Debug)]
pub struct Sender {
    log: Arc<Log>,
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Vec<u8>>>,
}

impl Sender {
    /// Connects, and begins to send. The first connection is made before this returns, so that a
    /// wrong address or key is known before anything is recorded.
    ///
    /// # Errors
    ///
    /// When there is no connection.
    pub fn start(to: To, log: Arc<Log>, notify: Box<dyn Fn(SenderEvent) + Send>) -> Result<Sender> {
        let config = tls::client_config(&to.key)?;
        let first = Connection::open(&to, &config, &log)?;
        let shared = Arc::new(Shared::default());
        let mut sending = Sending { to, config, log: log.clone(), shared: shared.clone(), notify };
        sending.heard();
        let run = move || sending.run(first);
        let thread = std::thread::Builder::new().name("sender".to_owned()).spawn(run);
        Ok(Sender { log, shared, thread: thread.map_err(Error::Cut)? })
    }

    /// The state of the log.
    pub fn standing(&self) -> Standing {
        self.log.standing()
    }

    /// Waits until everything has arrived: until `stop` is set, or the collector has taken nothing for
    /// longer than `patience`. The log must be closed. When the collector is away, or goes away now,
    /// `waiting` is called, once.
    ///
    /// # Errors
    ///
    /// Why not everything has arrived. The log's folder has the rest.
    pub fn finish(
        self,
        patience: Duration,
        stop: &AtomicBool,
        waiting: impl FnOnce(),
    ) -> Result<Delivery> {
        let mut waiting = Some(waiting);
        let since = Instant::now();
        while !self.thread.is_finished() {
            let heard = *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let silent = heard.map_or(since, |heard| heard.max(since)).elapsed();
            let trouble =
                self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if trouble.is_some()
                && let Some(waiting) = waiting.take()
            {
                waiting();
            }
            let waited = trouble.is_some() && silent > patience;
            if waited || stop.load(Ordering::Relaxed) {
                self.shared.abandoned.store(true, Ordering::Relaxed);
                // Its thread may be waiting for an answer: it is left to end with this process.
                let why = trouble.unwrap_or_else(|| "it was stopped".to_owned());
                return Err(Error::Peer(why));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let result = self.thread.join();
        let reported =
            result.unwrap_or_else(|_| Err(Error::Peer("the sender has failed".to_owned())))?;
        Ok(Delivery { reported, dropped: self.log.standing().dropped })
    }
}

/// What the thread has.
struct Sending {
    to: To,
    config: Arc<ClientConfig>,
    log: Arc<Log>,
    shared: Arc<Shared>,
    notify: Box<dyn Fn(SenderEvent) + Send>,
}

impl Sending {
    fn heard(&mut self) {
        let mut heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = Some(Instant::now());
    }

    fn trouble(&self, why: Option<String>) {
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Sends until everything has arrived. Returns what the collector says of it.
    fn run(&mut self, first: Connection) -> Result<Vec<u8>> {
        let mut connection = Some(first);
        let mut wait = AGAIN_FIRST;
        loop {
            let result = match connection.take() {
                Some(connection) => Ok(connection),
                None => Connection::open(&self.to, &self.config, &self.log),
            };
            let failed = match result {
                Ok(mut opened) => match self.send(&mut opened) {
                    Ok(reported) => return Ok(reported),
                    Err(error) => {
                        // One that got something through is tried again at once.
                        if opened.progress {
                            wait = AGAIN_FIRST;
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            if self.shared.abandoned.load(Ordering::Relaxed) {
                return Err(failed);
            }
            if !failed.is_passing() {
                (self.notify)(SenderEvent::Refused { why: failed.to_string() });
                return Err(failed);
            }
            let known =
                self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if !known {
                (self.notify)(SenderEvent::Away { why: failed.to_string() });
            }
            self.trouble(Some(failed.to_string()));
            std::thread::sleep(wait);
            wait = (wait * 2).min(AGAIN_MOST);
        }
    }

    fn send(&mut self, connection: &mut Connection) -> Result<Vec<u8>> {
        let mut asked: Option<Instant> = None;
        loop {
            if self.shared.abandoned.load(Ordering::Relaxed) {
                return Err(Error::Peer("it was stopped".to_owned()));
            }
            let next = self.log.next(LINGER);
            match &next {
                Next::Frames { path, at, bytes, .. } => connection.part(path, *at, *bytes)?,
                Next::Gap(gap) => connection.gap(gap)?,
                Next::Nothing if asked.is_some_and(|asked| asked.elapsed() < HEARTBEAT) => continue,
                Next::Nothing | Next::End => {}
            }
            let over = next == Next::End;
            let kind = if over && !self.log.is_whole() { Kind::Bye } else { Kind::Sync };
            let offset = connection.ask(kind)?;
            asked = Some(Instant::now());
            self.heard();
            connection.progress = true;
            let away = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
            if away.is_some() {
                (self.notify)(SenderEvent::Back { offset });
            }
            self.log.acknowledge(offset)?;
            if over || self.log.is_whole_at(offset) {
                return connection.reported();
            }
            // Little by little is dear for the other side, which makes each of it certain.
            if !matches!(&next, Next::Frames { bytes, .. } if *bytes > 1 << 20) {
                std::thread::sleep(LINGER);
            }
        }
    }
}

/// A connection to the collector.
struct Connection {
    channel: StreamOwned<ClientConnection, Timed>,
    payload: Vec<u8>,
    /// Whether anything was acknowledged on it.
    progress: bool,
}

impl Connection {
    fn open(to: &To, config: &Arc<ClientConfig>, log: &Log) -> Result<Connection> {
        let socket = reach(&to.address)?;
        let channel = tls::connect(config.clone(), socket, CONNECT).map_err(Error::of_handshake)?;
        let mut connection = Connection { channel, payload: Vec::new(), progress: false };
        let identity = log.identity();
        let session: [u8; 16] = unhex(&identity.session)
            .ok_or_else(|| Error::Peer("the spool's number is none".to_owned()))?;
        let mut hello = to.key.secret.to_vec();
        hello.extend_from_slice(&session);
        hello.extend_from_slice(identity.name.as_bytes());
        connection.channel.within(CONNECT);
        let head = Head { number: VERSION, ..Head::new(Kind::Hello, hello.len()) };
        connection.write(head, &hello)?;
        let welcome = connection.answer(Kind::Welcome)?;
        if welcome.flags & FIRST != 0 {
            connection.channel.within(ANSWER);
            connection.write(Head::new(Kind::Begin, log.begin().len()), log.begin())?;
            connection.answer(Kind::Welcome)?;
        }
        log.resume(connection.number()?)?;
        Ok(connection)
    }

    fn write(&mut self, head: Head, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(HEAD + payload.len());
        bytes.extend_from_slice(&head.encode());
        bytes.extend_from_slice(payload);
        let sent = self.channel.write_all(&bytes).and_then(|()| self.channel.flush());
        sent.map_err(|error| self.last_word(error))
    }

    /// A connection that breaks while something is sent may have been ended with a reason.
    fn last_word(&mut self, error: std::io::Error) -> Error {
        self.channel.within(Duration::from_secs(1));
        match self.read() {
            Err(refused @ Error::Refused { .. }) => refused,
            _ => Error::Cut(error),
        }
    }

    fn read(&mut self) -> Result<Head> {
        let head = read_frame(&mut self.channel, &mut self.payload)?;
        if head.kind == Kind::Refused {
            let reason = String::from_utf8_lossy(&self.payload);
            // What a peer says goes to a terminal.
            let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            return Err(Error::Refused { reason, again: head.flags & AGAIN != 0 });
        }
        Ok(head)
    }

    fn answer(&mut self, expected: Kind) -> Result<Head> {
        let head = self.read()?;
        if head.kind == expected {
            return Ok(head);
        }
        Err(FrameError::Unexpected { found: head.kind, expected: "an answer" }.into())
    }

    fn number(&self) -> Result<u64> {
        let bytes = <[u8; 8]>::try_from(self.payload.as_slice());
        Ok(u64::from_le_bytes(bytes.map_err(|_| FrameError::Payload(Kind::Ack))?))
    }

    /// Sends a part of a segment as it lies there.
    fn part(&mut self, path: &std::path::Path, at: u64, bytes: u64) -> Result<()> {
        let mut file = File::open(path).map_err(Error::file("open", path))?;
        file.seek(SeekFrom::Start(at)).map_err(Error::file("read", path))?;
        let mut left = bytes;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            let part = &mut buffer[..left.min(1 << 16) as usize];
            file.read_exact(part).map_err(Error::file("read", path))?;
            self.channel.within(ANSWER);
            if let Err(error) = self.channel.write_all(part) {
                return Err(self.last_word(error));
            }
            left -= part.len() as u64;
        }
        Ok(())
    }

    fn gap(&mut self, gap: &Gap) -> Result<()> {
        let mut payload = Vec::new();
        for word in [gap.from, gap.to].into_iter().chain(gap.counts.0) {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        self.channel.within(ANSWER);
        self.write(Head::new(Kind::Gap, payload.len()), &payload)
    }

    /// Asks for the offset that the other side has on disk.
    fn ask(&mut self, kind: Kind) -> Result<u64> {
        self.channel.within(ANSWER);
        self.write(Head::new(kind, 0), &[])?;
        self.answer(Kind::Ack)?;
        self.number()
    }

    /// Waits for the result of the whole recording.
    fn reported(&mut self) -> Result<Vec<u8>> {
        self.channel.within(FINISH);
        self.answer(Kind::Done)?;
        Ok(std::mem::take(&mut self.payload))
    }
}

/// Connects to the first address of a name that answers.
fn reach(address: &str) -> Result<TcpStream> {
    let failed = |reason| Error::Unreachable { address: address.to_owned(), reason };
    let mut last = std::io::Error::other("the name has no address");
    for one in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}
