//! Requests for `fettle watch`: a recorder of the kernel's events runs beside it, and what processes are asked and answer
//! is read from it as it is stored.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fettle_record::tail::{self, Listener, Tail};
use fettle_trace::{EventKind, Strings, Trace};
use fettle_types::{Pid, Tid};
use fettle_watch::requests::{Answered, Happened, Open, Recent, Recorded, Requests};

/// How often it is looked for more.
const PERIOD: Duration = Duration::from_millis(20);
/// Bytes of a message that are looked into: enough for what it asks, and whether it failed.
const PAYLOAD: &str = "256";
/// What is stored is of no use once it was read: a new recording begins after so many bytes, or so long.
const BYTES_MAX: u64 = 128 << 20;
const TIME_MAX: Duration = Duration::from_secs(600);
/// A recorder has begun within this time.
const BEGUN: Duration = Duration::from_secs(20);
/// Events that are remembered for evidence, and for how long.
const EVENTS_MAX: usize = 1 << 15;
const EVENTS_NS: u64 = 10_000_000_000;
/// Questions without an answer that are remembered.
const OPEN_MAX: usize = 100_000;

/// Requests of processes and all that they start.
#[derive(Debug)]
pub struct Live {
    answered: Receiver<Answered>,
    questions: Arc<Shared>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Live {
    /// Begins to record these processes into folders below `state`; returns once nothing that they answer is missed.
    ///
    /// # Errors
    ///
    /// When the kernel's events cannot be recorded.
    pub fn begin(fettle: &Path, state: &Path, pids: &[Pid]) -> anyhow::Result<Live> {
        let mut folder = Folder::make(state)?;
        let mut recorder = Recorder::start(fettle, folder.next(), pids)?;
        let (send, answered) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let (fettle, pids) = (fettle.to_owned(), pids.to_vec());
        let questions = Arc::new(Shared(Mutex::new(Questions::new(recorder.begin_ns))));
        let shared = Arc::clone(&questions);
        let read = move || {
            loop {
                let mut over = is_over.load(Ordering::Relaxed);
                let mut questions = shared.lock();
                recorder.read(&mut questions)?;
                over |= questions.answered.drain(..).any(|one| send.send(one).is_err());
                drop(questions);
                if over {
                    return Ok(());
                }
                if recorder.is_full() {
                    drop(recorder);
                    recorder = Recorder::start(&fettle, folder.next(), &pids)?;
                    *shared.lock() = Questions::new(recorder.begin_ns);
                }
                std::thread::sleep(PERIOD);
            }
        };
        let reader = std::thread::Builder::new().name("requests".to_owned()).spawn(read);
        let reader = Some(reader.context("no thread can be started")?);
        Ok(Live { answered, questions, stop, reader })
    }
}

impl Requests for Live {
    fn poll(&mut self) -> Vec<Answered> {
        self.answered.try_iter().collect()
    }

    fn problem(&mut self) -> Option<String> {
        // It ends by itself only if something is wrong.
        if !matches!(self.answered.try_recv(), Err(TryRecvError::Disconnected)) {
            return None;
        }
        let ended = self.reader.take()?.join().ok()?;
        ended.err().map(|error| format!("{error:#}"))
    }

