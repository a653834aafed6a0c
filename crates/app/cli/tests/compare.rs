//! `fettle compare`: systems that start here, one that a command makes, ends that leave nothing behind.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const FETTLE: &str = env!("CARGO_BIN_EXE_fettle");

/// Runs `fettle compare` with folders of its own for temporary files.
fn compare(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(FETTLE);
    command.arg("compare").args(arguments).env("TMPDIR", folder.path()).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What compares, if it succeeded.
fn json_of(output: &Output, status: i32) -> Value {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The ratio of a row on a system, with the ends of its interval.
fn ratio(found: &Value, load: usize, name: &str, system: usize) -> [f64; 3] {
    let rows = found["loads"][load]["rows"].as_array().unwrap();
    let row =
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {found}"));
    let ratio = &row["cells"][system]["ratio"];
    ["value", "low", "high"].map(|field| ratio[field].as_f64().unwrap_or_else(|| panic!("{row}")))
}

fn is_left(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Folders of comparisons in the machine's memory.
fn in_memory() -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("fettle-compare-")).collect()
}

#[test]
fn the_same_kernel_twice_is_alike() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let arguments = [
        "--on",
        "native",
        "--on",
        "env A=1",
        "--rounds",
        "9",
        "--turn",
        "4ms",
        "--json",
        "--html",
        page.to_str().unwrap(),
        "null",
        "integer",
        "read-1k",
        "switch",
        "exec",
    ];
    let found = json_of(&compare(&folder, &arguments), 0);
    assert_eq!(found["version"], 1);
    assert_eq!(found["systems"][1]["name"], "env A=1");
    for name in ["null", "integer", "read-1k", "switch", "exec"] {
        let [value, low, high] = ratio(&found, 0, name, 1);
        assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
        // A machine that is busy with other tests, but the same kernel: no factor.
        assert!((0.4..2.5).contains(&value), "{name}: {value}");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("read-1k"), "{page}");
    // The page is all that is left.
    assert_eq!(is_left(folder.path()), ["page.html"]);
}

#[test]
fn what_a_command_makes_slow_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    // Each system call stops twice for a tracer.
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped 1 test: there is no strace (apt-get install strace)");
    }
    let slow = format!("strace -f -o {}/calls -e trace=getppid", folder.path().display());
    let arguments =
        ["--on", "native", "--on", &slow, "--rounds", "6", "--turn", "4ms", "null", "integer"];
    let output = compare(&folder, &arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found = json_of(&compare(&folder, &[&arguments[..], &["--json"]].concat()), 0);
    let [_, low, _] = ratio(&found, 0, "null", 1);
    assert!(low > 5.0, "{shown}");
    let [value, _, _] = ratio(&found, 0, "integer", 1);
    assert!(value < 2.5, "{shown}");
    assert!(shown.contains("6 rounds") && shown.contains("integer"), "{shown}");
}

#[test]
fn loads_are_measured_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["--on", "native", "--load", "0,1", "--rounds", "2", "--turn", "2ms", "--json", "null"];
    let found = json_of(&compare(&folder, &arguments), 0);
    let spinners: Vec<u64> = found["loads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["spinners"].as_u64().unwrap())
        .collect();
    assert_eq!(spinners, [0, 1]);
    assert!(found["loads"][1]["rows"][0]["cells"][0]["ns"].as_f64().unwrap() > 1.0, "{found}");
}

