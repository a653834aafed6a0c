//! Text in, text out: small drawn traces and what each report says about them.
//!
//! `FETTLE_UPDATE_GOLDEN=1 cargo test -p fettle-report` writes the files in `tests/golden`;
//! review them like code.

#[path = "../../../data/trace/tests/drawing/mod.rs"]
mod drawing;

use std::path::{Path, PathBuf};

use fettle_report::export::{ExportOptions, Format, export};
use fettle_report::render::{
    Terminal, diff_text, flame_svg, focus_text, histogram_svg, histogram_text, json, report_text,
    threads_text, tree_text,
};
use fettle_report::{Analysis, Diff, Options, SortBy};
use fettle_report::{ReplayOptions, replay};
use fettle_trace::{Finish, Loss, ProbeMode, Trace};
use fettle_types::FunctionIndex;

/// A program that computes in one thread and sorts in another.
const COMPUTES: &str = "
AAAAAAAAAAAAAAAAAAAA
 CCCCCC CCC    BBBB
  D DD   D      D
";
const SORTS: &str = "
EEEEEEEEEE
 EEEE EEE
  F    F
";

/// The same program, after an optimisation.
const FASTER: &str = "
AAAAAAAAAAAAAA
 CCCC CC  BB F
  D    D
";

/// For text: as wide as a terminal.
const WIDE: Terminal = Terminal { width: Some(120), colour: false };

struct Recorded(tempfile::TempDir);

impl Recorded {
    fn new(drawings: &[&str], change: impl FnOnce(&mut Finish)) -> Recorded {
        let dir = tempfile::tempdir().unwrap();
        drawing::record(&dir.path().join("t"), drawings, change);
        Recorded(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("t")
    }

    fn trace(&self) -> Trace {
        Trace::open(&self.path()).unwrap()
    }

    fn analysis(&self) -> Analysis {
        Analysis::read(&self.trace(), true).unwrap()
    }
}

#[track_caller]
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("FETTLE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        wanted == text,
        "tests/golden/{name} differs; wanted:\n{wanted}\nfound:\n{text}\n\
         (FETTLE_UPDATE_GOLDEN=1 accepts what was found)"
    );
}

#[test]
fn report() {
    let recorded = Recorded::new(&[COMPUTES, SORTS], |_| {});
    let report = recorded.analysis().report(&Options::default());
    golden("report.txt", &report_text(&report, WIDE));
    golden("report.json", &json(&report).unwrap());
    golden("threads.txt", &threads_text(&report.threads, WIDE));
    let narrow = Terminal { width: Some(60), colour: false };
    golden("report_narrow.txt", &report_text(&report, narrow));
    let colour = Terminal { width: Some(120), colour: true };
    assert!(report_text(&report, colour).contains("\x1b[1m"));
    assert!(!report_text(&report, WIDE).contains('\x1b'));
}

#[test]
fn report_of_losses() {
    let recorded = Recorded::new(&[COMPUTES], |finish| {
        finish.manifest.totals.lost = 3;
        finish.manifest.totals.unmatched_exits = 1;
        finish.manifest.losses.push(Loss { reason: "fork without agent".into(), count: 2 });
        finish.manifest.exit = Some(fettle_trace::Exit { code: None, signal: Some(11) });
        // Calls of D whose records were lost.
        finish.totals.iter_mut().find(|t| t.function == FunctionIndex(3)).unwrap().calls += 3;
    });
    let options = Options { limit: 2, sort: SortBy::Calls, demangle: true };
    golden("report_losses.txt", &report_text(&recorded.analysis().report(&options), WIDE));
}

#[test]
fn report_without_records() {
    let recorded = Recorded::new(&[""], |finish| {
        finish.manifest.probe_mode = ProbeMode::Time;
        finish.totals = drawing::totals(0, &drawing::calls(COMPUTES));
    });
    let analysis = recorded.analysis();
    golden("report_time.txt", &report_text(&analysis.report(&Options::default()), WIDE));
    let error = analysis.histogram("leaf").unwrap_err().to_string();
    assert!(error.contains("probe mode time"), "{error}");
}

#[test]
fn call_tree() {
    let analysis = Recorded::new(&[COMPUTES, SORTS], |_| {}).analysis();
    golden("tree.txt", &tree_text(&analysis.tree(0.05, 100), WIDE));
}

#[test]
fn one_function() {
    let analysis = Recorded::new(&[COMPUTES, SORTS], |_| {}).analysis();
    golden("function.txt", &focus_text(&analysis.focus("compute").unwrap(), WIDE));
    golden("function_recursive.txt", &focus_text(&analysis.focus("qsort").unwrap(), WIDE));
    let error = analysis.focus("o").unwrap_err().to_string();
    golden("function_ambiguous.txt", &error);
    assert!(analysis.focus("no_such").is_err());
}

#[test]
fn call_durations() {
    let analysis = Recorded::new(&[COMPUTES, SORTS], |_| {}).analysis();
    let histogram = analysis.histogram("qsort").unwrap();
    golden("histogram.txt", &histogram_text(&histogram, WIDE));
    golden("histogram.svg", &histogram_svg(&histogram));
}

#[test]
fn flame_graph() {
    let analysis = Recorded::new(&[COMPUTES], |_| {}).analysis();
    let svg = flame_svg(&analysis.flame_graph(fettle_report::Weight::Wall));
    // The script is reviewed where it stands.
    let drawing = svg.split("<script>").next().unwrap();
    golden("flame.svg", drawing);
}

