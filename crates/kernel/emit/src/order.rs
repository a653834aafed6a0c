//! In which order blocks lie.

use fettle_image::LinkAddr;
use fettle_kernel_lift::KernelFunction;
use fettle_lift::{BlockId, Chunk, Placement};
use rustc_hash::FxHashMap;

/// In which order blocks lie.
#[derive(Clone, Debug)]
pub enum Order {
    /// As in the original: each function's own range, and behind all of them the cold parts.
    Identity,
    /// By chance, from this seed: what no layout that makes sense would find out about emission, this does.
    Shuffled(u64),
    /// As a placement says. Functions that it does not have, or not whole, keep their order.
    Placed(Placement),
}

/// Functions begin at a multiple of this, as those of the kernel do.
const ALIGN: u32 = 16;

impl Order {
    /// The chunks of `functions` in order, each with its function's index.
    pub(crate) fn chunks<'f>(
        &self,
        functions: impl Iterator<Item = &'f KernelFunction>,
    ) -> Vec<(usize, Chunk)> {
        let functions: Vec<&KernelFunction> = functions.collect();
        match self {
            Order::Identity => as_they_are(functions.iter().copied().enumerate()),
            Order::Shuffled(seed) => {
                let code: Vec<_> = functions.iter().map(|function| function.code.clone()).collect();
                placed(&Placement::shuffled(&code, *seed), &functions)
            }
            Order::Placed(placement) => placed(placement, &functions),
        }
    }
}

fn placed(placement: &Placement, functions: &[&KernelFunction]) -> Vec<(usize, Chunk)> {
    let fits: Vec<bool> = functions.iter().map(|f| placement.fits(&f.code)).collect();
    let index: FxHashMap<LinkAddr, usize> =
        functions.iter().enumerate().map(|(i, function)| (function.code.entry, i)).collect();
    let chunks = placement.chunks().iter().filter_map(|chunk| {
        let i = *index.get(&chunk.function)?;
        let align = chunk.align.max(1).next_power_of_two();
        fits[i].then(|| (i, Chunk { align, ..chunk.clone() }))
    });
    let mut chunks: Vec<(usize, Chunk)> = chunks.collect();
    let others = functions.iter().copied().enumerate().filter(|(i, _)| !fits[*i]);
    chunks.extend(as_they_are(others));
    chunks
}

fn as_they_are<'f>(
    functions: impl Iterator<Item = (usize, &'f KernelFunction)>,
) -> Vec<(usize, Chunk)> {
    let mut hot = Vec::new();
    let mut cold = Vec::new();
    for (i, function) in functions {
        for (n, range) in function.code.ranges.iter().enumerate() {
            let inside = |(b, block): (usize, &fettle_lift::Block)| {
                range.contains(&block.start).then_some(BlockId(b as u32))
            };
            let blocks: Vec<BlockId> =
                function.code.blocks.iter().enumerate().filter_map(inside).collect();
            if blocks.is_empty() {
                continue;
            }
            let align = if n == 0 { ALIGN } else { 1 };
            let chunk = Chunk { function: function.code.entry, blocks, align };
            if n == 0 { hot.push((i, chunk)) } else { cold.push((i, chunk)) }
        }
    }
    hot.extend(cold);
    hot
}
