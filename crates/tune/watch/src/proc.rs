//! Looks at processes, from outside.
//!
//! A process's CPU clock can be read in a fraction of a microsecond, and says whether anything needs a
//! closer look: only a process that has computed has its threads looked at, and only one that has not is
//! asked what its connections hold. The kernel is up to a tick late with that clock; threads' own clocks are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fettle_sensor::{Directory, Sensor};
use fettle_types::{Pid, Tid};
use nix::time::ClockId;

use crate::clocks::Clocks;
use crate::look::{Held, HistogramLook, Look, ProcessId, ProcessLook, ThreadLook};
use crate::requests::{Counted, Recent, Requests};
use crate::threads::{field, mask, number, progress, tids};
use crate::unread::Connections;
use crate::waits;

/// How often new processes are looked for.
const TREE_EVERY: Duration = Duration::from_millis(100);
/// How often threads' waits are looked at.
const WAITS_EVERY: Duration = Duration::from_millis(10);
/// How often it is asked whether sleeping processes have bytes to read.
const UNREAD_EVERY: Duration = Duration::from_millis(5);
/// Asking many connections takes long, and so do the kernel's tables where they are large: a hundredth of the time is
/// all that this may take for a process.
const UNREAD_SHARE: u32 = 100;
/// All that is asked of processes that sleep takes a tenth of the time at most.
const SLEEPERS_SHARE: u32 = 10;
/// Looking for processes that have come or gone takes at most a twentieth of the time.
const TREE_SHARE: u32 = 20;
/// The first time that there are bytes, it is asked again after so long.
const UNREAD_AGAIN: Duration = Duration::from_millis(1);
/// Looks that follow soon once there are bytes.
const UNREAD_SOON: u32 = 4;
/// A process that has not computed for so long sleeps.
const ASLEEP: Duration = Duration::from_millis(2);
/// A process that has slept for longer takes turns with others that do.
const LONG_ASLEEP: Duration = Duration::from_millis(20);
/// So many of those are looked at in each look: more of them take longer to be seen awake, not more of the watcher's time.
const SLEEPERS_MAX: usize = 32;
/// CPU time after which a process's threads are looked at again.
const LOOK_AFTER: u64 = 500_000;
/// What a pause for evidence disturbs is over after so long: threads have waited for it, and go back to what they did.
const DISTURBED: Duration = Duration::from_millis(5);
/// How often sensors are looked for.
const SENSORS_EVERY: Duration = Duration::from_millis(50);

/// What rules need to see.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Threads' progress.
    pub progress: bool,
    /// Threads' waits for each other.
    pub waits: bool,
    /// What TCP connections hold.
    pub unread: bool,
    /// Scalar sensors.
    pub scalars: BTreeSet<String>,
    /// Histogram sensors, and how often they are to be looked at.
    pub histograms: BTreeMap<String, Duration>,
    /// Requests that processes answer, by pattern, and how often they are to be looked at.
    pub requests: BTreeMap<String, Duration>,
}

/// The processes that are watched.
#[derive(Debug)]
pub struct Processes {
    roots: Vec<ProcessId>,
    wanted: Wanted,
    known: BTreeMap<Pid, Watched>,
    tree_at: Option<Instant>,
    tree_every: Duration,
    sensors: Vec<Sensor>,
    sensors_at: Option<Instant>,
    /// When histograms were looked at.
    histograms_at: BTreeMap<String, Instant>,
    requests: Option<Box<dyn Requests>>,
    counted: Counted,
    /// Looks so far, by which those that sleep take turns, and how many of these there were in the last one.
    looks: usize,
    sleepers: usize,
}

