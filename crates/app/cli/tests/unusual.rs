//! Programs that do what few others do: they run as without Fettle.

#[path = "common/programs.rs"]
mod programs;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use programs::{Bench, program_of};

impl Bench {
    fn fettle(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.args(arguments).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    fn trace(&self) -> String {
        self.path("trace").display().to_string()
    }

    /// Records a program in a mode; also says what `fettle trace check` thinks of the trace.
    fn record(&self, options: &[&str], program: &str) -> (Output, bool) {
        let trace = self.trace();
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = self.fettle(&["record", "-q", "--output", &trace]);
        let output = record.args(options).arg("--").arg(program).output().unwrap();
        (output, self.is_right(&trace))
    }

    /// Whether `fettle trace check` finds a trace right. A busy machine may lose records.
    fn is_right(&self, trace: &str) -> bool {
        let check = self.fettle(&["trace", "check", trace]).output().unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        let right = check.status.success() || said.contains("what is there is right");
        if !right {
            eprintln!("{said}");
        }
        right
    }

    fn same(&self, modes: &[&str], program: &str) {
        let plain = Command::new(program).output().unwrap();
        for mode in modes {
            let (recorded, whole) = self.record(&["--mode", mode], program);
            assert_eq!(recorded, plain, "{program} in mode {mode}");
            assert!(whole, "{program} in mode {mode}");
        }
    }
}

/// A shell goes on when the program itself has ended, whatever it has started.
#[test]
fn a_recording_ends_with_its_program_unless_all_is_wanted() {
    let bench = Bench::new();
    let script = "sleep 60 & echo $!; (kill -STOP $BASHPID) & echo $!; exit 3";
    for all in [false, true] {
        let trace = bench.trace();
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = bench.fettle(&["record", "--output", &trace]);
        if all {
            record.args(["--until", "all"]);
        }
        record.args(["--", "bash", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = record.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let living = [lines.next().unwrap(), lines.next().unwrap()];
        let kill = || Command::new("kill").arg("-KILL").args(&living).status().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        // Where the machine is busy, it says before that that a shell takes long to rewrite.
        while first.is_empty() || first.starts_with("fettle: rewriting") {
            first.clear();
            assert!(said.read_line(&mut first).unwrap() > 0, "it says nothing");
        }
        assert!(first.contains("2 processes that it started run on"), "{first}");
        assert_eq!(first.contains("--until all"), !all, "{first}");
        if all {
            assert!(child.try_wait().unwrap().is_none());
            kill();
        }
        assert_eq!(child.wait().unwrap().code(), Some(3));
        if !all {
            for pid in &living {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                assert!(status.contains("TracerPid:\t0"), "{status}");
            }
            kill();
        }
        assert!(bench.is_right(&trace));
    }
}

/// What looks for leaks traces the program itself.
#[test]
fn leaks_are_looked_for_as_without_a_recording() {
    let bench = Bench::new();
    let Some(program) = bench.try_build("leaks.c", "leaks", &["-fsanitize=address"]) else {
        return eprintln!("no AddressSanitizer: not tested");
    };
    let trace = bench.trace();
    for mode in ["count", "events"] {
        for leaks in [false, true] {
            let arguments: &[&str] = if leaks { &["leak"] } else { &[] };
            let plain = Command::new(&program).args(arguments).output().unwrap();
            let _ = std::fs::remove_dir_all(&trace);
            let mut record =
                bench.fettle(&["record", "-q", "--mode", mode, "--output", &trace, "--"]);
            let recorded = record.arg(&program).args(arguments).output().unwrap();
            assert_eq!(recorded.status, plain.status, "{mode} {leaks}: {recorded:?}");
            assert_eq!(recorded.stdout, plain.stdout, "{mode} {leaks}");
            let found = |said: &[u8]| {
                let said = String::from_utf8_lossy(said);
                said.lines().find(|line| line.starts_with("SUMMARY")).map(str::to_owned)
            };
            assert_eq!(found(&recorded.stderr), found(&plain.stderr), "{mode} {leaks}");
            assert_eq!(found(&plain.stderr).is_some(), leaks);
            assert!(bench.is_right(&trace));
        }
    }
}

/// A recording of a process that ran before is over before that looks for its leaks.
#[test]
fn leaks_are_looked_for_after_a_recording_by_pid() {
    let bench = Bench::new();
    let Some(program) = bench.try_build("leaks.c", "leaks", &["-fsanitize=address"]) else {
        return eprintln!("no AddressSanitizer: not tested");
    };
    let start = || {
        let mut command = Command::new(&program);
        command.args(["leak", "late"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let found = |said: &[u8]| {
        let said = String::from_utf8_lossy(said);
        said.lines().find(|line| line.starts_with("SUMMARY")).map(str::to_owned)
    };
    let plain = start().wait_with_output().unwrap();
    let child = start();
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    let trace = bench.trace();
    let recorded = bench.fettle(&["record", "-p", &pid, "--mode", "events", "-o", &trace]);
    let recorded = { recorded }.output().unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    assert_eq!(ended.status, plain.status, "{ended:?} {recorded:?}");
    assert_eq!(found(&ended.stderr), found(&plain.stderr), "{ended:?}");
    assert!(found(&plain.stderr).is_some());
    let trace = fettle_trace::Trace::open(trace.as_ref()).unwrap();
    assert!(trace.manifest().totals.calls > 100, "{:?}", trace.manifest().totals);
}

/// An ordinary user's recording denies no program what its file gives it.
#[test]
fn what_gains_privileges_gains_them() {
    let bench = Bench::new();
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        return eprintln!("not root: not tested");
    }
    let path = |name: &str| bench.path(name).display().to_string();
    let folder = path("");
    let script = format!(
        "chmod 755 {folder}; mkdir {folder}/own; chown 65534 {folder}/own; \
         cp /usr/bin/id {folder}/id; chmod 4755 {folder}/id; cp {} {folder}/fettle; \
         cp /usr/bin/id {folder}/unreadable; chmod 4711 {folder}/unreadable",
        env!("CARGO_BIN_EXE_fettle")
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let (trace, id) = (path("own/trace"), path("id"));
    let mut record = Command::new("setpriv");
    record.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
    record.arg(format!("XDG_CACHE_HOME={}", path("own"))).arg(path("fettle"));
    record.args(["record", "--output", &trace, "--", "sh", "-c"]);
    let unreadable = path("unreadable");
    let script = format!("{id} -u; id -u; {unreadable} > /dev/null; exec {id} -u");
    let recorded = record.arg(script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&recorded.stdout), "0\n65534\n0\n", "{recorded:?}");
    let said = String::from_utf8_lossy(&recorded.stderr);
    // It has lost its privileges, of which only the kernel knew.
    assert!(said.contains("unreadable ran without probes: its file may be executed"), "{said}");
    assert!(said.contains("id ran 2 times unrecorded"), "{said}");
    let losses = fettle_trace::Trace::open(trace.as_ref()).unwrap().manifest().losses.clone();
    assert!(losses.iter().any(|loss| loss.count == 2), "{losses:?}");
}

#[test]
fn what_stands_behind_a_trap_runs() {
    let bench = Bench::new();
    let program = bench.build("trapped.c", "program", &[]);
    bench.same(&["events", "time", "sample", "blocks", "edges", "count"], &program);
    let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
    let functions = trace.functions().unwrap();
    for name in ["trap", "checked"] {
        assert!(functions.iter().any(|f| f.name == name), "{name} is probed");
    }
    let dies = bench.build("trapped.c", "dies", &["-DUNHANDLED"]);
    bench.same(&["events", "count"], &dies);
    let instrumented = bench.path("instrumented");
    let output = instrumented.to_str().unwrap();
    assert!(bench.fettle(&["instrument", &program, "-o", output]).status().unwrap().success());
    let plain = Command::new(&program).output().unwrap();
    assert_eq!(Command::new(output).output().unwrap(), plain);
}

#[test]
fn control_runs_on_behind_what_is_there_to_fault() {
    let bench = Bench::new();
    let program = bench.build("runs_on.c", "program", &[]);
    bench.same(&["events", "time", "sample", "blocks", "edges", "count"], &program);
    let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
    let functions = trace.functions().unwrap();
    assert!(functions.iter().any(|f| f.name == "aborts"), "it is probed");
}

/// A traced thread is woken by signals that it ignores, which ends some waits with EINTR.
#[test]
fn signals_that_nobody_wants_end_no_wait() {
    let bench = Bench::new();
    let program = bench.build("ignored.c", "program", &[]);
    bench.same(&["count", "sample"], &program);
}

#[test]
fn locked_memory_is_that_of_the_threads_that_there_are() {
    let bench = Bench::new();
    let program = bench.build("locker.c", "program", &[]);
    bench.same(&["events", "count"], &program);
}

/// Names of functions and files are bytes of others, which a terminal would obey.
#[test]
fn names_do_not_command_the_terminal() {
    let bench = Bench::new();
    let program = bench.build("crowd.c", "program", &["-pthread"]);
    let file = bench.path("clear\x1b[2J.fettle").display().to_string();
    std::fs::copy(&program, &file).unwrap();
    for arguments in [["lift", "--list", &file], ["report", &file, "--tree"]] {
        let output = bench.fettle(&arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(r"clear\u001b[2J") && !said.contains('\x1b'), "{said}");
    }
}

/// A stripped file does not say which functions are the runtime's: their code shows it.
#[test]
fn runtimes_find_their_return_addresses() {
    let bench = Bench::new();
    for flags in [&["-s"][..], &[], &["-s", "-static-pie"]] {
        let program = bench.build("builtins.c", "program", flags);
        bench.same(&["events", "blocks", "count"], &program);
    }
    let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
    assert!(trace.functions().unwrap().len() > 10, "the rest is probed");
}

/// Functions of Microsoft's ABI keep registers that probes take for free elsewhere.
#[test]
fn microsofts_abi_keeps_more_registers() {
    let bench = Bench::new();
    let program = bench.build("microsoft.c", "program", &[]);
    bench.same(&["events", "time", "sample", "blocks", "edges", "count"], &program);
    let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
    let functions = trace.functions().unwrap();
    for name in ["saves", "aligns", "passes"] {
        assert!(functions.iter().any(|f| f.name == name), "{name} is probed");
    }
}

/// Threads, processes, exceptions, with room for three threads at a time.
#[test]
fn more_threads_than_there_is_room_for() {
    let bench = Bench::new();
    let program = bench.build("thrower.cpp", "program", &[]);
    for mode in ["events", "time", "sample", "count"] {
        let trace = bench.trace();
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = bench.fettle(&["record", "-q", "--max-threads", "3", "--mode", mode]);
        let record = record.arg("--output").arg(&trace).arg("--").arg(&program);
        let recorder = record.stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let program = program_of(&recorder);
        assert!(Command::new("kill").arg(&program).status().unwrap().success(), "{mode}");
        let output = recorder.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "ready\nright after many rounds\n", "{mode}");
        assert!(bench.is_right(&trace), "{mode}");
    }
}

#[test]
fn sanitizers_find_their_memory_free() {
    let bench = Bench::new();
    let Some(program) = bench.try_build("trapped.c", "program", &["-fsanitize=thread"]) else {
        eprintln!("skipped 1 test: gcc has no ThreadSanitizer here");
        return;
    };
    if Command::new(&program).output().unwrap().status.code() != Some(3) {
        eprintln!("skipped 1 test: ThreadSanitizer does not run on this kernel");
        return;
    }
    bench.same(&["events", "count"], &program.display().to_string());
}

/// A limit on the size of files that leaves no room for a thread's memory, or for all threads'.
#[test]
fn files_may_be_limited() {
    let bench = Bench::new();
    let program = bench.build("crowd.c", "program", &["-pthread"]);
    let trace = bench.trace();
    for (blocks, command, reported) in
        [(1000, "/bin/echo done", "leaves no room for it"), (200_000, &*program, "left no room")]
    {
        let _ = std::fs::remove_dir_all(&trace);
        let script = format!(
            "ulimit -f {blocks}; exec {} record -q --output {trace} -- {command}",
            env!("CARGO_BIN_EXE_fettle")
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let plain = Command::new("bash").args(["-c", command]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((&output.stdout, output.status), (&plain.stdout, plain.status), "{said}");
        let report = bench.fettle(&["report", &trace]).output().unwrap();
        let report = String::from_utf8_lossy(&report.stdout);
        assert!(report.contains(reported) && report.contains("RLIMIT_FSIZE"), "{report}");
    }
}

/// A switch that has no bound, in a program at a fixed address whose symbols are gone. A program
/// that limits its own address space is reported, as it may fail for that.
#[test]
fn address_space_may_be_limited() {
    let bench = Bench::new();
    let trace = bench.trace();
    for (script, reported) in [("ulimit -v 200000; echo $((6*7))", true), ("echo $((6*7))", false)]
    {
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = bench.fettle(&["record", "-q", "--mode", "count", "-o", &trace, "--"]);
        let recorded = record.args(["/bin/sh", "-c", script]).output().unwrap();
        assert_eq!(recorded.stdout, b"42\n", "{recorded:?}");
        let trace = fettle_trace::Trace::open(trace.as_ref()).unwrap();
        let notes = &trace.manifest().notes;
        let limited = |note: &String| note.contains("limited its address space to 195 MiB");
        assert_eq!(notes.iter().any(limited), reported, "{notes:?}");
    }
}

#[test]
fn a_table_leads_where_nothing_else_does() {
    let bench = Bench::new();
    let flags = ["-O2", "-s", "-fno-pie", "-no-pie"];
    let program = bench.try_build("switch.c", "program", &flags).unwrap();
    bench.same(&["events", "count", "edges"], &program.display().to_string());
}

/// Arrays of labels that have holes, and that begin before the place that code names.
#[test]
fn arrays_of_labels() {
    let bench = Bench::new();
    let fixed = ["-fno-pie", "-no-pie"];
    for flags in
        [&["-O0"][..], &["-O2"], &["-O1", fixed[0], fixed[1]], &["-O2", fixed[0], fixed[1]]]
    {
        let program = bench.build("labels.c", "labels", flags);
        bench.same(&["events", "count", "edges"], &program);
        let lifted = bench.fettle(&["lift", "--json", "--list", &program]).output().unwrap();
        let lifted = String::from_utf8_lossy(&lifted.stdout);
        assert!(!lifted.contains("with_holes"), "{flags:?}: {lifted}");
    }
}

#[test]
fn code_that_the_loader_changes_stays() {
    let bench = Bench::new();
    let flags = ["-fpie", "-pie", "-Wl,-z,notext"];
    let program = bench.build("relocated.c", "program", &flags);
    bench.same(&["time", "count"], &program);
    let instrumented = bench.path("instrumented");
    let output = instrumented.to_str().unwrap();
    assert!(bench.fettle(&["instrument", &program, "-o", output]).status().unwrap().success());
    let plain = Command::new(&program).output().unwrap();
    let trace = bench.path("own").display().to_string();
    let ran = Command::new(output).env("FETTLE_RECORD", trace).output().unwrap();
    assert_eq!(ran, plain);
    let lifted = bench.fettle(&["lift", &program]).output().unwrap();
    let lifted = String::from_utf8_lossy(&lifted.stdout);
    assert!(lifted.contains("a relocation that cannot be carried over"), "{lifted}");
    // In a library, whose other functions are recorded.
    let flags = ["-DLIBRARY", "-shared", "-fPIC", "-Wl,-z,notext"];
    let library = bench.build("relocated.c", "librelocated.so", &flags);
    let flags = ["-DCALLER", "-Wl,--no-as-needed", &library];
    let program = bench.build("relocated.c", "caller", &flags);
    let plain = Command::new(&program).output().unwrap();
    assert_eq!(plain.stdout, b"42000 35\n");
    let (recorded, whole) = bench.record(&["--lib", "librelocated*"], &program);
    assert_eq!(recorded, plain);
    assert!(whole);
    let report = bench.fettle(&["report", &bench.trace()]).output().unwrap();
    let report = String::from_utf8_lossy(&report.stdout);
    assert!(report.contains("of_two  [librelocated.so]"), "{report}");
    assert!(report.contains("carried over: get ("), "{report}");
}

#[test]
fn coroutines_begin_with_what_is_in_registers() {
    let bench = Bench::new();
    let program = bench.build("fibers.c", "program", &[]);
    bench.same(&["time", "events", "cpu", "sample", "count", "edges"], &program);
}

/// A call whose coroutine goes on is not taken for another that was at the same address.
#[test]
fn calls_of_coroutines_are_counted() {
    let bench = Bench::new();
    let program = bench.build("coroutines.c", "program", &[]);
    for mode in ["time", "events", "cpu", "sample", "count"] {
        let trace = bench.trace();
        let options = ["--mode", mode, "--lib", "libc.so*"];
        let (recorded, whole) = bench.record(&options, &program);
        assert!(recorded.status.success() && whole, "{mode}: {recorded:?}");
        let trace = fettle_trace::Trace::open(trace.as_ref()).unwrap();
        let (functions, totals) = (trace.functions().unwrap(), trace.totals().unwrap());
        let calls = ["descend", "leaf", "yield", "swapcontext"].map(|name| {
            let id = functions.iter().find(|f| f.name == name).unwrap().id;
            totals.iter().filter(|total| total.function == id).map(|total| total.calls).sum::<u64>()
        });
        let [descend, leaf, yields, swaps] = calls;
        assert_eq!((descend, leaf), (22_000, 20_000), "{mode}");
        // Once more from home; and each that is done waits for the others.
        assert!(yields >= 20_000 && swaps == yields + 1, "{mode}: {yields} {swaps}");
    }
}

impl Bench {
    /// Builds a C++ program with a personality routine that knows no base of landing pads.
    fn build_picky(&self, source: &str) -> String {
        let object = format!("{source}.o");
        let object = self.build(source, &object, &["-c", "-fno-reorder-blocks-and-partition"]);
        let renamed = "__gxx_personality_v0=_d_eh_personality";
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.args(["--redefine-sym", renamed, &object]).status().unwrap().success());
        let picky = self.build("picky.c", "picky.o", &["-c"]);
        let program = self.path(&format!("{source}.program")).display().to_string();
        let mut link = Command::new("g++");
        assert!(link.args([&object, &picky, "-o", &program]).status().unwrap().success());
        program
    }
}

/// As D's and Crystal's.
#[test]
fn personality_routines_may_know_no_base() {
    let bench = Bench::new();
    let program = bench.build_picky("caught.cpp");
    bench.same(&["time", "events", "count", "edges"], &program);
    // In code that is laid out anew, too, with what never runs elsewhere.
    let plain = Command::new(&program).output().unwrap();
    let mut running = Command::new(&program);
    let mut running = running.arg("on").stdout(Stdio::piped()).spawn().unwrap();
    let pid = running.id().to_string();
    let mut out = BufReader::new(running.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    let tune = ["tune", "-p", &pid, "--time", "0.5", "--keep", "--threshold", "0"];
    let tuned = bench.fettle(&tune).output().unwrap();
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said.as_bytes(), plain.stdout);
    assert_eq!(running.wait().unwrap().code(), Some(4));
}

/// GCC's Go, by the library that its programs need; what Mono and OCaml have compiled, by their tables.
#[test]
fn code_of_runtimes_that_know_its_addresses_stays() {
    let bench = Bench::new();
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libgo.so.21"];
    let library = bench.build("seldom.c", "libgo.so.21", &flags);
    let program =
        bench.build("relocated.c", "program", &["-fpie", "-pie", "-Wl,-z,notext", &library]);
    let refused = bench.fettle(&["record", "-q", "--", &program]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is a Go program"));

    let lifted = |known_by: &str| {
        let symbol = format!("-Wl,--defsym,{known_by}=0");
        let flags = ["-shared", "-fPIC", "-Doften=camlOften", &symbol];
        let compiled = bench.build("seldom.c", "compiled.so", &flags);
        let lifted = bench.fettle(&["lift", "--list", &compiled]).output().unwrap();
        String::from_utf8_lossy(&lifted.stdout).into_owned()
    };
    let mono = lifted("mono_aot_file_info");
    assert!(mono.contains(": 0 of "), "{mono}");
    assert!(!lifted("unheard_of").contains("camlOften"));
    // Plugins, and the runtime as a library.
    for known_by in ["caml_plugin_header", "caml_init_frame_descriptors"] {
        let ocaml = lifted(known_by);
        assert!(ocaml.contains("camlOften") && !ocaml.contains(": 0 of "), "{ocaml}");
    }
}

/// Calls that were left long before they are found to be did not call each other.
#[test]
fn times_of_what_was_left_add_up() {
    let bench = Bench::new();
    let program = bench.build("unwound.c", "program", &["-fno-inline-functions"]);
    for mode in ["time", "events", "cpu"] {
        let (recorded, whole) = bench.record(&["--mode", mode, "--skip", "catcher"], &program);
        assert!(recorded.status.success() && whole, "{mode}");
        let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
        let (duration, names) = (trace.manifest().duration_ns, trace.functions().unwrap());
        let of = |name| names.iter().position(|f| f.name == name).unwrap();
        let totals = trace.totals().unwrap();
        let one = |name| totals.iter().find(|t| t.function.place() == of(name)).unwrap();
        for total in &totals {
            assert!(total.self_ns <= total.total_ns && total.total_ns <= 3 * duration, "{total:?}");
        }
        assert_eq!((one("unwind").calls, one("spin").calls), (3, 6), "{mode}");
        assert!(totals.iter().map(|t| t.self_ns).sum::<u64>() <= duration, "{mode}: {totals:?}");
        // Each of them ended at the latest when the next one began.
        assert!(one("unwind").total_ns <= one("outer").total_ns, "{mode}: {totals:?}");
    }
}

/// A shell ends in the middle of its calls; `true` comes back from all but the first. The catching
/// function has no probes, so that it is not known when: such a trace is not damaged.
#[test]
fn calls_that_were_left_are_no_damage() {
    let bench = Bench::new();
    let program = bench.build("jumped_over.c", "program", &["-O1"]);
    for only in [&["--skip", "catcher"][..], &[]] {
        let (output, whole) = bench.record(only, &program);
        assert!(output.status.success() && whole, "{only:?}");
        let check = bench.fettle(&["trace", "check", &bench.trace()]).output().unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert_eq!(said.contains("longjmp"), !only.is_empty(), "{said}");
        let right = ["nothing is wrong", "what is there is right"];
        assert!(right.iter().any(|verdict| said.contains(verdict)), "{said}");
    }
}

#[test]
fn calls_that_have_not_ended_are_reported() {
    let bench = Bench::new();
    for (mode, program, reported) in
        [("time", "/bin/sh", true), ("cpu", "/bin/sh", true), ("time", "/bin/true", false)]
    {
        let (recorded, whole) = bench.record(&["--mode", mode], program);
        assert!(recorded.status.success() && whole, "{mode}: {recorded:?}");
        let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
        let notes = &trace.manifest().notes;
        assert_eq!(
            notes.iter().any(|note| note.contains("calls had not ended")),
            reported,
            "{notes:?}"
        );
    }
}

/// What never returns takes its time all the same, and is called as often as by other modes.
#[test]
fn calls_that_never_return_have_their_time() {
    let bench = Bench::new();
    let program = bench.build("never_returns.c", "program", &["-O1"]);
    for mode in ["time", "cpu"] {
        let (recorded, whole) = bench.record(&["--mode", mode], &program);
        assert!(whole && recorded.status.code() == Some(3), "{mode}: {recorded:?}");
        let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
        let (functions, totals) = (trace.functions().unwrap(), trace.totals().unwrap());
        let total = |name: &str| {
            let function = functions.iter().find(|f| f.name == name).unwrap();
            totals.iter().find(|total| total.function == function.id).unwrap()
        };
        let (main, last, work) = (total("main"), total("last"), total("work"));
        assert_eq!([main.calls, last.calls, work.calls], [1, 1, 4], "{mode}");
        // What the last of them calls is work, and what exit calls.
        let [in_last, below_last] = [last.child_calls, last.calls_below].map(Option::unwrap);
        assert!(in_last >= 1 && below_last >= in_last, "{mode}: {in_last} {below_last}");
        assert_eq!(main.child_calls, Some(4), "{mode}");
        assert_eq!(main.calls_below, Some(4 + below_last), "{mode}");
        assert!(main.total_ns >= last.total_ns && main.total_ns >= work.total_ns, "{mode}");
        assert!(main.self_ns + last.total_ns <= main.total_ns, "{mode}");
    }
}

/// Short calls leave no record, their callers do, and nothing is missing from the totals.
#[test]
fn calls_that_are_too_short_leave_no_record() {
    let bench = Bench::new();
    let program = bench.build("never_returns.c", "program", &["-O1"]);
    let (recorded, whole) = bench.record(&["--min-duration", "100us"], &program);
    assert!(whole && recorded.status.code() == Some(3), "{recorded:?}");
    let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
    let functions = trace.functions().unwrap();
    let work = functions.iter().find(|f| f.name == "work").unwrap().id;
    let calls =
        trace.totals().unwrap().iter().filter(|t| t.function == work).map(|t| t.calls).sum::<u64>();
    assert_eq!(calls, 4);
    let mut kept = 0;
    for thread in trace.threads().unwrap() {
        trace.for_each_call(thread.index, |call| kept += u32::from(call.function == work)).unwrap();
    }
    // One of the four is asked to do nothing.
    assert_eq!(kept, 3);
    let manifest = trace.manifest();
    assert!(manifest.totals.short >= 1 && manifest.min_duration_ns == Some(100_000));
    assert!(bench.is_right(&bench.trace()));
    let refused = ["record", "--mode", "time", "--min-duration", "1ms", "--", "/bin/true"];
    assert_eq!(bench.fettle(&refused).status().unwrap().code(), Some(2));
}

/// A shell's `vfork` comes back from one call in two processes that share the memory of those in
/// progress.
#[test]
fn a_call_that_returns_twice_is_no_loss() {
    let bench = Bench::new();
    for mode in ["time", "events"] {
        let trace = bench.trace();
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = bench.fettle(&["record", "-q", "--lib", "libc.so*", "--mode", mode]);
        let script = "/bin/true; /bin/true; exit 7";
        let recorded = record.args(["-o", &trace, "--", "/bin/sh", "-c", script]).output().unwrap();
        assert_eq!(recorded.status.code(), Some(7), "{mode}: {recorded:?}");
        let trace = fettle_trace::Trace::open(trace.as_ref()).unwrap();
        let totals = &trace.manifest().totals;
        assert_eq!((totals.processes, totals.unmatched_exits), (3, 0), "{mode}");
    }
}

/// A call counts where it began: children return from their parents', and only their time there is
/// theirs.
#[test]
fn forked_children_make_no_calls_of_their_parents() {
    let bench = Bench::new();
    let program = bench.build("forks.c", "program", &[]);
    for mode in ["events", "time", "cpu", "sample", "count"] {
        bench.same(&[mode], &program);
        let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
        let functions = trace.functions().unwrap();
        let totals = trace.totals().unwrap();
        let first = trace.threads().unwrap()[0].index;
        let rows_of = |name: &str| {
            let id = functions.iter().find(|f| f.name == name).unwrap().id;
            totals.iter().filter(move |total| total.function == id)
        };
        let calls = |name: &str| rows_of(name).map(|total| total.calls).sum::<u64>();
        let all = ["main", "outer", "forks", "works", "leaf"].map(calls);
        assert_eq!(all, [1, 5, 10, 9, 19], "{mode}");
        if ["events", "time", "sample"].contains(&mode) {
            let of_children = |name| rows_of(name).filter(|total| total.thread != first);
            let longest = of_children("forks").map(|total| total.total_ns).max();
            let longest = longest.expect("they return");
            assert!((1..150_000_000).contains(&longest), "{mode}: {longest} ns");
            let works: u64 = of_children("works").map(|total| total.total_ns).sum();
            assert!(works > 8 * 30_000_000, "{mode}: {works} ns");
        }
    }
}

/// Neither what Fettle cannot say nor what it was started without changes a program.
#[test]
fn a_program_has_its_status_and_descriptors_whatever_fettle_can_say() {
    let bench = Bench::new();
    let fettle = env!("CARGO_BIN_EXE_fettle");
    for (said, program, status) in [
        ("2>/dev/full", "sh -c 'exit 4'", 4),
        ("2>&-", "sh -c 'exit 4'", 4),
        // The reader has ended by then.
        ("2> >(exec true)", "sh -c 'sleep 0.3; exit 4'", 4),
        (">&-", "ls /", 2),
        ("<&-", "sh -c 'test -e /proc/$$/fd/0 || exit 6'", 6),
    ] {
        let trace = bench.trace();
        let _ = std::fs::remove_dir_all(&trace);
        let run = format!("exec {fettle} record --mode count -o {trace} -- {program} {said}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &run]).env("XDG_CACHE_HOME", bench.path("cache"));
        let ended = shell.output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{program} {said}: {ended:?}");
        assert!(fettle_trace::Trace::open(trace.as_ref()).is_ok(), "{program} {said}");
    }
}

/// Where functions are not known, it is reported how much code that is.
#[test]
fn code_in_no_known_function_is_reported() {
    let bench = Bench::new();
    let bare = ["-s", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (flags, is_reported) in [(&bare[..], true), (&bare[..1], false)] {
        let program = bench.build("unnamed.c", "program", flags);
        let lifted = bench.fettle(&["lift", &program]).output().unwrap();
        let lifted = String::from_utf8_lossy(&lifted.stdout).into_owned();
        assert_eq!(lifted.contains("bytes of code (9"), is_reported, "{lifted}");
        assert_eq!(lifted.contains(" lie in no known function"), is_reported, "{lifted}");
        let json = bench.fettle(&["lift", "--json", &program]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let unknown = json["unknown_code_bytes"].as_u64().unwrap();
        assert_eq!(unknown > 8192, is_reported, "{json}");
        assert!(unknown < json["all_code_bytes"].as_u64().unwrap(), "{json}");
        // Of a plan from the cache, too.
        for _ in 0..2 {
            bench.same(&["count"], &program);
            let trace = fettle_trace::Trace::open(bench.trace().as_ref()).unwrap();
            let reported = format!("{program}: {unknown} of ");
            let notes = &trace.manifest().notes;
            assert_eq!(notes.iter().any(|n| n.starts_with(&reported)), is_reported, "{notes:?}");
        }
    }
}

/// Before there is a program, and between its fork and its exec, no other process gets them.
#[test]
fn signals_that_come_early_end_the_program() {
    const KEYS: &str = r#"
import os, pty, signal, sys, time
wrong = []
for round in range(24):
    command = sys.argv[1:-1] + ['-o', sys.argv[-1] + str(round), '--', '/bin/sleep', '20']
    by_key = round % 2 == 0
    child, terminal = pty.fork()
    if child == 0:
        # The terminal is its own by now.
        os.write(1, b'.')
        os.execv(command[0], command)
    os.read(terminal, 1)
    time.sleep(0.008 * round)
    if by_key: os.write(terminal, b'\x03')
    else: os.killpg(child, signal.SIGTERM)
    said = b''
    try:
        while True: said += os.read(terminal, 1000)
    except OSError: pass
    _, status = os.waitpid(child, 0)
    expected = signal.SIGINT if by_key else signal.SIGTERM
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - 128
    if ended != expected: wrong.append((round, status, said))
print(wrong)
"#;
    let bench = Bench::new();
    let mut keys = Command::new("python3");
    keys.args(["-c", KEYS, env!("CARGO_BIN_EXE_fettle"), "record", "-q"]);
    keys.arg(bench.path("trace"));
    let said = keys.env("XDG_CACHE_HOME", bench.path("cache")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "[]\n", "{said:?}");
}

/// A limit on the user's processes is reported before the program runs.
#[test]
fn too_few_processes_are_reported_before_anything_runs() {
    let bench = Bench::new();
    // Root has no such limit.
    let mut limited = Command::new("setpriv");
    limited.args(["--reuid=54321", "--clear-groups", "prlimit", "--nproc=3"]);
    limited.arg(env!("CARGO_BIN_EXE_fettle")).args(["record", "-q", "--", "/bin/echo", "ran"]);
    let said = limited.env("XDG_CACHE_HOME", bench.path("cache")).output().unwrap();
    if [Some(126), Some(127), Some(1)].contains(&said.status.code()) {
        eprintln!("skipped 1 test: not root, or the executable is not for everybody: {said:?}");
        return;
    }
    let error = String::from_utf8_lossy(&said.stderr);
    assert_eq!((said.status.code(), &said.stdout[..]), (Some(2), &b""[..]), "{error}");
    assert!(error.contains("ulimit -u") && !error.contains("panicked"), "{error}");
}

/// More calls than are converted when a recording ends.
#[test]
fn a_long_recording_is_converted_by_its_first_reader() {
    const CALLS: u64 = 9_000_000;
    let bench = Bench::new();
    let program = bench.build("many_calls.c", "many_calls", &["-O1"]);
    let trace = bench.trace();
    let mut record = bench.fettle(&["record", "--json", "--output", &trace, "--mode", "events"]);
    record.args(["--on-full", "wait", "--", &program, &CALLS.to_string()]);
    let output = record.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let reported: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&reported["deferred"], &reported["lost"]), (&true.into(), &0.into()), "{reported}");
    // With `main`, and others of the program's that run before it.
    let records = reported["records"].as_u64().unwrap();
    assert!((CALLS + 1..CALLS + 20).contains(&records), "{records}");
    assert!(!bench.path("trace/calls").exists());

    let convert = bench.fettle(&["trace", "convert", &trace]).output().unwrap();
    assert!(convert.status.success() && convert.stderr.is_empty(), "{convert:?}");
    assert!(bench.path("trace/calls/00000.parquet").exists());
    assert!(bench.is_right(&trace));
    let trace = fettle_trace::Trace::open(trace.as_ref()).unwrap();
    // Calls that were open at the end are rows as well.
    let rows = trace.manifest().totals.records;
    assert!((records..records + 5).contains(&rows), "{rows} rows of {records} records");
    let functions = trace.functions().unwrap();
    let leaf = functions.iter().find(|function| function.name == "leaf").unwrap().id;
    let mut sum = 0;
    trace.for_each_call(0, |call| sum += u64::from(call.function == leaf)).unwrap();
    assert_eq!(sum, CALLS);
}
