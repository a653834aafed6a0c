//! `fettle locks` on programs whose locks are known.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// An empty folder for the test `name`.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

/// Runs the command.
fn fettle(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fettle")).args(args).output().expect("fettle runs")
}

/// A path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("plain name")
}

/// Compiles a program of `tests/programs`.
fn build(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.join(name.trim_end_matches(".c").trim_end_matches(".cpp"));
    let compiler = match () {
        () if options.contains(&"-musl") => "musl-gcc",
        () if name.ends_with(".cpp") => "g++",
        () => "gcc",
    };
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-pthread"]).args(options.iter().filter(|o| **o != "-musl"));
    let status = command.arg(source).arg("-o").arg(&program).status().expect("a compiler");
    assert!(status.success(), "{name}");
    program
}

/// What the program prints, and the report.
fn locks(folder: &Path, program: &[&str]) -> (String, Value) {
    let report = folder.join("locks.json");
    let mut arguments = vec!["locks", "-q", "--json", "-o", text(&report), "--"];
    arguments.extend(program);
    let output = fettle(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), value)
}

/// The class of this name.
fn class<'a>(report: &'a Value, name: &str) -> &'a Value {
    let classes = report["classes"].as_array().unwrap();
    let found = classes.iter().find(|class| class["name"].as_str().unwrap().contains(name));
    found.unwrap_or_else(|| panic!("{name} in {report:#}"))
}

fn acquired(report: &Value, name: &str) -> u64 {
    class(report, name)["acquired"].as_u64().unwrap()
}

/// Every sort of lock, exactly as often as it was taken.
fn counts_are_exact(program: &Path, folder: &Path) {
    let (output, report) = locks(folder, &[text(program)]);
    let mut words = output.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    let (n, tried) = (words.next().unwrap(), words.next().unwrap());
    assert_eq!(n, 40_000);
    assert_eq!(acquired(&report, "mutex"), 40_000);
    assert_eq!(acquired(&report, "recursive"), 80_000);
    assert_eq!(acquired(&report, "rwlock"), 80_000);
    let sites = class(&report, "rwlock")["sites"].as_array().unwrap();
    let reads = sites.iter().find(|site| site["operation"] == "read").unwrap();
    assert_eq!(reads["acquired"], 40_000);
    assert_eq!(acquired(&report, "spin"), 40_000);
    assert_eq!(acquired(&report, "semaphore"), 40_000);
    // Three locks that one place has made are one class, which goes by that place.
    let made = class(&report, "made in make");
    assert_eq!((made["locks"].as_u64(), made["acquired"].as_u64()), (Some(3), Some(tried)));
    assert_eq!(made["acquired"].as_u64().unwrap() + made["failed"].as_u64().unwrap(), 40_000);
    let losses = &report["losses"];
    // glibc makes a spin lock by what lets it go.
    assert!(losses["unmatched"].as_u64() <= Some(1), "{losses}");
    assert_eq!(losses["no_row"], 0, "{losses}");
}

#[test]
fn acquisitions_are_counted_exactly() {
    let folder = folder("locks-counted");
    counts_are_exact(&build(&folder, "counted.c", &[]), &folder);
}

#[test]
fn static_programs_are_counted_as_well() {
    let folder = folder("locks-static");
    counts_are_exact(&build(&folder, "counted.c", &["-static"]), &folder);
}

#[test]
fn static_programs_of_musl_are_counted_as_well() {
    let known = Command::new("musl-gcc").arg("--version").output();
    if known.is_err() {
        return eprintln!("skipped 1 test: there is no musl-gcc (apt-get install musl-tools)");
    }
    let folder = folder("locks-musl");
    counts_are_exact(&build(&folder, "counted.c", &["-musl", "-static"]), &folder);
}

#[test]
fn possible_deadlocks_are_found_and_impossible_ones_are_not() {
    let folder = folder("locks-orders");
    let program = build(&folder, "orders.c", &[]);
    let cases = [
        ("abba", 1),
        ("rwrw", 1),
        ("single", 0),
        ("readwrite", 0),
        ("joined", 0),
        ("gate", 0),
        ("readers", 0),
        ("reuse", 0),
        ("try", 0),
    ];
    for (case, expected) in cases {
        let (_, report) = locks(&folder, &[text(&program), case]);
        let found = report["deadlocks"].as_array().unwrap();
        assert_eq!(found.len(), expected, "{case}: {found:#?}");
    }
    let (_, report) = locks(&folder, &[text(&program), "abba"]);
    let steps = report["deadlocks"][0]["steps"].as_array().unwrap();
    let of = |step: &Value| {
        let word = |key: &str| step[key].as_str().unwrap().to_owned();
        (word("holds"), word("wants"), step["taken"]["function"].as_str().unwrap().to_owned())
    };
    let mut found: Vec<_> = steps.iter().map(of).collect();
    found.sort();
    let expected = [("a", "b", "ab"), ("b", "a", "ba")];
    assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
}

