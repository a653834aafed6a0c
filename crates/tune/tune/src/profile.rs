//! A profile on disk, for use in a later run.
//!
//! It belongs to builds: each module is known by its build id, each function by its address and a
//! hash of its bytes. A profile of another build is refused; a function that differs is left out
//! and counted. The file is JSON and is not trusted: counts only decide about an order.

use crate::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use fettle_image::{Image, LinkAddr};
use fettle_lift::Function;
use fettle_place::{Counts, Target};
use fettle_record::rows;
use serde::{Deserialize, Serialize};

/// Larger counts are cut off: sums of them must fit.
const LARGEST: u64 = 1 << 40;
/// Longer files are none that [`Saved::write`] made.
const LONGEST: u64 = 1 << 30;

/// A profile as it is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The format: 1.
    pub version: u32,
    /// The counts of each module.
    pub modules: Vec<SavedModule>,
}

/// The counts of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedModule {
    /// Its file, as the process called it.
    pub path: String,
    /// Its build id in hexadecimal digits; without one, a hash of its code.
    pub build: String,
    /// The functions that ran.
    pub functions: Vec<SavedFunction>,
}

/// The counts of a function. Addresses are the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFunction {
    /// Where it starts.
    pub entry: u64,
    /// Its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A hash of its bytes.
    pub bytes: u64,
    /// Blocks: where they start, and how often they ran.
    pub blocks: Vec<(u64, u64)>,
    /// Edges between blocks: from, to, how often.
    pub edges: Vec<(u64, u64, u64)>,
    /// Targets of indirect calls. Profiles of older versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<SavedTarget>,
    /// It was not counted, but inferred from samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A target of an indirect call. Addresses are the files'.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SavedTarget {
    /// The instruction.
    pub call: u64,
    /// The build of the function's module, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The function's entry, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// How often at least.
    pub count: u64,
}

impl SavedTarget {
    fn of(call: LinkAddr, target: &Target, count: u64) -> SavedTarget {
        let (build, to) = match target {
            Target::Here(to) => (None, Some(to.0)),
            Target::Module(build, to) => (Some(build.to_string()), Some(to.0)),
            Target::Unknown => (None, None),
        };
        SavedTarget { call: call.0, build, to, count }
    }

    fn target(&self) -> Target {
        match (&self.build, self.to) {
            (None, Some(to)) => Target::Here(LinkAddr(to)),
            (Some(build), Some(to)) => Target::Module(build.as_str().into(), LinkAddr(to)),
            (_, None) => Target::Unknown,
        }
    }
}

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

    /// Writes it to a file.
    ///
    /// # Errors
    ///
    /// As text, when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// As text, when the file cannot be read or is something else.
    pub fn read(path: &Path) -> Result<Saved, String> {
        let failed = |what: String| format!("{}: {what}", path.display());
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
            .map_err(|error| failed(error.to_string()))?;
        Saved::parse(&bytes).map_err(failed)
    }

    /// Reads one from bytes.
    ///
    /// # Errors
    ///
    /// As text, when they are something else.
    pub fn parse(bytes: &[u8]) -> Result<Saved, String> {
        let saved: Saved = serde_json::from_slice(bytes).map_err(|error| {
            format!("it is no whole profile ({error}); `fettle tune --save` writes them")
        })?;
        match saved.version {
            1 => Ok(saved),
            version => {
                Err(format!("it is a profile of version {version}, which is not known here"))
            }
        }
    }

    /// The counts that it has for these functions, in the same order.
    ///
    /// # Errors
    ///
    /// As text, when it is of another build of some module, or of none of them.
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
                        return Err(format!(
                            "it was counted in another build of {} ({}, and this is {build})",
                            subject.path.display(),
                            other.build
                        ));
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

fn cut(count: u64) -> u64 {
    count.min(LARGEST)
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

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_profile_is_refused() {
        for text in ["", "{}", "[1]", r#"{"version": 1}"#, r#"{"version": 1, "modules": [3]}"#] {
            let why = Saved::parse(text.as_bytes()).unwrap_err();
            assert!(why.contains("no whole profile"), "{text}: {why}");
        }
        // A profile of a version without targets.
        let old = br#"{"version": 1, "modules": [{"path": "/a", "build": "b", "functions":
            [{"entry": 1, "bytes": 2, "blocks": [[1, 3]], "edges": []}]}]}"#;
        assert!(Saved::parse(old).unwrap().modules[0].functions[0].targets.is_empty());
        let why = Saved::parse(br#"{"version": 7, "modules": []}"#).unwrap_err();
        assert!(why.contains("version 7"), "{why}");
        assert!(Saved::parse(br#"{"version": 1, "modules": []}"#).unwrap().modules.is_empty());
    }
}
