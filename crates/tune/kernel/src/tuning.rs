//! Laying the kernel's hot code out anew: two passes of counting, a decision, a comparison.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fettle_image::LinkAddr;
use fettle_kernel_emit as emit;
use fettle_kernel_image::Image;
use fettle_kernel_lift::step::Step;
use fettle_kernel_lift::{KernelFunction, Lifter};
use fettle_kernel_live::journal::Purpose;
use fettle_kernel_live::tracer::{self, Seen};
use fettle_kernel_live::{Installed, install};
use fettle_lift::Function;
use fettle_place::figures::{self, CacheMap, Row};
use fettle_place::group::{self, Hot};
use fettle_place::lifted::{Counts, Exactness, Target};
use fettle_place::model::Addresses;
use fettle_place::{Chosen, Code, Options as Layout, lay_out};
use fettle_tune::comparison::Measured;
use rustc_hash::FxHashMap;

use crate::compare::{self, Turns};
use crate::count::{Counting, Scope};
use crate::emission::emit_checked;
use crate::profile::{ByFunction, Fit, Profile};
use crate::promotion;
use crate::select::Selected;
use crate::{Error, Result};

/// Which functions to tune.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All that run.
    Hot,
    /// This function and what it leads to.
    Root(String),
    /// Those with these names, with `*` and `?`.
    Names(Vec<String>),
}

impl What {
    fn root(&self) -> Option<&str> {
        match self {
            What::Root(root) => Some(root),
            What::Hot | What::Names(_) => None,
        }
    }
}

/// What to tune, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to tune.
    pub what: What,
    /// Hot is what runs in more than this share of the root's calls.
    pub share: f64,
    /// How long to count, in each of two passes.
    pub time: Duration,
    /// Do not count: what was counted before.
    pub profile: Option<Profile>,
    /// Promote indirect calls that nearly always lead to one function.
    pub promotes: bool,
    /// How to compare; without it, rewritten text stays.
    pub turns: Option<Turns>,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The kernel's tracer looks on.
    Watching,
    /// So many functions are counted, in this pass.
    Counting(usize, u8),
    /// So many ran.
    Ran(usize),
    /// The profile fits so.
    Fits(Fit),
    /// What was counted is in this file.
    Saved(PathBuf),
    /// So many are installed.
    Installed(usize),
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Functions that were laid out.
    pub functions: Vec<String>,
    /// The layout, and what it costs by the model.
    pub chosen: Chosen,
    /// How the hot blocks lie on the cache that the model has, before and now.
    pub maps: (CacheMap, CacheMap),
    /// The functions with their hot and cold parts.
    pub rows: Vec<Row>,
    /// How many edges have exact counts.
    pub exactness: Exactness,
    /// How many indirect calls were promoted.
    pub promoted: usize,
    /// Bytes of hot and of all rewritten text.
    pub bytes: (u64, u64),
    /// What the comparison has shown.
    pub measured: Option<Measured>,
    /// The rewritten text, where it stays.
    pub installed: Option<Installed>,
}

/// What ran, and how often.
#[derive(Debug)]
pub struct Ran {
    functions: Vec<KernelFunction>,
    counts: ByFunction,
}

