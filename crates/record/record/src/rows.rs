//! What a trace says of a module and of its probes: what it is, its functions, those left unmodified.

use std::path::Path;

use fettle_abi::locks;
use fettle_code::Mode;
use fettle_demangle::demangle;
use fettle_image::{Image, LinkAddr};
use fettle_rewrite::Plan;
use fettle_trace::{Function, Module, ProbeMode, Skipped};
use fettle_types::{FunctionIndex, ModuleIndex};

/// What a trace says of probes of this mode.
pub fn probe_mode(mode: Mode) -> ProbeMode {
    match mode {
        // Nothing is counted where there are no probes.
        Mode::Count | Mode::Plain | Mode::Locks => ProbeMode::Count,
        Mode::Time => ProbeMode::Time,
        Mode::Cpu => ProbeMode::Cpu,
        Mode::Events => ProbeMode::Events,
        Mode::Sample => ProbeMode::Sampled,
        Mode::Blocks => ProbeMode::Blocks,
        Mode::Edges => ProbeMode::Edges,
        Mode::User => ProbeMode::User,
    }
}

/// The build identifier of an image, as traces have it.
pub fn build_id(image: &Image) -> Option<String> {
    image.build_id().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The module `id`, which is `image` at `path`, with the rewritten text of `plan`.
pub fn module(id: ModuleIndex, path: &Path, image: &Image, plan: &Plan) -> Module {
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
pub fn functions(
    id: ModuleIndex,
    first: FunctionIndex,
    image: &Image,
    plan: &Plan,
) -> Vec<Function> {
    let lines = image.lines();
    let rows = plan.functions.iter().zip(first.on()).map(|(f, number)| {
        let name = name_of(image, f.entry, f.name.as_deref());
        let place = lines.line(f.entry).map(|p| (p.file.clone(), p.line));
        Function { id: number, module: id, ..function(name, f.entry.0, f.size, place) }
    });
    rows.collect()
}

/// What the function at `entry` goes by. Of several names at one address a function of locks has the
/// one that says what it does with them: glibc has `pthread_spin_init` where `pthread_spin_unlock` is.
fn name_of(image: &Image, entry: LinkAddr, name: Option<&str>) -> String {
    let known = name.is_some_and(|name| locks::named(name).is_some());
    let others = || image.symbols_at(entry).iter().map(|symbol| symbol.name.as_str());
    let of_locks = || others().find(|other| locks::named(other).is_some());
    let name = if known { name } else { of_locks().or(name) };
    name.map_or_else(|| format!("sub_{:x}", entry.0), str::to_owned)
}

/// A function without numbers; `place` is its source file and line.
pub fn function(name: String, address: u64, size: u64, place: Option<(String, u32)>) -> Function {
    let readable = demangle(&name);
    let (file, line) = place.unzip();
    Function {
        id: FunctionIndex::default(),
        module: ModuleIndex::default(),
        demangled: (readable != name).then_some(readable),
        name,
        address,
        size,
        line,
        file,
    }
}

/// Functions of module `id` that were left unmodified.
pub fn skipped(id: ModuleIndex, plan: &Plan) -> Vec<Skipped> {
    let rows = plan.skipped.iter().map(|s| Skipped {
        module: id,
        address: s.entry.0,
        name: s.name.clone().unwrap_or_default(),
        reason: s.reason.describe().to_owned(),
        detail: format!("at {}", s.at),
    });
    rows.collect()
}