/// A process that is watched.
#[derive(Debug)]
pub struct Watched {
    /// Which one.
    pub id: ProcessId,
    /// Its program: the last part of its executable's path, or its name where that cannot be read.
    pub program: String,
    /// The process that started it, if we can see that.
    pub parent: Option<Pid>,
    /// Whether that is watched, too.
    pub is_worker: bool,
    /// By which it can be signalled without meaning another one.
    pub handle: Option<OwnedFd>,
    clock: Option<ClockId>,
    /// Its threads' own clocks, where progress is asked for.
    clocks: Clocks,
    cpu_ns: u64,
    cpu_changed: Instant,
    threads_at_cpu: Option<u64>,
    disturbed_until: Option<Instant>,
    /// How often each thread had waited when it was resumed.
    waits_at_pause: Vec<(Tid, u64)>,
    waits_at: Option<Instant>,
    unread_at: Option<Instant>,
    unread_every: Duration,
    /// Looks in a row that have shown bytes.
    unread_looks: u32,
    /// How often each thread had waited when the look before has shown bytes.
    waited: Option<Vec<(Tid, u64)>>,
    connections: Connections,
}

impl Processes {
    /// Watches these processes and all that they have started or will start.
    pub fn new(roots: Vec<Pid>, wanted: Wanted) -> Processes {
        Processes {
            requests: None,
            counted: Counted::new(&wanted.requests),
            roots: roots.into_iter().filter_map(ProcessId::of).collect(),
            wanted,
            known: BTreeMap::new(),
            tree_at: None,
            tree_every: TREE_EVERY,
            sensors: Vec::new(),
            sensors_at: None,
            histograms_at: BTreeMap::new(),
            looks: 0,
            sleepers: 0,
        }
    }

    /// Watches this one, too, and all that it starts.
    pub fn add(&mut self, root: Pid, now: Instant) {
        self.roots.extend(ProcessId::of(root));
        self.refresh(now);
    }

    /// The processes that are watched now.
    pub fn all(&self) -> impl Iterator<Item = &Watched> {
        self.known.values()
    }

    /// One of them.
    pub fn get(&self, id: ProcessId) -> Option<&Watched> {
        self.known.get(&id.pid).filter(|process| process.id == id)
    }

    /// Has requests come from there.
    pub fn set_requests(&mut self, requests: Box<dyn Requests>) {
        self.requests = Some(requests);
    }

    /// The events by which requests are known, if they are recorded.
    pub fn recent(&self) -> Option<Arc<dyn Recent>> {
        self.requests.as_ref().map(|requests| requests.recent())
    }

    /// Why no requests come any more, once.
    pub fn problem_of_requests(&mut self) -> Option<String> {
        self.requests.as_mut().and_then(|requests| requests.problem())
    }

    /// The threads of a process have been stopped, and resumed just now.
    pub fn disturbed(&mut self, id: ProcessId) {
        let process = self.known.get_mut(&id.pid).filter(|process| process.id == id);
        if let Some(process) = process {
            process.disturbed_until = Some(Instant::now() + DISTURBED);
            process.waits_at_pause =
                if self.wanted.unread { waits_so_far(id.pid) } else { Vec::new() };
        }
    }

    /// Looks for processes that have come or gone. Returns whether any is left.
    pub fn refresh(&mut self, now: Instant) -> bool {
        self.tree_at = Some(now);
        let began = Instant::now();
        let is_any_left = self.refresh_now(now);
        self.tree_every = TREE_EVERY.max(began.elapsed() * TREE_SHARE);
        is_any_left
    }

    /// The same, whatever time it takes.
    fn refresh_now(&mut self, now: Instant) -> bool {
        // Where no file can be opened, as when there are too many, nothing is known of who has ended.
        if Stat::of(Pid::own()).is_none() {
            return !self.known.is_empty();
        }
        let mut found = BTreeMap::new();
        let mut open: Vec<(Pid, Option<u64>)> =
            self.roots.iter().map(|root| (root.pid, Some(root.start))).collect();
        while let Some((pid, start)) = open.pop() {
            let stat = Stat::of(pid).filter(|stat| !stat.has_ended());
            // A root's number may have become another process's.
            let stat = stat.filter(|stat| start.is_none_or(|start| start == stat.start));
            let Some(stat) = stat.filter(|_| !found.contains_key(&pid)) else { continue };
            found.insert(pid, stat);
            open.extend(children(pid).into_iter().map(|child| (child, None)));
        }
        for (&pid, stat) in &found {
            let id = ProcessId { pid, start: stat.start };
            let is_worker = stat.parent.is_some_and(|parent| found.contains_key(&parent));
            if self.known.get(&pid).is_none_or(|process| process.id != id) {
                self.known.insert(pid, Watched::new(id, stat.parent, is_worker, now));
            } else if let Some(process) = self.known.get_mut(&pid) {
                // It may have executed another program since.
                process.program = program_of(pid);
                process.is_worker |= is_worker;
            }
        }
        self.known.retain(|pid, _| found.contains_key(pid));
        self.counted.retain(|pid| found.contains_key(&pid));
        !self.known.is_empty()
    }

