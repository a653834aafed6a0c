//! Every function is named once: lifted, or left unmodified with its reason.
//!
//! Lifting goes by *ranges* of code, which do not overlap. A symbol may name an entry that begins no
//! range, in the middle of another function or in the PLT. A user who reads that all
//! functions were lifted would not know of it. So what no range accounts for is listed at the end, by its
//! symbol.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use rustc_hash::FxHashSet;

use crate::function::{Function, SkipReason, Skipped};

/// Functions of `image` that are neither among `functions` nor among `skipped`; `ranges` are those that were
/// decoded, in order.
pub(crate) fn missing(
    image: &Image,
    functions: &[Function],
    skipped: &[Skipped],
    ranges: &[Range<LinkAddr>],
) -> Vec<Skipped> {
    let entries = functions.iter().map(|f| f.entry);
    let mut known: FxHashSet<LinkAddr> = entries.chain(skipped.iter().map(|s| s.entry)).collect();
    let named = image.function_symbols().map(|s| (s.addr, s.size, Some(s.name.as_str())));
    // What the loader calls has no name where symbols were stripped.
    let unnamed = image.initializers().filter(|at| image.is_code(*at)).map(|at| (at, 0, None));
    let mut missing = Vec::new();
    for (entry, size, name) in named.chain(unnamed) {
        let next = ranges.partition_point(|range| range.end <= entry);
        let around = ranges.get(next).filter(|range| range.contains(&entry));
        // A function's cold part is named after it, and goes with it.
        let is_part = name.is_some_and(|name| name.contains(".cold"))
            && around.is_some_and(|range| range.start == entry);
        if is_part || !known.insert(entry) {
            continue;
        }
        let (reason, at) = match around {
            Some(range) => (SkipReason::InsideAnother, range.start),
            None => (SkipReason::LinkerMade, entry),
        };
        missing.push(Skipped { entry, size, name: name.map(str::to_owned), reason, at });
    }
    missing
}
