//! `fettle watch`: rules over running processes, and what to do where they hold.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use fettle_live::SpareState;
use fettle_trace::rfc3339;
use fettle_watch::journal::{self, Ended, Entry, GivenBack, Line, Sent};
use fettle_watch::look::Look;
use fettle_watch::{
    Action, Judge, LocalAddress, Notice, Rule, Watcher, WatcherOptions, parse, recording,
};
use serde_json::json;

use crate::finding::{ms, why};
use crate::output;
use crate::watch_requests::Live;
use fettle_types::{Pid, parse_time};

/// Watch running processes by rules: who spins, sleeps on bytes or waits in a cycle, and what to do about it
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle watch web.rules --check
  fettle watch web.rules -p $(pgrep -o nginx)              says what it would do
  fettle watch web.rules -p $(pgrep -o nginx) --act        and does it
  fettle watch web.rules -p $(pgrep -o nginx) --act --metrics 127.0.0.1:9818
  fettle watch web.rules -p $(pgrep -o nginx) --record looks.jsonl
  fettle watch web.rules --replay looks.jsonl              tries rules on what was seen
  fettle watch --history
  fettle watch --evidence ~/.local/state/fettle/watch/stuck-4712-1796000000000

A file of rules:
  rule stuck  { worker of \"nginx\" spins 3ms without progress -> keep evidence, restart kill }
  rule dead   { process of \"app\" waits in a cycle -> keep evidence, signal TERM at most 1 in 1m }
  rule asleep { worker of \"nginx\" sleeps 5ms while it holds bytes -> run \"logger asleep\" }
  rule beat   { scalar \"web.ticks\" of process of \"web\" still for 4ms -> signal USR1 }
  rule told   { process of \"db\" waits in a cycle -> webhook \"http://127.0.0.1:9000/hung\" }
  rule path   { scalar \"put.moved\" of process of \"web\" still for 1s -> set \"put.path\" to 0 for 10s }
  rule late   { p99 of histogram \"web.time\" of process of \"web\" > 20ms over 1s -> locate, tune }
  rule bad    { share of failed requests \"*\" of process of \"web\" > 2% over 5s -> keep evidence, locate }

Exit status: 0 nothing found; 1 a rule held; 2 error.")]
pub struct WatchArgs {
    /// File of rules (docs/user/watch.md)
    #[arg(required_unless_present_any = ["history", "evidence"])]
    rules: Option<PathBuf>,
    /// Processes to watch, with all that they start (may be repeated)
    #[arg(long, short, value_name = "PID", value_delimiter = ',')]
    pid: Vec<Pid>,
    /// Do what the rules say. Otherwise it is only said
    #[arg(long, requires = "pid")]
    act: bool,
    /// Check the rules, and do nothing else
    #[arg(long, conflicts_with_all = ["pid", "replay"])]
    check: bool,
    /// Time between looks
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_time)]
    tick: Duration,
    /// Stop after this time, such as 10s or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "pid")]
    duration: Option<Duration>,
    /// Also write what is seen to this file, for --replay; it must not exist
    #[arg(long, value_name = "FILE", requires = "pid")]
    record: Option<PathBuf>,
    /// Let Prometheus read metrics at this address of this machine; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDRESS:PORT", requires = "pid")]
    metrics: Option<LocalAddress>,
    /// Try the rules on what an earlier watcher saw
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    replay: Option<PathBuf>,
    /// Show what watchers have found and done
    #[arg(long, conflicts_with_all = ["rules", "pid", "replay", "check"])]
    history: bool,
    /// Show a folder of evidence: what was found, and what each thread was executing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rules", "pid", "replay", "check", "history"])]
    evidence: Option<PathBuf>,
    /// Where journal and evidence are [default: $XDG_STATE_HOME/fettle/watch or
    /// ~/.local/state/fettle/watch]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs `fettle watch`: 0 if nothing was found, 1 if a rule held.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.evidence {
        return crate::evidence::run(folder, args.json);
    }
    let state = args.state.clone().map_or_else(default_state, Ok)?;
    if args.history {
        return history(&state.join("journal.jsonl"), args.json);
    }
    let path = args.rules.as_deref().context("no file of rules was given")?;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the rules in {}", path.display()))?;
    let rules = match parse::parse(&path.display().to_string(), &text) {
        Ok(rules) => rules,
        Err(report) => bail!("{report}"),
    };
    if args.check {
        output::print(&format!("{}: {}\n", path.display(), plural_rules(rules.len())))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.replay {
        return replay(rules, file, args.json);
    }
    if args.pid.is_empty() {
        bail!("-p says which processes to watch, --replay tries the rules on what was seen before");
    }
    watch(args, rules, state)
}

fn plural_rules(n: usize) -> String {
    output::plural(n as u64, "rule", "rules")
}

fn default_state() -> anyhow::Result<PathBuf> {
    let from = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    Ok(state
        .context("neither XDG_STATE_HOME nor HOME is set; --state names a folder")?
        .join("fettle/watch"))
}

fn watch(args: &WatchArgs, rules: Vec<Rule>, state: PathBuf) -> anyhow::Result<ExitCode> {
    if args.tick < Duration::from_micros(100) {
        bail!("--tick must be at least 100us: looking takes time, too");
    }
    let options = WatcherOptions {
        pids: args.pid.clone(),
        act: args.act,
        tick: args.tick,
        fettle: crate::own::program(),
        state,
        record: args.record.clone(),
        metrics: args.metrics,
    };
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let needs_requests = rules.iter().any(Rule::needs_requests);
    let (fettle, state) = (options.fettle.clone(), options.state.clone());
    let mut watcher = Watcher::new(rules, options)?;
    if needs_requests {
        watcher.set_requests(Box::new(Live::begin(&fettle, &state, &args.pid)?));
    }
    // Threads' clocks take one each.
    fettle_live::open_many_files();
    let stop = fettle_live::catch_signals().context("cannot catch signals")?;
    if let Some(duration) = args.duration {
        std::thread::spawn(move || {
            std::thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let mut found = 0u64;
    let lines = Lines::start();
    watcher.run(stop, |notice| {
        found += u64::from(matches!(notice, Notice::Found(_)));
        lines.say(if args.json { json_line(&notice) } else { shown(&notice, &names, args.act) });
    })?;
    lines.finish();
    Ok(ExitCode::from(u8::from(found > 0)))
}

/// Prints in a thread of its own: the reader may go, or stop to read, and the watching goes on.
struct Lines {
    lines: SyncSender<String>,
    printed: Receiver<()>,
}

impl Lines {
    /// So many lines may wait to be read. Those beyond are in the journal alone.
    const WAITING: usize = 1000;

    fn start() -> Lines {
        let (lines, waiting) = std::sync::mpsc::sync_channel::<String>(Lines::WAITING);
        let (ends, printed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            waiting.iter().for_each(|line| drop(output::print(&line)));
            let _ = ends.send(());
        });
        Lines { lines, printed }
    }

    fn say(&self, line: String) {
        let _ = self.lines.try_send(line);
    }

    /// Waits until all is printed, but not for a reader that has stopped to read.
    fn finish(self) {
        drop(self.lines);
        let _ = self.printed.recv_timeout(Duration::from_secs(1));
    }
}

fn replay(rules: Vec<Rule>, file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let input = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut judge = Judge::new(rules.clone());
    let (mut pc_samples, mut begin) = (0u64, None);
    let mut held = vec![0u64; rules.len()];
    let mut met = vec![false; rules.len()];
    let mut programs = std::collections::HashMap::new();
    for look in recording::read(BufReader::new(input)) {
        let look: Look = look.map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
        pc_samples += 1;
        let begin_ns = *begin.get_or_insert(look.at_ns);
        for process in &look.processes {
            programs.insert(process.id, process.program.clone());
            for (met, rule) in met.iter_mut().zip(&rules) {
                *met |= rule.target.fits(&process.program, process.is_worker);
            }
        }
        for finding in judge.see(&look) {
            held[finding.rule] += 1;
            let rule = &rules[finding.rule].name;
            let program = programs.get(&finding.process).cloned().unwrap_or_default();
            let at_ns = look.at_ns.saturating_sub(begin_ns);
            output::print(&if as_json {
                format!(
                    "{}\n",
                    json!({ "at_ns": at_ns, "rule": rule, "program": program, "finding": finding })
                )
            } else {
                let at = at_ns as f64 / 1e6;
                format!(
                    "{at:>12.1} ms  {rule}: {program} {} {}\n",
                    finding.process.pid,
                    why(&finding)
                )
            })?;
        }
    }
    let mut last = String::new();
    for ((rule, held), met) in rules.iter().zip(&held).zip(&met) {
        last += &match (held, met) {
            (0, false) => format!("{}: was about no process that was seen\n", rule.name),
            (0, true) => format!("{}: did not hold\n", rule.name),
            (held, _) => {
                format!("{}: held {}\n", rule.name, output::plural(*held, "time", "times"))
            }
        };
    }
    if !as_json {
        output::print(&format!("{last}{pc_samples} looks\n"))?;
    }
    Ok(ExitCode::from(u8::from(held.iter().any(|held| *held > 0))))
}

fn history(journal: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    if !journal.exists() {
        output::print("no watcher has found anything yet\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let entries = journal::read(journal)
        .with_context(|| format!("cannot read the journal {}", journal.display()))?;
    for line in entries {
        let text = match (&line, as_json) {
            (_, true) => format!("{}\n", serde_json::to_string(&line)?),
            (Line::Found(entry), false) => {
                at(entry.at_ms) + &found(entry, &entry.rule, !entry.done.is_empty())
            }
            (Line::Sent(of), false) => at(of.at_ms) + &sent(of),
            (Line::GivenBack(of), false) => at(of.at_ms) + &given_back(of),
            (Line::Ended(of), false) => at(of.at_ms) + &ended(of),
        };
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// When a line of the journal was found, before what it says.
fn at(ms: u64) -> String {
    format!("{}  ", rfc3339(ms.saturating_mul(1_000_000)))
}

fn shown(notice: &Notice, rules: &[String], acts: bool) -> String {
    match notice {
        Notice::Watching { processes, idle } => {
            let names: Vec<_> =
                processes.iter().map(|(name, pid)| format!("{name} {pid}")).collect();
            let how = if acts { "" } else { "; nothing is done: --act does what the rules say" };
            let mut text =
                format!("watching {} by {}{how}\n", names.join(", "), plural_rules(rules.len()));
            for rule in idle {
                text += &format!(
                    "{rule}: is about none of these now; programs go by the names shown here, and workers by having been \
                     started by one of them\n"
                );
            }
            text
        }
        Notice::Metrics { address, token_file } => format!(
            "metrics at http://{address}/metrics for readers with the token in {}\n",
            token_file.display()
        ),
        Notice::Unwritten { path, why } => {
            format!("{}: {why}: what it would have is lost; the watching goes on\n", path.display())
        }
        Notice::Found(entry) => found(entry, &rules[entry.finding.rule], acts),
        Notice::WouldSend { webhook, message } => {
            let message = serde_json::to_string(message).unwrap_or_default();
            format!("  would send to {webhook}: {message}\n")
        }
        Notice::Sent(of) => sent(of),
        Notice::NoRequests { why } => format!("requests are seen no more: {why}\n"),
        Notice::GivenBack(of) => given_back(of),
        Notice::Ended(of) => ended(of),
        Notice::Spare { of, state } => spare(*of, state),
        Notice::Replaced { rule, old, new, found_after_ns, after_ns } => format!(
            "{rule}: process {new} has taken the place of {old}: found {} after the last progress, new worker \
             ready after {}\n",
            ms(*found_after_ns),
            ms(*after_ns)
        ),
        Notice::NotReplaced { rule, old } => {
            format!("{rule}: no process has taken the place of {old} within 10 s\n")
        }
    }
}

fn spare(of: Pid, state: &SpareState) -> String {
    match state {
        SpareState::Ready(spare) => {
            format!("process {of} has a spare: process {spare}, held before it listens\n")
        }
        SpareState::Starting => format!("process {of} has no spare yet\n"),
        SpareState::Failed(why) => format!("process {of} has no spare: {why}\n"),
    }
}

fn found(entry: &Entry, rule: &str, acts: bool) -> String {
    let (program, pid) = (&entry.program, entry.finding.process.pid);
    let mut text = format!("{rule}: {program} {pid} {}\n", why(&entry.finding));
    for done in &entry.done {
        let what = match &done.action {
            Action::KeepEvidence => "evidence".to_owned(),
            Action::Signal { name, .. } => format!("signal {name}"),
            Action::RestartKill => "killed, for its parent to start another".to_owned(),
            Action::RestartReplace => "replaced by its spare".to_owned(),
            Action::RestartThread(name) => format!("{name} begins anew"),
            Action::Run(command) => format!("run {command:?}"),
            Action::Set { knob, value, hold } => {
                let time = hold.map(|time| format!(" for {time:?}")).unwrap_or_default();
                format!("set {knob} to {value}{time}")
            }
            Action::Tune { .. } => "tuning begun".to_owned(),
            Action::Locate { over } => format!("locating by the requests of {over:?}"),
            Action::Webhook(url) => format!("webhook {url}"),
            Action::Log => continue,
        };
        text += &match (&done.error, &done.result) {
            (Some(error), _) => format!("  not done: {what}: {error}\n"),
            (None, Some(result)) => format!("  {what}: {result}\n"),
            (None, None) => format!("  {what}\n"),
        };
        text += &done.note.as_ref().map_or_else(String::new, |note| format!("    {note}\n"));
    }
    if !acts {
        text += "  nothing was done\n";
    }
    text
}

fn given_back(of: &GivenBack) -> String {
    format!("{} of process {} is what it was\n", of.knob, of.pid)
}

/// What came of what a rule has begun.
fn ended(of: &Ended) -> String {
    let Ended { rule, job, pid, folder, result, error, .. } = of;
    let what = match (result, error) {
        (_, Some(error)) => format!("not done: {error}"),
        (Some(result), None) => result.clone(),
        (None, None) => "done".to_owned(),
    };
    format!("{rule}: {} of process {pid}: {what}\n  {folder}\n", job.name())
}

/// What became of a webhook's message.
fn sent(sent: &Sent) -> String {
    let Sent { rule, webhook, attempts, status, error, .. } = sent;
    let tried = match attempts {
        0 => String::new(),
        n => format!(" after {}", output::plural(u64::from(*n), "attempt", "attempts")),
    };
    match (status, error) {
        (Some(status), _) => format!("{rule}: webhook {webhook}: taken ({status}){tried}\n"),
        (None, Some(why)) => format!("{rule}: webhook {webhook}: not taken{tried}: {why}\n"),
        (None, None) => format!("{rule}: webhook {webhook}: not taken{tried}\n"),
    }
}

fn json_line(notice: &Notice) -> String {
    let value = match notice {
        Notice::Watching { processes, idle } => json!({
            "kind": "watching",
            "idle": idle,
            "processes": processes.iter().map(|(name, pid)| json!({ "program": name, "pid": pid })).collect::<Vec<_>>(),
        }),
        Notice::Metrics { address, token_file } => {
            let token_file = token_file.display().to_string();
            json!({ "kind": "metrics", "address": address.to_string(), "token_file": token_file })
        }
        Notice::Unwritten { path, why } => {
            json!({ "kind": "unwritten", "path": path.display().to_string(), "why": why })
        }
        Notice::Found(entry) => json!({ "kind": "found", "entry": entry }),
        Notice::WouldSend { webhook, message } => {
            json!({ "kind": "would-send", "webhook": webhook, "message": message })
        }
        Notice::Sent(sent) => json!({ "kind": "sent", "sent": sent }),
        Notice::NoRequests { why } => json!({ "kind": "no-requests", "why": why }),
        Notice::GivenBack(of) => json!({ "kind": "given-back", "given_back": of }),
        Notice::Ended(of) => json!({ "kind": "ended", "ended": of }),
        Notice::Spare { of, state } => match state {
            SpareState::Ready(spare) => json!({ "kind": "spare", "of": of, "spare": spare }),
            SpareState::Starting => json!({ "kind": "spare", "of": of, "spare": null }),
            SpareState::Failed(why) => json!({ "kind": "no-spare", "of": of, "why": why }),
        },
        Notice::Replaced { rule, old, new, found_after_ns, after_ns } => json!({
            "kind": "replaced", "rule": rule, "old": old, "new": new,
            "found_after_ns": found_after_ns, "after_ns": after_ns,
        }),
        Notice::NotReplaced { rule, old } => {
            json!({ "kind": "not-replaced", "rule": rule, "old": old })
        }
    };
    format!("{value}\n")
}
