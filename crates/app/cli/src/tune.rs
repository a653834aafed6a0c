//! `fettle tune`: the code layout of running processes.

use crate::old_keys::with_old_keys;
use fettle_types::{Pid, Tid, parse_time};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use fettle_live::{Journal, Process};
use fettle_record::Pattern;
use fettle_tune::{
    Audit, Decided, Group, Installed, LOADING, LeftUnmodified, Options, Outcome, ProcessGroup,
    Progress, Promoted, Rounds, Saved, Seen, Several, StateFolders, Stop, Target, TuneError,
    Wanted, Work, comparison, leftovers, measure,
};
use serde_json::json;

use crate::measured::{longest, measured_json, measured_text, milliseconds, result};
use crate::select::SelectArgs;

/// Arguments of `fettle tune`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle tune -p 4711\n  fettle tune -p 4711 --work-counter 'redis-cli info stats | grep total_commands'\n  fettle tune -p 4711 --root handleRequest --lib 'libssl*' --rounds 40\n  fettle tune -p 4711 --samples --time 20s\n  fettle tune -p 4711 --no-group --dry-run --json\n  fettle tune -p 4711 --with-kernel --work-counter 'cat /run/server/requests'\n  fettle tune -p 4711 --dry-run --save server.profile\n  fettle tune --apply server.profile -- ./server --port 80\n\nCounts for a while which code runs, lays it out in the order in which it runs, compares original\nand rewritten text in the process, and keeps the rewritten one if it is faster for certain. A\nprocess group (all that were forked from the same execution of the program) is tuned together;\nchildren that it forks later inherit the patches. The process must be under its usual load. It\ngoes on running; its threads are stopped for some milliseconds each time that text is switched.\n`fettle undo PID` reverts everything.\n\nExit status: 0 the process is faster, or --dry-run found a layout; 1 it is as it was; 2 error."
)]
pub struct Args {
    /// The process
    #[arg(short, long, required_unless_present_any = ["apply", "kernel"], conflicts_with = "apply")]
    pid: Option<Pid>,
    /// The running kernel: what --root or --only name (see `fettle kernel tune`)
    #[arg(long, conflicts_with_all = ["pid", "apply", "samples", "lib", "passes", "dry_run", "shuffle", "alone"])]
    kernel: bool,
    /// Afterwards tune the running kernel for the same work, and compare both together with neither (needs root)
    #[arg(long, requires_all = ["pid", "work"], conflicts_with_all = ["keep", "watch", "dry_run", "recheck", "shuffle", "samples"])]
    with_kernel: bool,
    /// Keep what was counted in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Do not count: use what was kept in this file
    #[arg(long, value_name = "FILE", conflicts_with = "save")]
    profile: Option<PathBuf>,
    /// Start a program and lay it out by what was kept in this file
    #[arg(long, value_name = "FILE", requires = "program", conflicts_with_all = ["save", "profile", "passes", "watch", "dry_run", "json", "shuffle"])]
    apply: Option<PathBuf>,
    /// The program for --apply, and its arguments
    #[arg(last = true, requires = "apply")]
    program: Vec<OsString>,
    /// Do not count: sample where threads are for so long as --time says, which changes nothing and
    /// costs next to nothing, and shows less
    #[arg(long, conflicts_with_all = ["profile", "apply"])]
    samples: bool,
    /// Lay out libraries too whose path or name matches: * and ? are wild (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    lib: Vec<String>,
    #[command(flatten)]
    select: SelectArgs,
    /// Count, or sample, for so long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    time: Duration,
    /// Only these functions (* and ? are wild) and what they lead to; else everything that runs
    #[arg(long, value_name = "FUNCTION")]
    root: Option<String>,
    /// With --root: hot is what runs in more than this share of its calls
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    hot: f64,
    /// A command that prints a number which grows with the process's work; without it, its read
    /// and write system calls are its work, or for root all of its system calls if it makes few of
    /// those
    #[arg(long = "work-counter", alias = "work", value_name = "COMMAND")]
    work: Option<String>,
    /// Compare in so many rounds: original, rewritten, rewritten, original; in fewer (at least 5) if
    /// the answer is clear earlier, in up to --max-rounds if a gain is likely and not certain
    #[arg(long = "rounds", alias = "pairs", value_name = "N", default_value_t = 20)]
    #[arg(value_parser = rounds)]
    rounds: usize,
    /// The most rounds
    #[arg(long, value_name = "N", default_value_t = 60)]
    max_rounds: usize,
    /// Each turn of a round takes so long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "250ms")]
    turn: Duration,
    /// Do not compare: leave the rewritten text in place
    #[arg(long = "no-compare", alias = "keep")]
    keep: bool,
    /// Only this process, not the others of its group: those that it was forked from or with, or has
    /// forked
    #[arg(long = "no-group", alias = "alone")]
    alone: bool,
    /// Lay every function's blocks out at random, by this seed: for tests
    #[arg(long, value_name = "SEED", hide = true)]
    shuffle: Option<u64>,
    /// Lay out what stalls for at least this share of the time to fetch its code, by the processor's
    /// counters, or by a model where it has none
    #[arg(long, value_name = "SHARE", default_value_t = 0.02)]
    threshold: f64,
    /// Count, lay out and compare so often, in another of four ways each time, the model's best
    /// first: the fastest stays
    #[arg(long = "candidates", alias = "passes", value_name = "N", default_value_t = 1)]
    #[arg(conflicts_with = "keep")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=4))]
    passes: u8,
    /// Go on: compare again after each such time, and tune anew when the load has changed
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "keep")]
    watch: Option<Duration>,
    /// Compare once more what an earlier run left in the process, and revert it unless it is faster
    #[arg(long, requires = "pid", conflicts_with_all = ["save", "profile", "samples", "lib", "passes", "watch", "dry_run", "keep", "shuffle", "root"])]
    recheck: bool,
    /// Count and decide, and leave nothing changed
    #[arg(long)]
    dry_run: bool,
    /// Why this is done, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Be interrupted when the process ends that has started this
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// What they mean for the kernel.
    fn of_kernel(&self) -> anyhow::Result<crate::kernel::TuneArgs> {
        let only = self.select.selection()?.only.into_iter().map(|pattern| match pattern {
            Pattern::Name(names) => Ok(names.split(',').map(str::to_owned).collect::<Vec<_>>()),
            Pattern::Addresses(..) => bail!("--kernel: functions are named, not given by address"),
        });
        Ok(crate::kernel::TuneArgs {
            root: self.root.clone(),
            only: only.collect::<anyhow::Result<Vec<_>>>()?.concat(),
            hot: self.hot,
            save: self.save.clone(),
            profile: self.profile.clone(),
            time: self.time,
            work_counter: self.work.clone(),
            rounds: u16::try_from(self.rounds).context("--rounds: too many")?,
            max_rounds: u16::try_from(self.max_rounds).context("--max-rounds: too many")?,
            turn: self.turn,
            no_promotion: false,
            no_compare: self.keep,
            watch: self.watch,
            json: self.json,
        })
    }

    /// What is to be done with a process.
    fn options(&self) -> anyhow::Result<Options> {
        let read = |path: &PathBuf| Saved::read(path).map_err(anyhow::Error::msg);
        let profile = self.apply.as_ref().or(self.profile.as_ref()).map(read).transpose()?;
        let wanted = Wanted { libraries: self.lib.clone(), selection: self.select.selection()? };
        let work = match &self.work {
            Some(command) => Work::Command(command.clone()),
            None => Work::Calls,
        };
        Ok(Options {
            wanted,
            time: self.time,
            group: Group { root: self.root.clone(), share: self.hot, rank: 0 },
            measure: measure::Plan {
                work,
                rounds: Rounds { enough: self.rounds, most: self.max_rounds },
                turn: self.turn,
            },
            keep: self.keep || self.apply.is_some(),
            dry_run: self.dry_run,
            alone: self.alone,
            samples: self.samples,
            profile,
            save: self.save.clone(),
            threshold: self.threshold,
            passes: usize::from(self.passes),
            watch: self.watch,
        })
    }
}

