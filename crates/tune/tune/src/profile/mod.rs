//! A profile on disk, for use in a later run.
//!
//! It belongs to builds: each module is known by its build id, each function by its address and a
//! hash of its bytes. In another build of a file with the same name, functions are found by name and
//! [shape]. A function that differs is left out and counted. The file is JSON and is not trusted:
//! counts only decide about an order.

mod hash;
mod merge;
mod saved;
mod shape;

use crate::HashMap;
use std::ops::Range;
use std::path::Path;

use fettle_image::{Image, LinkAddr};
use fettle_lift::Function;
use fettle_place::{Counts, Target};
use fettle_record::rows;

use hash::{START, fnv};
use saved::cut;
pub use saved::{Saved, SavedFunction, SavedModule, SavedTarget};
use shape::{Moved, Shapes};

/// The counts of one module, by function.
pub type ByFunction = HashMap<LinkAddr, Counts>;

/// Code that a profile is matched with: a file and its functions, in order of entry.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file's path.
    pub path: &'a Path,
    /// The file.
    pub image: &'a Image,
    /// Its functions.
    pub functions: &'a [Function],
}

/// How a saved profile fits the code of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Functions that are the same.
    pub functions: usize,
    /// Those among them that lie elsewhere: the profile is of another build.
    pub moved: usize,
    /// Functions that are not, or not there.
    pub differing: usize,
}

impl Saved {
    /// The counts of some modules.
    pub fn of<'a>(counted: impl IntoIterator<Item = (Subject<'a>, &'a ByFunction)>) -> Saved {
        let ran = counted.into_iter().filter(|(_, counts)| !counts.is_empty());
        let modules = ran.map(|(subject, counts)| SavedModule {
            path: subject.path.display().to_string(),
            build: build(subject.image),
            functions: functions(subject, counts),
        });
        Saved { version: 1, modules: modules.collect() }
    }

    /// The counts that it has for these functions, in the same order.
    ///
    /// # Errors
    ///
    /// As text, when it is of none of them, or of another build in which nothing is the same.
    pub fn counts(&self, subjects: &[Subject<'_>]) -> Result<(Vec<ByFunction>, Fit), String> {
        let mut fit = Fit::default();
        let mut all = Vec::new();
        let mut used = false;
        for subject in subjects {
            let build = build(subject.image);
            let mut counts = ByFunction::new();
            match self.modules.iter().find(|saved| saved.build == build) {
                Some(saved) => {
                    used = true;
                    take(*subject, saved, &mut counts, &mut fit);
                }
                None => {
                    let name = |path: &Path| path.file_name().map(ToOwned::to_owned);
                    let same_name =
                        |saved: &&SavedModule| name(Path::new(&saved.path)) == name(subject.path);
                    if let Some(other) = self.modules.iter().find(same_name) {
                        take_moved(*subject, other, &mut counts, &mut fit);
                        if counts.is_empty() {
                            return Err(format!(
                                "it was counted in another build of {} ({}, and this is {build}), and \
                                 no function is the same in both",
                                subject.path.display(),
                                other.build
                            ));
                        }
                        used = true;
                    }
                }
            }
            all.push(counts);
        }
        match used {
            true => Ok((all, fit)),
            false => Err("it is of none of the files that are to be laid out".to_owned()),
        }
    }
}

fn functions(subject: Subject<'_>, counts: &ByFunction) -> Vec<SavedFunction> {
    let ran = subject.functions.iter().filter_map(|f| Some((f, counts.get(&f.entry)?)));
    let saved = ran.map(|(function, counts)| {
        let mut blocks: Vec<_> = counts.blocks.iter().map(|(at, n)| (at.0, *n)).collect();
        let mut edges: Vec<_> = counts.edges.iter().map(|((a, b), n)| (a.0, b.0, *n)).collect();
        let targets = counts.targets.iter();
        let mut targets: Vec<_> =
            targets.map(|((call, to), n)| SavedTarget::of(*call, to, *n)).collect();
        blocks.sort_unstable();
        edges.sort_unstable();
        targets.sort_unstable();
        SavedFunction {
            entry: function.entry.0,
            name: function.name.clone(),
            bytes: hash_of(subject.image, function),
            shape: Some(shape::shape_of(subject.image, function)),
            pieces: function.ranges.iter().map(|r| (r.start.0, r.end.0)).collect(),
            blocks,
            edges,
            targets,
            estimated: counts.estimated,
        }
    });
    saved.collect()
}

