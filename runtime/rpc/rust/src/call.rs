//! Calls and what is recorded of them.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fettle::{List, Sensor};
use tonic::Code;

// Events: crates/base/abi/src/rpc.rs owns them.
const CALL_EVENT: u16 = 1;
const HOOK_EVENT: u16 = 16;
const FIELDS: usize = 9;
const WORDS: usize = 30;
const TEXT_WORDS: usize = 4;
const SERVER: u64 = 1;
const NO_STATUS: u64 = 255;

static CALLS: List = Sensor::list("rpc.calls", 17, 1).words(30).ring_bytes(1 << 20).open();

/// What stubs record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One event for each call.
    Performance,
    /// An event for each hook besides.
    Cflow,
    /// A histogram of durations and a count of failed calls for each method.
    Scalar,
}

/// How a call ended, besides its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Finished = 1,
    Cancelled = 2,
    Deadline = 3,
    Dropped = 4,
    Left = 6,
}

/// The hooks that are moments of a call, by number: crates/record/rpc/src/hooks.rs has them all.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Hook {
    BeforeCall = 3,
    AfterCall,
    BeforeDispatch,
    AfterDispatch,
    BeforeReplyOnly,
    AfterReplyOnly,
    BeforeReplyWait,
    AfterReplyWait,
    BeforeComponent,
    AfterComponent,
    BeforeUnmarshal,
    AfterUnmarshal,
    BeforeMarshal,
    AfterMarshal,
}

/// Takes what is marked from a message; the last argument says that it is the first in its direction.
pub type Take = fn(&dyn Any, &Call, bool);

/// A method, as stubs describe it.
#[derive(Debug)]
pub struct Method {
    /// What events say instead of the service's name.
    pub service: u32,
    /// Its place in the service.
    pub number: u16,
    /// Service, a slash, method.
    pub name: &'static str,
    /// What is recorded.
    pub mode: Mode,
    /// Whether calls carry the header `traceparent`.
    pub sends_id: bool,
    /// 2 if the client sends a stream, 4 if the server does.
    pub flags: u64,
    /// Of messages of the client.
    pub request: Option<Take>,
    /// Of messages of the server.
    pub response: Option<Take>,
    /// Of the mode [`Mode::Scalar`]: whether it is the server's side, nanoseconds, and whether it failed.
    pub sum: Option<fn(bool, u64, bool)>,
    /// Code of one's own at hooks, by number.
    pub hook: Option<fn(usize, &Call)>,
    /// Makes what a call has for code of one's own.
    pub variables: Option<fn() -> Box<dyn Any + Send + Sync>>,
}

tokio::task_local! {
    /// The call that a task serves.
    static CURRENT: Call;
}