/// Where undo logs and the audit log are.
pub fn folders() -> anyhow::Result<StateFolders> {
    StateFolders::of_user().context("there is no place for undo logs: set HOME or XDG_CACHE_HOME")
}

/// Where undo logs are.
pub fn folder() -> anyhow::Result<PathBuf> {
    Ok(folders()?.logs)
}

/// Writes down what was done. That it cannot be written prevents nothing.
pub(crate) fn audit(path: &Path, line: &Audit<'_>) {
    if let Err(error) = line.append(path) {
        say!("fettle: the audit log {} cannot be written: {error}", path.display());
    }
}

fn rounds(text: &str) -> Result<usize, String> {
    let least = comparison::LEAST_ROUNDS;
    match text.parse() {
        Ok(rounds) if rounds >= least => Ok(rounds),
        Ok(_) => Err(format!("fewer than {least} rounds would show nothing")),
        Err(_) => Err("rounds are counted in whole numbers".to_owned()),
    }
}

/// Runs `fettle tune`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.kernel {
        return crate::kernel::tune(&args.of_kernel()?);
    }
    if args.with_parent {
        fettle_live::end_with_parent()?;
    }
    let StateFolders { logs: folder, audit } = folders()?;
    let options = args.options()?;
    // On a signal, what was begun is reverted before we end.
    let stop = Stop(fettle_live::catch_signals().context(UNHANDLED)?);
    let Some(pid) = args.pid else {
        return crate::apply::run(&args.program, &folder, &options, stop);
    };
    let process = Process::open(pid)?;
    crate::output::say_stopped(&process);
    fettle_live::open_many_files();
    fettle_live::stop_between_pauses().context(UNHANDLED)?;
    if args.recheck {
        return recheck(args, &process, (&folder, &audit), (&options.measure, stop));
    }
    let claim = leftovers::clear(&folder, &process, args.alone)?;
    fettle_tune::lower_priority();
    if let Some(seed) = args.shuffle {
        return shuffle(args, seed, (&process, &folder), &options.wanted, stop);
    }
    let mut printed = Ok(());
    let outcome = fettle_tune::tune(&process, &folder, &options, stop, |news| match news {
        Progress::Step(step) => say!("fettle: {step}"),
        Progress::Tuned(outcome) => {
            if !args.dry_run {
                let line = Audit::now("tune", pid, args.reason.as_deref());
                let result = result(outcome.measured.as_ref(), outcome.not_compared.as_deref());
                self::audit(&audit, &Audit { changed: outcome.kept, result, ..line });
            }
            let now = print_outcome(args, pid, outcome);
            printed = std::mem::replace(&mut printed, Ok(())).and(now);
        }
    });
    let outcome = outcome.map_err(|error| explained(&folder, &process, error))?;
    printed?;
    if args.with_kernel {
        drop(claim);
        return with_kernel(args, &process, &folder, outcome.kept);
    }
    // A dry run that decided something did what it was asked for.
    let done = outcome.kept || (args.dry_run && !outcome.decided.is_empty());
    Ok(ExitCode::from(u8::from(!done)))
}

