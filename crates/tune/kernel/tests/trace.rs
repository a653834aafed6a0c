//! What was counted of a kernel made by hand, as a trace that is written and read again.
#![allow(missing_docs)]

use fettle_kernel_emit::Counting as Probe;
use fettle_kernel_image::made::{FENTRY_EXAMPLE, Made};
use fettle_kernel_lift::{Reason, Skipped};
use fettle_kernel_tune::count::{
    AllTimes, BlockExecutions, EdgeExecutions, Executions, Spent, Times,
};
use fettle_kernel_tune::{Count, Counted};
use fettle_report::{Analysis, Options};
use fettle_trace::{Manifest, ProbeMode, Trace, TraceWriter};

/// Reads the trace of a kernel of two functions back, and its report.
fn reported(counted: impl FnOnce([u64; 2]) -> Counted) -> (tempfile::TempDir, Trace, Analysis) {
    let mut made = Made::default();
    let entries =
        [made.function("looping", &FENTRY_EXAMPLE), made.function("other", &FENTRY_EXAMPLE)];
    let image = made.files().image().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.fettle");
    let manifest = Manifest { duration_ns: 2_000_000_000, ..Manifest::default() };
    let writer = TraceWriter::create(&path, &manifest).unwrap();
    writer.finish(counted(entries).trace(&image, manifest), &mut |_, _| {}).unwrap();
    let trace = Trace::open(&path).unwrap();
    let analysis = Analysis::read(&trace, true).unwrap();
    (folder, trace, analysis)
}

fn count(name: &str, entry: u64, calls: u64) -> Count {
    Count { name: name.into(), entry, calls }
}

fn counted(probe: Probe, calls: Vec<Count>) -> Counted {
    Counted {
        probe,
        calls,
        executions: Vec::new(),
        times: AllTimes::default(),
        skipped: Vec::new(),
    }
}

#[test]
fn calls_are_reported_by_function_with_what_was_left() {
    let (_folder, trace, analysis) = reported(|[looping, other]| Counted {
        skipped: vec![Skipped {
            name: "crowded".into(),
            entry: other + 64,
            reason: Reason::CrowdedEntry,
            at: other + 69,
        }],
        ..counted(Probe::Calls, vec![count("looping", looping, 7), count("other", other, 0)])
    });
    let report = analysis.report(&Options::default());
    assert_eq!(report.run.probe_mode, ProbeMode::Count);
    let rows: Vec<(&str, u64)> =
        report.functions.iter().map(|row| (row.name.as_str(), row.calls)).collect();
    assert_eq!(rows, [("looping", 7)]);
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(trace.skipped().unwrap()[0].name, "crowded");
    // Addresses are distances from the kernel's begin: the same in each boot.
    let functions = trace.functions().unwrap();
    assert_eq!(functions[0].address, 0);
    assert_eq!(trace.mappings().unwrap()[0].base, fettle_kernel_image::made::TEXT);
    assert_eq!(report.functions[0].module, "vmlinux-6.1-made");
}

#[test]
fn times_have_no_column_of_their_own_time() {
    let times = |name: &str, entry, calls, wall_ns| {
        let spent = Some(Spent { wall_ns, virtual_ns: wall_ns / 2 });
        Times { name: name.into(), entry, calls, open: 1, abandoned: 0, spent }
    };
    let (_folder, _, analysis) = reported(|[looping, other]| {
        let functions = vec![times("looping", looping, 3, 500), times("other", other, 9, 4000)];
        Counted {
            calls: functions.iter().map(Times::begun).collect(),
            times: AllTimes { functions, ..AllTimes::default() },
            ..counted(Probe::Times, Vec::new())
        }
    });
    let report = analysis.report(&Options::default());
    assert_eq!(report.functions[0].name, "other");
    assert_eq!(report.functions[0].total_ns, 4000);
    assert_eq!(report.functions[0].cpu_total_ns, Some(2000));
    assert!(report.notes.iter().any(|note| note.contains("2 calls had not ended")));
    let text =
        fettle_report::render::report_text(&report, fettle_report::render::Terminal::default());
    assert!(text.contains("total") && !text.contains("self"), "{text}");
}

#[test]
fn blocks_and_edges_are_rows_of_their_function() {
    let (_folder, trace, analysis) = reported(|[looping, _]| {
        let block = |at, count| BlockExecutions { at, rewritten: 0, count };
        let edge = |from, to, count, exact| EdgeExecutions { from, to, count, exact };
        let executions = Executions {
            name: "looping".into(),
            entry: looping,
            blocks: vec![block(looping, 4), block(looping + 10, 40)],
            edges: vec![
                edge(looping, looping + 10, 4, true),
                edge(looping + 10, looping + 10, 36, false),
            ],
            inconsistent: false,
        };
        Counted {
            calls: vec![executions.calls()],
            executions: vec![executions],
            ..counted(Probe::Edges, Vec::new())
        }
    });
    let view = analysis.blocks(&trace, Some("looping"), 10).unwrap();
    let rows: Vec<_> = view.rows.iter().map(|row| (row.address, row.count, &row.to[..])).collect();
    assert_eq!(rows, [(0, 4, &[(10, 4)][..]), (10, 40, &[(10, 36)])]);
    assert!(analysis.notes.iter().any(|note| note.contains("counts of 1 of 2 edges")));
}
