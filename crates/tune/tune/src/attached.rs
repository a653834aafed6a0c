//! Recording calls and times of a process that runs already, and of its process group.
//!
//! A launched program is given these at its start; a running one gets them while it runs: memory
//! that it shares with us, where each of its threads has a slot, and copies of its functions with
//! probes. It is followed from before the first jump to them is written until the end, so that
//! threads and children which start meanwhile have slots of their own. Then it is detached, and
//! everything is reverted. Other processes of its process group get the same at the same addresses,
//! one after the other.
//!
//! Libraries that are opened meanwhile are recorded from their first instruction on (see
//! `dlopen_hooks.rs`).
//!
//! A call that is in progress when recording begins stays in original text until its function is
//! called again: a recording contains the calls that begin after it.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fettle_code::Pointers;
use fettle_live::{
    Entry, ExitStatus, Following, Journal, LiveAddr, LiveError, Mapping, Process, Prot, Region,
    RunOptions, WaitFor,
};
use fettle_record::kernel::Running;
use fettle_record::libraries::Keeper;
use fettle_record::modules::Modules;
use fettle_record::record::{PERIOD, Watch, conduct};
use fettle_record::room::find_hole;
use fettle_record::session::{Attached, Recorder};
use fettle_record::slots::Slots;
use fettle_record::{Options, Outcome, RecordError};

use crate::Wanted;
use crate::dlopen_hooks::DlopenHooks;
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::group_patches::{Reverted, disinherit, disown, revert};
use crate::install::{self, Installed, Installing};
use crate::module::{self, Module, Recipe};
use crate::patch_sites::Callers;
use crate::rewritten::Rewritten;
use crate::several::Several;
use crate::stop::Stop;
use crate::target::{LOADING, Target};

/// Far from what loaders and allocators use.
const SLOTS_FROM: u64 = 0x2b5c_0000_0000;
/// How long threads have to leave rewritten text: a user should not wait longer for a trace.
const PATIENCE: Duration = Duration::from_secs(3);

/// The result of a recording.
pub struct Recorded {
    /// The trace, and what is reported of it.
    pub outcome: Outcome,
    /// What was installed in the process that was named.
    pub installed: Installed,
    /// The length of each pause, but for the last, in which threads are detached one by
    /// one.
    pub stops: Vec<Duration>,
    /// Processes that run their original text again, but still have memory of ours, and why.
    pub stuck: Vec<(i32, String)>,
}

/// What is recorded: a process, and its process group unless it is to be recorded alone.
#[derive(Clone, Copy)]
pub struct Whom<'a> {
    /// The process that is named. The recording ends with it.
    pub process: &'a Process,
    /// Its process group is left unmodified.
    pub alone: bool,
}

