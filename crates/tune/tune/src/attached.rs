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
use fettle_record::libraries::UndoRecorder;
use fettle_record::modules::Modules;
use fettle_record::record::{PERIOD, Watch, conduct};
use fettle_record::room::find_gap;
use fettle_record::session::{Attached, Recorder};
use fettle_record::slots::Slots;
use fettle_record::{Options, Outcome, RecordError};
use fettle_types::Pid;

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
    pub stuck: Vec<(Pid, String)>,
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
    let mut process_group = ProcessGroup::of(process, alone);
    let planned = plan(&target, &process_group, (options, folder), stop).map_err(explained)?;
    let Planned { session, codes, known, mut notes, region, dlopen_hooks } = planned;
    let mut journal = Journal::create(folder, process)?;
    let new = New { codes: &codes, region, dlopen_hooks: dlopen_hooks.as_ref() };
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
        without_hooks: Vec::new(),
    };
    let mut installed = Installed::default();
    let (outcome, reverted) = std::thread::scope(|scope| {
        let mut undoing = None;
        let run = |recorder: &mut Recorder<'_>, kernel: Option<&Running>| {
            recorder.notes.append(&mut notes);
            target.paths().for_each(|path| recorder.meets_library(path));
            recorder.attach(Attached {
                slots_at: region.at,
                codes: known,
                undo_recorder: undo_recorder(&dlopen_hooks),
            });
            observe(kernel, &process_group)?;
            let work = |following: &Following| {
                changed.work(installing, &mut process_group, following, (duration, stop))
            };
            let followed = follow(process, recorder, work);
            recorder.notes.extend(left_unmodified(&process_group.left));
            recorder.notes.extend(without_hooks(&changed.without_hooks));
            // The trace is made while processes are reverted.
            let back = changed.give_back();
            undoing = Some(scope.spawn(move || new.revert(folder, back)));
            let (new, status) = followed?;
            installed = new;
            Ok(status)
        };
        let outcome: Result<Outcome, TuneError> = conduct(options, (&slots, session), run, watch);
        let reverted = match undoing {
            Some(undoing) => {
                undoing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            None => new.revert(folder, changed.give_back()),
        };
        (outcome, reverted)
    });
    let (outcome, reverted) = (outcome.map_err(explained)?, reverted?);
    stops.extend(installed.stops.iter().chain(&changed.stops).chain(&reverted.stops));
    Ok(Recorded { outcome, installed, stops, stuck: reverted.stuck })
}

/// What is installed in every process.
#[derive(Clone, Copy)]
struct New<'a> {
    codes: &'a [Arc<Rewritten>],
    /// Where its threads have their slots.
    region: Region,
    /// For libraries that it opens later, if those are wanted.
    dlopen_hooks: Option<&'a DlopenHooks>,
}