#[test]
fn programs_are_timed_and_fail_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let both = ["--on", "native", "--on", "env FAIL=1", "--rounds", "2"];
    let spin = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done";
    let arguments = [&both[..], &["--json", "--", "sh", "-c", spin]].concat();
    let found = json_of(&compare(&folder, &arguments), 0);
    let rows = found["loads"][0]["rows"].as_array().unwrap();
    assert!(rows[0]["kind"] == "wall" && rows[1]["kind"] == "cpu", "{found}");
    let ns = |row: usize| rows[row]["cells"][0]["ns"].as_f64().unwrap();
    assert!(ns(1) > 1e6 && ns(1) < ns(0) * 1.5, "{found}");

    let fails = "echo 'no such thing' >&2; exit ${FAIL:-0}";
    let output = compare(&folder, &[&both[..], &["--", "sh", "-c", fails]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("not measured on env FAIL=1") && shown.contains("no such thing"),
        "{shown}"
    );

    let output = compare(&folder, &[&both[..], &["--", "/no/such/program"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("/no/such/program does not run on native"), "{said}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--on", "nowhere-at-all"][..], "is no system"),
        (&["--on", "native", "nul"], "--list"),
        (&["--on", "native", "--rounds", "0"], "--rounds"),
        (&["--on", "native", "--load", "65"], "--load 65"),
        (&["--on", "native", "--turn", "1us"], "--turn"),
        (&["--on", "false"], "did not start"),
        (&["--on", "native", "--why", "nul"], "--list"),
    ] {
        let output = compare(&folder, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains(expected) && said.trim().lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let missing = ["--on", "uml", "--uml", "/no/linux.uml", "--check"];
    let output = compare(&folder, &missing);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("apt-get install user-mode-linux"));
}

/// Starts a long comparison in a process group of its own and ends it by a signal.
fn ended_by(signal: &str, systems: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let before = in_memory();
    let mut command = Command::new(FETTLE);
    command.arg("compare").args(systems).args(["--rounds", "1000", "null", "fork"]);
    command.env("TMPDIR", folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // All systems have started when the last one's file of errors is there, and some time has passed.
    let deadline = Instant::now() + Duration::from_secs(60);
    let errors = format!("errors-{}", systems.len() / 2 - 1);
    let started = || {
        let folders = is_left(folder.path());
        folders.iter().any(|name| folder.path().join(name).join(&errors).exists())
    };
    while !started() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(3));
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let begin = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
    let left: Vec<String> = in_memory().difference(&before).cloned().collect();
    // Comparisons of other tests come and go.
    std::thread::sleep(Duration::from_secs(2));
    let still: Vec<&String> = left.iter().filter(|name| in_memory().contains(*name)).collect();
    let path = folder.path().display().to_string();
    let lists = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let processes = text(&lists.stdout);
    let ours: Vec<&str> = processes.lines().filter(|line| line.contains(&path)).collect();
    assert_eq!(ours, [] as [&str; 0], "{still:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&path), "{mounts}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    ended_by("-INT", &["--on", "native", "--on", "env A=1"]);
}

/// Whether a system starts here; if not, the test says that it is skipped.
fn starts(system: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let output = compare(&folder, &["--on", system, "--check"]);
    let works = output.status.success();
    if !works {
        eprintln!("skipped 1 test: {}", text(&output.stdout).trim());
    }
    works
}

/// A system that takes system calls in another process: far slower, while arithmetic is as fast.
fn is_slow_in_calls_only(system: &str) {
    if !starts(system) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let operations =
        ["null", "integer", "copy-4k", "fault", "tcp", "signal", "fork", "exec", "shell-1"];
    let arguments = ["--on", "native", "--on", system, "--rounds", "6", "--turn", "4ms", "--json"];
    let found = json_of(&compare(&folder, &[&arguments[..], &operations[..]].concat()), 0);
    let [_, low, _] = ratio(&found, 0, "null", 1);
    assert!(low > 5.0, "{found}");
    let [value, _, _] = ratio(&found, 0, "integer", 1);
    assert!(value < 2.5, "{found}");
    for name in operations {
        let [value, ..] = ratio(&found, 0, name, 1);
        assert!(value.is_finite() && value > 0.1, "{name}: {value}");
    }
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
    // A program of the user's, with its arguments, environment and current folder.
    let program = ["--on", "native", "--on", system, "--rounds", "1", "--json", "--", "sh", "-c"];
    let script = "test \"$TMPDIR\" = \"$0\" && test -r Cargo.toml && echo ok > /dev/null";
    let path = folder.path().to_str().unwrap();
    json_of(&compare(&folder, &[&program[..], &[script, path]].concat()), 0);
    ended_by("-TERM", &["--on", "native", "--on", system]);
}

#[test]
fn user_mode_linux_is_compared() {
    is_slow_in_calls_only("uml");
}

#[test]
fn gvisor_by_ptrace_is_compared() {
    is_slow_in_calls_only("gvisor:ptrace");
}

#[test]
fn gvisor_by_systrap_is_compared() {
    if !starts("gvisor:systrap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--on",
        "native",
        "--on",
        "gvisor:systrap",
        "--rounds",
        "6",
        "--turn",
        "4ms",
        "--json",
        "null",
    ];
    let found = json_of(&compare(&folder, &arguments), 0);
    assert!(ratio(&found, 0, "null", 1)[0] > 1.1, "{found}");
}

/// `--why` on a system: steps that another process takes, which add up to what was measured without them.
fn is_explained(system: &str) {
    if !starts(system) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let traces = tempfile::tempdir().unwrap();
    let to = traces.path().to_str().unwrap();
    let arguments =
        ["--on", system, "--why", "null,stat", "--rounds", "6", "--json", "--traces", to];
    let output = compare(&folder, &arguments);
    if text(&output.stderr).contains("--why: kernel events need") {
        return eprintln!("skipped 1 test: {}", text(&output.stderr).trim());
    }
    let found = json_of(&output, 0);
    for call in found["calls"].as_array().unwrap() {
        let sum = |on: &Value| -> f64 {
            on["steps"].as_array().unwrap().iter().map(|step| step["ns"].as_f64().unwrap()).sum()
        };
        let (native, on) = (&call["native"], &call["systems"][0]);
        let ns = |on: &Value| on["ns"].as_f64().unwrap();
        assert!(ns(on) > 2.0 * ns(native), "{call}");
        // On a machine that is busy with other tests; alone it is a few hundredths.
        let share = (sum(on) - sum(native)) / (ns(on) - ns(native));
        assert!((0.6..1.6).contains(&share), "{share}: {call}");
        let steps: Vec<&Value> =
            on["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
        for step in ["leave", "work", "return"] {
            assert!(steps.contains(&&Value::from(step)), "{step}: {call}");
        }
        let native: Vec<&Value> =
            native["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
        assert!(native.contains(&&Value::from("own")), "{call}");
        assert!(on["host_calls"].as_f64().unwrap() >= 2.0, "{call}");
    }
    // Each call of the first turn is a request, through the thread that serves it.
    let trace = traces.path().join(format!("stat-{}.fettle", system.replace(':', "-")));
    let mut requests = Command::new(FETTLE);
    requests.arg("requests").arg(&trace).args(["--schema", "hosted", "--json"]);
    let output = requests.output().unwrap();
    let found = json_of(&output, 0);
    let schema = &found["schemas"][0];
    assert!(schema["requests"].as_u64().unwrap() >= 16, "{schema}");
    assert!(text(&output.stdout).contains("\"stat\""), "{schema}");
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
}

#[test]
fn user_mode_linux_is_explained() {
    is_explained("uml");
}

#[test]
fn gvisor_by_ptrace_is_explained() {
    is_explained("gvisor:ptrace");
}

/// A system delays one kind of call: that is what costs most.
#[test]
fn a_call_that_is_delayed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let delay = "strace -f -o /dev/null -e inject=read:delay_enter=2000";
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped 1 test: there is no strace");
    }
    let arguments = ["--on", delay, "--why", "--rounds", "1", "--json", "--"];
    let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=100"];
    let output = compare(&folder, &[&arguments[..], &program].concat());
    if text(&output.stderr).contains("kernel events need") {
        return eprintln!("skipped 1 test: {}", text(&output.stderr).trim());
    }
    let found = json_of(&output, 0);
    let system = &found["systems"][1];
    let calls = system["calls"].as_array().unwrap();
    assert_eq!(calls[0]["doing"], "read", "{system}");
    let (ns, count) = (calls[0]["ns"].as_f64().unwrap(), calls[0]["count"].as_f64().unwrap());
    assert!(count >= 100.0 && ns >= 2e6 * count, "{system}");
    let sum: f64 = calls.iter().map(|call| call["ns"].as_f64().unwrap()).sum();
    let [observed, observing] =
        ["observed_ns", "observing_ns"].map(|field| system[field].as_f64().unwrap());
    assert!((sum / (observed - observing) - 1.0).abs() < 1e-6, "{system}");
    assert!(observing > 0.0 && observing < observed, "{system}");
    let with_nothing = compare(&folder, &["--on", "native", "--why"]);
    assert_eq!(with_nothing.status.code(), Some(2));
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
}

#[test]
fn calls_of_a_program_that_a_tracer_serves_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--on", "uml", "--hold", "--why", "--rounds", "2", "--json", "--"];
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64", "count=300"];
    let output = compare(&folder, &[&arguments[..], &dd].concat());
    let said = text(&output.stderr);
    if said.contains("kernel events need") {
        return eprintln!("skipped 1 test: {}", said.trim());
    }
    let found: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let Some(uml) = found["systems"].get(1) else {
        return eprintln!("skipped 1 test: {}", found["skipped"]);
    };
    assert!(uml["serves"].as_bool().unwrap(), "{uml}");
    let count = |system: &Value, name: &str| {
        let calls = system["calls"].as_array().unwrap();
        calls.iter().find(|call| call["doing"] == name).and_then(|call| call["count"].as_f64())
    };
    // The same program with the same libraries: as many as this kernel has seen itself.
    for (name, least) in [("write", 300.0), ("openat", 2.0)] {
        let (here, there) = (count(&found["systems"][0], name), count(uml, name));
        assert!(here.is_some_and(|count| count >= least) && here == there, "{name}: {found}");
    }
}

/// One at a time of those that look at what the kernel traces.
static TRACING: Mutex<()> = Mutex::new(());

/// Instances and probes of the kernel's tracing, if that can be mounted.
fn probes_of_the_kernel(folder: &TempDir) -> Option<String> {
    let at = folder.path().join("tracing");
    std::fs::create_dir(&at).unwrap();
    let mount = Command::new("mount").args(["-t", "tracefs", "none"]).arg(&at).status();
    let all = mount.is_ok_and(|status| status.success()).then(|| {
        let list = |name: &str| std::fs::read_to_string(at.join(name)).unwrap_or_default();
        let instances = std::fs::read_dir(at.join("instances")).unwrap();
        let instances =
            instances.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned() + "\n");
        instances.collect::<String>() + &list("uprobe_events") + &list("kprobe_events")
    });
    if all.is_some() {
        assert!(Command::new("umount").arg(&at).status().unwrap().success());
    }
    std::fs::remove_dir(&at).unwrap();
    all
}

