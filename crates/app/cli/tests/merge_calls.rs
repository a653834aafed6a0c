//! `fettle merge` of recordings with calls: what stands in the new trace is what stood in each.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use common::{calls, fettle, folder, text};
use fettle_trace::{Argument, Call, Trace};

fn record(options: &[&str], output: &Path, command: &[&str]) -> Trace {
    let mut args = vec!["record", "-o", text(output)];
    args.extend(options);
    args.push("--");
    args.extend(command);
    let output_of = fettle(&args);
    assert!(output_of.status.success(), "{}", String::from_utf8_lossy(&output_of.stderr));
    Trace::open(output).expect("a trace")
}

/// Calls of all threads by the names of their functions, in order: depth, duration, off-CPU time, and
/// flags. Nanoseconds may be rounded otherwise.
fn reported(trace: &Trace) -> Vec<Vec<(String, Call)>> {
    let names: HashMap<_, String> =
        trace.functions().unwrap().into_iter().map(|f| (f.id, f.name)).collect();
    let mut all = Vec::new();
    for thread in trace.threads().unwrap() {
        let mut calls = Vec::new();
        trace
            .for_each_call(thread.index, |call| {
                calls.push((names[&call.function].clone(), *call));
            })
            .unwrap();
        assert_eq!(calls.len() as u64, thread.records);
        all.push(calls);
    }
    all
}

#[test]
fn calls_of_several_recordings_stand_together() {
    let folder = folder("merge_calls");
    let path = |name: &str| folder.join(name);
    let ones =
        ["-1", "-9"].map(|level| record(&[], &path(level), &["gzip", level, "-c", "/etc/passwd"]));
    // Of another program, and of its modules one that it shares with none.
    let third = record(&[], &path("third"), &["bzip2", "--version"]);
    let merged_path = path("all.fettle");
    let inputs: Vec<_> = ones.iter().chain([&third]).map(|t| text(t.path()).to_owned()).collect();
    let mut args = vec!["merge", "-o", text(&merged_path)];
    args.extend(inputs.iter().map(String::as_str));
    let output = fettle(&args);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));

    // Totals are the sums.
    let mut sums = BTreeMap::<String, u64>::new();
    for input in &inputs {
        for (name, count) in calls(Path::new(input)) {
            *sums.entry(name).or_default() += count;
        }
    }
    let merged: BTreeMap<_, _> = calls(&merged_path).into_iter().collect();
    assert_eq!(merged, sums);

    // Each call is there, in its place.
    let all = Trace::open(&merged_path).unwrap();
    let threads: Vec<_> = ones.iter().chain([&third]).flat_map(reported).collect();
    let merged = reported(&all);
    assert_eq!(merged.len(), threads.len());
    for (old, new) in threads.iter().zip(&merged) {
        assert_eq!(old.len(), new.len());
        for ((old_name, old), (new_name, new)) in old.iter().zip(new) {
            assert_eq!(old_name, new_name);
            assert_eq!((old.depth, old.weight, old.flags), (new.depth, new.weight, new.flags));
            assert!(old.duration_ns.abs_diff(new.duration_ns) <= 1, "{old:?} {new:?}");
            assert_eq!(old.off_cpu_ns, new.off_cpu_ns);
        }
    }

    // One program in two traces is one: its functions stand once.
    let functions = |trace: &Trace| trace.functions().unwrap().len();
    assert_eq!(functions(&all), functions(&ones[0]) + functions(&third));
    assert_eq!(all.modules().unwrap().len(), 2);
    assert_eq!(all.mappings().unwrap().len(), 3);

    // What was merged is not merged again, nor what lacks a file.
    let again = folder.join("again");
    let refused = |inputs: [&str; 2], says: &str| {
        let output = fettle(&["merge", inputs[0], inputs[1], "-o", text(&again), "--offset", "0"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && !again.exists(), "{error}");
    };
    refused([text(&merged_path), &inputs[0]], "merged already");
    std::fs::remove_file(ones[1].path().join("totals.parquet")).unwrap();
    refused([&inputs[0], &inputs[1]], "totals.parquet");
}

#[test]
fn arguments_and_switches_come_along() {
    let folder = folder("merge_arguments");
    let source = folder.join("greet.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\n__attribute__((noinline)) int greet(const char *who, int n) \
         { usleep(1000); return who[0] + n; }\n\
         int main(int argc, char **argv) { int s = 0; for (int i = 0; i < 50; i++) \
         s += greet(argv[1], i); return s == 1; }\n",
    )
    .unwrap();
    let program = folder.join("greet");
    let status = std::process::Command::new("cc")
        .args(["-g", "-O1", "-o", text(&program), text(&source)])
        .status();
    assert!(status.unwrap().success());
    let traces = ["you", "me"]
        .map(|who| record(&["--args", "greet"], &folder.join(who), &[text(&program), who]));
    let merged_path = folder.join("both");
    let [a, b] = [0, 1].map(|n| text(traces[n].path()));
    let output = fettle(&["merge", a, b, "-o", text(&merged_path), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let both = Trace::open(&merged_path).unwrap();
    let values = |trace: &Trace| {
        let mut all: Vec<Argument> = Vec::new();
        trace.for_each_argument(|values| all.extend_from_slice(values)).unwrap();
        let reported = |a: Argument| (a.index, a.integer.filter(|_| a.text.is_none()), a.text);
        all.into_iter().map(reported).collect::<Vec<_>>()
    };
    let wanted: Vec<_> = traces.iter().flat_map(values).collect();
    assert_eq!(wanted.len(), 300);
    assert_eq!(values(&both), wanted);
    assert_eq!(both.parameters().unwrap().len(), 3);

    // Where the kernel reports switches, each has 50 at least.
    let switches = |trace: &Trace| {
        let mut count = 0;
        trace.for_each_switch(|some| count += some.len()).unwrap();
        count
    };
    assert_eq!(both.manifest().switches, traces.iter().all(|t| t.manifest().switches));
    if both.manifest().switches {
        assert_eq!(switches(&both), switches(&traces[0]) + switches(&traces[1]));
        assert!(switches(&both) >= 100);
    }
}

#[test]
fn what_was_measured_otherwise_is_left_out_and_said() {
    let folder = folder("merge_modes");
    let timed = record(&["--mode", "time"], &folder.join("timed"), &["bzip2", "--version"]);
    let counted = record(&["--mode", "count"], &folder.join("counted"), &["gzip", "--version"]);
    let output_path = folder.join("both");
    let args =
        ["merge", text(timed.path()), text(counted.path()), "-o", text(&output_path), "--json"];
    let output = fettle(&args);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let losses = reported["losses"].as_array().unwrap();
    let calls = counted.manifest().totals.calls;
    assert!(calls > 0);
    let of = |loss: &&serde_json::Value| loss["reason"].as_str().unwrap().contains("mode count");
    assert_eq!(losses.iter().find(of).unwrap()["count"], calls);
    let totals = Trace::open(&output_path).unwrap().totals().unwrap();
    assert_eq!(totals.len(), timed.totals().unwrap().len());
}