/// Takes the counts of functions that are the same.
fn take(subject: Subject<'_>, saved: &SavedModule, into: &mut ByFunction, fit: &mut Fit) {
    for saved in &saved.functions {
        let entry = LinkAddr(saved.entry);
        let index = subject.functions.binary_search_by_key(&entry, |f| f.entry);
        let function = index.ok().map(|i| &subject.functions[i]);
        if function.is_none_or(|f| hash_of(subject.image, f) != saved.bytes) {
            fit.differing += 1;
            continue;
        }
        fit.functions += 1;
        let blocks = saved.blocks.iter().map(|(at, n)| (LinkAddr(*at), cut(*n)));
        let edges = saved.edges.iter();
        let edges = edges.map(|(from, to, n)| ((LinkAddr(*from), LinkAddr(*to)), cut(*n)));
        let targets = saved.targets.iter();
        let targets = targets.map(|t| ((LinkAddr(t.call), t.target()), cut(t.count)));
        let (blocks, edges, targets) = (blocks.collect(), edges.collect(), targets.collect());
        into.insert(entry, Counts { blocks, edges, targets, estimated: saved.estimated });
    }
}

/// Takes the counts of functions that another build has, too.
fn take_moved(subject: Subject<'_>, saved: &SavedModule, into: &mut ByFunction, fit: &mut Fit) {
    let shapes = Shapes::of(subject.image, subject.functions);
    let found: Vec<_> = saved.functions.iter().map(|saved| (saved, shapes.find(saved))).collect();
    let entries: HashMap<u64, LinkAddr> =
        found.iter().filter_map(|(saved, now)| Some((saved.entry, (*now)?.entry))).collect();
    for (saved, now) in found {
        let moved = now.and_then(|now| Some((now, Moved::new(saved, now)?)));
        let Some((now, moved)) = moved else {
            fit.differing += 1;
            continue;
        };
        let blocks = saved.blocks.iter().map(|(at, n)| Some((moved.lead(*at)?, cut(*n))));
        let edges = saved.edges.iter();
        let edges =
            edges.map(|(from, to, n)| Some(((moved.lead(*from)?, moved.lead(*to)?), cut(*n))));
        let (blocks, edges) = (blocks.collect(), edges.collect());
        let (Some(blocks), Some(edges)) = (blocks, edges) else {
            fit.differing += 1;
            continue;
        };
        // Targets in other modules are known by builds that may have changed, too.
        let targets = saved.targets.iter().filter(|target| target.build.is_none());
        let targets = targets.filter_map(|target| {
            let to = Target::Here(*entries.get(&target.to?)?);
            Some(((moved.lead(target.call)?, to), cut(target.count)))
        });
        let counts =
            Counts { blocks, edges, targets: targets.collect(), estimated: saved.estimated };
        fit.functions += 1;
        fit.moved += 1;
        into.insert(now.entry, counts);
    }
}

/// Identifies a build of a file.
pub(crate) fn build(image: &Image) -> String {
    rows::build_id(image).filter(|id| !id.is_empty()).unwrap_or_else(|| {
        let code = image.segments().iter().filter(|s| s.executable);
        let bytes = code.filter_map(|s| image.read(s.start, s.file_size as usize));
        format!("code-{:016x}", bytes.fold(START, fnv))
    })
}

fn hash_of(image: &Image, function: &Function) -> u64 {
    let bytes = |range: &Range<LinkAddr>| {
        image.read(range.start, (range.end.0 - range.start.0) as usize).unwrap_or_default()
    };
    function.ranges.iter().fold(START, |hash, range| fnv(hash, bytes(range)))
}