/// Records a process with its process group, and the children that these fork, until the user stops
/// it, the time is over, or the process ends. `options` are those of a launched program; their
/// command is what the trace will name.
///
/// # Errors
///
/// When the process cannot be changed; then there is no trace.
pub fn record(
    Whom { process, alone }: Whom<'_>,
    folder: &Path,
    options: &Options,
    duration: Option<Duration>,
    watch: Watch<'_>,
) -> Result<Recorded, TuneError> {
    if options.remote.is_none() {
        // Better to fail now than when the process has been patched.
        fettle_trace::check_free(&options.output)?;
    }
    let stop = Stop(watch.0);
    let explained = |error: TuneError| explained(process, error);
    let target = Target::when_loaded(process, LOADING, &|| stop.is_wanted()).map_err(explained)?;
    let mut family = ProcessGroup::of(process, alone);
    let planned = plan(&target, &family, (options, folder), stop).map_err(explained)?;
    let Planned { session, codes, known, mut notes, region, doors } = planned;
    let mut journal = Journal::create(folder, process)?;
    let new = New { codes: &codes, region, doors: doors.as_ref() };
    let (slots, installing, mut stops) = match prepare(&target, &mut journal, new, options) {
        Ok(prepared) => prepared,
        Err(error) => {
            new.revert(folder, ([journal].into(), HashMap::new()))?;
            return Err(explained(error));
        }
    };
    let file = slots.file();
    let mut changed = Changed {
        target: &target,
        new,
        memory: file.as_fd(),
        folder,
        journals: [journal].into(),
        stops: Vec::new(),
        without_doors: Vec::new(),
    };
    let mut installed = Installed::default();
    let (outcome, taken_back) = std::thread::scope(|scope| {
        let mut undoing = None;
        let run = |recorder: &mut Recorder<'_>, kernel: Option<&Running>| {
            recorder.notes.append(&mut notes);
            target.paths().for_each(|path| recorder.meets_library(path));
            recorder.attach(Attached { slots_at: region.at, codes: known, keeper: keeper(&doors) });
            observe(kernel, &family)?;
            let work = |following: &Following| {
                changed.work(installing, &mut family, following, (duration, stop))
            };
            let followed = follow(process, recorder, work);
            recorder.notes.extend(left_alone(&family.left));
            recorder.notes.extend(without_doors(&changed.without_doors));
            // The trace is made while processes are reverted.
            let back = changed.give_back();
            undoing = Some(scope.spawn(move || new.revert(folder, back)));
            let (new, status) = followed?;
            installed = new;
            Ok(status)
        };
        let outcome: Result<Outcome, TuneError> = conduct(options, (&slots, session), run, watch);
        let taken_back = match undoing {
            Some(undoing) => {
                undoing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            None => new.revert(folder, changed.give_back()),
        };
        (outcome, taken_back)
    });
    let (outcome, taken_back) = (outcome.map_err(explained)?, taken_back?);
    stops.extend(installed.stops.iter().chain(&changed.stops).chain(&taken_back.stops));
    Ok(Recorded { outcome, installed, stops, stuck: taken_back.stuck })
}

/// What is installed in every process.
#[derive(Clone, Copy)]
struct New<'a> {
    codes: &'a [Arc<Rewritten>],
    /// Where its threads have their slots.
    region: Region,
    /// For libraries that it opens later, if those are wanted.
    doors: Option<&'a DlopenHooks>,
}

impl New<'_> {
    /// Reverts what undo logs record; `opened` is rewritten text of libraries that were opened
    /// later.
    fn revert(
        &self,
        folder: &Path,
        (journals, opened): (VecDeque<Journal>, HashMap<i32, Vec<Arc<Rewritten>>>),
    ) -> Result<Reverted, TuneError> {
        let codes = |pid: i32| {
            let own = opened.get(&pid).map_or(self.codes, |codes| &codes[..]);
            own.iter().map(|code| &**code).collect()
        };
        revert(folder, journals, &codes, PATIENCE)
    }
}

/// Processes that have rewritten text, or are about to have it.
struct Changed<'a> {
    /// The process that was named.
    target: &'a Target<'a>,
    new: New<'a>,
    /// The slots' memory.
    memory: BorrowedFd<'a>,
    folder: &'a Path,
    /// Undo logs of those whose dlopen hooks are not open.
    journals: VecDeque<Journal>,
    /// How long threads of the other processes were paused, each time.
    stops: Vec<Duration>,
    /// Why processes have no dlopen hook.
    without_doors: Vec<(i32, String)>,
}

