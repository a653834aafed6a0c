//! Explores layouts of what `fettle record --mode edges` or `--mode blocks` counted.
//!
//! `cargo run --release -p fettle-place --example layout -- TRACE [--root FUNCTION] [--figures]`

use std::collections::HashMap;
use std::path::PathBuf;

use fettle_code::{Mode, Probing};
use fettle_image::{Image, LinkAddr};
use fettle_lift::{Lifted, SkipReason};
use fettle_place::figures::{CacheMap, group_table};
use fettle_place::group::{self, Hot};
use fettle_place::lifted::Exactness;
use fettle_place::model::Addresses;
use fettle_place::order::Modelled;
use fettle_place::{Code, Counts, Options, lay_out};
use fettle_rewrite::PlanOptions;
use fettle_trace::{CounterKind, Trace};
use fettle_types::{FunctionIndex, ModuleIndex};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut traces = Vec::new();
    let (mut root, mut figures) = (None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--root" => root = args.next(),
            "--figures" => figures = true,
            _ => traces.push(PathBuf::from(arg)),
        }
    }
    for trace in traces {
        explore(&Trace::open(&trace)?, root.as_deref(), figures)?;
    }
    Ok(())
}

/// Says how many edges have exact counts: as they were counted, and as if only blocks had been.
fn report_exactness(
    image: &Image,
    lifted: &Lifted,
    counts: &HashMap<LinkAddr, Counts>,
    exact: Exactness,
) {
    let ran = |c: &Counts| c.blocks.values().any(|n| *n > 0);
    let only_blocks: HashMap<LinkAddr, Counts> = counts
        .iter()
        .map(|(at, c)| (*at, Counts { blocks: c.blocks.clone(), ..Counts::default() }))
        .collect();
    let (_, derived) =
        Code::of(image, &lifted.functions, |at| only_blocks.get(&at).filter(|c| ran(c)));
    println!(
        "  edges exact: {:.2} % as counted; {:.2} % of edges, {:.2} % of functions from blocks alone",
        100.0 * exact.exact as f64 / exact.edges as f64,
        100.0 * derived.exact as f64 / derived.edges as f64,
        100.0 * derived.functions_exact as f64 / derived.functions as f64,
    );
}

/// What was counted in the module that ran most: its path, and counts by function.
fn counts(trace: &Trace) -> Result<(PathBuf, HashMap<LinkAddr, Counts>)> {
    let functions: HashMap<FunctionIndex, (ModuleIndex, LinkAddr)> =
        trace.functions()?.iter().map(|f| (f.id, (f.module, LinkAddr(f.address)))).collect();
    let mut modules: HashMap<ModuleIndex, (u64, HashMap<LinkAddr, Counts>)> = HashMap::new();
    for counter in trace.counters()? {
        let (module, function) = functions[&counter.function];
        let (total, of) = modules.entry(module).or_default();
        let counts = of.entry(function).or_default();
        let from = LinkAddr(counter.from_address);
        match (counter.kind, counter.to_address) {
            (CounterKind::Edge, Some(to)) => {
                *counts.edges.entry((from, LinkAddr(to))).or_default() += counter.count;
            }
            _ => {
                *total += counter.count;
                *counts.blocks.entry(from).or_default() += counter.count;
            }
        }
    }
    let (module, (_, counts)) =
        modules.into_iter().max_by_key(|(_, (total, _))| *total).ok_or("nothing was counted")?;
    let modules = trace.modules()?;
    let module = modules.iter().find(|m| m.id == module).ok_or("a module that is not listed")?;
    Ok((PathBuf::from(&module.path), counts))
}

fn explore(trace: &Trace, root: Option<&str>, figures: bool) -> Result<()> {
    let (path, counts) = counts(trace)?;
    let image = Image::parse(std::fs::read(&path)?)?;
    let lifted = fettle_lift::lift(&image);
    let ran = |c: &Counts| c.blocks.values().any(|n| *n > 0);
    let of = |entry: LinkAddr| counts.get(&entry).filter(|c| ran(c));
    let (mut code, exact) = Code::of(&image, &lifted.functions, of);
    println!("{}: {} functions ran", path.display(), code.procedures.len());
    report_exactness(&image, &lifted, &counts, exact);
    let mut options = Options::default();
    if let Some(name) = root {
        let root = code.procedures.iter().position(|p| p.name == name).ok_or("no such function")?;
        options.hot = Hot::of_roots(&code, &[root], Hot::SHARE);
        code = group::only(&code, &group::group(&code, &[root]));
        println!("  {} functions in the group of {name}", code.procedures.len());
    }
    let started = std::time::Instant::now();
    let chosen = lay_out(&code, &options);
    let insns: u64 =
        code.procedures.iter().flat_map(|p| &p.blocks).map(|b| b.count * u64::from(b.insns)).sum();
    let line = |what: &str, m: &Modelled| {
        let taken = m.ways.taken() as f64 * 1000.0 / insns as f64;
        let misses = m.cost.misses_per_thousand();
        println!("  {what:<36} {misses:8.3} misses {taken:8.2} jumps taken, per 1000 instructions");
    };
    line("original", &chosen.before);
    for (choice, modelled) in &chosen.all {
        let mark = if *choice == chosen.layout.choice { " <" } else { "" };
        line(&format!("{:?} by {:?}{mark}", choice.method, choice.unit), modelled);
    }
    println!("  in {:.2} s", started.elapsed().as_secs_f64());
    let placement = chosen.layout.placement(&code);
    let select = |f: &fettle_lift::Function| placement.of(f).is_some();
    let probes = Probing::new(Mode::Plain);
    let plan = fettle_rewrite::plan(
        &image,
        &lifted,
        PlanOptions { select: &select, placement: Some(&placement), ..PlanOptions::new(probes) },
    );
    let failed = |reason| plan.skipped.iter().filter(|s| s.reason == reason).count();
    println!(
        "  emitted: {} functions in {} chunks, {} bytes; checker disagrees on {}, order on {}",
        plan.functions.len(),
        plan.chunks.len(),
        plan.text.len(),
        failed(SkipReason::CheckFailed),
        failed(SkipReason::Order),
    );
    if figures {
        let after = Addresses::of_pieces(&code, &chosen.layout.pieces, 0);
        let map = |addresses| CacheMap::new(&code, options.hot, addresses, options.geometry);
        println!("\nbefore:\n{}\nafter:\n{}", map(&Addresses::original(&code)), map(&after));
        for row in group_table(&code, &chosen.layout, &after).iter().take(40) {
            println!(
                "  {:<40} {:6} {:7} {:4} {:7}",
                row.name, row.table_bytes, row.hot_bytes, row.chains, row.cold_bytes
            );
        }
    }
    Ok(())
}