    /// Looks for sensors of processes that are watched. Those of others, dead ones above all, are not opened.
    fn find_sensors(&mut self) {
        let Processes { known, wanted, sensors, .. } = self;
        let is_known =
            |number: u32| Pid::try_from(number).is_ok_and(|pid| known.contains_key(&pid));
        sensors.retain(|sensor| is_known(sensor.description().producer.pid));
        let Ok(directory) = Directory::open_default() else { return };
        let is_wanted =
            |name: &str| wanted.scalars.contains(name) || wanted.histograms.contains_key(name);
        let files = directory.files_of(|name, pid| is_wanted(name) && is_known(pid));
        let is_open = |path: &PathBuf, open: &[Sensor]| open.iter().any(|one| one.path() == path);
        for path in files.unwrap_or_default() {
            if !is_open(&path, sensors) {
                sensors.extend(Sensor::open(&path).ok().filter(Sensor::is_alive));
            }
        }
    }

    /// The histograms that are to be looked at now.
    fn due_histograms(&mut self, now: Instant) -> BTreeSet<String> {
        let Processes { wanted, histograms_at, .. } = self;
        let is_due = |name: &String, every: Duration| {
            histograms_at.get(name).is_none_or(|at| now.duration_since(*at) >= every)
        };
        let due = wanted.histograms.iter().filter(|(name, every)| is_due(name, **every));
        let due: BTreeSet<String> = due.map(|(name, _)| name.clone()).collect();
        histograms_at.extend(due.iter().map(|name| (name.clone(), now)));
        due
    }

    /// Looks at all of them. Returns `None` when none is left.
    pub fn look(&mut self, now: Instant, at_ns: u64) -> Option<Look> {
        let due = |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        if due(self.tree_at, self.tree_every) && !self.refresh(now) {
            return None;
        }
        let looks_at_sensors =
            !(self.wanted.scalars.is_empty() && self.wanted.histograms.is_empty());
        if looks_at_sensors && due(self.sensors_at, SENSORS_EVERY) {
            self.sensors_at = Some(now);
            self.find_sensors();
        }
        let histograms = self.due_histograms(now);
        let mut requests = Vec::new();
        if let Some(source) = &mut self.requests {
            self.counted.add(&source.poll());
            requests = self.counted.due(now);
        }
        let mut processes = Vec::with_capacity(self.known.len());
        let many = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let sleepers_share = SLEEPERS_SHARE.saturating_mul(many);
        let turns = self.sleepers.div_ceil(SLEEPERS_MAX).max(1);
        self.looks = self.looks.wrapping_add(1);
        self.sleepers = 0;
        for process in self.known.values_mut() {
            let scalars = scalars_of(&self.sensors, process.id.pid);
            let sleeps = scalars.is_empty() && process.has_slept_long(now);
            self.sleepers += usize::from(sleeps);
            let has_turn = !sleeps || (self.sleepers + self.looks).is_multiple_of(turns);
            let mut look = match has_turn {
                true => process.look(now, &self.wanted, scalars, sleepers_share),
                false => process.as_before(),
            };
            look.histograms = histograms_of(&self.sensors, &histograms, process.id.pid);
            look.requests = self.counted.of(process.id.pid, &requests);
            processes.push(look);
        }
        Some(Look { at_ns, processes, learned: Vec::new() })
    }
}