impl Changed<'_> {
    /// Patches all processes to run their rewritten text, and waits until the recording is to end.
    fn work(
        &mut self,
        installing: Installing<'_>,
        family: &mut ProcessGroup<'_>,
        following: &Following,
        (duration, stop): (Option<Duration>, Stop<'_>),
    ) -> Result<Installed, TuneError> {
        let installed = self.lead_first(installing)?;
        self.take_in(family, following, stop)?;
        wait(self.target.process, duration, stop);
        Ok(installed)
    }

    /// Patches the process that was named to run its rewritten text.
    fn lead_first(&mut self, installing: Installing<'_>) -> Result<Installed, TuneError> {
        let (process, table) = (self.target.process, installing.table());
        match installing.finish(&mut self.journals[0]) {
            // It has executed another program, which got its probes at exec.
            Err(_) if process.lives() && !process.is_same() => Ok(Installed::default()),
            Ok(installed) => {
                self.open_door(process, table);
                Ok(installed)
            }
            failed => failed,
        }
    }

    /// Opens the dlopen hook of a process whose log is the newest.
    fn open_door(&mut self, process: &Process, table: Option<(LiveAddr, usize)>) {
        let Some(doors) = self.new.doors else { return };
        let Some(journal) = self.journals.pop_back() else { return };
        if let Err((journal, why)) = doors.open(process, journal, (table, self.new.codes)) {
            self.journals.push_back(journal);
            if process.lives() {
                self.without_doors.push((process.pid(), why));
            }
        }
    }

    /// All undo logs, and the rewritten text of processes that have libraries of their own.
    fn give_back(&mut self) -> (VecDeque<Journal>, HashMap<i32, Vec<Arc<Rewritten>>>) {
        let (opened, codes) = self.new.doors.map(DlopenHooks::take).unwrap_or_default();
        self.journals.extend(opened);
        (std::mem::take(&mut self.journals), codes)
    }

    /// Adds the process group, and processes that are forked before all are done. A child of a
    /// process that is followed already has inherited its patches.
    fn take_in(
        &mut self,
        family: &mut ProcessGroup<'_>,
        following: &Following,
        stop: Stop<'_>,
    ) -> Result<(), TuneError> {
        let lead = family.lead;
        family.for_each(|process| {
            // The recording ends with the process that was named.
            let done = process.pid() == lead.pid() || stop.is_wanted() || !lead.lives();
            if done { Ok(()) } else { self.take_in_one(process, following) }
        })
    }

    /// Gives a process of the group what the first has, follows it, and leads it to its rewritten
    /// text. After a failure its changes are reverted at the end.
    fn take_in_one(&mut self, process: &Process, following: &Following) -> Result<(), TuneError> {
        let by_door = self.new.doors.map(|doors| doors.inherit(process)).transpose()?.flatten();
        if let Some((log, heir)) = by_door {
            disown(log, &heir)?;
        } else if let Some((journal, heir)) = fettle_live::inherited_from(&self.journals, process) {
            disinherit(journal, &heir)?;
        }
        let target = self.target.of_relative(process);
        self.journals.push_back(Journal::create(self.folder, process)?);
        let journal = self.journals.back_mut().expect("just added");
        let ((), stop) = process.while_paused(|halted| install::without_gs(halted))?;
        self.stops.push(stop);
        self.stops.extend(process.map_same(journal, self.new.region, self.memory)?);
        let installing = install_in(&target, journal, self.new)?;
        let table = installing.table();
        following.join(process)?;
        self.stops.extend(installing.finish(journal)?.stops);
        self.open_door(process, table);
        Ok(())
    }
}

/// Records the kernel's events of a process group, too.
fn observe(kernel: Option<&Running>, family: &ProcessGroup<'_>) -> Result<(), TuneError> {
    let Some(kernel) = kernel else { return Ok(()) };
    for process in family.members() {
        match kernel.processes().observe_tree(process.pid() as u32) {
            Err(error) if process.lives() => return Err(RecordError::from(error).into()),
            _ => {}
        }
    }
    Ok(())
}

fn left_alone(left: &[(i32, String)]) -> Vec<String> {
    let tell = |several: Several| {
        let (who, was) = several.who(("was", "were"));
        format!("{who} {was} not recorded: {}", several.why)
    };
    Several::of(left).into_iter().map(tell).collect()
}

