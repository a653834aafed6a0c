//! What a trace says of a module and of its probes: what it is, its functions, those left alone.

use std::path::Path;

use fettle_code::Mode;
use fettle_image::{Image, demangle};
use fettle_rewrite::Plan;
use fettle_trace::{Function, Module, ProbeMode, Skipped};

/// What a trace says of probes of this mode.
pub fn probe_mode(mode: Mode) -> ProbeMode {
    match mode {
        // Nothing is counted where there are no probes.
        Mode::Count | Mode::Plain => ProbeMode::Count,
        Mode::Time => ProbeMode::Time,
        Mode::Cpu => ProbeMode::Cpu,
        Mode::Events => ProbeMode::Events,
        Mode::Sample => ProbeMode::Sampled,
        Mode::Blocks => ProbeMode::Blocks,
        Mode::Edges => ProbeMode::Edges,
        Mode::Own => ProbeMode::Own,
    }
}

/// The build identifier of an image, as traces have it.
pub fn build_id(image: &Image) -> Option<String> {
    image.build_id().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The module `id`, which is `image` at `path`, with the new code of `plan`.
pub fn module(id: u32, path: &Path, image: &Image, plan: &Plan) -> Module {
    let (probed, skipped) = (plan.functions.len() as u64, plan.skipped.len() as u64);
    Module {
        id,
        path: path.display().to_string(),
        build_id: build_id(image),
        functions_seen: probed + skipped,
        functions_probed: probed,
        functions_skipped: skipped,
    }
}

/// Functions of module `id`, the first with number `first`.
pub fn functions(id: u32, first: u32, image: &Image, plan: &Plan) -> Vec<Function> {
    let lines = image.lines();
    let rows = plan.functions.iter().zip(first..).map(|(f, number)| {
        let name = f.name.clone().unwrap_or_else(|| format!("sub_{:x}", f.entry.0));
        let place = lines.line(f.entry).map(|p| (p.file.to_string(), p.line));
        Function { id: number, module: id, ..function(name, f.entry.0, f.size, place) }
    });
    rows.collect()
}

/// A function without numbers; `place` is its source file and line.
pub fn function(name: String, address: u64, size: u64, place: Option<(String, u32)>) -> Function {
    let readable = demangle(&name);
    let (file, line) = place.unzip();
    Function {
        id: 0,
        module: 0,
        demangled: (readable != name).then_some(readable),
        name,
        address,
        size,
        line,
        file,
    }
}

/// Functions of module `id` that were left alone.
pub fn skipped(id: u32, plan: &Plan) -> Vec<Skipped> {
    let rows = plan.skipped.iter().map(|s| Skipped {
        module: id,
        address: s.entry.0,
        name: s.name.clone().unwrap_or_default(),
        reason: s.reason.describe().to_owned(),
        detail: format!("at {}", s.at),
    });
    rows.collect()
}