    fn recent(&self) -> Arc<dyn Recent> {
        Arc::clone(&self.questions) as Arc<dyn Recent>
    }
}

/// What is read, and asked for by those who write evidence.
#[derive(Debug)]
struct Shared(Mutex<Questions>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent for Shared {
    fn of(&self, pid: Pid, until_ns: u64, patience: Duration) -> Recorded {
        let begun = Instant::now();
        loop {
            let questions = self.lock();
            if questions.reported_ns >= until_ns || begun.elapsed() >= patience {
                return questions.recorded(pid, until_ns);
            }
            drop(questions);
            std::thread::sleep(PERIOD);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The folder that recordings are in, which goes with this.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    number: u64,
}

impl Folder {
    fn make(state: &Path) -> anyhow::Result<Folder> {
        remove_left(state);
        let path = state.join(format!("requests-{}", std::process::id()));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder { path: fs::canonicalize(path)?, number: 0 })
    }

    fn next(&mut self) -> PathBuf {
        self.number += 1;
        self.path.join(format!("{}.fettle", self.number))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what watchers that were killed have left.
fn remove_left(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix("requests-")?.parse::<Pid>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A recorder, and what is read of its recording.
struct Recorder {
    child: Child,
    folder: PathBuf,
    tail: Tail,
    /// Its trace time 0, of CLOCK_MONOTONIC.
    begin_ns: u64,
    begun: Instant,
}

impl Recorder {
    fn start(fettle: &Path, folder: PathBuf, pids: &[Pid]) -> anyhow::Result<Recorder> {
        let named: Vec<String> =
            pids.iter().filter(|pid| is_alive(**pid)).map(Pid::to_string).collect();
        if named.is_empty() {
            bail!("what is watched has ended");
        }
        let child = Command::new(fettle)
            .args(["record", "-q", "--with-parent", "--payload", PAYLOAD, "-o"])
            .arg(&folder)
            .args(["-p", &named.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.context("the recorder of requests cannot be started")?;
        let begun = Instant::now();
        loop {
            if let Some((tail, begin_ns)) = open(&folder)? {
                return Ok(Recorder { child, folder, tail, begin_ns, begun });
            }
            if child.try_wait()?.is_some() {
                let said = io::read_to_string(child.stderr.take().context("no output")?);
                let said = said.unwrap_or_default();
                bail!(
                    "requests cannot be recorded: {}",
                    said.trim().trim_start_matches("fettle: ")
                );
            }
            if begun.elapsed() > BEGUN {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the recorder of requests did not begin within {BEGUN:?}");
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn read(&mut self, questions: &mut Questions) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?.is_some();
        let reported = self.tail.poll(questions);
        let reported = reported.context("what is recorded of requests cannot be read")?;
        questions.reported_ns = self.begin_ns.saturating_add(reported);
        if ended {
            bail!("the recorder of requests has ended");
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.begun.elapsed() > TIME_MAX || bytes_in(&self.folder.join("spool")) > BYTES_MAX
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // What it has stored was read, and no trace is wanted of it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_alive(pid: Pid) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The recording, once it has begun.
fn open(folder: &Path) -> anyhow::Result<Option<(Tail, u64)>> {
    let Ok(trace) = Trace::open_growing(folder) else { return Ok(None) };
    // They are written when everything is observed.
    if trace.processes().unwrap_or_default().is_empty() {
        return Ok(None);
    }
    let clock = &trace.manifest().clock;
    let begin_ns = clock.begin.unwrap_or_default().monotonic_ns;
    Ok(Tail::open(folder, clock)?.map(|tail| (tail, begin_ns)))
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Where the fields of an event are.
#[derive(Debug)]
struct Places<const N: usize> {
    kind: usize,
    fields: [usize; N],
}

impl<const N: usize> Places<N> {
    fn find(kinds: &[EventKind], name: &str, fields: [&str; N]) -> Option<Places<N>> {
        let kind = kinds.iter().position(|kind| kind.name == name)?;
        let mut places = [0; N];
        for (place, field) in places.iter_mut().zip(fields) {
            *place = kinds[kind].place(field)?;
        }
        Some(Places { kind, fields: places })
    }

    fn of(&self, values: &[u64]) -> [u64; N] {
        self.fields.map(|place| values.get(place).copied().unwrap_or(0))
    }
}

/// A question that a process was asked, and when.
#[derive(Debug)]
struct Question {
    begin_ns: u64,
    tid: u64,
    what: String,
}

/// Questions that wait for their answers, and requests that were answered.
#[derive(Debug)]
struct Questions {
    kinds: Vec<EventKind>,
    /// By kind, where the numbers of its process and thread are.
    tasks: Vec<[Option<usize>; 2]>,
    /// Trace time 0 of the recording that is read, and before when nothing else will come.
    begin_ns: u64,
    reported_ns: u64,
    /// The last events.
    recent: VecDeque<Happened>,
    ask: Option<Places<8>>,
    answer: Option<Places<5>>,
    texts: Strings,
    /// By process, connection and the number of the question on it.
    open: HashMap<[u64; 3], Question>,
    answered: Vec<Answered>,
}

impl Questions {
    /// Those of a recording whose trace time 0 is then.
    fn new(begin_ns: u64) -> Questions {
        let kinds = tail::kinds();
        let ask = ["pid", "socket", "exchange", "sent", "command", "detail", "lay_ns", "tid"];
        let task = |kind: &EventKind| ["pid", "tid"].map(|name| kind.place(name));
        Questions {
            tasks: kinds.iter().map(task).collect(),
            begin_ns,
            reported_ns: 0,
            recent: VecDeque::new(),
            ask: Places::find(&kinds, "ask", ask),
            answer: Places::find(&kinds, "answer", ["pid", "socket", "exchange", "sent", "ok"]),
            texts: Strings::default(),
            open: HashMap::new(),
            answered: Vec::new(),
            kinds,
        }
    }

    /// An event is remembered for some time.
    fn remember(&mut self, kind: usize, time_ns: u64, values: &[u64]) {
        let at_ns = self.begin_ns.saturating_add(time_ns);
        let is_old = |first: &Happened| first.at_ns.saturating_add(EVENTS_NS) < at_ns;
        while self.recent.len() >= EVENTS_MAX || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back(Happened { kind, at_ns, values: values.to_vec() });
    }

    /// The last events of a process, and what it was asked and has not answered.
    fn recorded(&self, pid: Pid, until_ns: u64) -> Recorded {
        let own = u64::from(pid.unsigned());
        let task = |event: &Happened| {
            let places = self.tasks.get(event.kind).copied().unwrap_or_default();
            places.map(|place| place.and_then(|place| event.values.get(place)).copied())
        };
        let past = || self.recent.iter().filter(|event| event.at_ns <= until_ns);
        let own_tid = |event: &Happened| match task(event) {
            [Some(pid), tid] if pid == own => tid,
            _ => None,
        };
        let tids: HashSet<u64> = past().filter_map(own_tid).collect();
        // Switches say the thread alone.
        let is_own = |event: &&Happened| match task(event) {
            [None, tid] => tid.is_some_and(|tid| tids.contains(&tid)),
            [pid, _] => pid == Some(own),
        };
        let open = self.open.iter().filter(|([pid, ..], _)| *pid == own);
        let mut open: Vec<Open> = open
            .map(|(_, question)| Open {
                tid: u32::try_from(question.tid).ok().and_then(|tid| Tid::try_from(tid).ok()),
                what: question.what.clone(),
                begun_ns: self.begin_ns.saturating_add(question.begin_ns),
            })
            .filter(|open| open.begun_ns <= until_ns)
            .collect();
        open.sort_by_key(|open| open.begun_ns);
        Recorded {
            kinds: self.kinds.clone(),
            texts: self.texts.clone(),
            events: past().filter(is_own).cloned().collect(),
            open,
            is_whole: self.reported_ns >= until_ns,
        }
    }
}

impl Listener for Questions {
    fn text(&mut self, text: &str) -> u32 {
        self.texts.code(text)
    }

    fn event(&mut self, kind: usize, time_ns: u64, values: &[u64]) {
        self.remember(kind, time_ns, values);
        if let Some(ask) = self.ask.as_ref().filter(|ask| ask.kind == kind) {
            let [pid, socket, exchange, sent, command, detail, lay_ns, tid] = ask.of(values);
            // What it asks others itself is no request to it.
            if sent != 0 {
                return;
            }
            // Most of so many will never be answered: their connections are gone.
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let [command, detail] = [command, detail].map(|text| self.texts.of_value(text));
            let what = format!("{command} {detail}").trim().to_owned();
            let question = Question { begin_ns: time_ns.saturating_sub(lay_ns), tid, what };
            self.open.insert([pid, socket, exchange], question);
        }
        if let Some(answer) = self.answer.as_ref().filter(|answer| answer.kind == kind) {
            let [pid, socket, exchange, sent, ok] = answer.of(values);
            let (true, Ok(number)) = (sent != 0, u32::try_from(pid)) else { return };
            let Some(Question { begin_ns, what, .. }) = self.open.remove(&[pid, socket, exchange])
            else {
                return;
            };
            let Ok(pid) = Pid::try_from(number) else { return };
            let took_ns = time_ns.saturating_sub(begin_ns);
            self.answered.push(Answered { pid, what, took_ns, failed: ok == 0 });
        }
    }
}