impl Watched {
    fn new(id: ProcessId, parent: Option<Pid>, is_worker: bool, now: Instant) -> Watched {
        let pid = nix::unistd::Pid::from_raw(id.pid.get());
        let handle = rustix::process::Pid::from_raw(id.pid.get());
        let flags = rustix::process::PidfdFlags::empty();
        let handle = handle.and_then(|pid| rustix::process::pidfd_open(pid, flags).ok());
        // The number may belong to another process since it was read.
        let handle = handle.filter(|_| Stat::of(id.pid).is_some_and(|stat| stat.start == id.start));
        Watched {
            id,
            program: program_of(id.pid),
            parent,
            is_worker,
            handle,
            clock: ClockId::pid_cpu_clock_id(pid).ok(),
            clocks: Clocks::default(),
            cpu_ns: 0,
            cpu_changed: now,
            threads_at_cpu: None,
            disturbed_until: None,
            waits_at_pause: Vec::new(),
            waits_at: None,
            unread_at: None,
            unread_every: UNREAD_EVERY,
            unread_looks: 0,
            waited: None,
            connections: Connections::default(),
        }
    }

    /// CPU time of all its threads, in nanoseconds; none once it has ended.
    fn cpu_time(&mut self) -> Option<u64> {
        let process_ns = self.process_time()?;
        Some(self.clocks.total(process_ns))
    }