impl New<'_> {
    /// Reverts what undo logs record; `opened` is rewritten text of libraries that were opened
    /// later.
    fn revert(
        &self,
        folder: &Path,
        (journals, opened): (VecDeque<Journal>, HashMap<Pid, Vec<Arc<Rewritten>>>),
    ) -> Result<Reverted, TuneError> {
        let codes = |pid: Pid| {
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
    without_hooks: Vec<(Pid, String)>,
}

impl Changed<'_> {
    /// Patches all processes to run their rewritten text, and waits until the recording is to end.
    fn work(
        &mut self,
        installing: Installing<'_>,
        process_group: &mut ProcessGroup<'_>,
        following: &Following,
        (duration, stop): (Option<Duration>, Stop<'_>),
    ) -> Result<Installed, TuneError> {
        let installed = self.install_in_leader(installing)?;
        self.take_in(process_group, following, stop)?;
        wait(self.target.process, duration, stop);
        Ok(installed)
    }

    /// Patches the process that was named to run its rewritten text.
    fn install_in_leader(&mut self, installing: Installing<'_>) -> Result<Installed, TuneError> {
        let (process, table) = (self.target.process, installing.table());
        match installing.finish(&mut self.journals[0]) {
            // It has executed another program, which got its probes at exec.
            Err(_) if process.is_alive() && !process.is_same() => Ok(Installed::default()),
            Ok(installed) => {
                self.give_hook(process, table);
                Ok(installed)
            }
            failed => failed,
        }
    }

    /// Opens the dlopen hook of a process whose log is the newest.
    fn give_hook(&mut self, process: &Process, table: Option<(LiveAddr, usize)>) {
        let Some(dlopen_hooks) = self.new.dlopen_hooks else { return };
        let Some(journal) = self.journals.pop_back() else { return };
        if let Err((journal, why)) = dlopen_hooks.open(process, journal, (table, self.new.codes)) {
            self.journals.push_back(journal);
            if process.is_alive() {
                self.without_hooks.push((process.pid(), why));
            }
        }
    }

    /// All undo logs, and the rewritten text of processes that have libraries of their own.
    fn give_back(&mut self) -> (VecDeque<Journal>, HashMap<Pid, Vec<Arc<Rewritten>>>) {
        let (opened, codes) = self.new.dlopen_hooks.map(DlopenHooks::take).unwrap_or_default();
        self.journals.extend(opened);
        (std::mem::take(&mut self.journals), codes)
    }

    /// Adds the process group, and processes that are forked before all are done. A child of a
    /// process that is followed already has inherited its patches.
    fn take_in(
        &mut self,
        process_group: &mut ProcessGroup<'_>,
        following: &Following,
        stop: Stop<'_>,
    ) -> Result<(), TuneError> {
        let leader = process_group.leader;
        process_group.for_each(|process| {
            // The recording ends with the process that was named.
            let done = process.pid() == leader.pid() || stop.is_wanted() || !leader.is_alive();
            if done { Ok(()) } else { self.take_in_one(process, following) }
        })
    }

    /// Gives a process of the group what the first has, follows it, and leads it to its rewritten
    /// text. After a failure its changes are reverted at the end.
    fn take_in_one(&mut self, process: &Process, following: &Following) -> Result<(), TuneError> {
        let by_hook = self
            .new
            .dlopen_hooks
            .map(|dlopen_hooks| dlopen_hooks.inherit(process))
            .transpose()?
            .flatten();
        if let Some((log, forked_child)) = by_hook {
            disown(log, &forked_child)?;
        } else if let Some((journal, forked_child)) =
            fettle_live::inherited_from(&self.journals, process)
        {
            disinherit(journal, &forked_child)?;
        }
        let target = self.target.of_member(process);
        self.journals.push_back(Journal::create(self.folder, process)?);
        let journal = self.journals.back_mut().expect("just added");
        let ((), stop) = process.while_paused(|paused| paused.without_gs())?;
        self.stops.push(stop);
        self.stops.extend(process.map_same(journal, self.new.region, self.memory)?);
        let installing = install_in(&target, journal, self.new)?;
        let table = installing.table();
        following.join(process)?;
        self.stops.extend(installing.finish(journal)?.stops);
        self.give_hook(process, table);
        Ok(())
    }
}

/// Records the kernel's events of a process group, too.
fn observe(kernel: Option<&Running>, process_group: &ProcessGroup<'_>) -> Result<(), TuneError> {
    let Some(kernel) = kernel else { return Ok(()) };
    for process in process_group.members() {
        match kernel.processes().observe_tree(process.pid()) {
            Err(error) if process.is_alive() => return Err(RecordError::from(error).into()),
            _ => {}
        }
    }
    Ok(())
}

fn left_unmodified(left: &[(Pid, String)]) -> Vec<String> {
    let notify = |several: Several| {
        let (who, was) = several.who(("was", "were"));
        format!("{who} {was} not recorded: {}", several.why)
    };
    Several::of(left).into_iter().map(notify).collect()
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

fn without_hooks(without: &[(Pid, String)]) -> Vec<String> {
    let notify = |several: Several| {
        let (who, _) = several.who(("", ""));
        format!("libraries that {who} opened later ran without probes: {}", several.why)
    };
    Several::of(without).into_iter().map(notify).collect()
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
    dlopen_hooks: Option<DlopenHooks>,
}

fn plan(
    target: &Target<'_>,
    process_group: &ProcessGroup<'_>,
    (options, folder): (&Options, &Path),
    stop: Stop<'_>,
) -> Result<Planned, TuneError> {
    let process = target.process;
    let unfit = |why: String| TuneError::Unfit { pid: process.pid(), why };
    let mut maps = process_group.maps()?;
    let len = options.slots().size();
    let no_room = || unfit("there is no room for the recording's memory in it".to_owned());
    let at = find_gap(SLOTS_FROM, len, &maps).ok_or_else(no_room)?;
    let prot = Prot { read: true, write: true, exec: false };
    let region = Region { at, len, prot, shared: true };
    maps.push(install::taken(region));

    let wanted =
        Wanted { libraries: options.libraries.clone(), selection: options.selection.clone() };
    let (modules, mut notes) = crate::lift(target, &wanted, stop)?;
    let dlopen_hooks = (!wanted.libraries.is_empty())
        .then(|| DlopenHooks::plan(target, (region, &maps), folder))
        .transpose();
    let (dlopen_hooks, no_hooks) =
        dlopen_hooks.map_or_else(|why| (None, Some(why)), |dlopen_hooks| (dlopen_hooks, None));
    maps.extend(
        dlopen_hooks
            .iter()
            .flat_map(|dlopen_hooks| dlopen_hooks.needs().0)
            .copied()
            .map(install::taken),
    );
    let (mut session, mut codes, mut known) = (options.modules(true), Vec::new(), Vec::new());
    for module in modules {
        stop.check(process.pid())?;
        let path = module.loaded.path.clone();
        match rewritten_text(process, module, options, (&mut session, &maps)) {
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
            let no_hooks: Vec<_> = no_hooks.map(|why| (process.pid(), why)).into_iter().collect();
            let no_hooks = without_hooks(&no_hooks);
            let notes = notes.iter().map(without_probes).chain(no_hooks).collect();
            Ok(Planned { session, codes, known, notes, region, dlopen_hooks })
        }
    }
}

/// What answers at the dlopen hooks, if there are any.
fn undo_recorder(dlopen_hooks: &Option<DlopenHooks>) -> Option<Box<dyn UndoRecorder>> {
    dlopen_hooks.clone().map(|dlopen_hooks| Box::new(dlopen_hooks) as Box<dyn UndoRecorder>)
}

/// Rewritten text of a module, which is added to the session; or why it has none.
fn rewritten_text(
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
        module.rewritten_text(process, &recipe, maps)?
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
    let ((), stop) = process.while_paused(|paused| paused.without_gs())?;
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
    New { codes, region, dlopen_hooks }: New<'a>,
) -> Result<Installing<'a>, TuneError> {
    let others = dlopen_hooks.map_or((&[][..], 0), DlopenHooks::needs);
    let codes = codes.iter().map(|code| &**code);
    let installing = Installing::begin(target, journal, codes, others)?;
    dlopen_hooks.map_or(Ok(()), |dlopen_hooks| dlopen_hooks.fill(target.process))?;
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
    while !stop.is_wanted() && !over() && process.is_alive() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