/// Share of the time waited for `shared` that is the thread's which has it for long.
fn share_of_the_longer(report: &Value) -> f64 {
    let pairs = class(report, "shared")["blocking"].as_array().unwrap();
    let waited = |pair: &Value| pair["waited_ns"].as_f64().unwrap();
    let all: f64 = pairs.iter().map(waited).sum();
    let longer = pairs.iter().filter(|pair| pair["holder"]["function"] == "longer");
    longer.map(waited).sum::<f64>() / all
}

#[test]
fn waits_are_charged_to_who_has_the_lock_meanwhile() {
    let folder = folder("locks-blamed");
    let program = build(&folder, "blamed.c", &[]);
    let (output, report) = locks(&folder, &[text(&program), "1"]);
    assert_eq!(acquired(&report, "shared"), output.trim().parse::<u64>().unwrap());
    let share = share_of_the_longer(&report);
    assert!(share > 0.95, "{share}: {report:#}");
    // All waiting time is charged to a holder.
    let class = class(&report, "shared");
    let pairs = class["blocking"].as_array().unwrap();
    let charged: f64 = pairs.iter().map(|pair| pair["waited_ns"].as_f64().unwrap()).sum();
    let waited = class["waited_ns"].as_f64().unwrap();
    assert!((charged / waited - 1.0).abs() < 0.1, "{charged} of {waited}");
}

#[test]
fn nobody_is_charged_with_waits_whose_end_was_not_seen() {
    let folder = folder("locks-semaphores");
    let program = build(&folder, "semaphores.c", &[]);
    let (_, report) = locks(&folder, &[text(&program)]);
    let things = class(&report, "things");
    assert_eq!(things["acquired"], 300);
    let sum = |of: &Value| of["waited_ns"].as_u64().unwrap();
    let charged: u64 = things["blocking"].as_array().unwrap().iter().map(sum).sum();
    // Each wait is divided in ticks, which are rounded.
    assert!(charged <= sum(things) + 10_000, "{charged} of {}: {things:#}", sum(things));
}