    /// The same as the kernel adds it up.
    fn process_time(&self) -> Option<u64> {
        let time = self.clock?.now().ok()?;
        Some(time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
    }

    fn threads(&mut self) -> Vec<ThreadLook> {
        let process_ns = self.process_time().unwrap_or(0);
        self.clocks.threads(self.id.pid, process_ns)
    }

    /// Whether it has not computed for long, and nothing waits for it that is known of.
    fn has_slept_long(&self, now: Instant) -> bool {
        now.duration_since(self.cpu_changed) >= LONG_ASLEEP
            && self.unread_looks == 0
            && self.disturbed_until.is_none_or(|until| now >= until)
    }

    /// A look that asks nothing: it sleeps, as far as is known.
    fn as_before(&self) -> ProcessLook {
        ProcessLook {
            is_worker: self.is_worker,
            cpu_ns: self.cpu_ns,
            ..ProcessLook::new(self.id, self.program.clone())
        }
    }

    /// A look, whose like takes the `sleepers_share`-th part of the time at most while the process sleeps.
    fn look(
        &mut self,
        now: Instant,
        wanted: &Wanted,
        scalars: Vec<(String, i64)>,
        sleepers_share: u32,
    ) -> ProcessLook {
        let cpu_ns = self.cpu_time();
        let ended = cpu_ns.is_none();
        let cpu_ns = cpu_ns.unwrap_or(self.cpu_ns);
        let disturbed = self.disturbed_until.is_some_and(|until| now < until);
        if disturbed {
            // It slept, or did not, as before.
            self.cpu_ns = cpu_ns;
        } else if cpu_ns != self.cpu_ns {
            (self.cpu_ns, self.cpu_changed) = (cpu_ns, now);
        }
        let mut look = ProcessLook {
            is_worker: self.is_worker,
            cpu_ns,
            is_exact: self.clocks.is_exact(),
            held: ended.then_some(Held::Ended),
            disturbed,
            scalars,
            ..ProcessLook::new(self.id, self.program.clone())
        };
        if ended {
            return look;
        }
        if disturbed {
            self.look_after_pause(now, wanted, &mut look);
            return look;
        }
        let due = |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        let computed = self.threads_at_cpu.is_none_or(|before| cpu_ns >= before + LOOK_AFTER);
        let asleep = now.duration_since(self.cpu_changed) >= ASLEEP;
        let looks_at_threads = wanted.progress && computed;
        let looks_at_waits = wanted.waits && due(self.waits_at, WAITS_EVERY);
        let looks_at_bytes = wanted.unread && asleep && due(self.unread_at, self.unread_every);
        let looks_at_scalars = !look.scalars.is_empty();
        if !(looks_at_threads || looks_at_waits || looks_at_bytes || looks_at_scalars) {
            return look;
        }
        let began = Instant::now();
        if looks_at_threads {
            self.threads_at_cpu = Some(cpu_ns);
            look.threads = Some(self.threads());
        }
        if looks_at_waits {
            self.waits_at = Some(now);
            look.waits = Some(waits::of_process(self.id.pid, &tids(self.id.pid)));
        }
        if looks_at_bytes {
            self.look_at_bytes(now, cpu_ns, &mut look);
        } else if wanted.unread && !asleep {
            look.unread = Some(0);
        }
        // Last: what was seen of a process that began to end meanwhile says nothing of its work.
        look.held = held(self.id.pid);
        if looks_at_bytes && self.unread_looks == 0 {
            let least = began.elapsed().saturating_mul(sleepers_share);
            self.unread_every = self.unread_every.max(least);
        }
        look
    }

    /// Where its threads are after a pause for evidence: from there on it is counted again.
    fn look_after_pause(&mut self, now: Instant, wanted: &Wanted, look: &mut ProcessLook) {
        if wanted.progress {
            self.threads_at_cpu = Some(look.cpu_ns);
            look.threads = Some(self.threads());
        }
        if wanted.unread {
            let waits = waits_so_far(self.id.pid);
            // A thread that slept goes back to sleep, which it waits for once. All else is its work.
            let before = |tid: Tid| self.waits_at_pause.iter().find(|(other, _)| *other == tid);
            let slept = |(tid, waits): &(Tid, u64)| {
                before(*tid).is_some_and(|(_, before)| *waits <= before + 1)
            };
            look.is_awake = !waits.iter().all(slept);
            if look.is_awake {
                (self.cpu_changed, self.waited) = (now, None);
            } else if self.waited.is_some() {
                self.waited = Some(waits);
            }
        }
        look.held = held(self.id.pid);
    }

    fn look_at_bytes(&mut self, now: Instant, cpu_ns: u64, look: &mut ProcessLook) {
        self.unread_at = Some(now);
        let began = Instant::now();
        let pid = self.id.pid;
        let handle = self.handle.as_ref();
        let bytes = self.connections.unread(pid, handle, cpu_ns, || children(pid));
        // What it has been woken for and waits for a processor to do, or has done meanwhile, is no sleep.
        let sleeps = bytes == 0 || all_sleep(self.id.pid) && self.cpu_time() == Some(cpu_ns);
        if !sleeps {
            self.cpu_changed = now;
        }
        // The clock may be some milliseconds old: it may have read them between the two. If none of its
        // threads has waited anew when the bytes are seen again, it has slept.
        let waited = (bytes > 0 && sleeps).then(|| waits_so_far(self.id.pid));
        let has_slept = waited.is_some() && waited == self.waited;
        self.waited = waited;
        look.unread = Some(if has_slept { bytes } else { 0 });
        look.is_awake = !sleeps;
        let share = began.elapsed() * UNREAD_SHARE;
        self.unread_looks = if bytes > 0 { self.unread_looks + 1 } else { 0 };
        // A few looks follow soon where there are bytes, so that it is known how long they lie there.
        let is_new = (1..=UNREAD_SOON).contains(&self.unread_looks);
        self.unread_every = match is_new {
            true if !has_slept => UNREAD_AGAIN,
            true => UNREAD_EVERY,
            false => UNREAD_EVERY.max(share),
        };
    }
}

/// What `/proc/PID/stat` says.
struct Stat {
    state: u8,
    parent: Option<Pid>,
    start: u64,
    threads: u64,
    is_exiting: bool,
}

impl ProcessId {
    /// The process that has that number now.
    fn of(pid: Pid) -> Option<ProcessId> {
        Some(ProcessId { pid, start: Stat::of(pid)?.start })
    }
}

impl Stat {
    fn of(pid: Pid) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name, in parentheses, may hold any character.
        let rest = text.get(text.rfind(')')? + 2..)?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent: u32 = fields.next()?.parse().ok()?;
        // The kernel's PF_EXITING.
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        let parent = Pid::try_from(parent).ok();
        Some(Stat { state, parent, start, threads, is_exiting: flags & 4 != 0 })
    }

    /// Whether the process has. Its first thread may end alone (`pthread_exit`), and counts until the others have.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

fn program_of(pid: Pid) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    // An upgrade has replaced the file.
    let name = name.map(|name| name.trim_end_matches(" (deleted)").to_owned());
    name.unwrap_or_else(|| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end().to_owned()
    })
}