#[test]
fn two_traces() {
    let before = Recorded::new(&[COMPUTES], |_| {}).analysis();
    let after = Recorded::new(&[FASTER], |_| {}).analysis();
    golden("diff.txt", &diff_text(&Diff::new(&before, &after, 20), WIDE));
}

#[test]
fn exports() {
    let recorded = Recorded::new(&[COMPUTES, "A\n"], |_| {});
    for format in [Format::Speedscope, Format::Chrome, Format::Collapsed] {
        let mut out = Vec::new();
        export(&recorded.trace(), format, ExportOptions::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        if format != Format::Collapsed {
            let _: serde_json::Value = serde_json::from_str(&text).unwrap();
        }
        golden(&format!("export.{}", format.extension()), &text);
    }
}

/// The Firefox Profiler's samples, added up by their stacks, are the collapsed ones.
#[test]
fn firefox_has_the_same_stacks() {
    let recorded = Recorded::new(&[COMPUTES, "A\n"], |_| {});
    let exported = |format| {
        let mut out = Vec::new();
        export(&recorded.trace(), format, ExportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let profile: serde_json::Value = serde_json::from_str(&exported(Format::Firefox)).unwrap();
    let number = |table: &serde_json::Value, at: usize| table[at].as_u64().map(|n| n as usize);
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for thread in profile["threads"].as_array().unwrap() {
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        for at in 0..samples["length"].as_u64().unwrap() as usize {
            let mut chain = Vec::new();
            let mut stack = number(&samples["stack"], at);
            while let Some(node) = stack {
                let frame = number(&thread["stackTable"]["frame"], node).unwrap();
                let function = number(&thread["frameTable"]["func"], frame).unwrap();
                let name = number(&thread["funcTable"]["name"], function).unwrap();
                let strings =
                    thread.get("stringArray").unwrap_or(&profile["shared"]["stringArray"]);
                let name = strings[name].as_str().unwrap();
                chain.insert(0, name.split(" [").next().unwrap().to_owned());
                stack = number(&thread["stackTable"]["prefix"], node);
            }
            let ns = (samples["weight"][at].as_f64().unwrap() * 1e6).round() as u64;
            *sums.entry(chain.join(";")).or_default() += ns;
        }
    }
    let collapsed: std::collections::BTreeMap<String, u64> = exported(Format::Collapsed)
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(chain, ns)| (chain.to_owned(), ns.parse().unwrap()))
        .collect();
    assert_eq!(sums, collapsed);
}

/// Without single calls, functions have no callers, and their own times all the same.
#[test]
fn exports_of_totals() {
    let recorded = Recorded::new(&[""], |finish| {
        finish.manifest.probe_mode = ProbeMode::Time;
        finish.totals = drawing::totals(0, &drawing::calls(COMPUTES));
    });
    let exported = |format| {
        let mut out = Vec::new();
        export(&recorded.trace(), format, ExportOptions::default(), &mut out).map(|_| out)
    };
    let text = String::from_utf8(exported(Format::Collapsed).unwrap()).unwrap();
    golden("export_totals.collapsed", &text);
    let mut profile = Vec::new();
    let packed = exported(Format::Pprof).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut profile)
        .unwrap();
    for line in text.lines() {
        let name = line.split_once(' ').unwrap().0.as_bytes();
        assert!(profile.windows(name.len()).any(|bytes| bytes == name), "{line}");
    }
    let error = exported(Format::Chrome).unwrap_err().to_string();
    assert!(error.contains("probe mode time"), "{error}");
}

#[test]
fn replays() {
    let recorded = Recorded::new(&[COMPUTES, SORTS], |_| {});
    let shown = |options: ReplayOptions| {
        let mut out = Vec::new();
        assert_eq!(replay(&recorded.trace(), &options, &mut out).unwrap(), [] as [String; 0]);
        String::from_utf8(out).unwrap()
    };
    let all = ReplayOptions::default();
    golden("replay.txt", &shown(all.clone()));
    golden("replay_long.txt", &shown(ReplayOptions { duration_ns_min: 300, ..all.clone() }));
    golden("replay_shallow.txt", &shown(ReplayOptions { depth_max: 1, ..all.clone() }));
    let json = shown(ReplayOptions { json: true, lines_max: 5, ..all.clone() });
    assert_eq!(json.lines().count(), 5);
    for line in json.lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
    // What is shorter than everything leaves nothing out.
    let tiny = ReplayOptions { duration_ns_min: 1, ..all.clone() };
    assert_eq!(shown(tiny), shown(all.clone()));
    let nothing = ReplayOptions { duration_ns_min: u64::MAX, ..all };
    assert_eq!(shown(nothing).lines().count(), 1, "the heading");
    let empty = Recorded::new(&[""], |finish| finish.manifest.probe_mode = ProbeMode::Time);
    let error = replay(&empty.trace(), &ReplayOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("a replay"), "{error}");
}

#[test]
fn exports_without_short_calls() {
    let recorded = Recorded::new(&[COMPUTES], |_| {});
    let options = ExportOptions { duration_ns_min: 300, ..ExportOptions::default() };
    let mut out = Vec::new();
    export(&recorded.trace(), Format::Chrome, options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("write_str") && !text.contains("leaf"), "{text}");
}
