//! Sums over files.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kinds::{Kind, Operation};
use crate::lines::Counts as LineCounts;
use crate::site::Leaving;
use crate::source::Tree;

/// How many operations of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Take.
    pub lock: u64,
    /// Let go.
    pub unlock: u64,
    /// Take unless taken.
    #[serde(rename = "try")]
    pub attempt: u64,
    /// Take until the end of a block.
    pub scoped: u64,
    /// Neither.
    pub other: u64,
}

impl Counts {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.lock + self.unlock + self.attempt + self.scoped + self.other
    }

    fn add(&mut self, operation: Operation) {
        *match operation {
            Operation::Lock => &mut self.lock,
            Operation::Unlock => &mut self.unlock,
            Operation::Try => &mut self.attempt,
            Operation::Scoped => &mut self.scoped,
            Operation::Other => &mut self.other,
        } += 1;
    }
}

/// Deeper nesting counts as this.
pub const DEEPEST: usize = 8;

/// What a part of a source has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files, and how many have operations.
    pub files: (u64, u64),
    /// Their size.
    pub bytes: u64,
    /// Their lines.
    pub lines: u64,
    /// Lines with code that the preprocessor leaves.
    pub code_lines: u64,
    /// Functions and macros, and how many have operations.
    pub functions: (u64, u64),
    /// Operations by kind. Those in functions that are operations themselves are not of them.
    pub kinds: BTreeMap<Kind, Counts>,
    /// Operations in functions that are operations themselves.
    pub implementation: u64,
    /// How many acquisitions happen with how many locks held, this one among them: from 1 on.
    pub depths: [u64; DEEPEST],
    /// Locks that functions may leave held, by how.
    pub candidates: BTreeMap<Leaving, u64>,
    /// Lines of the two builds, and how many files differ.
    pub builds: (LineCounts, u64),
}

impl Tally {
    /// All operations.
    pub fn sites(&self) -> u64 {
        self.kinds.values().map(Counts::sum).sum()
    }

    /// Operations for each thousand lines of code.
    pub fn density(&self) -> f64 {
        if self.code_lines == 0 {
            return 0.0;
        }
        self.sites() as f64 * 1000.0 / self.code_lines as f64
    }
}

/// What sums are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Everything.
    Whole,
    /// The first folders of a path, so many of them.
    Subsystem(usize),
    /// Files.
    File,
    /// Functions and macros. Lines and builds are not known of these.
    Function,
}

/// The sums, by name of the part.
pub fn tally(tree: &Tree, by: By) -> BTreeMap<String, Tally> {
    let mut parts: BTreeMap<String, Tally> = BTreeMap::new();
    if by == By::Whole {
        parts.entry(String::new()).or_default();
    }
    for (path, counted) in &tree.files {
        let census = &counted.census;
        let of_function = |function: u32| {
            let function = census.functions.get(function as usize);
            let name = function.map_or("?", |function| &function.name);
            format!("{path}:{name}")
        };
        let of_file = match by {
            By::Whole => String::new(),
            By::Subsystem(depth) => subsystem(path, depth),
            By::File | By::Function => path.clone(),
        };
        if by != By::Function {
            let part = parts.entry(of_file.clone()).or_default();
            part.files.0 += 1;
            part.files.1 += u64::from(!census.sites.is_empty());
            part.bytes += census.bytes;
            part.lines += u64::from(census.lines);
            part.code_lines += u64::from(census.code_lines);
            part.functions.0 += u64::from(census.function_count);
            part.functions.1 += census.functions.len() as u64;
            if let Some(builds) = &counted.builds {
                part.builds.0.add(&builds.counts);
                part.builds.1 += u64::from(builds.counts.changed() > 0);
            }
        }
        let key =
            |function| if by == By::Function { of_function(function) } else { of_file.clone() };
        for site in &census.sites {
            let part = parts.entry(key(site.function)).or_default();
            if site.implementation {
                part.implementation += 1;
                continue;
            }
            part.kinds.entry(site.kind).or_default().add(site.operation);
            if let Some(deep) = usize::from(site.depth).checked_sub(1) {
                part.depths[deep.min(DEEPEST - 1)] += 1;
            }
        }
        for candidate in &census.candidates {
            let part = parts.entry(key(candidate.function)).or_default();
            *part.candidates.entry(candidate.leaving).or_default() += 1;
        }
    }
    parts
}

/// The sums over everything.
pub fn whole(tree: &Tree) -> Tally {
    tally(tree, By::Whole).into_values().next().unwrap_or_default()
}

/// The first folders of a path; files of the root are in `.`.
fn subsystem(path: &str, depth: usize) -> String {
    let folders: Vec<&str> = path.split('/').collect();
    let folders = folders.split_last().map_or(&[][..], |(_, folders)| folders);
    match folders.iter().take(depth).copied().collect::<Vec<_>>().join("/") {
        none if none.is_empty() => ".".into(),
        some => some,
    }
}
