//! Rewritten text for functions of a running kernel: their blocks in a given order, with counters or without.
//!
//! Instructions are copied. What is written anew is what depends on an address: distances, jumps between
//! blocks, and the kernel's tables about instructions. Frames keep their layout, so each instruction and
//! return address of rewritten text has a counterpart in the original, which the plan says for all of them.
//!
//! A chunk of a `Placement` becomes a part of the [`Plan`]. Calls of functions of the same plan lead to
//! their rewritten text.
#![forbid(unsafe_code)]

mod counters;
pub mod counts;
mod encode;
mod items;
mod order;
mod place;
mod promotions;

use fettle_kernel_image::Image;
use fettle_kernel_lift::{KernelFunction, Lifter, Reason, Skipped};
use fettle_kernel_plan::{EntryPatch, Function, HeldModule, Plan};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

pub use counters::{Counting, Meaning};
pub use order::Order;
pub use place::BlockPlace;
pub use promotions::Promotions;

use crate::counters::Counters;
use crate::encode::{Encoded, Labels};
use crate::items::{Context, Items};

/// What a counter of the plan counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The function, by its entry.
    pub function: u64,
    /// What it counts.
    pub meaning: Meaning,
}

/// Rewritten text, and what its counters mean.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    /// The rewritten text.
    pub plan: Plan,
    /// By counter.
    pub counters: Vec<Counter>,
    /// Where all blocks are.
    pub blocks: Vec<BlockPlace>,
    /// Functions that are left unmodified after all.
    pub skipped: Vec<Skipped>,
}

/// Rewritten text for the functions with these symbols; all of them, or none.
///
/// # Errors
/// The first of them that has to be left unmodified, with the reason.
pub fn plan(
    image: &Image,
    names: &[impl AsRef<str>],
    order: &Order,
    counting: Counting,
) -> Result<Emission, Skipped> {
    let mut entries = Vec::new();
    for name in names {
        let name = name.as_ref();
        let found = image.function(name).ok_or_else(|| Skipped {
            name: name.to_string(),
            entry: 0,
            reason: Reason::NoFunction,
            at: 0,
        })?;
        entries.push(found.range.start);
    }
    let lifter = Lifter::new(image);
    let (functions, skipped) = lifter.lift(&entries);
    let emission = emit(&lifter, &functions, order, counting);
    match skipped.into_iter().chain(emission.skipped.iter().cloned()).next() {
        Some(skipped) => Err(skipped),
        None => Ok(emission),
    }
}

/// Rewritten text for lifted functions.
pub fn emit(
    lifter: &Lifter<'_>,
    functions: &[KernelFunction],
    order: &Order,
    counting: Counting,
) -> Emission {
    emit_promoted(lifter, functions, order, counting, &Promotions::default())
}

/// Rewritten text for lifted functions, with calls promoted.
pub fn emit_promoted(
    lifter: &Lifter<'_>,
    functions: &[KernelFunction],
    order: &Order,
    counting: Counting,
    promotions: &Promotions,
) -> Emission {
    let mut emission = Emission::default();
    // What each function's counters are decides which functions take part.
    let prepared: Vec<Result<Counters, (Reason, u64)>> =
        functions.par_iter().map(|function| counters::place(lifter, function, counting)).collect();
    let mut chosen = Vec::new();
    for (function, prepared) in functions.iter().zip(prepared) {
        match prepared {
            Ok(counters) => chosen.push((function, counters)),
            Err((reason, at)) => emission.skipped.push(skipped(function, reason, at)),
        }
    }
    let chunks = order.chunks(chosen.iter().map(|(function, _)| *function));
    let mut first = 0;
    for (function, counters) in &mut chosen {
        counters.number_from(first);
        first += counters.meanings().len() as u32;
        emission.counters.extend(
            counters
                .meanings()
                .iter()
                .map(|meaning| Counter { function: function.entry(), meaning: *meaning }),
        );
    }
    let index: FxHashMap<u64, u32> =
        chosen.iter().enumerate().map(|(i, (f, _))| (f.entry(), i as u32)).collect();
    let encoded: Vec<Encoded> = chunks
        .par_iter()
        .map(|(of, chunk)| {
            let (function, counters) = &chosen[*of];
            let context = Context { lifter, function, counters, index: &index, promotions };
            Items::of(&context, chunk).encode(&context)
        })
        .collect();
    let mut labels = Labels::new(chosen.iter().map(|(f, _)| f.code.entry_block()).collect());
    for (part, ((of, _), encoded)) in chunks.iter().zip(&encoded).enumerate() {
        labels.add(*of, part as u32, encoded);
    }
    let parts = chunks
        .iter()
        .zip(encoded)
        .map(|((of, chunk), encoded)| encoded.link(*of as u32, chunk.align, &labels));
    emission.plan = Plan {
        release: lifter.image().release.clone(),
        parts: parts.collect(),
        functions: Vec::new(),
        modules: held(lifter.image(), chosen.iter().map(|(function, _)| function.entry())),
        counters: first,
    };
    emission.plan.functions = chosen
        .iter()
        .enumerate()
        .map(|(i, (function, _))| described(function, i, &labels))
        .collect();
    emission.blocks = chosen
        .iter()
        .enumerate()
        .flat_map(|(i, (function, _))| labels.blocks_of(i, function.entry()))
        .collect();
    emission
}

/// The modules that these functions lie in.
fn held(image: &Image, entries: impl Iterator<Item = u64>) -> Vec<HeldModule> {
    let mut modules: Vec<HeldModule> = entries
        .filter_map(|entry| image.module_at(entry))
        .map(|module| HeldModule { name: module.name.to_string(), address: module.address })
        .collect();
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    modules.dedup();
    modules
}

fn skipped(function: &KernelFunction, reason: Reason, at: u64) -> Skipped {
    Skipped { name: function.name.clone(), entry: function.entry(), reason, at }
}

/// What the plan says of a function.
fn described(function: &KernelFunction, index: usize, labels: &Labels) -> Function {
    let own = &function.code.ranges[0];
    let (entry, _) = labels.block(index, function.code.entry_block());
    let patch = function.room.as_ref().map(|room| {
        let mut inside = [0; 4];
        for (to, from) in inside.iter_mut().zip(&room.inside) {
            *to = *from;
        }
        EntryPatch {
            at: room.at,
            replaced: room.replaced,
            inside,
            insides: room.inside.len() as u8,
            to: (function.behind_fentry() - function.entry()) as u32,
        }
    });
    Function {
        name: function.name.clone(),
        original: function.entry(),
        size: (own.end.0 - own.start.0) as u32,
        entry,
        patch,
    }
}