/// The time-stamp counter, the clock of sensors.
fn tsc() -> u64 {
    // SAFETY: rdtsc is an unprivileged instruction that touches no memory.
    #[allow(unused_unsafe)]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}

/// Bits that differ from call to call: they need not be secret.
fn random() -> u64 {
    thread_local! {
        static STATE: std::cell::Cell<u64> = std::cell::Cell::new(
            RandomState::new().build_hasher().finish() ^ tsc().rotate_left(32) | 1
        );
    }
    // xorshift64*, by Vigna.
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

/// A call in progress; none if no calls are reported. What is recorded of it lies in it and in no thread.
#[derive(Clone)]
pub struct Call(pub(crate) Option<Arc<Inner>>);

/// See [`Call`].
pub(crate) struct Inner {
    pub(crate) method: &'static Method,
    is_server: bool,
    over: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    words: [AtomicU64; WORDS],
    variables: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl Call {
    fn begin(method: &'static Method, is_server: bool) -> Call {
        if !CALLS.is_on() {
            return Call(None);
        }
        let words = [const { AtomicU64::new(0) }; WORDS];
        let set = |at: usize, value: u64| words[at].store(value, Relaxed);
        set(0, tsc());
        let outer = CURRENT.try_with(Clone::clone).ok().and_then(|call| call.0);
        match outer.filter(|_| !is_server) {
            Some(outer) => {
                let of = |at: usize| outer.words[at].load(Relaxed);
                set(5, of(5));
                set(6, of(6));
                set(8, of(7));
            }
            None => {
                set(5, random());
                set(6, random());
            }
        }
        set(7, random() | 1);
        let call = Call(Some(Arc::new(Inner {
            method,
            is_server,
            over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            words,
            variables: method.variables.map(|make| make()),
        })));
        call.hook(if is_server { Hook::BeforeDispatch } else { Hook::BeforeCall });
        call
    }

    pub(crate) fn client(method: &'static Method) -> Call {
        Call::begin(method, false)
    }

    pub(crate) fn server(method: &'static Method, headers: &http::HeaderMap) -> Call {
        let call = Call::begin(method, true);
        if let (Some(inner), Some(header)) = (&call.0, headers.get("traceparent")) {
            inner.comes_from(header.as_bytes());
        }
        call
    }

    /// What the hook variable_declaration made.
    pub fn variables(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.as_ref()?.variables.as_deref()
    }

    /// The call's own id.
    pub fn span(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.words[7].load(Relaxed))
    }

    /// Adds the call's `traceparent` to what is sent, if it is to carry one.
    pub fn header(&self, metadata: &mut tonic::metadata::MetadataMap) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.method.sends_id) else { return };
        let word = |at: usize| inner.words[at].load(Relaxed);
        let text = format!("00-{:016x}{:016x}-{:016x}-01", word(5), word(6), word(7));
        if let Ok(value) = text.parse() {
            metadata.insert("traceparent", value);
        }
    }

    /// Passes a hook: its event in the mode cflow, and code of one's own.
    pub(crate) fn hook(&self, hook: Hook) {
        let Some(inner) = &self.0 else { return };
        if inner.method.mode == Mode::Cflow {
            let word = |at: usize| inner.words[at].load(Relaxed);
            let what = inner.what(NO_STATUS, 0);
            CALLS.commit(HOOK_EVENT + hook as u16, &[word(7), what, word(5), word(6), tsc()]);
        }
        if let Some(own) = inner.method.hook {
            own(hook as usize, self);
        }
    }

    /// Counts a message and takes what is marked in it.
    pub(crate) fn message(&self, message: &dyn Any, is_sent: bool) {
        let Some(inner) = &self.0 else { return };
        let counter = if is_sent { &inner.sent } else { &inner.received };
        let first = counter.fetch_add(1, Relaxed) == 0;
        let take = match is_sent == inner.is_server {
            true => inner.method.response,
            false => inner.method.request,
        };
        if let Some(take) = take
            && !inner.over.load(Acquire)
        {
            take(message, self, first);
        }
    }

    pub(crate) fn bytes(&self, bytes: usize, is_sent: bool) {
        let Some(inner) = &self.0 else { return };
        let counter = if is_sent { &inner.sent_bytes } else { &inner.received_bytes };
        counter.fetch_add(bytes as u64, Relaxed);
    }

    /// Sets a field of the call.
    pub fn key(&self, word: usize, key: &impl Key) {
        if let Some(inner) = &self.0 {
            key.put(&mut |at, value| {
                if let Some(place) = inner.words.get(FIELDS + word + at) {
                    place.store(value, Relaxed);
                }
            });
        }
    }

    /// Adds to a field of the call.
    pub fn add(&self, word: usize, value: u64) {
        if let Some(place) = self.0.as_ref().and_then(|inner| inner.words.get(FIELDS + word)) {
            place.fetch_add(value, Relaxed);
        }
    }

    /// Ends the call, if nothing has yet.
    pub(crate) fn end(&self, code: Code, ended: Ended) {
        let Some(inner) = &self.0 else { return };
        if inner.over.swap(true, AcqRel) {
            return;
        }
        let ended = match code {
            Code::Cancelled if ended == Ended::Finished && !inner.is_server => Ended::Cancelled,
            Code::DeadlineExceeded if ended == Ended::Finished && !inner.is_server => Ended::Deadline,
            _ => ended,
        };
        self.hook(if inner.is_server { Hook::AfterDispatch } else { Hook::AfterCall });
        if let Some(sum) = inner.method.sum {
            let ticks = tsc().wrapping_sub(inner.words[0].load(Relaxed));
            sum(inner.is_server, (ticks as f64 * tick()) as u64, code != Code::Ok);
            return;
        }
        let mut words: [u64; WORDS] = std::array::from_fn(|at| inner.words[at].load(Relaxed));
        words[1] = inner.what(code as u64, ended as u64);
        words[2] = inner.received.load(Relaxed) << 32 | inner.sent.load(Relaxed) & 0xffff_ffff;
        words[3] = inner.sent_bytes.load(Relaxed);
        words[4] = inner.received_bytes.load(Relaxed);
        let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        CALLS.commit(CALL_EVENT, &words[..used.max(FIELDS)]);
    }

    /// Runs a future in which calls of others belong to this one.
    pub(crate) async fn serve<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// The same for what is done at once.
    pub(crate) fn serve_now<R>(&self, work: impl FnOnce() -> R) -> R {
        CURRENT.sync_scope(self.clone(), work)
    }
}