/// An error that is due to the process's end, or to its exec, is reported as that.
fn explained(process: &Process, error: TuneError) -> TuneError {
    match error {
        TuneError::Live(_)
        | TuneError::Unfit { .. }
        | TuneError::NoCLibrary { .. }
        | TuneError::Loading { .. }
            if !process.is_same() =>
        {
            LiveError::Gone { pid: process.pid() }.into()
        }
        error => error,
    }
}

fn without_doors(without: &[(i32, String)]) -> Vec<String> {
    let tell = |several: Several| {
        let (who, _) = several.who(("", ""));
        format!("libraries that {who} opened later ran without probes: {}", several.why)
    };
    Several::of(without).into_iter().map(tell).collect()
}

fn without_probes((path, why): &(PathBuf, String)) -> String {
    format!("{} ran without probes: {why}", path.display())
}

/// Rewritten text of all modules, which the process does not have yet.
struct Planned {
    session: Modules,
    codes: Vec<Arc<Rewritten>>,
    /// The same, as the recorder knows it.
    known: Vec<fettle_record::rewritten::Rewritten>,
    /// Modules that are left unmodified, and why.
    notes: Vec<String>,
    /// Where the slots go.
    region: Region,
    /// For libraries that are opened later, if those are wanted and can be had.
    doors: Option<DlopenHooks>,
}

fn plan(
    target: &Target<'_>,
    family: &ProcessGroup<'_>,
    (options, folder): (&Options, &Path),
    stop: Stop<'_>,
) -> Result<Planned, TuneError> {
    let process = target.process;
    let unfit = |why: String| TuneError::Unfit { pid: process.pid(), why };
    let mut maps = family.maps()?;
    let len = options.slots().size();
    let no_room = || unfit("there is no room for the recording's memory in it".to_owned());
    let at = find_hole(SLOTS_FROM, len, &maps).ok_or_else(no_room)?;
    let prot = Prot { read: true, write: true, exec: false };
    let region = Region { at, len, prot, shared: true };
    maps.push(install::taken(region));

    let wanted =
        Wanted { libraries: options.libraries.clone(), selection: options.selection.clone() };
    let (modules, mut notes) = crate::lift(target, &wanted, stop)?;
    let doors = (!wanted.libraries.is_empty())
        .then(|| DlopenHooks::plan(target, (region, &maps), folder))
        .transpose();
    let (doors, no_doors) = doors.map_or_else(|why| (None, Some(why)), |doors| (doors, None));
    maps.extend(doors.iter().flat_map(|doors| doors.needs().0).copied().map(install::taken));
    let (mut session, mut codes, mut known) = (options.modules(true), Vec::new(), Vec::new());
    for module in modules {
        stop.check(process.pid())?;
        let path = module.loaded.path.clone();
        match new_code(process, module, options, (&mut session, &maps)) {
            Ok((code, new)) => {
                maps.extend([install::taken(code.text), install::taken(code.constants)]);
                codes.push(Arc::new(code));
                known.push(new);
            }
            Err(why) => notes.push((path, why)),
        }
    }
    match (codes.is_empty(), notes.first()) {
        (true, Some((path, why))) => Err(unfit(format!("{}: {why}", path.display()))),
        _ => {
            let no_doors: Vec<_> = no_doors.map(|why| (process.pid(), why)).into_iter().collect();
            let no_doors = without_doors(&no_doors);
            let notes = notes.iter().map(without_probes).chain(no_doors).collect();
            Ok(Planned { session, codes, known, notes, region, doors })
        }
    }
}

/// What answers at the dlopen hooks, if there are any.
fn keeper(doors: &Option<DlopenHooks>) -> Option<Box<dyn Keeper>> {
    doors.clone().map(|doors| Box::new(doors) as Box<dyn Keeper>)
}

