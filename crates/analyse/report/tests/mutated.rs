//! For one second, damages files of a small real trace and reads it with everything there is.
//! Anything may be refused or warned of; nothing may panic. `FETTLE_SEED` repeats a run;
//! `FETTLE_SECONDS` makes it longer.

#[path = "../../../data/trace/tests/drawing/mod.rs"]
mod drawing;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fettle_report::export::{ExportOptions, Format, export};
use fettle_report::render::{
    Terminal, diff_text, flame_html, focus_text, histogram_html, histogram_text, json, report_text,
    threads_text, tree_text,
};
use fettle_report::{Analysis, Diff, Options};
use fettle_trace::{Counter, Mapping, open_or_recover};

/// Reads a folder in every way; says how far it came.
fn read_everything(folder: &Path) -> &'static str {
    let Ok(trace) = open_or_recover(folder, &mut |_, _| {}) else { return "refused" };
    let _: Option<Vec<Counter>> = trace.counters().ok();
    let _: Option<Vec<Mapping>> = trace.mappings().ok();
    let _ = trace.for_each_call(1, |_| {});
    let Ok(analysis) = Analysis::read(&trace, true) else { return "unreadable" };
    let terminal = Terminal { width: Some(80), colour: true };
    let report = analysis.report(&Options::default());
    let _ =
        (report_text(&report, terminal), json(&report), threads_text(&report.threads, terminal));
    let _ = tree_text(&analysis.tree(0.01, 100), terminal);
    let _ = flame_html(&analysis.flame_graph(fettle_report::Weight::Wall));
    let _ = diff_text(&Diff::new(&analysis, &analysis, 10), terminal);
    for name in ["main", "leaf", "o", "function #77"] {
        let _ = analysis.focus(name).map(|focus| focus_text(&focus, terminal));
        let _ = analysis
            .histogram(name)
            .map(|histogram| (histogram_html(&histogram), histogram_text(&histogram, terminal)));
    }
    for format in Format::ALL {
        let _ = export(&trace, format, ExportOptions::default(), &mut std::io::sink());
    }
    "read"
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

/// Damages a file as disks, copies and people do.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => bytes.clear(),
        2 => {
            let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
            let piece: Vec<u8> = bytes[from.min(to)..from.max(to)].to_vec();
            let at = random.below(bytes.len());
            bytes.splice(at..at, piece);
        }
        3 => {
            // Footers are at the end; damage there goes furthest.
            let tail = bytes.len().min(400);
            let at = bytes.len() - tail + random.below(tail);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
            }
        }
        _ => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_of(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

#[test]
fn one_second_of_damage() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FETTLE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now);
    println!("FETTLE_SEED={seed}");
    let mut random = Random(seed | 1);
    // Panics that the reader turns into errors are not shown: the Parquet library has some.
    std::panic::set_hook(Box::new(|_| {}));

    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    drawing::record(&whole, &["AAAAAAAA\n BBB BB\n CD  C\n", "EEEE\n EE\n  E\n"], |_| {});
    // A cut-off one too, with its spools.
    let cut = dir.path().join("cut");
    let calls = drawing::calls("AAAAAAAA\n BBB BB\n CD  C\n");
    let mut writer = fettle_trace::TraceWriter::create(&cut, &drawing::manifest()).unwrap();
    writer.checkpoint(&drawing::finish(&[&calls])).unwrap();
    writer.spool_append(0, &drawing::records(&calls)).unwrap();
    writer.flush().unwrap();
    drop(writer);

    let templates: Vec<Vec<(PathBuf, Vec<u8>)>> = [&whole, &cut]
        .map(|folder| {
            let relative = |path: PathBuf| {
                let bytes = fs::read(&path).unwrap();
                (path.strip_prefix(folder).unwrap().to_owned(), bytes)
            };
            files_of(folder).into_iter().map(relative).collect()
        })
        .into();
    let victim = dir.path().join("victim");
    let (mut runs, mut outcomes) = (0, std::collections::BTreeMap::new());
    let begin = Instant::now();
    let seconds = std::env::var("FETTLE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    // A machine that is busy gets to a few in that time, which would test nothing.
    while begin.elapsed() < Duration::from_secs(seconds) || runs <= 10 {
        let template = &templates[random.below(4) / 3];
        let _ = fs::remove_dir_all(&victim);
        let mut damages = 1 + random.below(2);
        let first = random.below(template.len());
        for (at, (path, bytes)) in template.iter().enumerate() {
            let path = victim.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = bytes.clone();
            if at >= first && damages > 0 {
                damages -= 1;
                damage(&mut bytes, &mut random);
            }
            fs::write(path, bytes).unwrap();
        }
        let saved = random.0;
        let outcome = std::panic::catch_unwind(|| read_everything(&victim));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(panic) => {
                let _ = std::panic::take_hook();
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
                panic!("FETTLE_SEED={seed}, run {runs}, state {saved}: {text:?}");
            }
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
        runs += 1;
    }
    let _ = std::panic::take_hook();
    println!("{runs} damaged traces: {outcomes:?}");
}
