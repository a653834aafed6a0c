//! `fettle layout`: orders of hot code by what a trace has counted.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use fettle_tune::offline::{self, OfModule};
use fettle_tune::{Choice, Decided, Geometry, Group, Method, Modelled, Unit};
use serde_json::{Value, json};

use crate::output;
use crate::tune::{decided_json, decided_text, taken};

/// Show how hot code lies, and how it could, by what a trace has counted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle record --mode edges -- lua5.4 load.lua && fettle layout
  fettle layout run.fettle --root handleRequest --hot 0.01
  fettle layout run.fettle --module 'libssl*' --cache 65536 --ways 4
  fettle layout run.fettle --json

Nothing is changed. Every way to lay code out goes through a model of the instruction cache; the
model has no prefetching and compares layouts of one program, no more. `fettle tune` installs a
layout in a running process and measures what it brings.

Exit status: 0 done; 1 some module has no layout; 2 error.")]
pub struct LayoutArgs {
    /// Trace folder, recorded with --mode edges [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Only modules whose path or name matches: * and ? are wild (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    module: Vec<String>,
    /// Only these functions (* and ? are wild) and what they lead to; else everything that ran
    #[arg(long, value_name = "FUNCTION")]
    root: Option<String>,
    /// With --root: hot is what runs in more than this share of its calls
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    hot: f64,
    /// Bytes of the model's cache
    #[arg(long, value_name = "BYTES", default_value_t = Geometry::L1I.size)]
    cache: u64,
    /// Lines that a set of the model's cache holds
    #[arg(long, value_name = "N", default_value_t = Geometry::L1I.ways)]
    ways: usize,
    /// Bytes of a line
    #[arg(long, value_name = "BYTES", default_value_t = Geometry::L1I.line)]
    line: u64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

/// Runs `fettle layout`.
pub fn run(args: LayoutArgs) -> anyhow::Result<ExitCode> {
    let trace = output::open(&output::chosen(args.trace.as_deref())?)?;
    let group = Group { root: args.root.clone(), share: args.hot, rank: 0 };
    let wanted = offline::Wanted { modules: args.module.clone(), group, cache: cache(&args)? };
    let modules = offline::lay_out(&trace, &wanted)?;
    if modules.is_empty() {
        bail!("{}: no module that is meant has code that ran", trace.path().display());
    }
    let text = match args.json {
        true => format!("{}\n", layouts_json(&modules, wanted.cache)),
        false => modules.iter().map(module_text).collect(),
    };
    output::print(&text)?;
    let all = modules.iter().all(|module| module.decided.is_ok());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The cache that the arguments say.
fn cache(args: &LayoutArgs) -> anyhow::Result<Geometry> {
    // As large as any cache of any level, so that the map can be held and shown.
    const LARGEST: u64 = 1 << 30;
    let LayoutArgs { cache: size, ways, line, .. } = *args;
    if !line.is_power_of_two() || !(8..=4096).contains(&line) {
        bail!("--line {line}: a line has 8 to 4096 bytes, by powers of two");
    }
    let set = line.saturating_mul(ways as u64);
    if set == 0 || size > LARGEST || size < set || size % set != 0 {
        bail!(
            "--cache {size} --ways {ways} --line {line}: the cache has to consist of whole sets of \
             {set} bytes, {LARGEST} bytes at most"
        );
    }
    Ok(Geometry { size, ways, line })
}

fn module_text(module: &OfModule) -> String {
    match &module.decided {
        Ok(decided) => {
            decided_text(&module.path, decided) + &maps_text(decided) + &choices_text(decided)
        }
        Err(why) => format!("\n{}: no layout: {why}\n", module.path.display()),
    }
}

/// How hot code lies on the cache.
fn maps_text(decided: &Decided) -> String {
    let (before, after) = &decided.maps;
    format!("\nhot code on the instruction cache, before:\n{before}\nafter:\n{after}")
}

/// What each way to lay the code out costs by the model.
fn choices_text(decided: &Decided) -> String {
    let line = |name: &str, m: &Modelled| {
        let (misses, taken) = (m.cost.misses_per_thousand(), taken(m) * 100.0);
        format!("{misses:8.2} {taken:8.1}  {name}\n")
    };
    let chosen = &decided.chosen;
    let mut text =
        String::from("\n  misses    taken  order (per thousand instructions; % of jumps)\n");
    text += &line("as it is", &chosen.before);
    for (choice, modelled) in &chosen.all {
        let best = if *choice == chosen.layout.choice { " (chosen)" } else { "" };
        text += &line(&format!("{}{best}", name_of(*choice)), modelled);
    }
    text
}

fn name_of(choice: Choice) -> &'static str {
    match (choice.method, choice.unit) {
        (Method::ExtTsp, Unit::Function) => "ext-TSP, functions whole",
        (Method::ExtTsp, Unit::Chain) => "ext-TSP, chains across functions",
        (Method::PettisHansen, Unit::Function) => "Pettis-Hansen, functions whole",
        (Method::PettisHansen, Unit::Chain) => "Pettis-Hansen, chains across functions",
    }
}

fn layouts_json(modules: &[OfModule], cache: Geometry) -> Value {
    let modules: Vec<Value> = modules
        .iter()
        .map(|module| match &module.decided {
            Ok(decided) => decided_json(&module.path, decided),
            Err(why) => json!({ "path": module.path, "why": why }),
        })
        .collect();
    json!({ "version": 1, "cache": cache, "modules": modules })
}