impl Inner {
    fn what(&self, status: u64, ended: u64) -> u64 {
        let side = if self.is_server { SERVER } else { 0 };
        u64::from(self.method.service) << 32
            | u64::from(self.method.number) << 16
            | status << 8
            | ended << 4
            | self.method.flags
            | side
    }

    /// Takes over the ids of a `traceparent`, if it is one.
    fn comes_from(&self, header: &[u8]) {
        let Ok(text) = std::str::from_utf8(header) else { return };
        let part = |from: usize| {
            let digits = text.get(from..from + 16)?;
            digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            u64::from_str_radix(digits, 16).ok()
        };
        if let (Some(high), Some(low), Some(span)) = (part(3), part(19), part(36))
            && high | low != 0
            && span != 0
        {
            self.words[5].store(high, Relaxed);
            self.words[6].store(low, Relaxed);
            self.words[8].store(span, Relaxed);
        }
    }
}

/// Length of a tick of the time-stamp counter in nanoseconds.
fn tick() -> f64 {
    static TICK: OnceLock<f64> = OnceLock::new();
    *TICK.get_or_init(|| {
        let (ticks, start) = (tsc(), Instant::now());
        while start.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        start.elapsed().as_nanos() as f64 / (tsc() - ticks) as f64
    })
}

/// What can be recorded as a value.
pub trait Key {
    /// Gives words to put, each with its place.
    fn put(&self, to: &mut dyn FnMut(usize, u64));
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Key for $kind {
            fn put(&self, to: &mut dyn FnMut(usize, u64)) {
                to(0, *self as u64);
            }
        }
    )*};
}
numbers!(i32, i64, u32, u64, bool);

impl Key for f64 {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        to(0, self.to_bits());
    }
}

impl Key for f32 {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        f64::from(*self).put(to);
    }
}

impl Key for [u8] {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        for at in 0..TEXT_WORDS {
            let part = self.get(8 * at..).unwrap_or_default();
            let word = part.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            to(at, word);
        }
    }
}

impl Key for String {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        self.as_bytes().put(to);
    }
}

impl Key for Vec<u8> {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        self.as_slice().put(to);
    }
}

impl Key for bytes::Bytes {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        self.as_ref().put(to);
    }
}

impl<K: Key> Key for Option<K> {
    fn put(&self, to: &mut dyn FnMut(usize, u64)) {
        if let Some(key) = self {
            key.put(to);
        }
    }
}

/// What has a size that can be recorded.
pub trait Size {
    /// Bytes of a text, or elements.
    fn size(&self) -> u64;
}

impl Size for String {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}

impl<T> Size for Vec<T> {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}

impl Size for bytes::Bytes {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}

impl<S: Size> Size for Option<S> {
    fn size(&self) -> u64 {
        self.as_ref().map_or(0, S::size)
    }
}

impl<K, V> Size for std::collections::HashMap<K, V> {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}