impl Ran {
    /// Counts what is to be tuned, or takes it from a profile.
    ///
    /// # Errors
    ///
    /// When nothing that is to be tuned ran, or the profile is of other functions.
    pub fn find(
        lifter: &Lifter<'_>,
        options: &Options,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Ran> {
        if let Some(profile) = &options.profile {
            let (functions, counts, fit) = profile.fit(lifter)?;
            report(Progress::Fits(fit));
            return Ok(Ran { functions, counts });
        }
        let (functions, seen) = match &options.what {
            What::Names(names) => {
                let selected = Selected::by_names(lifter, names)?;
                (which_ran(lifter, selected, options, report)?, Seen::default())
            }
            What::Hot | What::Root(_) => which_were_seen(lifter, options, report)?,
        };
        let mut counts = count_blocks(lifter, &functions, options, report)?;
        let by_entry = functions.iter().map(|function| (function.code.entry, function)).collect();
        for function in &functions {
            if let Some(counts) = counts.get_mut(&function.code.entry) {
                add_targets(lifter.image(), function, &seen, &by_entry, counts);
            }
        }
        Ok(Ran { functions, counts })
    }

    /// For another boot.
    pub fn profile(&self, image: &Image, options: &Options) -> Profile {
        let root = options.what.root().map(str::to_owned);
        Profile::of(image, root, &self.functions, &self.counts)
    }
}

/// Lays out what ran, installs, compares, keeps or reverts.
///
/// # Errors
///
/// When there is nothing to tune, or the kernel does not take rewritten text.
pub fn tune(
    lifter: &Lifter<'_>,
    Ran { functions: ran, counts }: Ran,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let (code, layout, exactness) = decide(&ran, &counts, options)?;
    let chosen = lay_out(&code, &layout);
    // Rewritten text begins at a page.
    let after = Addresses::of_pieces(&code, &chosen.layout.pieces, 1 << 32);
    let map = |addresses: &Addresses| CacheMap::new(&code, layout.hot, addresses, layout.geometry);
    let maps = (map(&Addresses::original(&code)), map(&after));
    let rows = figures::group_table(&code, &chosen.layout, &after);
    let wanted: FxHashMap<LinkAddr, ()> =
        code.procedures.iter().map(|procedure| (procedure.entry, ())).collect();
    let group: Vec<KernelFunction> =
        ran.into_iter().filter(|function| wanted.contains_key(&function.code.entry)).collect();
    let order = emit::Order::Placed(chosen.layout.placement(&code));
    let promotions = match options.promotes {
        true => promotion::choose(lifter, &group, &counts, layout.hot),
        false => emit::Promotions::default(),
    };
    let made = emit_checked(lifter, &group, &order, emit::Counting::Off, &promotions);
    let (mut installed, _) = install(&made.plan, lifter.image(), Purpose::Tune)?;
    report(Progress::Installed(made.plan.functions.len()));
    let measured = match &options.turns {
        Some(turns) => Some(compare::compare(&mut installed, turns)?),
        None => None,
    };
    let stays = measured.as_ref().is_none_or(Measured::is_gain);
    let installed = if stays {
        installed.keep(true)?;
        Some(installed)
    } else {
        fettle_kernel_live::remove(installed)?;
        None
    };
    let hot = code.procedures.iter().flat_map(|p| &p.blocks).filter(|b| layout.hot.is(b.count));
    let all = made.plan.parts.iter().map(|part| part.text.len() as u64).sum();
    Ok(Outcome {
        functions: made.plan.functions.iter().map(|f| f.name.clone()).collect(),
        bytes: (hot.map(|block| u64::from(block.size)).sum(), all),
        promoted: promotions.0.len(),
        chosen,
        maps,
        rows,
        exactness,
        measured,
        installed,
    })
}

/// The first pass, where functions have no names: what the kernel's tracer sees.
fn which_were_seen(
    lifter: &Lifter<'_>,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<(Vec<KernelFunction>, Seen)> {
    report(Progress::Watching);
    let all = lifter.image().functions.all().iter();
    let roots: Vec<_> = all.filter(|f| !f.cold && options.what.root() == Some(&*f.name)).collect();
    let is_root_seen =
        |seen: &Seen| roots.is_empty() || roots.iter().any(|root| seen.is_called(&root.range));
    let seen = tracer::watch(options.time, &is_root_seen)?;
    let selected = match options.what.root() {
        Some(root) => Selected::by_root_seen(lifter, root, &seen)?,
        None => Selected::by_seen(lifter, &seen)?,
    };
    report(Progress::Ran(selected.functions.len()));
    Ok((selected.functions, seen))
}

/// Where a function's indirect calls lead: the tracer has seen the shares, counters how often each call
/// was made.
fn add_targets(
    image: &Image,
    function: &KernelFunction,
    seen: &Seen,
    by_entry: &FxHashMap<LinkAddr, &KernelFunction>,
    counts: &mut Counts,
) {
    for block in &function.code.blocks {
        let made = counts.blocks.get(&block.start).copied().unwrap_or(0);
        for index in block.insns.start as usize..block.insns.end as usize {
            if function.steps[index] != Step::IndirectCall {
                continue;
            }
            let insn = &function.code.insns[index];
            let back = insn.next_ip();
            let mut targets: BTreeMap<u64, u64> = BTreeMap::new();
            for ((_, target), count) in seen.0.range((back, 0)..=(back, u64::MAX)) {
                let Some(target) = image.functions.containing(*target) else { continue };
                *targets.entry(target.range.start).or_default() += count;
            }
            let targets = promotion::without_tails(&targets, by_entry);
            let all: u64 = targets.values().sum();
            for (target, count) in targets {
                let share = (u128::from(made) * u128::from(count) / u128::from(all)) as u64;
                let key = (LinkAddr(insn.ip()), Target::Here(LinkAddr(target)));
                *counts.targets.entry(key).or_default() += share;
            }
        }
    }
}

/// The first pass: calls alone, of everything. What is not called is not looked at again.
fn which_ran(
    lifter: &Lifter<'_>,
    selected: Selected,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<Vec<KernelFunction>> {
    let functions = selected.functions.clone();
    report(Progress::Counting(functions.len(), 1));
    let counting = Counting::start(lifter, selected, emit::Counting::Calls, Scope::All)?;
    std::thread::sleep(options.time);
    let calls: FxHashMap<u64, u64> =
        counting.calls()?.into_iter().map(|count| (count.entry, count.calls)).collect();
    counting.finish()?;
    let all = functions.len();
    // A function whose calls cannot be counted may have run.
    let ran: Vec<KernelFunction> = functions
        .into_iter()
        .filter(|f| calls.get(&f.entry()).is_none_or(|calls| *calls > 0))
        .collect();
    let is_idle = !ran.iter().any(|f| calls.contains_key(&f.entry()));
    report(Progress::Ran(ran.len()));
    if is_idle { Err(Error::Idle(all)) } else { Ok(ran) }
}

/// The second pass: blocks. Of a root's group only the root is redirected, so what it leads to is counted
/// where it is called from there.
fn count_blocks(
    lifter: &Lifter<'_>,
    ran: &[KernelFunction],
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<FxHashMap<LinkAddr, Counts>> {
    report(Progress::Counting(ran.len(), 2));
    let selected = Selected { functions: ran.to_vec(), skipped: Vec::new() };
    let scope = options.what.root().map_or(Scope::Group, Scope::Root);
    let counting = Counting::start(lifter, selected, emit::Counting::Blocks, scope)?;
    std::thread::sleep(options.time);
    let counts = counting.blocks(ran)?;
    counting.finish()?;
    Ok(counts)
}

/// Which functions are laid out, and what is hot.
fn decide(
    ran: &[KernelFunction],
    counts: &FxHashMap<LinkAddr, Counts>,
    options: &Options,
) -> Result<(Code, Layout, Exactness)> {
    let functions: Vec<&Function> = ran.iter().map(|function| &function.code).collect();
    let (mut code, exactness) =
        Code::of_lifted(functions, std::iter::empty(), |entry| counts.get(&entry));
    let mut layout = Layout::default();
    if let Some(root) = options.what.root() {
        let roots: Vec<usize> =
            (0..code.procedures.len()).filter(|p| code.procedures[*p].name == root).collect();
        layout.hot = Hot::of_roots(&code, &roots, options.share);
        let members: Vec<usize> = group::group(&code, &roots)
            .into_iter()
            .filter(|p| code.procedures[*p].blocks.iter().any(|b| layout.hot.is(b.count)))
            .collect();
        code = group::only(&code, &members);
    } else {
        layout.hot = hot_of_all(&code);
    }
    let ran_at_all = code.procedures.iter().flat_map(|p| &p.blocks).any(|block| block.count > 0);
    if ran_at_all { Ok((code, layout, exactness)) } else { Err(Error::Idle(ran.len())) }
}

/// Blocks that nearly all instructions are of: what ran once, while all ran, is not hot.
fn hot_of_all(code: &Code) -> Hot {
    /// Of so many instructions, those of blocks that are not hot are one.
    const SHARE: u64 = 2000;
    let blocks = || code.procedures.iter().flat_map(|procedure| &procedure.blocks);
    let mut weights: Vec<(u64, u64)> =
        blocks().map(|block| (block.count, block.count * u64::from(block.insns))).collect();
    weights.sort_unstable();
    let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let mut below = 0;
    let first = weights.iter().find(|(_, weight)| {
        below += weight;
        below > all / SHARE
    });
    Hot::MoreThan(first.map_or(0, |(count, _)| count.saturating_sub(1)))
}