#[test]
fn what_observing_costs_is_measured() {
    let _alone = TRACING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(FETTLE);
        command.args(["bench", "probes", "--rounds", "6", "--json"]).args(arguments);
        command.env("TMPDIR", folder.path()).stdin(Stdio::null()).output().unwrap()
    };
    let output = run(&["null", "--by", "another=env A=1", "--by", "none=no-such-program"]);
    // What this machine has not got is left out.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let systems = found["systems"].as_array().unwrap();
    let of = |name: &str| systems.iter().position(|system| system["name"] == name);
    let [counted, ..] = ratio(&found, 0, "null", of("fettle count").unwrap());
    assert!((0.7..3.0).contains(&counted), "{found}");
    assert!(of("another").is_some() && of("none").is_none(), "{found}");
    let skipped = |name: &str| {
        let all = found["skipped"].as_array().unwrap();
        all.iter()
            .find(|skipped| skipped["system"] == name)
            .map(|skipped| skipped["why"].to_string())
    };
    assert!(skipped("none").is_some(), "{found}");
    // Each means in the kernel runs something for each call, or says why it cannot.
    for name in [
        "calls counted",
        "uprobe counted",
        "ftrace uprobe",
        "ftrace calls",
        "ftrace function",
        "ftrace kprobe",
    ] {
        match (of(name), skipped(name)) {
            (Some(at), None) => assert!(ratio(&found, 0, "null", at)[2] > 1.1, "{name}: {found}"),
            (None, Some(why)) => eprintln!("skipped a part: {name}: {why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(run(&["nul"]).status.code(), Some(2));
    assert_eq!(run(&["null", "--only", "no such"]).status.code(), Some(2));
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
    if let Some(left) = probes_of_the_kernel(&folder) {
        assert!(!left.contains("fettle_"), "{left}");
    }
}

#[test]
fn what_a_killed_comparison_leaves_in_the_kernel_goes_with_the_next() {
    let _alone = TRACING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let observe = || {
        let mut command = Command::new(FETTLE);
        command.args(["bench", "probes", "--only", "ftrace uprobe", "--rounds", "500", "null"]);
        command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = observe();
    let own = format!("fettle_{}_", killed.id());
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let Some(all) = probes_of_the_kernel(&folder) else {
            let _ = (killed.kill(), killed.wait());
            return eprintln!("skipped 1 test: tracefs cannot be mounted here");
        };
        // The probe itself: an instance is there from the start.
        if all.contains(&format!("p:{own}")) {
            break;
        }
        assert!(Instant::now() < deadline && killed.try_wait().unwrap().is_none(), "{all}");
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = probes_of_the_kernel(&folder).unwrap();
    assert!(left.contains(&own), "{left}");
    let mut next = observe();
    while probes_of_the_kernel(&folder).unwrap().contains(&own) {
        assert!(Instant::now() < deadline + Duration::from_secs(30), "{left}");
    }
    next.kill().unwrap();
    next.wait().unwrap();
    // That one's go, too.
    let mut last = Command::new(FETTLE);
    last.args(["bench", "probes", "--only", "ftrace uprobe", "--rounds", "1", "null"]);
    assert!(last.stdout(Stdio::null()).status().unwrap().success());
    assert!(!probes_of_the_kernel(&folder).unwrap().contains("fettle_"), "{left}");
}

#[test]
fn messages_are_moved_by_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(FETTLE);
    command.args(["bench", "ipc", "--size", "256,64k", "--total", "256k", "--touched", "0,1m"]);
    command.args(["--rounds", "1", "--json"]).env("TMPDIR", folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    // A kernel without io_uring leaves that out.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let system = &found["systems"][0];
    let placements = system["moved"].as_array().unwrap();
    let series: Vec<&Value> = placements
        .iter()
        .flat_map(|placement| placement[1].as_array().unwrap())
        .chain(system["single"].as_array().unwrap())
        .chain(system["made"].as_array().unwrap())
        .filter(|series| series["name"] != "io_uring")
        .collect();
    assert!(series.len() >= 7 + 7 + 5, "{found}");
    for series in series {
        let ns = series["ns"].as_array().unwrap();
        assert_eq!(ns.len(), 2);
        assert!(ns.iter().all(|ns| ns.as_f64().is_some_and(|ns| ns > 100.0)), "{series}");
    }
    // A sixteenth of the messages with a sixteenth of the handing over.
    let pipe = &placements.last().unwrap()[1][0];
    assert!(pipe["ns"][0].as_f64() > pipe["ns"][1].as_f64(), "{pipe}");
    assert_eq!(is_left(folder.path()), [] as [String; 0]);
}
