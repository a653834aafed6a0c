//! Laying the kernel's hot code out anew: two passes of counting, a decision, a comparison.

use std::time::Duration;

use fettle_image::LinkAddr;
use fettle_kernel_emit as emit;
use fettle_kernel_lift::{KernelFunction, Lifter};
use fettle_kernel_live::journal::Purpose;
use fettle_kernel_live::{Installed, install};
use fettle_lift::Function;
use fettle_place::group::{self, Hot};
use fettle_place::lifted::{Counts, Exactness};
use fettle_place::{Chosen, Code, Options as Layout, lay_out};
use fettle_tune::comparison::Measured;
use rustc_hash::FxHashMap;

use crate::compare::{self, Turns};
use crate::count::Counting;
use crate::emission::emit_checked;
use crate::select::Selected;
use crate::{Error, Result};

/// What to tune, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this function and what it leads to.
    pub root: Option<String>,
    /// Functions by their names, where there is no root.
    pub names: Vec<String>,
    /// Hot is what runs in more than this share of the root's calls.
    pub share: f64,
    /// How long to count, in each of two passes.
    pub time: Duration,
    /// How to compare; without it, rewritten text stays.
    pub turns: Option<Turns>,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
pub enum Progress {
    /// So many functions are counted, in this pass.
    Counting(usize, u8),
    /// So many ran.
    Ran(usize),
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
    /// How many edges have exact counts.
    pub exactness: Exactness,
    /// Bytes of hot and of all rewritten text.
    pub bytes: (u64, u64),
    /// What the comparison has shown.
    pub measured: Option<Measured>,
    /// The rewritten text, where it stays.
    pub installed: Option<Installed>,
}

/// Counts, lays out, installs, compares, keeps or reverts.
///
/// # Errors
///
/// When there is nothing to tune, or the kernel does not take rewritten text.
pub fn tune(
    lifter: &Lifter<'_>,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let selected = match &options.root {
        Some(root) => Selected::by_root(lifter, root)?,
        None => Selected::by_names(lifter, &options.names)?,
    };
    let ran = which_ran(lifter, selected, options, report)?;
    let counts = count_blocks(lifter, &ran, options, report)?;
    let (code, layout, exactness) = decide(&ran, &counts, options)?;
    let chosen = lay_out(&code, &layout);
    let wanted: FxHashMap<LinkAddr, ()> =
        code.procedures.iter().map(|procedure| (procedure.entry, ())).collect();
    let group: Vec<KernelFunction> =
        ran.into_iter().filter(|function| wanted.contains_key(&function.code.entry)).collect();
    let order = emit::Order::Placed(chosen.layout.placement(&code));
    let made = emit_checked(lifter, &group, &order, emit::Counting::Off);
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
        chosen,
        exactness,
        measured,
        installed,
    })
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
    let counting = Counting::start(lifter, selected, emit::Counting::Calls, None)?;
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
    let counting =
        Counting::start(lifter, selected, emit::Counting::Blocks, options.root.as_deref())?;
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
    if let Some(root) = &options.root {
        let roots: Vec<usize> =
            (0..code.procedures.len()).filter(|p| code.procedures[*p].name == *root).collect();
        layout.hot = Hot::of_roots(&code, &roots, options.share);
        let members: Vec<usize> = group::group(&code, &roots)
            .into_iter()
            .filter(|p| code.procedures[*p].blocks.iter().any(|b| layout.hot.is(b.count)))
            .collect();
        code = group::only(&code, &members);
    }
    let ran_at_all = code.procedures.iter().flat_map(|p| &p.blocks).any(|block| block.count > 0);
    if ran_at_all { Ok((code, layout, exactness)) } else { Err(Error::Idle(ran.len())) }
}
