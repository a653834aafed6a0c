//! A trace folder with one file damaged or replaced is read in every way.
//!
//! The first byte chooses the file; its top bit whether the rest replaces the file, or is a list
//! of patches: position (two bytes, from the end if the top bit is set) and byte. The sister in
//! `cargo test` is `crates/analyse/report/tests/mutated.rs`.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fettle_report::export::{ExportOptions, Format, export};
use fettle_report::{Analysis, Options};
use fettle_trace::{
    Clock, Finish, Function, Manifest, Module, Thread, Total, TraceWriter, open_or_recover,
};
use fettle_types::FunctionIndex;
use libfuzzer_sys::fuzz_target;

/// The files of a whole trace.
static WHOLE: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    // The Parquet library's panics become errors; only one that gets out ends the run.
    std::panic::set_hook(Box::new(|_| {}));
    let folder = place("whole");
    let _ = fs::remove_dir_all(&folder);
    let clock = Clock { tsc_hz: 1_000_000_000, ..Clock::default() };
    let manifest = Manifest { command: vec!["fuzz".into()], clock, ..Manifest::default() };
    let mut writer = TraceWriter::create(&folder, &manifest).unwrap();
    for (start, ticks, function) in [(200u64, 50u64, 2u64), (300, 10, 2), (100, 400, 1)] {
        let record = [(start << 12).to_le_bytes(), (ticks << 12 | function).to_le_bytes()];
        writer.spool_append(0, record.as_flattened()).unwrap();
    }
    let mut finish = Finish { manifest, ..Finish::default() };
    finish.modules.push(Module { path: "/fuzz".into(), ..Module::default() });
    for (id, name) in [(FunctionIndex(0), "main"), (FunctionIndex(1), "_Z3addii")] {
        finish.functions.push(Function { id, name: name.into(), ..Function::default() });
        finish.totals.push(Total { function: id, calls: 1, total_ns: 9, ..Total::default() });
    }
    finish.threads.push(Thread::default());
    writer.finish(finish, &mut |_, _| {}).unwrap();
    let mut files = Vec::new();
    list(&folder, &folder, &mut files);
    files.sort();
    files
});

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fettle-fuzz-trace-{}-{name}", std::process::id()))
}

fn list(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(root, &path, files);
        } else {
            let bytes = fs::read(&path).unwrap();
            files.push((path.strip_prefix(root).unwrap().to_owned(), bytes));
        }
    }
}

fn damaged(whole: &[u8], mode: u8, rest: &[u8]) -> Vec<u8> {
    if mode & 0x80 != 0 {
        return rest.to_vec();
    }
    let mut bytes = whole.to_vec();
    for patch in rest.chunks_exact(3) {
        let at = usize::from(patch[0] & 0x7f) << 8 | usize::from(patch[1]);
        let at = if patch[0] & 0x80 != 0 { bytes.len().wrapping_sub(1 + at) } else { at };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = patch[2];
        }
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let files = &*WHOLE;
    let Some((&mode, rest)) = data.split_first() else { return };
    let chosen = usize::from(mode & 0x7f) % files.len();
    let folder = place("damaged");
    let _ = fs::remove_dir_all(&folder);
    for (at, (path, bytes)) in files.iter().enumerate() {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = if at == chosen { damaged(bytes, mode, rest) } else { bytes.clone() };
        fs::write(path, bytes).unwrap();
    }
    let Ok(trace) = open_or_recover(&folder, &mut |_, _| {}) else { return };
    let _ = (trace.counters(), trace.mappings(), fettle_report::check(&trace));
    if let Ok(analysis) = Analysis::read(&trace, true) {
        let _ = analysis.report(&Options::default());
        let _ = (
            analysis.tree(0.0, 100),
            analysis.flame_graph(fettle_report::Weight::Wall),
            analysis.focus("main"),
        );
        let _ = analysis.histogram("main");
    }
    for format in Format::ALL {
        let _ = export(&trace, format, ExportOptions::default(), &mut std::io::sink());
    }
});
