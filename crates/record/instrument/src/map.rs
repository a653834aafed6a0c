//! What a trace needs to know of an instrumented file: stored in the file, copied to the trace.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use fettle_abi::block::{self, Accumulator};
use fettle_code::Mode;
use fettle_image::Image;
use fettle_record::counts::Counted;
use fettle_record::rows;
use fettle_rewrite::Plan;
use fettle_trace::{Function, Module, Skipped};
use fettle_types::{FunctionIndex, ModuleIndex};
use serde::{Deserialize, Serialize};

/// Bytes of every ring.
pub const RING_BYTES: u32 = 1 << 18;
/// How many functions can be numbered in one process. Every file takes its numbers from a range
/// that is derived from its content, so that files need not know each other.
pub const FUNCTIONS: u32 = 1 << 22;
/// How many block counters can be numbered in one process.
pub const COUNTERS: u32 = 1 << 24;
/// Offset of the accumulators in a slot.
pub const ACCUMULATORS: u32 = block::counters(RING_BYTES);
/// Offset of the counters in a slot.
pub const COUNTERS_AT: u32 = ACCUMULATORS + FUNCTIONS * size_of::<Accumulator>() as u32;

/// The map of a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileMap {
    /// Version of this layout.
    pub version: u32,
    /// Identifies the map; derived from all the rest.
    pub id: u64,
    /// What probes measure.
    pub mode: String,
    /// The file; its number is set when a trace is made.
    pub module: Module,
    /// Number of the first function.
    pub first_function: u32,
    /// Number of the first counter.
    pub first_counter: u32,
    /// Functions in order of number, which is set when a trace is made.
    pub functions: Vec<Function>,
    /// Functions left unmodified.
    pub skipped: Vec<Skipped>,
    /// For each counter, the index of its function and its block's address.
    pub counters: Vec<(u32, u64)>,
    /// Where counters of edges stand, by function; then [`FileMap::counters`] have the counter's
    /// index in its function in place of an address.
    #[serde(default)]
    pub counted: Vec<Counted>,
    /// Link address and size of each function's rewritten text, if calls are sampled: return
    /// addresses in samples identify callers.
    #[serde(default)]
    pub code: Vec<(u64, u64)>,
}

impl FileMap {
    /// The map of `image` with the rewritten text of `plan`; `path` is where it will be. `None` if
    /// it has more functions or blocks than can be numbered.
    pub fn new(image: &Image, plan: &Plan, path: &Path) -> Option<FileMap> {
        let mut hasher = DefaultHasher::new();
        image.bytes().hash(&mut hasher);
        plan.text.hash(&mut hasher);
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        let id = hasher.finish().max(1);
        let functions = plan.functions.len() as u32;
        if functions >= FUNCTIONS || plan.counters >= COUNTERS {
            return None;
        }
        let edges = plan.mode == Mode::Edges;
        let counters = plan.functions.iter().enumerate().flat_map(|(i, f)| {
            let blocks = f.blocks.iter().map(|block| block.0).filter(move |_| !edges);
            let indices = (0..f.counters.1.len() as u64).filter(move |_| edges);
            blocks.chain(indices).map(move |at| (i as u32, at))
        });
        let counted = plan.functions.iter().filter(|_| edges).map(Counted::of);
        Some(FileMap {
            version: 1,
            id,
            mode: plan.mode.name().to_owned(),
            module: rows::module(ModuleIndex(0), path, image, plan),
            first_function: (id % u64::from(FUNCTIONS - functions)) as u32,
            first_counter: (id % u64::from(COUNTERS - plan.counters)) as u32,
            functions: rows::functions(ModuleIndex(0), FunctionIndex(0), image, plan),
            skipped: rows::skipped(ModuleIndex(0), plan),
            counters: counters.collect(),
            counted: counted.collect(),
            code: Vec::new(),
        })
    }

    /// Whether the two use the same numbers.
    pub fn collides(&self, other: &FileMap) -> bool {
        let overlap = |a: u32, n: usize, b: u32, m: usize| {
            u64::from(a) < u64::from(b) + m as u64 && u64::from(b) < u64::from(a) + n as u64
        };
        overlap(
            self.first_function,
            self.functions.len(),
            other.first_function,
            other.functions.len(),
        ) || overlap(
            self.first_counter,
            self.counters.len(),
            other.first_counter,
            other.counters.len(),
        )
    }
}
