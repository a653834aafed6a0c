//! Sends messages about findings to receivers, which may do anything.
//!
//! Each receiver has a thread and a bounded queue of its own, made when the first message comes: however
//! slow or hostile a receiver is, it delays neither the watcher nor messages to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::exchange::{self, Attempt};
use crate::finding::{Finding, Why};
use crate::journal::{Done, Sent};
use crate::look::ProcessId;
use crate::proc::Watched;
use crate::rule::Action;
use crate::url::Url;

/// Messages that wait for a receiver at most.
pub const QUEUE_MAX: usize = 64;
/// How long to wait before a message is sent again; after the last one it is given up.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4)];
/// The threads need little.
const STACK_BYTES: usize = 512 << 10;

/// What is sent to a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The format of this object.
    pub version: u32,
    /// When it was found, in milliseconds since 1970.
    pub at_ms: u64,
    /// The machine's name.
    pub host: String,
    /// The rule that holds.
    pub rule: String,
    /// The process.
    pub process: ProcessId,
    /// Its program.
    pub program: String,
    /// What was seen.
    pub finding: Why,
    /// Since when nothing has got on, in nanoseconds of CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// The folder with evidence, on that machine.
    pub evidence: Option<String>,
    /// What was done, and what came of it.
    pub done: Vec<Done>,
}

impl Message {
    /// About a finding for which `done` was done.
    pub fn new(
        rule: &str,
        finding: &Finding,
        process: &Watched,
        done: &[Done],
        at_ms: u64,
    ) -> Message {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let evidence = done.iter().find(|done| done.action == Action::KeepEvidence);
        Message {
            version: 1,
            at_ms,
            host: host.trim_end().to_owned(),
            rule: rule.to_owned(),
            process: finding.process,
            program: process.program.clone(),
            finding: finding.why.clone(),
            since_ns: finding.since_ns,
            evidence: evidence.and_then(|done| done.result.clone()),
            done: done.to_vec(),
        }
    }
}

/// Receivers, and what waits for them.
#[derive(Debug)]
pub struct Webhooks {
    receivers: HashMap<Url, Queue>,
    /// Messages of which nothing is known yet.
    waiting: HashMap<u64, About>,
    number: u64,
    length: Arc<AtomicUsize>,
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Queue {
    messages: SyncSender<Post>,
    thread: Thread,
}

/// Which message it was.
#[derive(Clone, Debug)]
struct About {
    at_ms: u64,
    rule: String,
    url: Url,
}

struct Post {
    number: u64,
    body: Vec<u8>,
}

struct Outcome {
    number: u64,
    attempts: u32,
    result: Result<u16, String>,
}

impl Default for Webhooks {
    fn default() -> Webhooks {
        Webhooks {
            receivers: HashMap::new(),
            waiting: HashMap::new(),
            number: 0,
            length: Arc::default(),
            outcomes: mpsc::channel(),
            stop: Arc::default(),
        }
    }
}

impl Webhooks {
    /// Puts a message into the receiver's queue; never waits.
    ///
    /// # Errors
    ///
    /// When the queue is full, and the message dropped.
    pub fn send(&mut self, url: &Url, message: &Message) -> Result<(), String> {
        let body = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        let queue = match self.receivers.get(url) {
            Some(queue) => queue,
            None => {
                let queue = self.receiver(url)?;
                self.receivers.entry(url.clone()).or_insert(queue)
            }
        };
        self.number += 1;
        match queue.messages.try_send(Post { number: self.number, body }) {
            Ok(()) => {
                let about =
                    About { at_ms: message.at_ms, rule: message.rule.clone(), url: url.clone() };
                self.waiting.insert(self.number, about);
                self.length.store(self.waiting.len(), Ordering::Relaxed);
                Ok(())
            }
            Err(TrySendError::Full(_)) => {
                Err(format!("dropped: {QUEUE_MAX} messages wait for this receiver already"))
            }
            Err(TrySendError::Disconnected(_)) => Err("dropped: its thread has ended".to_owned()),
        }
    }

    fn receiver(&self, url: &Url) -> Result<Queue, String> {
        let (messages, queue) = mpsc::sync_channel::<Post>(QUEUE_MAX);
        let (url, outcomes, stop) = (url.clone(), self.outcomes.0.clone(), Arc::clone(&self.stop));
        let thread = Builder::new().name("webhook".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || {
            for post in queue {
                let Some((attempts, result)) = deliver(&url, &post.body, &stop) else { break };
                if outcomes.send(Outcome { number: post.number, attempts, result }).is_err() {
                    break;
                }
            }
        });
        let thread = thread.map_err(|error| format!("dropped: no thread for it: {error}"))?;
        Ok(Queue { messages, thread: thread.thread().clone() })
    }

    /// What has become of messages since this was asked last.
    pub fn poll(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Ok(outcome) = self.outcomes.1.try_recv() {
            let Some(about) = self.waiting.remove(&outcome.number) else { continue };
            let (status, error) = match outcome.result {
                Ok(status) => (Some(status), None),
                Err(why) => (None, Some(why)),
            };
            all.push(about.sent(outcome.attempts, status, error));
        }
        if !all.is_empty() {
            self.length.store(self.waiting.len(), Ordering::Relaxed);
        }
        all
    }

    /// Messages that wait, as others may see it.
    pub fn length(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.length)
    }

    /// Waits so long for what is under way; the rest is dropped, which is said.
    pub fn finish(&mut self, patience: Duration) -> Vec<Sent> {
        let begun = Instant::now();
        let mut all = self.poll();
        while !self.waiting.is_empty() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
            all.extend(self.poll());
        }
        let why = "dropped: the watcher ended before it was taken";
        let mut dropped: Vec<_> = self.waiting.drain().collect();
        dropped.sort_by_key(|(number, _)| *number);
        all.extend(dropped.into_iter().map(|(_, about)| about.sent(0, None, Some(why.to_owned()))));
        self.length.store(0, Ordering::Relaxed);
        all
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.receivers.values().for_each(|queue| queue.thread.unpark());
    }
}

impl About {
    fn sent(self, attempts: u32, status: Option<u16>, error: Option<String>) -> Sent {
        Sent { at_ms: self.at_ms, rule: self.rule, webhook: self.url, attempts, status, error }
    }
}

/// Sends it, again if need be: how often, and what came of it. `None` if the answer is of no use any more.
fn deliver(url: &Url, body: &[u8], stop: &AtomicBool) -> Option<(u32, Result<u16, String>)> {
    let mut attempts = 0;
    let mut pauses = PAUSES.iter();
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        attempts += 1;
        let why = match exchange::post(url, body) {
            Attempt::Taken(status) => return Some((attempts, Ok(status))),
            Attempt::Refused(why) => return Some((attempts, Err(why))),
            Attempt::Failed(why) => why,
        };
        let Some(pause) = pauses.next() else { return Some((attempts, Err(why))) };
        let until = Instant::now() + *pause;
        // It may wake for no reason.
        while let Some(left) = until.checked_duration_since(Instant::now())
            && !stop.load(Ordering::Relaxed)
        {
            std::thread::park_timeout(left);
        }
    }
}
