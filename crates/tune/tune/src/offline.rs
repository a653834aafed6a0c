//! Layouts by the counts of a trace or a profile: nothing runs, and nothing is changed.

use std::path::{Path, PathBuf};

use fettle_image::{Image, LinkAddr};
use fettle_place::model::Geometry;
use fettle_record::modules::open_image;
use fettle_record::rows;
use fettle_trace::{CounterKind, Trace};
use fettle_types::{FunctionIndex, ModuleIndex};
use rustc_hash::FxHashMap;

use crate::decide::{self, Decided, Group};
use crate::profile::{ByFunction, Fit, Saved, Subject};
use crate::target;

/// Why a trace has no layouts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    /// It has no counts.
    #[error(
        "{} was recorded in mode {mode}, which counts no blocks: record with --mode edges",
        path.display()
    )]
    NoCounts {
        /// The trace.
        path: PathBuf,
        /// Its mode's name.
        mode: &'static str,
    },
}

/// What is to be laid out, and for which cache.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Modules by path or name with `*` and `?`; all if there is none.
    pub modules: Vec<String>,
    /// Which part of their code.
    pub group: Group,
    /// The cache of the model.
    pub cache: Geometry,
}

/// A module of the trace, with its layout or why it has none.
#[derive(Debug)]
pub struct OfModule {
    /// Its file, as the program knew it.
    pub path: PathBuf,
    /// The layout, or the reason as text.
    pub decided: Result<Decided, String>,
}

/// Lays out the code that a trace has counts of, module by module.
///
/// # Errors
///
/// When the trace cannot be read, or has no counts.
pub fn lay_out(trace: &Trace, wanted: &Wanted) -> Result<Vec<OfModule>, OfflineError> {
    let mut by_module = counted(trace)?;
    let mut all = Vec::new();
    for module in trace.modules()? {
        let path = PathBuf::from(&module.path);
        let meant = wanted.modules.is_empty() || target::is_meant(&path, &wanted.modules);
        let counts = by_module.remove(&module.id).filter(|counts| meant && !counts.is_empty());
        let Some(counts) = counts else { continue };
        let decided = decide_one(&path, module.build_id.as_deref(), &counts, wanted);
        all.push(OfModule { path, decided });
    }
    Ok(all)
}

/// The counts of a trace, by module.
fn counted(trace: &Trace) -> Result<FxHashMap<ModuleIndex, ByFunction>, OfflineError> {
    let counters = trace.counters()?;
    if counters.is_empty() {
        let (path, mode) = (trace.path().to_owned(), trace.manifest().probe_mode.name());
        return Err(OfflineError::NoCounts { path, mode });
    }
    let functions = trace.functions()?;
    let place: FxHashMap<FunctionIndex, (ModuleIndex, LinkAddr)> =
        functions.iter().map(|f| (f.id, (f.module, LinkAddr(f.address)))).collect();
    let mut by_module: FxHashMap<ModuleIndex, ByFunction> = FxHashMap::default();
    for counter in &counters {
        let Some((module, entry)) = place.get(&counter.function) else { continue };
        let counts = by_module.entry(*module).or_default().entry(*entry).or_default();
        let from = LinkAddr(counter.from_address);
        // A trace of several threads has a row for each.
        let count = match (counter.kind, counter.to_address) {
            (CounterKind::Block, _) => counts.blocks.entry(from).or_default(),
            (_, Some(to)) => counts.edges.entry((from, LinkAddr(to))).or_default(),
            (_, None) => continue,
        };
        *count = count.saturating_add(counter.count);
    }
    // What never ran needs no layout.
    for counts in by_module.values_mut() {
        counts.retain(|_, counts| counts.blocks.values().any(|count| *count > 0));
    }
    Ok(by_module)
}

/// The counts of a trace as a profile, and the modules that are left out with the reason.
///
/// # Errors
///
/// When the trace cannot be read, or has no counts.
pub fn profile_of(trace: &Trace) -> Result<(Saved, Vec<(PathBuf, String)>), OfflineError> {
    let mut by_module = counted(trace)?;
    let (mut modules, mut left) = (Vec::new(), Vec::new());
    for module in trace.modules()? {
        let path = PathBuf::from(&module.path);
        let counts = by_module.remove(&module.id).filter(|counts| !counts.is_empty());
        let Some(counts) = counts else { continue };
        match open_same(&path, module.build_id.as_deref()) {
            Ok(image) => {
                let lifted = fettle_lift::lift(&image);
                let functions = &lifted.functions[..];
                let subject = Subject { path: &path, image: &image, functions };
                modules.extend(Saved::of([(subject, &counts)]).modules);
            }
            Err(why) => left.push((path, why)),
        }
    }
    Ok((Saved { version: 1, modules }, left))
}

/// Lays out a file's code by a saved profile.
///
/// # Errors
///
/// As text, when the profile is of something else, or nothing of it can be laid out.
pub fn by_profile(subject: Subject<'_>, saved: &Saved) -> Result<(Decided, Fit), String> {
    let (counts, fit) =
        saved.counts(&[subject]).map_err(|why| format!("the profile cannot be used: {why}"))?;
    if fit.functions == 0 {
        let differing = fit.differing;
        return Err(format!(
            "all {differing} functions of the profile differ: take the file that was counted"
        ));
    }
    let code = (subject.image, subject.functions);
    let decided = decide::decide(code, &counts[0], &Group::default(), Geometry::L1I)?;
    let decided = decided.ok_or("none of the functions that ran can be lifted")?;
    Ok((decided, fit))
}

fn decide_one(
    path: &Path,
    build_id: Option<&str>,
    counts: &ByFunction,
    wanted: &Wanted,
) -> Result<Decided, String> {
    let image = open_same(path, build_id)?;
    let lifted = fettle_lift::lift(&image);
    let decided = decide::decide((&image, &lifted.functions), counts, &wanted.group, wanted.cache)?;
    decided.ok_or_else(|| "none of the functions that ran can be lifted".to_owned())
}

/// Opens a file that is of a build.
fn open_same(path: &Path, build_id: Option<&str>) -> Result<Image, String> {
    let image = open_image(path).map_err(|error| error.to_string())?;
    if rows::build_id(&image).as_deref() != build_id {
        return Err("the file is another build than the one that was recorded".to_owned());
    }
    Ok(image)
}
