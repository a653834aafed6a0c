//! `fettle record`: running a program with probes.

use crate::old_keys::with_old_keys;
use std::cell::Cell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use fettle_abi::locks::FUNCTIONS;
use fettle_abi::ring::Policy;
use fettle_code::{Depth, Mode};
use fettle_live::{ExitStatus, LiveError};
use fettle_record::ahead::Preparing;
use fettle_record::record::Watch;
use fettle_record::session::Progress;
use fettle_record::unmatched::Unmatched;
use fettle_record::{
    ArgumentRequest, Finished, KernelOptions, KernelRecording, Options, Outcome, Outliving,
    Pattern, RecordError, Remote, Target,
};
use fettle_relay::SenderEvent;
use fettle_report::render::count;
use fettle_trace::{Manifest, ProbeMode};
use fettle_types::{Pid, parse_time};
use serde_json::json;

use crate::mode::ModeArg;
use crate::output::{self, plural};
use crate::select::SelectArgs;
use crate::threads;

/// Arguments of `fettle record`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle record -- lua5.4 script.lua\n  fettle record --mode count -o quick.fettle -- make -j2\n  fettle record --lib 'libsqlite3*' --only 'sqlite3*' --skip '*mutex*' -- sqlite3 my.db .tables\n  fettle record --lib 'libcrypto*' --lib 'libssl*' -- python3 client.py\n  fettle record --lib '*' --mode time -- grep -r needle .\n  fettle record --locks -- ./server\n  sudo fettle record --kernel --no-probes -- ./server\n  sudo fettle record -p 1234 --duration 10s\n  fettle record -p 1234 --mode time --duration 10s\n  fettle record -p 1234 --mode edges --lib 'libssl*' --duration 10s\n  sudo fettle record --payload 1024 -p 1234\n  fettle record --to collector.example:7117 -- ./server\n\nThe program's input, output, exit status and signals are its own. Ctrl-C reaches the program;\nthe trace is whole all the same.\n\nExit status: the program's; 2 error, also where the program's is 0 and the trace is not whole;\n126 the program cannot be executed; 127 there is none."
)]
pub struct Args {
    /// Folder to write the trace to [default: PROGRAM.fettle, or PROGRAM-2.fettle and so on]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// What to measure [default: events]; with --pid, what it executes instead of the kernel's events
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Measure calls nested up to so many deep only; deeper ones run as if they had no probes
    /// (modes events and time)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,
    /// Record arguments and results of functions: a name with * and ? where debug information
    /// says what they take, or a prototype such as 'int open(const char *path, int flags)' (mode
    /// events; may be repeated)
    #[arg(long = "args", value_name = "FUNCTION")]
    pub(crate) arguments: Vec<String>,
    /// Record which thread takes which lock or semaphore and releases it, in the C library, for
    /// `fettle requests --analysis locks`; other functions only if --only names them
    #[arg(long, conflicts_with_all = ["probe", "no_probes"])]
    pub(crate) locks: bool,
    /// A probe of your own: a C or Rust source with fettle_enter, fettle_leave or both, which run at
    /// each entry and exit (see docs/user/probes.md); takes the place of --mode
    #[arg(long, value_name = "FILE", conflicts_with = "mode")]
    pub(crate) probe: Option<PathBuf>,
    /// Shared libraries to record as well, those loaded at start and those opened later: a path
    /// or file name with * and ?, such as 'libcrypto*', '/opt/app/*' or '*' for all (may be
    /// repeated)
    #[arg(long = "lib", value_name = "GLOB")]
    pub(crate) libraries: Vec<String>,
    /// Ring for each thread's records, in MiB (a power of two)
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    ring: u32,
    /// What a thread does whose ring is full [default: drop; with --locks wait, for a lock's holder
    /// is not known when anything is lost]
    #[arg(long = "on-full", alias = "when-full", value_enum)]
    pub(crate) when_full: Option<PolicyArg>,
    /// Keep no record of calls that take less, such as 5us or 1ms; totals of functions count them
    /// (mode events)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    min_duration: Option<Duration>,
    /// Threads that can be recorded at once
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_threads: u32,
    /// Keep rewritten code for later recordings here [default: $XDG_CACHE_HOME/fettle or
    /// ~/.cache/fettle]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Neither use rewritten code of earlier recordings nor keep any
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// Lay the program's blocks out at random, by this seed: a test of Fettle
    #[arg(long, value_name = "SEED", hide = true)]
    shuffle: Option<u64>,
    /// Record the kernel's events, too: scheduling, system calls, sockets, pipes, files, futexes,
    /// signals, faults, block devices; of the program and all that it starts (needs root)
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Count calls of these functions of the kernel itself, of all processes, while a program runs or
    /// for --duration: names with * and ? (needs root; see `fettle kernel count`)
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["probe", "locks", "pid", "system", "kernel", "no_probes", "to"])]
    pub(crate) kernel_functions: Vec<String>,
    /// Put no probes in, and do not trace: the kernel's events alone
    #[arg(long, conflicts_with_all = ["mode", "only", "skip", "arguments", "probe", "libraries"])]
    no_probes: bool,
    /// Record the kernel's events of running processes, and of all that they start, until Ctrl-C
    /// (may be repeated); with --mode, --probe, --args or --locks what one of them executes
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "command")]
    pid: Vec<Pid>,
    /// With --pid and probes: only this process, not those that it was forked from or with, or has
    /// forked
    #[arg(long = "no-group", alias = "alone", requires = "pid")]
    pub(crate) alone: bool,
    /// Record the kernel's events of all processes; with a program, until it ends, otherwise until
    /// Ctrl-C
    #[arg(long, conflicts_with = "pid")]
    system: bool,
    /// With --pid or --system: stop after this time, such as 10s, 500ms or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[arg(conflicts_with = "command")]
    pub(crate) duration: Option<Duration>,
    /// When the recording of a program ends: with the program itself, as a shell waits for it, or when all
    /// that it has started has ended, daemons too
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Until::Exit)]
    #[arg(conflicts_with_all = ["pid", "system"])]
    until: Until,
    /// Ring for each processor's kernel events, in MiB (a power of two)
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    kernel_ring: u32,
    /// Record when each system call begins, not only those that have to wait: how long each takes,
    /// for up to twice the records
    #[arg(long)]
    pub(crate) call_times: bool,
    /// Look into so many bytes of each message that goes over a connection, and record what it asks
    /// or answers: HTTP, WebSocket, gRPC, FastCGI, PostgreSQL, MySQL, Redis, memcached, NATS,
    /// MQTT, AMQP, Kafka. Paths, statements and keys get into the trace, which may be people's secrets; so
    /// this is off by default
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(fettle_record::PAYLOAD_MOST)))]
    pub(crate) payload: u32,
    /// Send the trace to `fettle collect` on another machine while it is recorded; nothing of it
    /// stays here (see docs/user/collect.md)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: Option<String>,
    /// With --to: the recorder's key, as the aggregator has made it [default:
    /// ~/.config/fettle/recorder.key]
    #[arg(long, value_name = "FILE", requires = "to")]
    key: Option<PathBuf>,
    /// With --to: how much may wait here while the collector is away, such as 256M or 2G; beyond
    /// that the oldest is dropped and counted
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = crate::collect::parse_size)]
    spool: u64,
    /// Be interrupted when the process ends that has started this
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print what was recorded as JSON, to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true)]
    #[arg(required_unless_present_any = ["pid", "system"])]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// The running process that is to get probes, if that is what is wanted.
    pub(crate) fn probed_pid(&self) -> anyhow::Result<Option<Pid>> {
        match (&self.pid[..], self.wants_probes()) {
            (_, false) | ([], true) => Ok(None),
            ([pid], true) => Ok(Some(*pid)),
            _ => bail!("probes go with one --pid: record the others by themselves"),
        }
    }

    /// Whether probes are asked for, of a process that runs already.
    fn wants_probes(&self) -> bool {
        self.mode.is_some() || self.probe.is_some() || self.locks || !self.arguments.is_empty()
    }

    /// What becomes of processes that outlive the program.
    fn outliving(&self) -> Outliving {
        let notice = match self.quiet || self.json {
            true => |_: &str| (),
            false => |text: &str| say!("fettle: {text}"),
        };
        Outliving { recorded: self.until == Until::All, notice }
    }

    /// The trace's folder: as it was named, or for this name.
    pub(crate) fn output_for(&self, name: &OsString) -> anyhow::Result<PathBuf> {
        self.output.as_ref().map_or_else(|| free_name(name), |path| Ok(path.clone()))
    }
}