fn children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<Pid>().ok()));
    }
    found
}

/// Why a process does not get on, by its first thread's state.
fn held(pid: Pid) -> Option<Held> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if number(&text, "TracerPid:").is_some_and(|tracer| tracer != 0) {
        return Some(Held::Traced);
    }
    const KILL: u64 = 1 << 8;
    let is_killed = |name| mask(&text, name).is_some_and(|pending| pending & KILL != 0);
    if ["SigPnd:", "ShdPnd:"].into_iter().any(is_killed)
        || Stat::of(pid).is_some_and(|stat| stat.is_exiting && stat.threads <= 1)
    {
        return Some(Held::Ended);
    }
    let has_others = number(&text, "Threads:").is_some_and(|threads| threads > 1);
    match field(&text, "State:").unwrap_or_default().as_bytes().first() {
        Some(b'T') => Some(Held::Stopped),
        Some(b't') => Some(Held::Traced),
        Some(b'D') => Some(Held::Uninterruptible),
        Some(b'Z' | b'X') if has_others => None,
        Some(b'Z' | b'X') | None => Some(Held::Ended),
        _ => None,
    }
}

/// Whether all threads sleep: none runs, waits for a processor, or has been stopped, which may end at any moment.
fn all_sleep(pid: Pid) -> bool {
    tids(pid).into_iter().all(|tid| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        Stat::parse(&text).is_none_or(|stat| matches!(stat.state, b'S' | b'I' | b'Z' | b'X'))
    })
}

/// How often each thread has waited so far.
fn waits_so_far(pid: Pid) -> Vec<(Tid, u64)> {
    let waits = |tid| Some((tid, progress(pid, tid)?.waits));
    tids(pid).into_iter().filter_map(waits).collect()
}

fn scalars_of(sensors: &[Sensor], pid: Pid) -> Vec<(String, i64)> {
    let own = sensors.iter().filter(|sensor| sensor.description().producer.pid == pid.unsigned());
    let value = |sensor: &Sensor| Some((sensor.description().name.clone(), sensor.scalar().ok()?));
    own.filter_map(value).collect()
}

/// A process's histograms of these names; those of one name are added up.
fn histograms_of(sensors: &[Sensor], names: &BTreeSet<String>, pid: Pid) -> Vec<HistogramLook> {
    let of = |name: &String| {
        let mut counts = BTreeMap::new();
        let mut any = false;
        for sensor in sensors {
            let description = sensor.description();
            if description.producer.pid != pid.unsigned() || description.name != *name {
                continue;
            }
            let Ok(histogram) = sensor.histogram() else { continue };
            any = true;
            for bucket in histogram.buckets() {
                let sum: &mut u64 = counts.entry(bucket.low).or_default();
                *sum = sum.wrapping_add(bucket.count);
            }
        }
        any.then(|| HistogramLook { name: name.clone(), counts: counts.into_iter().collect() })
    };
    names.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 1 0 0 0 0 0 0 0 0 20 0 1 0 12345 1 2";
        let stat = Stat::parse(stat).unwrap();
        assert!(
            stat.state == b'S'
                && stat.parent == Pid::try_from(3u32).ok()
                && stat.start == 12345
                && !stat.is_exiting
        );
        assert!(Stat::parse("7 (a").is_none() && Stat::parse("7 (a)").is_none());
    }

    #[test]
    fn this_process_is_seen() {
        let mut processes = Processes::new(
            vec![Pid::own()],
            Wanted { progress: true, waits: true, unread: true, ..Wanted::default() },
        );
        let look = processes.look(Instant::now(), 1).unwrap();
        let own = look.processes.iter().find(|p| p.id.pid == Pid::own()).unwrap();
        assert!(own.cpu_ns > 0 && !own.is_worker && own.held.is_none(), "{own:?}");
        assert!(own.threads.as_ref().is_some_and(|threads| !threads.is_empty()), "{own:?}");
        assert!(processes.get(own.id).unwrap().handle.is_some());
    }
}
