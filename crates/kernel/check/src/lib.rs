//! The checker of rewritten text for a kernel: re-derives that it does what the original does.
//!
//! It knows the kernel's image and the plan, and neither how functions are lifted nor how code is emitted.
//! It goes through original and rewritten text in step, from each way in, through branches, calls, fixups and
//! static keys. Wherever both stand, the instructions must be the same but for where they lie, and what
//! the plan says of the place (origin, frame, tables) must follow from the original. Counters may stand
//! where the flags are not needed. What is not certain is refused.
#![forbid(unsafe_code)]

mod counter;
mod gs;
mod new;
mod original;
mod patch;
mod refusal;
mod walk;

use fettle_kernel_image::Image;
use fettle_kernel_plan::Plan;
use rayon::prelude::*;

pub use refusal::{Refusal, Why};

use crate::original::Original;
use crate::walk::Walk;

/// Checks a plan: of each function that is not certain to be right, the first thing that is not.
pub fn refusals(image: &Image, plan: &Plan) -> Vec<Refusal> {
    let original = Original::new(image);
    let parts = parts_of(plan);
    let checked: Vec<Result<Vec<u32>, Refusal>> = (0..plan.functions.len())
        .into_par_iter()
        .map(|function| {
            let parts = parts.get(function).map_or(&[][..], Vec::as_slice);
            Walk::new(&original, plan, function, parts).run()
        })
        .collect();
    let mut refused = Vec::new();
    let mut counted = vec![false; plan.counters as usize];
    for (function, outcome) in checked.into_iter().enumerate() {
        match outcome {
            Err(refusal) => refused.push(refusal),
            Ok(counters) => {
                let twice = counters.iter().find(|number| {
                    let place = counted.get_mut(**number as usize);
                    place.is_none_or(|counted| std::mem::replace(counted, true))
                });
                if twice.is_some() {
                    refused.push(Refusal::of(plan, function, Why::Counter));
                }
            }
        }
    }
    let stray = plan.parts.iter().any(|part| part.function as usize >= plan.functions.len());
    if stray || plan.release != image.release {
        refused.push(Refusal {
            function: String::new(),
            part: 0,
            offset: 0,
            original: 0,
            why: Why::Plan,
        });
    }
    refused
}

/// Checks a plan.
///
/// # Errors
/// The first thing that is not certain to be right.
pub fn check(image: &Image, plan: &Plan) -> Result<(), Refusal> {
    refusals(image, plan).into_iter().next().map_or(Ok(()), Err)
}

/// By function: its parts.
fn parts_of(plan: &Plan) -> Vec<Vec<u32>> {
    let mut parts = vec![Vec::new(); plan.functions.len()];
    for (i, part) in plan.parts.iter().enumerate() {
        if let Some(of) = parts.get_mut(part.function as usize) {
            of.push(i as u32);
        }
    }
    parts
}