/// When a recording of a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Until {
    /// The program has ended; what it started and outlives it goes on, and is not recorded from then on
    Exit,
    /// The program and all that it started have ended
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Counts what is lost and goes on
    Drop,
    /// Keeps only the newest records
    Overwrite,
    /// Waits for room
    Wait,
}

/// What an error of a recording comes to: the program's own end, where it came to one.
pub fn failed(error: anyhow::Error, quiet: bool) -> anyhow::Result<ExitCode> {
    let known = error.downcast_ref::<RecordError>();
    match known {
        // What came while we looked for the program was for it.
        Some(RecordError::Live(LiveError::Stillborn {
            status: ExitStatus::Signal { signal, .. },
        })) => {
            if !quiet {
                say!("fettle: {error:#}");
            }
            fettle_record::die_by(*signal)
        }
        Some(RecordError::Unfinished { status: Some(status), .. }) if !is_success(*status) => {
            say!("fettle: {}", output::reported(&error));
            pass_on(*status)
        }
        _ => match known.and_then(RecordError::shell_status) {
            Some(status) => {
                say!("fettle: {}", output::reported(&error));
                Ok(ExitCode::from(status))
            }
            None => Err(error),
        },
    }
}

/// Runs the command, but for what [`Args::probed_pid`] is for.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.with_parent {
        fettle_live::end_with_parent()?;
    }
    if args.alone {
        bail!("--no-group goes with probes: say what to measure by --mode");
    }
    if args.no_probes || args.command.is_empty() {
        return run_untraced(&args);
    }
    let options = options(&args, args.command.clone(), &args.command[0])?;
    // A program that writes to the terminal has it for itself.
    let line = !std::io::stdout().is_terminal();
    let outcome = watched(&args, &options, line, |watch| {
        let (stop, progress, finishing) = watch;
        Ok(fettle_record::record(&options, stop, progress, finishing)?)
    })?;
    if args.json {
        say!("{}", with_old_keys(as_json(&outcome, &options.output)));
    }
    report_end(&args, &options, &outcome);
    end(outcome.status, &outcome)
}

