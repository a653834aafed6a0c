//! Whether a program looks for its own leaks when it ends.

use fettle_image::{Image, unversioned};
use fettle_types::Pid;

/// What names a function of the run-time that looks for leaks, or of those that contain it.
const RUN_TIMES: [&str; 3] = ["__asan_init", "__lsan_init", "__lsan_do_leak_check"];

/// Whether a program's image has such a run-time, or imports one.
pub(crate) fn has_run_time(image: &Image) -> bool {
    let is_of_it = |name: &str| RUN_TIMES.contains(&unversioned(name));
    let imported = image.relocs().iter().filter_map(|reloc| reloc.symbol.as_deref());
    imported.chain(image.symbols().iter().map(|s| s.name.as_str())).any(is_of_it)
}

/// Whether the environment of a process that has just executed such a program has it look for leaks.
pub(crate) fn are_wanted(pid: Pid) -> bool {
    !is_turned_off(&std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
}

/// Whether an environment turns it off; the last word counts.
fn is_turned_off(environment: &[u8]) -> bool {
    let value = |name: &[u8]| {
        let mut variables = environment.split(|byte| *byte == 0);
        let text = variables.find_map(|v| v.strip_prefix(name)?.strip_prefix(b"="))?;
        let text = String::from_utf8_lossy(text).into_owned();
        let (_, set) = text.rsplit_once("detect_leaks=")?;
        Some(set.starts_with(['0', 'f', 'n']))
    };
    value(b"LSAN_OPTIONS").or_else(|| value(b"ASAN_OPTIONS")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::is_turned_off;

    #[test]
    fn what_turns_it_off() {
        let off = ["ASAN_OPTIONS=detect_leaks=0", "A=b\0ASAN_OPTIONS=x=1:detect_leaks=false:y=2\0"];
        let on = ["", "ASAN_OPTIONS=verbosity=0", "ASAN_OPTIONS=detect_leaks=0:detect_leaks=1"];
        assert!(off.iter().all(|text| is_turned_off(text.as_bytes())));
        assert!(!on.iter().any(|text| is_turned_off(text.as_bytes())));
    }
}