/// Tunes the kernel for a process's work, too.
fn with_kernel(
    args: &Args,
    process: &Process,
    folder: &Path,
    is_tuned: bool,
) -> anyhow::Result<ExitCode> {
    // Root and names are the process's; what the kernel runs meanwhile is seen by its tracer.
    let of_kernel = crate::kernel::TuneArgs {
        root: None,
        only: Vec::new(),
        save: None,
        profile: None,
        ..args.of_kernel()?
    };
    if is_tuned {
        crate::kernel::tune_with(&of_kernel, process, (folder, args.alone))?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::kernel::tune(&of_kernel)
}

/// Compares once more what is installed.
fn recheck(
    args: &Args,
    process: &Process,
    (folder, audit): (&Path, &Path),
    (plan, stop): (&measure::Plan, Stop<'_>),
) -> anyhow::Result<ExitCode> {
    let pid = process.pid();
    say!("fettle: measuring");
    let done = fettle_tune::recheck(process, folder, plan, args.alone, stop)?;
    let line = Audit::now("recheck", pid, args.reason.as_deref());
    let result = result(Some(&done.measured), None);
    self::audit(audit, &Audit { changed: done.kept, result, ..line });
    if args.json {
        let value = json!({
            "version": 1, "pid": pid, "kept": done.kept, "measured": measured_json(&done.measured),
            "left": done.stuck.iter().map(|(pid, why)| json!({ "pid": pid, "why": why })).collect::<Vec<_>>(),
        });
        crate::output::print(&format!("{}\n", with_old_keys(value)))?;
    } else {
        let mut text = measured_text(&done.measured);
        text.push_str(&match done.kept {
            true => format!("the rewritten text stays; `fettle undo {pid}` reverts it\n"),
            false => "no certain gain: the process runs its original text again\n".to_owned(),
        });
        for (pid, why) in &done.stuck {
            text.push_str(&format!("process {pid} keeps memory of rewritten text: {why}\n"));
        }
        crate::output::print(&text)?;
    }
    Ok(ExitCode::from(u8::from(!done.kept)))
}

/// The message on an error after which a process may be changed.
pub(crate) fn explained(folder: &Path, process: &Process, error: TuneError) -> anyhow::Error {
    let pid = process.pid();
    let left = Journal::look(folder, pid).ok().flatten();
    match left.is_some_and(|journal| journal.is_of(process)) && process.is_same() {
        true => anyhow::anyhow!(
            "{error}; some of what was begun could not be reverted, and does nothing: `fettle \
             undo {pid}` later"
        ),
        false => error.into(),
    }
}

/// Lays code out at random.
fn shuffle(
    args: &Args,
    seed: u64,
    (process, folder): (&Process, &Path),
    wanted: &Wanted,
    stop: Stop<'_>,
) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let target = Target::when_loaded(process, LOADING, &|| false)?;
    let (modules, refused) = fettle_tune::lift(&target, wanted, stop)?;
    let process_group = ProcessGroup::of(process, args.alone);
    let all = fettle_tune::shuffled((&target, &process_group), &modules, &wanted.selection, seed)?;
    let prepared = begin.elapsed();
    for (path, why) in &refused {
        say!("fettle: {} is left unmodified: {why}", path.display());
    }
    if args.dry_run {
        let jumps: usize = all.iter().map(|code| code.jumps.len()).sum();
        let left: Vec<LeftUnmodified> = all.iter().flat_map(|code| code.left.clone()).collect();
        let installed = Installed { jumps, left, ..Installed::default() };
        return print_installed(args, &installed, prepared, Duration::ZERO);
    }
    let begin = Instant::now();
    let mut process_group = ProcessGroup::of(process, args.alone);
    let installed = fettle_tune::install_in_group(folder, &target, &mut process_group, &all)?;
    for (pid, why) in &process_group.left {
        say!("fettle: process {pid} is left unmodified: {why}");
    }
    print_installed(args, &installed, prepared, begin.elapsed())
}

fn print_installed(
    args: &Args,
    installed: &Installed,
    prepared: Duration,
    took: Duration,
) -> anyhow::Result<ExitCode> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for left in &installed.left {
        *reasons.entry(left.reason.describe()).or_default() += 1;
    }
    let stops: Vec<f64> = installed.stops.iter().map(|stop| milliseconds(*stop)).collect();
    let longest = stops.iter().copied().fold(0.0, f64::max);
    if args.json {
        let value = json!({
            "version": 1, "pid": args.pid, "changed": !args.dry_run, "jumps": installed.jumps,
            "calls": installed.calls, "got_slots": installed.slots, "osr_entries": installed.osr_entries,
            "left_unmodified": installed.left.len(), "reasons": reasons, "bytes": installed.bytes,
            "threads": installed.threads, "pauses_ms": stops, "prepare_ms": milliseconds(prepared),
            "install_ms": milliseconds(took),
        });
        crate::output::print(&format!("{}\n", with_old_keys(value)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (jumps, left) = (installed.jumps, installed.left.len());
    let mut text = match args.dry_run {
        true => {
            format!(
                "{jumps} patches would lead to rewritten text; {left} functions are left unmodified\n"
            )
        }
        false => format!(
            "{} lead to rewritten text, written in {:.1} ms; {left} functions are left unmodified\n{} threads \
             paused {} times, at most {longest:.2} ms\n",
            ways_text(installed),
            milliseconds(took),
            installed.threads,
            stops.len(),
        ),
    };
    for (reason, count) in &reasons {
        text.push_str(&format!("  {count:6}  {reason}\n"));
    }
    if args.dry_run {
        text.push_str("nothing was changed (--dry-run)\n");
    }
    crate::output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn print_outcome(args: &Args, pid: Pid, outcome: &Outcome) -> anyhow::Result<()> {
    if args.json {
        return crate::output::print(&format!("{}\n", with_old_keys(outcome_json(pid, outcome))));
    }
    let mut text = String::new();
    for (path, why) in &outcome.refused {
        text.push_str(&format!("{} is left unmodified: {why}\n", path.display()));
    }
    text.push_str(&profile_text(args, outcome));
    for (path, decided) in &outcome.decided {
        text.push_str(&decided_text(path, decided));
    }
    if let Some(installed) = &outcome.installed {
        text.push_str(&format!(
            "\ninstalled: {} lead to {} kB of rewritten text; {} threads, longest pause {:.2} ms; {} processes have it\n",
            ways_text(installed),
            installed.bytes / 1000,
            installed.threads,
            longest(&installed.stops),
            outcome.processes,
        ));
    }
    text.push_str(&outcome.seen.map_or_else(String::new, seen_text));
    let left: Vec<_> = outcome.profile.stuck.iter().chain(&outcome.left).cloned().collect();
    for several in Several::of(&left) {
        let (who, stays) = several.who(("is left unmodified", "are left unmodified"));
        text.push_str(&format!("{who} {stays}: {}\n", several.why));
    }
    if let Some(measured) = &outcome.measured {
        text.push_str(&measured_text(measured));
    }
    if let Some(why) = &outcome.not_compared {
        text.push_str(&format!("not compared: {why}\n"));
    }
    if args.dry_run {
        text.push_str(&waits_text(&outcome.limited_waits));
    }
    text.push_str(&match (outcome.kept, args.dry_run) {
        (true, _) if outcome.processes > 1 => {
            format!("the rewritten text stays; `fettle undo --group {pid}` reverts it\n")
        }
        (true, _) => format!("the rewritten text stays; `fettle undo {pid}` reverts it\n"),
        (false, true) => "nothing stays changed (--dry-run)\n".to_owned(),
        (false, false) if outcome.not_compared.is_some() => {
            "the process runs its original text again\n".to_owned()
        }
        (false, false) => "no certain gain: the process runs its original text again\n".to_owned(),
    });
    crate::output::print(&text)
}

/// Threads whose waits a pause would end.
fn waits_text(waits: &[(Tid, &'static str)]) -> String {
    const MOST: usize = 8;
    if waits.is_empty() {
        return String::new();
    }
    let named: Vec<String> =
        waits.iter().take(MOST).map(|(tid, call)| format!("{tid} in {call}")).collect();
    let more = match waits.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("a pause would end waits with a time limit early (EINTR): {}{more}\n", named.join(", "))
}

/// What is known of what runs, and how.
fn profile_text(args: &Args, outcome: &Outcome) -> String {
    let profile = &outcome.profile;
    let mut text = match (&outcome.fit, profile.pc_samples) {
        (Some(fit), _) => {
            let moved = match fit.moved {
                0 => String::new(),
                moved => format!(" ({moved} of another build, by name and shape)"),
            };
            format!(
                "the profile fits {} functions{moved}; {} differ or are not there\n",
                fit.functions, fit.differing
            )
        }
        (None, Some((seen, here))) => format!(
            "threads at work in {} processes were seen {seen} times in {:.1} s, {here} of them in \
             functions that can be laid out\n",
            profile.processes,
            args.time.as_secs_f64(),
        ),
        (None, None) => format!(
            "counted {} passages in {:.1} s in {} processes; copies with counters in {} \
             functions, {} of which soon had counted enough; longest pause of its threads {:.2} ms\n",
            profile.events,
            args.time.as_secs_f64(),
            profile.processes,
            profile.installed.jumps,
            profile.early,
            longest(&profile.installed.stops).max(longest(&profile.stops)),
        ),
    };
    if let Some(stalled) = outcome.stalled {
        text.push_str(&format!(
            "by the processor's counters it waits for code in {:.1} % of its cycles\n",
            stalled * 100.0
        ));
    }
    text
}

/// The paper's figures for one module: layout before and after, the group, the model's view.
pub(crate) fn decided_text(path: &Path, decided: &Decided) -> String {
    let mut text = format!("\n{}: {} functions ran", path.display(), decided.code.procedures.len());
    let exact = decided.exactness;
    text.push_str(&format!(
        "; {:.1} % of {} edges have exact counts\n\n  executed  hot bytes  cold bytes  function\n",
        exact.exact as f64 / exact.edges.max(1) as f64 * 100.0,
        exact.edges,
    ));
    const MOST: usize = 15;
    let mut rows: Vec<&fettle_tune::Row> = decided.rows.iter().collect();
    rows.sort_by(|a, b| b.executed.total_cmp(&a.executed));
    for row in rows.iter().take(MOST) {
        text.push_str(&format!(
            "{:8.1} % {:10} {:11}  {}\n",
            row.executed * 100.0,
            row.hot_bytes,
            row.cold_bytes,
            fettle_demangle::demangle(&row.name)
        ));
    }
    if let Some(rest) = rows.get(MOST..).filter(|rest| !rest.is_empty()) {
        let share: f64 = rest.iter().map(|row| row.executed).sum();
        text.push_str(&format!("{:8.1} % {:>23}  {} more\n", share * 100.0, "", rest.len()));
    }
    let (before, after) = (&decided.chosen.before, &decided.chosen.after);
    let maps = &decided.maps;
    text.push_str(&format!(
        "\nhot code: {} cache lines, now {}; by the model: {:.2} misses per thousand instructions, \
         now {:.2}; {:.0} % of jumps between blocks taken, now {:.0} %\n",
        maps.0.lines,
        maps.1.lines,
        before.cost.misses_per_thousand(),
        after.cost.misses_per_thousand(),
        taken(before) * 100.0,
        taken(after) * 100.0,
    ));
    text.push_str(&promoted_text(&decided.promoted));
    text
}

/// What is known of indirect calls, and how many were promoted.
fn promoted_text(promoted: &Promoted) -> String {
    // Traces know nothing of them.
    if promoted.known == 0 {
        return String::new();
    }
    let share = |n: u64| n as f64 / promoted.calls as f64 * 100.0;
    format!(
        "indirect calls: of {:.1} % it was seen where they lead; {} are compared with their \
         most frequent target first, for {:.1} % of all\n",
        share(promoted.known),
        promoted.targets.len(),
        share(promoted.found()),
    )
}

/// A larger share of the time in original text is explained.
const MUCH: f64 = 0.1;

/// How many patches of which kind lead to rewritten text.
fn ways_text(installed: &Installed) -> String {
    let Installed { jumps, calls, slots, osr_entries, .. } = installed;
    match osr_entries {
        0 => format!("{jumps} jumps, {calls} calls and {slots} slots"),
        _ => format!(
            "{jumps} jumps, {calls} calls, {slots} slots and {osr_entries} places in the middle of functions"
        ),
    }
}

/// Share of the ways between blocks that are taken jumps.
pub(crate) fn taken(modelled: &fettle_tune::Modelled) -> f64 {
    let ways = modelled.ways;
    ways.taken() as f64 / (ways.taken() + ways.straight).max(1) as f64
}

/// Where threads were when the rewritten text was in place.
fn seen_text(seen: Seen) -> String {
    let percent = |of: usize| seen.share(of) * 100.0;
    let mut text = format!(
        "threads at work were seen {} times: {:.0} % in rewritten text, {:.0} % in original text of the same \
         functions, {:.0} % elsewhere\n",
        seen.new + seen.old + seen.other,
        percent(seen.new),
        percent(seen.old),
        percent(seen.other),
    );
    if seen.share(seen.old) > MUCH {
        text.push_str(
            "what runs in original text has not reached rewritten text: it does not come to the start of a \
             function, nor to a block that has room for a jump\n",
        );
    }
    text
}

/// The same as [`decided_text`], for programs.
pub(crate) fn decided_json(path: &Path, decided: &Decided) -> serde_json::Value {
    let model = |modelled: &fettle_tune::Modelled| {
        let mut value = json!(modelled);
        value["stall_share"] = json!(modelled.stall_share());
        value
    };
    let function = |row: &fettle_tune::Row| {
        let mut value = json!(row);
        let demangled = fettle_demangle::demangle(&row.name);
        if demangled != row.name {
            value["demangled"] = json!(demangled);
        }
        value
    };
    let functions: Vec<_> = decided.rows.iter().map(function).collect();
    json!({
        "path": path, "functions": functions, "choice": decided.chosen.layout.choice,
        "exact_edges": decided.exactness.exact, "edges": decided.exactness.edges,
        "cache_before": decided.maps.0, "cache_after": decided.maps.1,
        "model_before": model(&decided.chosen.before), "model_after": model(&decided.chosen.after),
        "choices": decided.chosen.all.iter().map(|(c, m)| json!([c, model(m)])).collect::<Vec<_>>(),
        "pointers": {
            "calls": decided.promoted.calls, "known": decided.promoted.known,
            "promoted": decided.promoted.targets.len(), "found": decided.promoted.found(),
        },
    })
}

fn outcome_json(pid: Pid, outcome: &Outcome) -> serde_json::Value {
    let ms = |stops: &[Duration]| stops.iter().map(|stop| milliseconds(*stop)).collect::<Vec<_>>();
    let modules: Vec<_> =
        outcome.decided.iter().map(|(path, decided)| decided_json(path, decided)).collect();
    let refused: Vec<_> =
        outcome.refused.iter().map(|(path, why)| json!({ "path": path, "why": why })).collect();
    let profile = &outcome.profile;
    let left = profile.stuck.iter().chain(&outcome.left);
    let left: Vec<_> = left.map(|(pid, why)| json!({ "pid": pid, "why": why })).collect();
    json!({
        "version": 1, "pid": pid, "kept": outcome.kept, "modules": modules,
        "profile": outcome.fit.map(|fit| json!({
            "functions": fit.functions, "moved": fit.moved, "differing": fit.differing,
        })),
        "stalled": outcome.stalled,
        "limited_waits": outcome.limited_waits.iter()
            .map(|(tid, call)| json!({ "tid": tid, "call": call })).collect::<Vec<_>>(),
        "refused": refused, "processes": outcome.processes,
        "left": left,
        "counted": {
            "processes": profile.processes,
            "samples": profile.pc_samples.map(|(seen, here)| json!({ "all": seen, "in_functions": here })),
            "passages": profile.events, "inconsistent_functions": profile.inconsistent,
            "early_functions": profile.early,
            "jumps": profile.installed.jumps, "pauses_ms": ms(&profile.installed.stops),
            "undo_pauses_ms": ms(&profile.stops),
        },
        "installed": outcome.installed.as_ref().map(|installed| json!({
            "jumps": installed.jumps, "calls": installed.calls, "got_slots": installed.slots,
            "osr_entries": installed.osr_entries, "bytes": installed.bytes, "threads": installed.threads,
            "left_unmodified": installed.left.len(), "pauses_ms": ms(&installed.stops),
        })),
        "seen": outcome.seen.map(|seen| json!({
            "new": seen.new, "old": seen.old, "other": seen.other,
        })),
        "not_compared": outcome.not_compared,
        "measured": outcome.measured.as_ref().map(measured_json),
    })
}

/// Why nothing is done.
pub(crate) const UNHANDLED: &str = "signals cannot be handled";
