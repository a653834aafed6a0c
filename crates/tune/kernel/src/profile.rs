//! What was counted, kept for another boot.
//!
//! Addresses differ from boot to boot, and static keys change instructions, so a function is known by its name
//! and by where its blocks begin, from its entry on. One that differs is left out and counted. The file is JSON
//! and is not trusted: counts only decide about an order.

use std::io::Read;
use std::path::Path;

use fettle_image::LinkAddr;
use fettle_kernel_image::Image;
use fettle_kernel_lift::{KernelFunction, Lifter};
use fettle_place::lifted::{Counts, Target};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Version of the file's format.
const VERSION: u32 = 1;
/// Bytes of a file that are read: those of all of a kernel's functions are fewer.
const LONGEST: u64 = 1 << 28;
/// Counts beyond it are taken for it: their sums do not overflow.
const MOST: u64 = 1 << 40;

/// Counts by function.
pub type ByFunction = FxHashMap<LinkAddr, Counts>;

/// Executions of the kernel's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    version: u32,
    /// The kernel that it is of, as `uname -r` says.
    pub release: String,
    /// Only calls from this function were counted.
    pub root: Option<String>,
    functions: Vec<Profiled>,
}

/// A function's executions. Places are distances from its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Profiled {
    function: Named,
    blocks: Vec<(u64, u64)>,
    targets: Vec<CallTarget>,
}

/// A function: of those of a module that share its name, the n-th by address, from 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Named {
    /// `None`: the kernel itself.
    #[serde(default)]
    module: Option<String>,
    name: String,
    nth: usize,
}

/// Where an indirect call led.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct CallTarget {
    call: u64,
    to: Named,
    count: u64,
}

/// How a profile fits the kernel that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Functions that are the same.
    pub functions: usize,
    /// Functions that are not, or not there, or left unmodified.
    pub differing: usize,
}

/// Functions by module and name, in order of address.
struct Names<'a> {
    image: &'a Image,
    starts: FxHashMap<(Option<&'a str>, &'a str), Vec<u64>>,
}

impl<'a> Names<'a> {
    fn of(image: &'a Image) -> Names<'a> {
        let mut starts: FxHashMap<_, Vec<u64>> = FxHashMap::default();
        // They are in order of address.
        for function in image.functions.all() {
            let start = function.range.start;
            starts.entry((module(image, start), &*function.name)).or_default().push(start);
        }
        Names { image, starts }
    }

    fn find(&self, named: &Named) -> Option<u64> {
        let key = (named.module.as_deref(), named.name.as_str());
        self.starts.get(&key)?.get(named.nth).copied()
    }

    /// The function that begins at `entry`.
    fn named(&self, entry: u64) -> Option<Named> {
        let name = &*self.image.functions.starting(entry)?.name;
        let module = module(self.image, entry);
        let nth = self.starts.get(&(module, name))?.iter().position(|start| *start == entry)?;
        Some(Named { module: module.map(str::to_owned), name: name.to_owned(), nth })
    }
}

fn module(image: &Image, address: u64) -> Option<&str> {
    image.module_at(address).map(|module| &*module.name)
}

impl Profile {
    /// Of what was counted.
    pub fn of(
        image: &Image,
        root: Option<String>,
        functions: &[KernelFunction],
        counts: &ByFunction,
    ) -> Profile {
        let names = Names::of(image);
        let named = |entry: u64| names.named(entry);
        let profiled = |function: &KernelFunction| {
            let counts = counts.get(&function.code.entry)?;
            let from_entry = |at: LinkAddr| at.0.wrapping_sub(function.entry());
            let mut blocks: Vec<(u64, u64)> = function
                .code
                .blocks
                .iter()
                .map(|block| {
                    let count = counts.blocks.get(&block.start).copied().unwrap_or(0);
                    (from_entry(block.start), count)
                })
                .collect();
            blocks.sort_unstable();
            let target = |((call, to), count): (&(LinkAddr, Target), &u64)| match to {
                Target::Here(to) => {
                    Some(CallTarget { call: from_entry(*call), to: named(to.0)?, count: *count })
                }
                Target::Module(..) | Target::Unknown => None,
            };
            let mut targets: Vec<CallTarget> = counts.targets.iter().filter_map(target).collect();
            targets.sort();
            Some(Profiled { function: named(function.entry())?, blocks, targets })
        };
        let mut functions: Vec<Profiled> = functions.iter().filter_map(profiled).collect();
        functions.sort_by(|a, b| a.function.cmp(&b.function));
        Profile { version: VERSION, release: image.release.clone(), root, functions }
    }

    /// The functions that this kernel has, and their counts.
    ///
    /// # Errors
    ///
    /// When it has none of them.
    pub fn fit(&self, lifter: &Lifter<'_>) -> Result<(Vec<KernelFunction>, ByFunction, Fit)> {
        let names = Names::of(lifter.image());
        let found: FxHashMap<u64, &Profiled> = self
            .functions
            .iter()
            .filter_map(|profiled| Some((names.find(&profiled.function)?, profiled)))
            .collect();
        let mut entries: Vec<u64> = found.keys().copied().collect();
        entries.sort_unstable();
        let (mut functions, _) = lifter.lift(&entries);
        let mut counts = ByFunction::default();
        functions.retain(|function| {
            let profiled = found.get(&function.entry());
            let of = profiled.and_then(|profiled| profiled.counts(function, &names));
            of.map(|of| counts.insert(function.code.entry, of)).is_some()
        });
        let fit =
            Fit { functions: functions.len(), differing: self.functions.len() - functions.len() };
        match functions.is_empty() {
            true => Err(Error::Unfit { release: self.release.clone(), differing: fit.differing }),
            false => Ok((functions, counts, fit)),
        }
    }

    /// Writes it to a file.
    ///
    /// # Errors
    ///
    /// When that is not possible.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::profile("write", path, &error);
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        std::fs::write(path, text).map_err(failed)
    }

    /// Reads it from a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no such profile.
    pub fn read(path: &Path) -> Result<Profile> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
            .map_err(|error| Error::profile("read", path, &error))?;
        let profile: Profile =
            serde_json::from_slice(&bytes).map_err(|error| Error::profile("read", path, &error))?;
        match profile.version {
            VERSION => Ok(profile),
            other => Err(Error::profile(
                "read",
                path,
                &format!("its version is {other}, this Fettle knows {VERSION}"),
            )),
        }
    }
}

impl Profiled {
    /// Its counts in this kernel, if the function is the same.
    fn counts(&self, function: &KernelFunction, names: &Names<'_>) -> Option<Counts> {
        let place = |from_entry: u64| LinkAddr(function.entry().wrapping_add(from_entry));
        let mut starts: Vec<LinkAddr> =
            function.code.blocks.iter().map(|block| block.start).collect();
        let mut known: Vec<LinkAddr> = self.blocks.iter().map(|(at, _)| place(*at)).collect();
        starts.sort_unstable();
        known.sort_unstable();
        if starts != known {
            return None;
        }
        let targets = self.targets.iter().filter_map(|target| {
            let to = Target::Here(LinkAddr(names.find(&target.to)?));
            Some(((place(target.call), to), target.count.min(MOST)))
        });
        Some(Counts {
            blocks: self
                .blocks
                .iter()
                .map(|(at, count)| (place(*at), (*count).min(MOST)))
                .collect(),
            targets: targets.collect(),
            ..Counts::default()
        })
    }
}
