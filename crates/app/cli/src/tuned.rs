//! `fettle tuned`: the daemon that tunes servers by rules.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use fettle_live::{Journal, Process};
use fettle_tune::{StateFolders, leftovers};
use fettle_tuned::find::{Finder, Found};
use fettle_tuned::rules::{Rule, Rules};
use fettle_tuned::{Act, Daemon, DaemonOptions, Notice, Outcome, default_folder};
use fettle_types::Pid;
use serde_json::json;

use crate::output::{self, plural};
use crate::tune::{UNHANDLED, folders};

/// Tune the servers of this machine by rules: one after the other, compared, checked, reverted where it does not pay
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle tuned /etc/fettle/tuned.toml --check
  fettle tuned /etc/fettle/tuned.toml
  fettle tuned servers.toml --once --json

A file of rules:
  [daemon]
  metrics = \"127.0.0.1:9817\"
  quiet_hours = [\"09:00-11:30\"]

  [[rule]]
  name = \"postgres\"
  unit = \"postgresql@*.service\"
  check = \"pg_isready -q\"
  longest_pause = \"50ms\"

All keys: docs/user/tuned.md. What is done is in the audit log, and in `fettle status`;
`fettle undo --all` reverts all of it. The daemon leaves tuned processes so when it ends.

Exit status: 0 it was stopped, or the rules are right; 2 error.")]
pub struct TunedArgs {
    /// File of rules
    rules: PathBuf,
    /// Check the rules, show which processes they mean now, and do nothing else
    #[arg(long)]
    check: bool,
    /// Look once, do what is to be done now, and end
    #[arg(long, conflicts_with = "check")]
    once: bool,
    /// Where its state is [default: beside the undo logs]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs `fettle tuned`.
pub fn run(args: &TunedArgs) -> anyhow::Result<ExitCode> {
    let rules = match Rules::read(&args.rules) {
        Ok(rules) => rules,
        Err(why) => bail!("{why}"),
    };
    if args.check {
        return check(args, &rules.rules);
    }
    let StateFolders { logs, .. } = folders()?;
    let beside = logs.parent().unwrap_or(&logs);
    let options = DaemonOptions {
        fettle: std::env::current_exe().context("the fettle command does not know its own path")?,
        folder: args.state.clone().unwrap_or_else(|| default_folder(beside)),
        once: args.once,
        rules,
    };
    let stop = fettle_live::catch_signals().context(UNHANDLED)?;
    let mut daemon = Daemon::new(options)?;
    let is_changed = |found: &Found| is_changed(&logs, found.leader);
    let mut closed = false;
    daemon.run(stop, &is_changed, |notice| {
        let text = if args.json { json_line(&notice) } else { shown(&notice) };
        // The reader may go; the daemon goes on.
        closed = closed || output::print(&text).is_err();
    });
    Ok(ExitCode::SUCCESS)
}

/// Shows which processes the rules mean.
fn check(args: &TunedArgs, rules: &[Rule]) -> anyhow::Result<ExitCode> {
    let found = Finder::default().find(rules);
    let rows = || found.values().map(|group| (&rules[group.rule].name, group));
    if args.json {
        let groups: Vec<_> = rows().map(|(rule, group)| group_json(rule, group)).collect();
        let names: Vec<_> = rules.iter().map(|rule| &rule.name).collect();
        let value = json!({ "version": 1, "rules": names, "groups": groups });
        output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "{}: {}, {} meant now\n",
        args.rules.display(),
        plural(rules.len() as u64, "rule", "rules"),
        plural(found.len() as u64, "process group", "process groups")
    );
    for (rule, group) in rows() {
        text.push_str(&format!("  {rule}: {}\n", named(group)));
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a process has patches that an undo log records: its own, or the one of the process that it
/// was forked from.
fn is_changed(logs: &std::path::Path, pid: Pid) -> bool {
    let Ok(process) = Process::open(pid) else { return false };
    let own = Journal::look(logs, pid).ok().flatten().filter(|log| log.is_of(&process));
    let log = own.or_else(|| fettle_tune::inherited_log(logs, &process).ok().flatten());
    log.is_some_and(|log| leftovers::is_redirected(&process, &log))
}

fn named(group: &Found) -> String {
    let unit = group.unit.as_ref().map_or_else(String::new, |unit| format!(" of {unit}"));
    let processes = plural(group.processes as u64, "process", "processes");
    format!("{} {}{unit} ({processes})", group.program, group.leader)
}

fn group_json(rule: &str, group: &Found) -> serde_json::Value {
    json!({
        "rule": rule, "pid": group.leader, "program": group.program, "unit": group.unit,
        "processes": group.processes,
    })
}

fn act_of(act: &Act) -> &'static str {
    match act {
        Act::Tune => "tune",
        Act::Recheck => "recheck",
        Act::Check => "check",
        Act::Undo { .. } => "undo",
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed { why } => format!("failed: {why}"),
        Outcome::Compared { kept, why, gain, longest_pause, .. } => {
            let change = gain.map_or_else(String::new, |gain| {
                format!(" ({:+.1} % of CPU time)", (gain.ratio - 1.0) * 100.0)
            });
            let kept = if *kept { "rewritten text stays" } else { "original text runs" };
            let pause = longest_pause.as_secs_f64() * 1e3;
            format!("{why}{change}; {kept}; longest pause {pause:.2} ms")
        }
    }
}

fn shown(notice: &Notice<'_>) -> String {
    match notice {
        Notice::Begun { rule, found, act: Act::Undo { why } } => {
            format!("{rule}: undo {}: {why}\n", named(found))
        }
        Notice::Begun { rule, found, act } => {
            format!("{rule}: {} {}\n", act_of(act), named(found))
        }
        Notice::Ended { rule, found, act, outcome, took } => format!(
            "{rule}: {} {}: {} ({:.1} s)\n",
            act_of(act),
            named(found),
            outcome_text(outcome),
            took.as_secs_f64()
        ),
        Notice::Trouble { what } => format!("trouble: {what}\n"),
    }
}

fn json_line(notice: &Notice<'_>) -> String {
    let mut value = match notice {
        Notice::Begun { rule, found, act } => {
            let mut value = group_json(rule, found);
            value["begun"] = json!(act_of(act));
            value
        }
        Notice::Ended { rule, found, act, outcome, took } => {
            let mut value = group_json(rule, found);
            value["ended"] = json!(act_of(act));
            value["seconds"] = json!(took.as_secs_f64());
            match outcome {
                Outcome::Done => value["result"] = json!("done"),
                Outcome::Failed { why } => {
                    value["result"] = json!("failed");
                    value["why"] = json!(why);
                }
                Outcome::Compared { kept, verdict, why, gain, longest_pause } => {
                    value["result"] = json!(verdict);
                    value["why"] = json!(why);
                    value["kept"] = json!(kept);
                    for (end, of) in [
                        ("ratio", gain.map(|gain| gain.ratio)),
                        ("low", gain.map(|gain| gain.low)),
                        ("high", gain.map(|gain| gain.high)),
                    ] {
                        value[end] = json!(of);
                    }
                    value["longest_pause_ms"] = json!(longest_pause.as_secs_f64() * 1e3);
                }
            }
            value
        }
        Notice::Trouble { what } => json!({ "trouble": what }),
    };
    value["version"] = json!(1);
    format!("{value}\n")
}
