//! Object files: `fettle instrument` in the middle of a build.
//!
//! The file is laid out as if it were linked ([`layout`]), so that its functions can be lifted,
//! rewritten and checked as those of a program; the rewritten text is then written back to the file
//! in a form that linkers understand ([`carry`]). What is known only when the program is linked,
//! above all the functions' numbers, the agent finds out when the program runs ([`records`]).

mod carry;
mod elf;
mod layout;
pub mod records;
mod runtime;
mod unwind;

use std::collections::HashMap;

use fettle_code::Probing;
use fettle_image::LinkAddr;
use fettle_lift::{Function, SkipReason, Skipped};
use fettle_rewrite::{Plan, PlanOptions};

use crate::options::Options;
pub use carry::RECORDS;
use elf::Object;
use layout::Layout;

/// An object file that was made.
pub struct Made {
    /// The file.
    pub file: Vec<u8>,
    /// Functions with probes.
    pub functions: u64,
    /// Functions left unmodified.
    pub skipped: Vec<SkipReason>,
    /// Bytes of rewritten text.
    pub text_bytes: u64,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something about the file.
    Headers(&'static str),
    /// It was made by us.
    Twice,
}

impl From<&'static str> for Refusal {
    fn from(why: &'static str) -> Refusal {
        Refusal::Headers(why)
    }
}

/// Makes an object file of `file` whose functions record themselves in the program that it is
/// linked into.
///
/// # Errors
///
/// Why not.
pub fn instrument(file: &[u8], options: &Options) -> Result<Made, Refusal> {
    let mut object = Object::parse(file)?;
    refuse(&object)?;
    let layout = Layout::new(&object)?;
    let lifted = fettle_lift::lift(&layout.image);
    let relocs = carry::code_relocs(&object, &layout);
    let obstacles: HashMap<LinkAddr, (SkipReason, LinkAddr)> = lifted
        .functions
        .iter()
        .filter_map(|f| Some((f.entry, carry::obstacle(&object, &layout, &relocs, f)?)))
        .collect();
    let places: Vec<LinkAddr> = relocs.keys().copied().collect();
    let wants = |f: &Function| {
        options.selection.wants(&layout.image, f) && !obstacles.contains_key(&f.entry)
    };
    let plan_options = PlanOptions {
        select: &wants,
        places: &places,
        ..PlanOptions::new(Probing::new(options.mode))
    };
    let mut plan = fettle_rewrite::plan(&layout.image, &lifted, plan_options);
    report_obstacles(&mut plan, &obstacles);
    let functions = plan.functions.len() as u64;
    let text_bytes = plan.functions.iter().map(|f| u64::from(f.text_size)).sum();
    let skipped = plan.skipped.iter().map(|s| s.reason).collect();
    if functions == 0 {
        // Builds have files without functions, which are passed on unmodified.
        return Ok(Made { file: file.to_vec(), functions, skipped, text_bytes });
    }
    carry::carry(&mut object, &layout, &lifted, &relocs, plan)?;
    Ok(Made { file: object.write()?, functions, skipped, text_bytes })
}

fn report_obstacles(plan: &mut Plan, obstacles: &HashMap<LinkAddr, (SkipReason, LinkAddr)>) {
    let found = |s: &Skipped| obstacles.get(&s.entry).copied();
    for skipped in &mut plan.skipped {
        if let (SkipReason::NotSelected, Some((reason, at))) = (skipped.reason, found(skipped)) {
            (skipped.reason, skipped.at) = (reason, at);
        }
    }
}

/// Refuses files that must not be rewritten at all.
fn refuse(object: &Object) -> Result<(), Refusal> {
    let has = |start: &str| object.sections.iter().any(|s| s.name.starts_with(start));
    if has(RECORDS) {
        return Err(Refusal::Twice);
    }
    if has(".gnu.lto_") || has(".llvm.lto") {
        return Err(Refusal::Headers(
            "it holds the compiler's own form of the program, from which the linker makes other \
             code: compile without -flto",
        ));
    }
    let ocaml = |s: &elf::Symbol| {
        let name = object.name(s);
        name.starts_with("caml") && name.ends_with("frametable")
    };
    if object.symbols.iter().any(ocaml) {
        return Err(Refusal::Headers(SkipReason::FramesByAddress.describe()));
    }
    Ok(())
}