#[test]
fn locks_held_over_system_calls_and_locks_in_one_line_are_named() {
    let folder = folder("locks-held");
    let program = build(&folder, "held.c", &[]);
    let (_, report) = locks(&folder, &[text(&program)]);
    // A lock that is waited for in the kernel is none that is held there.
    let over = class(&report, "slow")["held_over"].as_array().unwrap();
    assert_eq!(over.len(), 1, "{report:#}");
    let held = over[0]["held_ns"].as_u64().unwrap();
    assert_eq!(
        (&over[0]["call"], &over[0]["place"]["function"]),
        (&"clock_nanosleep".into(), &"sleeps".into())
    );
    // Four times 100 ms, found by looks that are some 10 ms apart, on a machine that does other things, too.
    assert!((200_000_000..800_000_000).contains(&held), "{held}");
    let lines = report["shared_lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let acquired = |lock: &Value| lock["acquired"].as_u64().unwrap();
    let acquired: Vec<u64> = lines[0]["locks"].as_array().unwrap().iter().map(acquired).collect();
    assert_eq!((acquired, &lines[0]["threads"]), (vec![20_000, 20_000], &2.into()));
}

#[test]
fn locks_of_structures_go_by_type_and_member() {
    let folder = folder("locks-members");
    for optimised in ["-O1", "-O2", "-O3"] {
        let program = build(&folder, "members.cpp", &[optimised]);
        let (output, report) = locks(&folder, &[text(&program)]);
        assert_eq!(output, "4000\n");
        let of = |name: &str| {
            let class = class(&report, name);
            (class["locks"].as_u64().unwrap(), class["acquired"].as_u64().unwrap())
        };
        assert_eq!(of("Account::guard"), (2, 4_000), "{optimised}: {report:#}");
        assert_eq!(of("job::state.lock"), (3, 2_000), "{optimised}: {report:#}");
    }
}

#[test]
fn a_heap_whose_lock_is_waited_for_has_advice() {
    let folder = folder("locks-heaps");
    let program = build(&folder, "heaps.c", &[]);
    let report = |which: &str| {
        let file = folder.join("heaps.txt");
        let output = fettle(&["locks", "-q", "-o", text(&file), "--", text(&program), which]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(file).unwrap()
    };
    let advice = "a heap per thread, such as jemalloc, tcmalloc or mimalloc";
    let own = report("own");
    assert!(own.contains(" % of claims of the heap's lock block") && own.contains(advice), "{own}");
    let one = report("one");
    assert!(one.contains(" waits for the heap's lock") && one.contains(advice), "{one}");
    let several = report("several");
    assert!(!several.contains(advice), "{several}");
}

#[test]
fn a_convoy_is_named_where_there_is_one() {
    let folder = folder("locks-convoys");
    let program = build(&folder, "convoys.c", &[]);
    let (output, report) = locks(&folder, &[text(&program), "handed", "10000"]);
    assert_eq!(output, "40000\n");
    let convoy = &class(&report, "ledger")["convoy"];
    let of = |key: &str| convoy[key].as_u64().unwrap();
    // Nearly each of 40,000 releases, with the other three waiting or just coming.
    assert!(of("releases") > 20_000 && of("releases") <= 40_000, "{convoy}");
    assert!(of("hand_overs") * 10 >= of("releases") * 9, "{convoy}");
    assert!((2..=3).contains(&of("queue_median")), "{convoy}");
    assert!(of("passing_ns") > of("section_ns"), "{convoy}");
    assert!(of("lasted_ns") < report["duration_ns"].as_u64().unwrap(), "{convoy}");
    // Waits of mutexes whose holder inherits priority end in another function of the C library.
    assert_eq!(report["losses"]["unseen"], 0, "{report:#}");
    for (how, rounds) in [("long", "100"), ("plain", "10000")] {
        let (_, report) = locks(&folder, &[text(&program), how, rounds]);
        assert!(class(&report, "ledger")["convoy"].is_null(), "{how}: {report:#}");
    }
}

#[test]
fn pictures_and_a_trace_are_left_beside_the_report() {
    let folder = folder("locks-drawn");
    let program = build(&folder, "orders.c", &[]);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (svg, dot, trace, report) = (file("a.svg"), file("a.dot"), file("a.fettle"), file("a.txt"));
    let options = ["--svg", &svg, "--dot", &dot, "--trace", &trace, "-o", &report];
    let mut arguments = vec!["locks", "-q"];
    arguments.extend(options);
    arguments.extend(["--", text(&program), "abba"]);
    let run = || fettle(&arguments);
    let output = run();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (svg, dot) = (read("a.svg"), read("a.dot"));
    assert_eq!(svg.matches("marker-end=\"url(#red)\"").count(), 2, "{svg}");
    assert_eq!(dot.matches("color=red").count(), 2, "{dot}");
    let kept: Value = serde_json::from_str(&read("a.fettle/locks.json")).unwrap();
    assert_eq!(kept["deadlocks"].as_array().unwrap().len(), 1, "{kept:#}");
    let checked = fettle(&["trace", "check", &trace]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    // A trace is never written over.
    assert_eq!(run().status.code(), Some(2));
}

/// A program that is ended with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The report from a trace's events.
fn from_events(folder: &Path, trace: &Path) -> Value {
    let report = folder.join("from.json");
    let output = fettle(&["locks", "--from", text(trace), "--json", "-o", text(&report)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap()
}

#[test]
fn a_recording_of_every_call_gives_the_report_too() {
    let folder = folder("locks-events");
    let program = build(&folder, "orders.c", &[]);
    // Of `abba` nothing says that the first thread was not waited for before the second was made.
    for (case, expected) in [("together", 1), ("abba", 0), ("readers", 0), ("try", 0)] {
        let trace = folder.join(format!("{case}.fettle"));
        let named = ["--only", "ab", "--only", "ba"];
        let mut arguments = vec!["record", "-q", "--locks", "-o", text(&trace)];
        arguments.extend(named);
        arguments.extend(["--", text(&program), case]);
        let output = fettle(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = from_events(&folder, &trace);
        let found = report["deadlocks"].as_array().unwrap();
        assert_eq!(found.len(), expected, "{case}: {found:#?}");
        if case == "together" {
            let (_, counted) = locks(&folder, &[text(&program), case]);
            for name in ["a", "b"] {
                let of = |report: &Value| {
                    let classes = report["classes"].as_array().unwrap();
                    classes.iter().find(|c| c["name"] == name).unwrap()["acquired"].clone()
                };
                assert_eq!(of(&report), of(&counted), "{name}");
            }
        }
    }
}

#[test]
fn events_of_others_give_the_report_too() {
    let folder = folder("locks-imported");
    let lines = "\
        cpu0-11 (    10) [000] .... 0.000000900: lock_made: lock=0x1000 kind=spin name=queue
        cpu0-11 (    10) [000] .... 0.000001000: call: function=send depth=0
        cpu0-11 (    10) [000] .... 0.000001100: lock_acquired: lock=0x1000
        cpu1-12 (    10) [001] .... 0.000001200: call: function=receive depth=0
        cpu1-12 (    10) [001] .... 0.000001300: lock_wait: lock=0x1000
        cpu0-11 (    10) [000] .... 0.000001900: lock_released: lock=0x1000
        cpu1-12 (    10) [001] .... 0.000002000: lock_acquired: lock=0x1000
        cpu1-12 (    10) [001] .... 0.000002300: lock_released: lock=0x1000
        cpu0-11 (    10) [000] .... 0.000002400: call_end: function=send depth=0
";
    let (file, trace) = (folder.join("events.txt"), folder.join("events.fettle"));
    std::fs::write(&file, lines.replace("        cpu", "cpu")).unwrap();
    assert!(fettle(&["import", text(&file), "-o", text(&trace)]).status.success());
    let report = from_events(&folder, &trace);
    let queue = class(&report, "queue");
    assert_eq!(
        (&queue["kind"], &queue["acquired"], &queue["waited_ns"]),
        (&"spin".into(), &2.into(), &700.into())
    );
    let blocking = queue["blocking"].as_array().unwrap();
    assert_eq!(blocking[0]["holder"]["function"], "send");
    assert_eq!(
        (&blocking[0]["waiter"]["function"], &blocking[0]["waited_ns"]),
        (&"receive".into(), &600.into())
    );
    let output = fettle(&["locks", "--from", text(&file)]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_running_process_is_counted_and_goes_on_as_it_was() {
    let folder = folder("locks-attached");
    let program = build(&folder, "blamed.c", &[]);
    let child = Command::new(&program).arg("6").stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Running(child);
    let (pid, report) = (child.0.id().to_string(), folder.join("locks.json"));
    let output =
        fettle(&["locks", "-q", "-p", &pid, "--duration", "1s", "--json", "-o", text(&report)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(share_of_the_longer(&report) > 0.9, "{report:#}");
    let status = fettle(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!status.contains(&pid), "{status}");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_hung_process_names_its_circle_at_once() {
    let folder = folder("locks-hung");
    let program = build(&folder, "hangs.c", &[]);
    let mut child = Running(Command::new(&program).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.0.id().to_string();
    let begin = Instant::now();
    let output = fettle(&["locks", "-p", &pid, "--hung", "--json"]);
    // Other tests run at the same time.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["deadlocks"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["deadlocks"][0].as_array().unwrap().len(), 2);
    let waiting = report["waiting"].as_array().unwrap();
    let name = |wanted: &str| {
        waiting.iter().any(|thread| {
            thread["awaited"]["lock"]["name"] == wanted && thread["stack"][0]["function"] != ""
        })
    };
    assert!(name("first") && name("second"), "{report:#}");
    let idle = waiting.iter().filter_map(|thread| thread["awaited"]["unknown"].as_object());
    let idle: Vec<_> = idle.map(|what| (&what["kind"], &what["name"])).collect();
    assert_eq!(idle, [(&"a condition variable".into(), &"never".into())], "{report:#}");
    let shown = fettle(&["locks", "-p", &pid, "--hung"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("2 threads wait for each other") && shown.contains("hangs.c:"),
        "{shown}"
    );
}

#[test]
fn who_does_not_hang_waits_in_no_circle() {
    let folder = folder("locks-awake");
    let program = build(&folder, "blamed.c", &[]);
    let child = Command::new(&program).arg("3").stdout(Stdio::piped()).spawn().unwrap();
    let child = Running(child);
    std::thread::sleep(Duration::from_millis(300));
    let output = fettle(&["locks", "-p", &child.0.id().to_string(), "--hung"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = fettle(&["locks", "-p", "999999999", "--hung"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_status_and_output_are_the_programs_own() {
    let output = fettle(&["locks", "-q", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("out\n"));
    let output = fettle(&["locks", "-q", "--", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(127));
}

const SLEEPERS: &str = r#"
use std::sync::Mutex;
static SHARED: Mutex<u64> = Mutex::new(0);
fn main() {
    let work = || {
        for _ in 0..50 {
            let mut shared = SHARED.lock().unwrap();
            *shared += 1;
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(work)).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("{}", SHARED.lock().unwrap());
}
"#;

#[test]
fn locks_of_rust_are_seen_where_they_wait() {
    let folder = folder("locks-rust");
    let (source, program) = (folder.join("sleepers.rs"), folder.join("sleepers"));
    std::fs::write(&source, SLEEPERS).unwrap();
    let mut compiler = Command::new("rustc");
    compiler.args(["-O", "-g", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    let (output, report) = locks(&folder, &[text(&program)]);
    assert_eq!(output, "200\n");
    let classes = report["classes"].as_array().unwrap();
    let waits = classes.iter().find(|class| class["kind"] == "slow-path").expect("a slow path");
    let contended = waits["contended"].as_u64().unwrap();
    assert!((10..=204).contains(&contended), "{waits:#}");
    assert!(waits["waited_ns"].as_u64().unwrap() > 1_000_000, "{waits:#}");
}