/// Rewritten text of a module, which is added to the session; or why it has none.
fn new_code(
    process: &Process,
    module: Module,
    options: &Options,
    (session, maps): (&mut Modules, &[Mapping]),
) -> Result<(Rewritten, fettle_record::rewritten::Rewritten), String> {
    let arguments = session.recorded(&module.image, &module.lifted.functions);
    let code = {
        let wants = module::wanted(&module.image, &options.selection);
        let recipe = Recipe {
            probes: &session.probing(&arguments),
            slot: session.next_offsets(),
            pointers: Pointers::Kept,
            placement: None,
            wants: &wants,
            callers: Callers::Others,
        };
        module.new_code(process, &recipe, maps)?
    };
    let (path, file) = (module.loaded.called(process), module.as_in_file());
    let added = session.add(&path, module.image, code.plan.clone(), arguments);
    let added = added.map_err(|error| error.to_string())?;
    if let Some(file) = file {
        // Its children execute the same programs, and open the same libraries.
        session.is_of(added, file);
    }
    let new = fettle_record::rewritten::Rewritten {
        module: added,
        text: code.text.at,
        text_len: code.text.len,
        bias: code.bias,
    };
    Ok((code, new))
}

/// Slots, rewritten text that nothing leads to yet, and how long threads were paused.
type Prepared<'a> = (Slots, Installing<'a>, Vec<Duration>);

/// Maps the slots and rewritten text in the process.
fn prepare<'a>(
    target: &'a Target<'a>,
    journal: &mut Journal,
    new: New<'a>,
    options: &Options,
) -> Result<Prepared<'a>, TuneError> {
    let (process, region) = (target.process, new.region);
    let ((), stop) = process.while_paused(|halted| install::without_gs(halted))?;
    let no_memory = |error: LiveError| match &error {
        LiveError::Remote { source, .. } if source.kind() == ErrorKind::OutOfMemory => {
            let why = format!(
                "it may not have {} GiB more address space (`ulimit -v`): a smaller --ring or \
                 --max-threads takes less",
                region.len >> 30
            );
            TuneError::Unfit { pid: process.pid(), why }
        }
        _ => error.into(),
    };
    let (file, mut stops) = process.map_file(journal, region).map_err(no_memory)?;
    stops.push(stop);
    let slots = Slots::over(file, options.slots(), options.policy, options.mode);
    let slots = slots.map_err(RecordError::Memory)?;
    let installing = install_in(target, journal, new)?;
    Ok((slots, installing, stops))
}

/// Maps rewritten text in a process.
fn install_in<'a>(
    target: &'a Target<'a>,
    journal: &mut Journal,
    New { codes, region, doors }: New<'a>,
) -> Result<Installing<'a>, TuneError> {
    let besides = doors.map_or((&[][..], 0), DlopenHooks::needs);
    let codes = codes.iter().map(|code| &**code);
    let installing = Installing::begin(target, journal, codes, besides)?;
    doors.map_or(Ok(()), |doors| doors.fill(target.process))?;
    journal.add([Entry::GsBases(region.at, region.at.offset(region.len))])?;
    Ok(installing)
}

/// Follows the process while `work` goes on.
fn follow(
    process: &Process,
    recorder: &mut Recorder<'_>,
    work: impl FnOnce(&Following) -> Result<Installed, TuneError> + Send,
) -> Result<(Installed, Option<ExitStatus>), TuneError> {
    let nobody = AtomicBool::new(false);
    let waits = RunOptions { period: PERIOD, stop: &nobody, wait_for: WaitFor::FirstProcess };
    match fettle_live::attach(process, recorder, waits, work)? {
        (Ok(installed), status) => Ok((installed, status)),
        // It has ended before all was in place.
        (Err(_), Some(status)) => Ok((Installed::default(), Some(status))),
        (Err(error), None) => Err(error),
    }
}

/// Waits until the recording is to end.
fn wait(process: &Process, duration: Option<Duration>, stop: Stop<'_>) {
    let begin = Instant::now();
    let over = || duration.is_some_and(|time| begin.elapsed() >= time);
    while !stop.is_wanted() && !over() && process.lives() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
