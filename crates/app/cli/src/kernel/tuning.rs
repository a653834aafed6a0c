//! `fettle kernel tune`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use fettle_kernel_lift::Lifter;
use fettle_kernel_live::{Installed, check};
use fettle_kernel_tune::compare::{Turns, compare, compare_by, write};
use fettle_kernel_tune::{Options, Outcome, Profile, Progress, Ran, What, tune as lay_out};
use fettle_live::Process;
use fettle_tune::Rounds;
use fettle_tune::comparison::Measured;
use fettle_types::parse_time;
use serde_json::json;

use super::JSON_VERSION;
use crate::output::{self, plural};

/// Arguments of `fettle kernel tune`.
#[derive(ClapArgs, Debug)]
pub struct TuneArgs {
    /// Only this function and all that it leads to
    #[arg(long, value_name = "FUNCTION")]
    pub root: Option<String>,
    /// Only functions with these names, with * and ?
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', conflicts_with = "root")]
    pub only: Vec<String>,
    /// Hot is what runs in more than this share of the root's calls
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub hot: f64,
    /// Keep what was counted in this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Do not count: use what was kept in this file, of this kernel or another one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "only", "time"])]
    pub profile: Option<PathBuf>,
    /// Count for so long in each of two passes
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    pub time: Duration,
    /// A command that prints a number which grows with the work to tune for
    #[arg(long, value_name = "COMMAND", required_unless_present = "no_compare")]
    pub work_counter: Option<String>,
    /// Compare in so many rounds: original, rewritten, rewritten, original; in fewer if the answer
    /// is clear earlier, in up to --max-rounds if a gain is likely and not certain
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u16).range(5..=1000))]
    pub rounds: u16,
    /// The most rounds
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub max_rounds: u16,
    /// Each turn of a round takes so long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "500ms")]
    pub turn: Duration,
    /// Do not compare: leave the rewritten text in place
    #[arg(long, conflicts_with = "work_counter")]
    pub no_compare: bool,
    /// Leave indirect calls as they are: do not compare their target with the function that they nearly always lead to
    #[arg(long)]
    pub no_promotion: bool,
    /// Go on until Ctrl-C: compare again after each such time, and tune anew when the load has changed
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "no_compare")]
    pub watch: Option<Duration>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

impl TuneArgs {
    fn turns(&self) -> Option<Turns> {
        self.work_counter.as_ref().map(|work| Turns {
            work: work.clone(),
            rounds: Rounds { enough: self.rounds.into(), most: self.max_rounds.into() },
            turn: self.turn,
        })
    }

    fn options(&self) -> anyhow::Result<Options> {
        let profile = self.profile.as_deref().map(Profile::read).transpose()?;
        let root = match &profile {
            Some(profile) => profile.root.clone(),
            None => self.root.clone(),
        };
        Ok(Options {
            what: match root {
                Some(root) => What::Root(root),
                None if self.only.is_empty() => What::Hot,
                None => What::Names(self.only.clone()),
            },
            share: self.hot,
            time: self.time,
            profile,
            promotes: !self.no_promotion,
            turns: self.turns(),
        })
    }
}

