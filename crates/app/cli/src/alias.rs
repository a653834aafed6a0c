//! Other names of functions. A trace has one name of each; the file that was recorded has all, such as
//! `open64` for glibc's `open`.

use std::path::Path;

use fettle_image::{Image, unversioned};
use fettle_trace::{Function, Module, Trace};

/// Files larger than this are not read for a name.
const LARGEST: u64 = 1 << 30;

/// The trace's name of the function that `wanted` names in its file, if the trace has none of that
/// name and the file is still the one that was recorded.
pub fn recorded_as(trace: &Trace, wanted: &str) -> Option<String> {
    let functions = trace.functions().ok()?;
    let is_wanted = |f: &Function| f.name == wanted || f.demangled.as_deref() == Some(wanted);
    if functions.iter().any(is_wanted) {
        return None;
    }
    let modules = trace.modules().ok()?;
    modules.iter().find_map(|module| {
        let addresses = addresses(module, wanted)?;
        let is_it = |f: &&Function| f.module == module.id && addresses.contains(&f.address);
        let function = functions.iter().find(is_it)?;
        Some(function.demangled.clone().unwrap_or_else(|| function.name.clone()))
    })
}

/// Where a module's file says that `wanted` is.
fn addresses(module: &Module, wanted: &str) -> Option<Vec<u64>> {
    let path = Path::new(&module.path);
    if std::fs::metadata(path).ok()?.len() > LARGEST {
        return None;
    }
    let image = Image::parse(std::fs::read(path).ok()?).ok()?;
    let digits: String = image.build_id()?.iter().map(|byte| format!("{byte:02x}")).collect();
    if module.build_id.as_deref() != Some(digits.as_str()) {
        return None;
    }
    let named = image.symbols().iter().filter(|symbol| unversioned(&symbol.name) == wanted);
    Some(named.map(|symbol| symbol.addr.0).collect())
}