/// Has `record` record while signals are caught and progress is shown, by a `line` if there may be
/// one.
pub(crate) fn watched<T>(
    args: &Args,
    options: &Options,
    line: bool,
    record: impl FnOnce(Watch<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let talk = !args.quiet && !args.json;
    if let Some(user_probe) = options.user_probe.as_ref().filter(|_| talk) {
        for (name, inline) in user_probe.functions() {
            let how = if inline { "put in line" } else { "called" };
            say!("fettle: {name} is {how}");
        }
    }
    let progress = talk && std::io::stderr().is_terminal();
    threads::can_be_started()?;
    let stop = fettle_live::catch_signals()?;
    let written = Cell::new(false);
    let mut finishing = |done: u64, all: u64| {
        if progress && all > 0 {
            written.set(true);
            output::show_again(format_args!("fettle: writing the trace, {:3} %", done * 100 / all));
        }
    };
    let show = |now: Progress| {
        written.set(true);
        show_progress(now);
    };
    let line: Option<Box<dyn FnMut(Progress)>> =
        (progress && line).then(|| Box::new(show) as Box<dyn FnMut(Progress)>);
    let done = record((stop, line, &mut finishing));
    if written.get() {
        output::show_again(format_args!(""));
    }
    done
}

/// Reports a recording that has ended, except for what `--json` prints.
pub(crate) fn report_end(args: &Args, options: &Options, outcome: &Outcome) {
    if !args.quiet && !args.json {
        notify(outcome, &place(args, &options.output, &outcome.finished));
    } else if !args.json {
        report_lost_events(&outcome.finished.manifest);
    }
    crate::collect::report_undelivered(&outcome.finished, args.to.as_deref());
    if let Some(error) = &outcome.write_error {
        say!("fettle: the trace is not whole: {error}");
    }
}

/// Records the kernel's events alone.
fn run_untraced(args: &Args) -> anyhow::Result<ExitCode> {
    let kernel = kernel(args)?.context(
        "--no-probes goes with --kernel or --system: there would be nothing to record otherwise",
    )?;
    let (target, name) = match (args.command.first(), args.pid.first()) {
        (Some(program), _) => (Target::Command(args.command.clone()), program.clone()),
        (None, Some(pid)) => (Target::Running(args.pid.clone()), format!("pid-{pid}").into()),
        (None, None) => (Target::System, "system".into()),
    };
    let output = args.output_for(&name)?;
    let (remote, duration) = (remote(args)?, args.duration);
    let outliving = args.outliving();
    let recording = KernelRecording { target, output, remote, kernel, duration, outliving };
    let until = until();
    let stop = fettle_live::catch_signals()?;
    let talk = !args.quiet && !args.json && args.duration.is_none();
    let mut begun = || {
        if talk {
            say!("fettle: recording until {until}");
        }
    };
    let outcome = fettle_record::record_kernel(&recording, stop, &mut begun)?;
    let manifest = &outcome.finished.manifest;
    let (events, output) = (&manifest.events, &recording.output);
    if args.json {
        let totals = &manifest.totals;
        let json = json!({
            "version": 1,
            "trace": output,
            "events": events.rows(),
            "events_lost": events.lost(),
            "losses": manifest.losses,
            "threads": totals.threads,
            "processes": totals.processes,
            "duration_ns": manifest.duration_ns,
            "delivered": outcome.finished.undelivered.is_none(),
            "dropped_on_the_way": outcome.finished.dropped.sum(),
        });
        say!("{json}");
    } else if !args.quiet {
        for note in &manifest.notes {
            say!("fettle: {note}");
        }
        report_events(manifest);
        say!("fettle: {}", place(args, output, &outcome.finished));
    }
    crate::collect::report_undelivered(&outcome.finished, args.to.as_deref());
    if args.quiet && !args.json {
        report_lost_events(manifest);
    }
    match outcome.status {
        Some(status) if !is_success(status) => pass_on(status),
        _ if events.lost() > 0 => Ok(ExitCode::from(2)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What ends a recording that nothing else ends. A shell without job control starts its background jobs with
/// SIGINT ignored, and that is left so.
fn until() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match ignores_interrupt(&status) {
        true => format!(
            "`kill -TERM {}`: Ctrl-C and SIGINT are ignored here, as by all background jobs of a script",
            std::process::id()
        ),
        false => "Ctrl-C".into(),
    }
}

/// Whether a process's `/proc/PID/status` says that it ignores SIGINT.
fn ignores_interrupt(status: &str) -> bool {
    /// SIGINT is signal 2; bits count from signal 1 on.
    const INTERRUPT: u64 = 1 << 1;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & INTERRUPT != 0)
}

/// Where the trace is, and what to do next.
fn place(args: &Args, output: &Path, finished: &Finished) -> String {
    match &args.to {
        Some(to) if finished.undelivered.is_some() => {
            format!("the trace is made at the collector, {to}, when it has the rest")
        }
        Some(to) => format!("the trace is at the collector, {to}"),
        None => {
            let shown = output.display();
            let as_stored = match finished.deferred {
                true => " (calls as stored; the first command to read it converts them)",
                false => "",
            };
            format!("trace in {shown}{as_stored}; next: fettle report {shown}")
        }
    }
}

/// The collector on another machine, if there is to be one.
fn remote(args: &Args) -> anyhow::Result<Option<Remote>> {
    let Some(to) = &args.to else { return Ok(None) };
    let to = crate::collect::to(to, args.key.as_deref())?;
    let quiet = args.quiet || args.json;
    let news = Arc::new(move |news: SenderEvent| {
        if !quiet || matches!(news, SenderEvent::Refused { .. }) {
            say!("fettle: {}", crate::collect::news(&news));
        }
    });
    Ok(Some(Remote { to, spool_bytes: args.spool, notify: news }))
}

/// One line on the kernel's events, and one on those that were lost.
fn report_events(manifest: &Manifest) {
    let (events, totals) = (&manifest.events, &manifest.totals);
    let kinds = events.kinds.iter().filter(|kind| kind.rows > 0).count();
    say!(
        "fettle: {} of {} in {} of {}",
        plural(events.rows(), "kernel event", "kernel events"),
        plural(kinds as u64, "kind", "kinds"),
        plural(totals.threads, "thread", "threads"),
        plural(totals.processes, "process", "processes"),
    );
    report_lost_events(manifest);
}

/// Events that are missing, in a line.
fn report_lost_events(manifest: &Manifest) {
    let lost = manifest.events.lost();
    if lost > 0 {
        say!(
            "fettle: {lost} kernel events were lost, the rings were full; a larger --kernel-ring \
             loses fewer"
        );
    }
}

/// What is asked for of the kernel's events.
fn kernel(args: &Args) -> anyhow::Result<Option<KernelOptions>> {
    if !args.kernel_ring.is_power_of_two() || args.kernel_ring > 512 {
        bail!("--kernel-ring must be a power of two from 1 to 512, not {}", args.kernel_ring);
    }
    let alone = !args.pid.is_empty() && !args.wants_probes();
    let wanted = args.kernel || args.system || alone;
    if (args.payload > 0 || args.call_times) && !wanted {
        bail!("--payload and --call-times go with --kernel, --system, or --pid without probes");
    }
    let ring_bytes = args.kernel_ring << 20;
    let payload = args.payload;
    Ok(wanted.then_some(KernelOptions {
        system: args.system,
        ring_bytes,
        payload,
        call_times: args.call_times,
    }))
}

fn show_progress(now: Progress) {
    output::show_again(format_args!("fettle: {} threads, {} records", now.threads, now.records));
}

/// Shows how far rewritten text is that takes long to make: in one line that is updated, or once
/// where there is no terminal.
pub(crate) fn show_preparing(now: Option<Preparing<'_>>) {
    let terminal = std::io::stderr().is_terminal();
    let Some(now) = now else {
        if terminal {
            output::show_again(format_args!(""));
        }
        return;
    };
    let path = now.path.display();
    let others = match now.files {
        0 | 1 => String::new(),
        files => format!(" and {}", plural(files as u64 - 1, "other file", "other files")),
    };
    let far = match now.functions {
        (_, 0) => String::new(),
        (done, all) => format!(": {} of {} functions", count(done as u64), count(all as u64)),
    };
    match terminal {
        true => output::show_again(format_args!("fettle: rewriting {path}{far}{others}")),
        false if now.first => say!("fettle: rewriting {path}{others}, which takes a while"),
        false => {}
    }
}

/// What is asked for, of a program or process that goes by `name`.
pub(crate) fn options(
    args: &Args,
    command: Vec<OsString>,
    name: &OsString,
) -> anyhow::Result<Options> {
    if !args.ring.is_power_of_two() || args.ring > 256 {
        bail!("--ring must be a power of two from 1 to 256, not {}", args.ring);
    }
    if !(1..=65536).contains(&args.max_threads) {
        bail!("--max-threads must be from 1 to 65536, not {}", args.max_threads);
    }
    let user_probe = args.probe.as_deref().map(fettle_record::user_probe::compile).transpose()?;
    let mode =
        if user_probe.is_some() { Mode::User } else { args.mode.unwrap_or(ModeArg::Events).into() };
    if args.depth.is_some() && !mode.has_depth() {
        bail!("--depth goes with the modes events and time");
    }
    if (args.locks || !args.arguments.is_empty()) && mode != Mode::Events {
        bail!("--args and --locks go with the mode events");
    }
    if args.min_duration.is_some() && (mode != Mode::Events || args.locks) {
        bail!("--min-duration goes with the mode events, and not with --locks");
    }
    if args.min_duration.is_some() && !args.arguments.is_empty() {
        bail!("--min-duration does not go with --args: arguments are kept for every call or none");
    }
    let arguments = args.arguments.iter().map(|text| ArgumentRequest::parse(text));
    let mut arguments = arguments.collect::<Result<Vec<_>, _>>().context("--args")?;
    let (mut selection, mut libraries) = (args.select.selection()?, args.libraries.clone());
    let unmatched = Unmatched::new(&libraries, &selection);
    if args.locks {
        for function in FUNCTIONS {
            selection.only.push(Pattern::Name(function.name().to_owned()));
            arguments.push(ArgumentRequest::parse(function.prototype)?);
        }
        libraries.push("libc.so*".to_owned());
    }
    let output = args.output_for(name)?;
    Ok(Options {
        command,
        output,
        remote: remote(args)?,
        mode,
        depth: args.depth.map_or(Depth::ALL, Depth::new),
        user_probe,
        selection,
        arguments,
        libraries,
        unmatched,
        ring_bytes: args.ring << 20,
        policy: match args.when_full {
            Some(PolicyArg::Overwrite) => Policy::Overwrite,
            Some(PolicyArg::Wait) => Policy::Wait,
            None if args.locks => Policy::Wait,
            Some(PolicyArg::Drop) | None => Policy::Drop,
        },
        threads: args.max_threads,
        shuffle: args.shuffle,
        kernel: kernel(args)?,
        min_duration: args.min_duration,
        outliving: args.outliving(),
        cache: match (&args.cache, args.no_cache) {
            (_, true) => None,
            (Some(path), _) => Some(path.clone()),
            (None, _) => fettle_record::cache::default_path(),
        },
        notify: (!args.quiet && !args.json).then_some(show_preparing),
    })
}

/// A folder in the working folder that does not exist yet.
fn free_name(program: &OsString) -> anyhow::Result<PathBuf> {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    (1..10_000)
        .map(|n| match n {
            1 => PathBuf::from(format!("{name}.fettle")),
            n => PathBuf::from(format!("{name}-{n}.fettle")),
        })
        .find(|path| !path.exists())
        .context("no free name for the trace: name one with --output")
}

pub(crate) fn as_json(outcome: &Outcome, output: &Path) -> serde_json::Value {
    let totals = &outcome.finished.manifest.totals;
    let reasons: std::collections::BTreeMap<_, _> = outcome.reasons.iter().copied().collect();
    let skipped: u64 = outcome.reasons.iter().map(|(_, n)| n).sum();
    json!({
        "version": 1,
        "trace": output,
        "functions_seen": outcome.functions_probed + skipped,
        "functions_lifted": outcome.functions_probed,
        "functions_skipped": skipped,
        "reasons": reasons,
        "refused": outcome.refused,
        "modules": outcome.modules.iter().map(|m| json!({
            "path": m.path,
            "functions_seen": m.functions_seen,
            "functions_lifted": m.functions_probed,
        })).collect::<Vec<_>>(),
        "calls": totals.calls,
        "records": totals.records,
        "deferred": outcome.finished.deferred,
        "lost": totals.lost,
        "losses": outcome.finished.manifest.losses,
        "unwound_frames": totals.unwound_frames,
        "unmatched_exits": totals.unmatched_exits,
        "mirror_overflows": totals.mirror_overflows,
        "events": outcome.finished.manifest.events.rows(),
        "events_lost": outcome.finished.manifest.events.lost(),
        "threads": totals.threads,
        "processes": totals.processes,
        "duration_ns": outcome.finished.manifest.duration_ns,
        "lift_bytes": outcome.work.code_bytes,
        "lift_seconds": outcome.work.seconds,
        "modules_from_cache": outcome.work.from_cache,
        "delivered": outcome.finished.undelivered.is_none(),
        "dropped_on_the_way": outcome.finished.dropped.sum(),
    })
}

fn notify(outcome: &Outcome, place: &str) {
    let totals = &outcome.finished.manifest.totals;
    for note in &outcome.finished.manifest.notes {
        say!("fettle: {note}");
    }
    let skipped: u64 = outcome.reasons.iter().map(|(_, n)| n).sum();
    let seen = outcome.functions_probed + skipped;
    say!(
        "fettle: {} in {} of {}; {} of {seen} functions {}probed{}",
        match outcome.finished.manifest.probe_mode.counts_blocks() {
            _ if outcome.finished.manifest.probe_mode == ProbeMode::User =>
                "your probe's values".to_owned(),
            true => "blocks counted".to_owned(),
            false => plural(totals.calls, "call", "calls"),
        },
        plural(totals.threads, "thread", "threads"),
        plural(totals.processes, "process", "processes"),
        outcome.functions_probed,
        match outcome.modules.len() {
            0 | 1 => String::new(),
            files => format!("in {files} files "),
        },
        if skipped > 0 {
            format!(" ({skipped} left unmodified, see `fettle report`)")
        } else {
            String::new()
        },
    );
    if !outcome.finished.manifest.events.kinds.is_empty() {
        report_events(&outcome.finished.manifest);
    }
    if totals.lost > 0 {
        say!(
            "fettle: {} of {} records were lost, the rings were full (counts and times stay \
             exact); a larger --ring, --on-full wait or --mode time loses none",
            totals.lost,
            totals.lost + totals.records
        );
    }
    for loss in &outcome.finished.manifest.losses {
        say!("fettle: lost: {} × {}", loss.count, loss.reason);
    }
    say!("fettle: {place}");
}

/// Ends as the program did. If it succeeded, or was not waited for, a trace that is not whole is an
/// error.
pub(crate) fn end(status: Option<ExitStatus>, outcome: &Outcome) -> anyhow::Result<ExitCode> {
    match status {
        Some(status) if !is_success(status) => pass_on(status),
        _ if outcome.write_error.is_some() => Ok(ExitCode::from(2)),
        _ if outcome.finished.manifest.events.lost() > 0 => Ok(ExitCode::from(2)),
        _ if outcome.finished.manifest.totals.processes == 0 => {
            say!("fettle: no process had probes: the trace has no calls");
            Ok(ExitCode::from(2))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn is_success(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Code(0))
}

/// Ends as the program did: with its status, or by its signal.
pub(crate) fn pass_on(status: ExitStatus) -> anyhow::Result<ExitCode> {
    match status {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal { signal, .. } => fettle_record::die_by(signal),
    }
}