/// Lays hot code of the kernel out anew.
pub fn tune(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    if args.work_counter.is_none() && !args.no_compare {
        bail!(
            "--work-counter is needed to compare; --no-compare leaves the rewritten text in place"
        );
    }
    let mut options = args.options()?;
    if let Some(turns) = &options.turns {
        // Before anything is changed.
        fettle_kernel_tune::compare::work_done(&turns.work)?;
    }
    let outcome = tune_once(args, &options)?;
    // Another load has other counts.
    options.profile = None;
    let installed = match (args.watch, &options.turns) {
        (Some(every), Some(turns)) => {
            let stop = fettle_live::catch_signals()?;
            watch(args, &options, (turns, every, stop), outcome.installed)?
        }
        _ => outcome.installed,
    };
    Ok(if installed.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Tunes the kernel for a process that was tuned before, and compares both together with neither: the busy time of
/// all processors for a unit of the same work. Whether the kernel's rewritten text stays.
///
/// # Errors
///
/// As [`tune`], or when the process cannot be switched.
pub fn tune_with(
    args: &TuneArgs,
    process: &Process,
    (folder, alone): (&Path, bool),
) -> anyhow::Result<bool> {
    let options = args.options()?;
    let turns = options.turns.clone().context("--with-kernel needs --work-counter")?;
    let outcome = tune_once(args, &options)?;
    let Some(mut installed) = outcome.installed else { return Ok(false) };
    let measured = fettle_tune::switched(process, folder, alone, |switch| {
        compare_by(&turns, &mut |new| {
            write(&mut installed, new)?;
            Ok(switch(new)?)
        })
    })??;
    let verdict = crate::measured::verdict(&measured);
    match args.json {
        true => {
            let value = json!({ "version": JSON_VERSION, "together": as_json(&measured) });
            output::print(&format!("{value}\n"))?;
        }
        false => output::print(&format!(
            "process and kernel together: {verdict}; {} (all processors)\n",
            measured.percent()
        ))?,
    }
    Ok(true)
}

/// Counts, lays out, compares, keeps or reverts.
fn tune_once(args: &TuneArgs, options: &Options) -> anyhow::Result<Outcome> {
    // Static keys may have changed since the last time.
    let image = fettle_kernel_live::image()?;
    check::check(&image)?;
    let lifter = Lifter::new(&image);
    let mut report = |progress: Progress| {
        if !args.json {
            say!("fettle: {}", progress_as_text(&progress));
        }
    };
    let ran = Ran::find(&lifter, options, &mut report)?;
    if let Some(path) = &args.save {
        // Whatever happens afterwards, what was counted is kept.
        ran.profile(&image, options).write(path)?;
        report(Progress::Saved(path.clone()));
    }
    let outcome = lay_out(&lifter, ran, options, &mut report)?;
    match args.json {
        true => output::print(&format!("{}\n", outcome_as_json(&outcome)))?,
        false => output::print(&outcome_as_text(&outcome))?,
    }
    Ok(outcome)
}

/// Compares again and again; what is no longer faster is reverted, and the kernel tuned anew. What is installed
/// when the user ends it stays.
fn watch(
    args: &TuneArgs,
    options: &Options,
    (turns, every, stop): (&Turns, Duration, &AtomicBool),
    mut installed: Option<Installed>,
) -> anyhow::Result<Option<Installed>> {
    loop {
        let begin = Instant::now();
        while begin.elapsed() < every {
            if stop.load(Ordering::Relaxed) {
                return Ok(installed);
            }
            std::thread::sleep(Duration::from_millis(50).min(every));
        }
        if let Some(mut old) = installed.take() {
            let measured = compare(&mut old, turns)?;
            let stays = measured.is_gain();
            match args.json {
                true => output::print(&format!("{}\n", watched_as_json(&measured, stays)))?,
                false => output::print(&watched_as_text(&measured, stays))?,
            }
            if stays {
                installed = Some(old);
                continue;
            }
            fettle_kernel_live::remove(old)?;
        }
        installed = tune_once(args, options)?.installed;
    }
}

fn watched_as_text(measured: &Measured, stays: bool) -> String {
    let verdict = crate::measured::verdict(measured);
    let what = if stays { "it stays installed" } else { "reverted; tuning anew" };
    format!("{verdict}; rewritten text: {}; {what}\n", measured.percent())
}

fn watched_as_json(measured: &Measured, stays: bool) -> serde_json::Value {
    json!({ "version": JSON_VERSION, "measured": as_json(measured), "installed": stays })
}

fn as_json(measured: &Measured) -> serde_json::Value {
    json!({
        "verdict": measured.verdict().code(),
        "within": measured.within(),
        "ratio": measured.ratio,
        "low": measured.low,
        "high": measured.high,
        "rounds": measured.ratios.len(),
    })
}

fn progress_as_text(progress: &Progress) -> String {
    match progress {
        Progress::Counting(count, pass) => {
            let functions = plural(*count as u64, "function", "functions");
            format!("pass {pass} of 2: counting {functions} of the kernel")
        }
        Progress::Watching => {
            "pass 1 of 2: the kernel's tracer sees which functions run".to_string()
        }
        Progress::Ran(count) => {
            format!("{} ran", plural(*count as u64, "function", "functions"))
        }
        Progress::Fits(fit) => {
            let differing = match fit.differing {
                0 => String::new(),
                some => format!("; {some} of the profile are not the same here, and left out"),
            };
            let functions = plural(fit.functions as u64, "function", "functions");
            format!("{functions} of the profile{differing}")
        }
        Progress::Saved(path) => format!("what was counted is in {}", path.display()),
        Progress::Installed(count) => {
            format!("{} laid out and installed", plural(*count as u64, "function", "functions"))
        }
    }
}

fn outcome_as_text(outcome: &Outcome) -> String {
    let (before, after) = (&outcome.chosen.before, &outcome.chosen.after);
    let per_thousand = |cost: &fettle_tune::Modelled| {
        cost.cost.misses as f64 * 1000.0 / cost.cost.insns.max(1) as f64
    };
    let mut text = format!(
        "{}: {:.1} KB hot of {:.1} KB; by the model {:.2} misses per thousand instructions, now {:.2}\n",
        plural(outcome.functions.len() as u64, "function", "functions"),
        outcome.bytes.0 as f64 / 1024.0,
        outcome.bytes.1 as f64 / 1024.0,
        per_thousand(before),
        per_thousand(after),
    );
    let (old, new) = &outcome.maps;
    text.push_str(&format!(
        "hot code in {} lines of the cache, now in {}; sets with more than they hold: {}, now {}\n",
        old.lines,
        new.lines,
        old.crowded(),
        new.crowded(),
    ));
    if outcome.promoted > 0 {
        let calls = plural(outcome.promoted as u64, "indirect call", "indirect calls");
        text.push_str(&format!(
            "{calls} promoted: the function is called directly if it is the usual one\n"
        ));
    }
    if let Some(measured) = &outcome.measured {
        text.push_str(&format!(
            "{}; rewritten text: {}\n",
            crate::measured::verdict(measured),
            measured.percent()
        ));
    }
    text.push_str(match outcome.installed {
        Some(_) => "it stays installed; `fettle undo --kernel` takes it out\n",
        None => "it is not faster for certain: reverted\n",
    });
    text
}

fn outcome_as_json(outcome: &Outcome) -> serde_json::Value {
    let model = |modelled: &fettle_tune::Modelled| json!({ "misses": modelled.cost.misses, "instructions": modelled.cost.insns });
    json!({
        "version": JSON_VERSION,
        "functions": outcome.functions,
        "promoted_calls": outcome.promoted,
        "hot_bytes": outcome.bytes.0,
        "text_bytes": outcome.bytes.1,
        "edges": outcome.exactness.edges,
        "edges_exact": outcome.exactness.exact,
        "cache_before": outcome.maps.0,
        "cache_after": outcome.maps.1,
        "group": outcome.rows,
        "model_before": model(&outcome.chosen.before),
        "model_after": model(&outcome.chosen.after),
        "measured": outcome.measured.as_ref().map(as_json),
        "installed": outcome.installed.is_some(),
    })
}
