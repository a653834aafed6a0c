//! Programs and libraries that record themselves, from outside: only the command line, the
//! programs' output and the traces.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use fettle_trace::Trace;

use common::{calls, fettle, folder, text};

const COUNTS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x * 3 + 1; }
__attribute__((noinline)) int mid(int x) { int s = 0; for (int i = 0; i < 10; i++) s += leaf(x + i); return s; }
static void *work(void *p) { long s = 0; for (int i = 0; i < 5000; i++) s += mid(i); return (void *)s; }
int main(int argc, char **argv) {
    pthread_t t[4];
    long sum = 0;
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < 4; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) { for (int i = 0; i < 50; i++) sum += mid(i); printf("child %ld\n", sum); exit(3); }
    int st;
    waitpid(p, &st, 0);
    printf("parent %ld %d, next descriptor %d\n", sum, WEXITSTATUS(st), dup(0));
    if (argc > 2) for (;;) pause();
    return atoi(argv[1]);
}
"#;
/// 4 threads of 5000 and a child of 50.
const MIDS: u64 = 4 * 5000 + 50;

const THROWS: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
struct G { int &c; G(int &x) : c(x) {} ~G() { c++; } };
__attribute__((noinline)) int thrower(int d, int &c) { G g(c); if (d == 0) throw std::runtime_error("deep"); return thrower(d - 1, c) + 1; }
__attribute__((noinline)) int catcher(int d) { int c = 0; try { return thrower(d, c); } catch (const std::exception &e) { return c + (int)std::string(e.what()).size(); } }
int main() { int s = 0; for (int i = 0; i < 200; i++) s += catcher(i % 20); printf("%d\n", s); try { throw 5; } catch (int x) { return x; } }
"#;

/// Many threads that make others, which end at once.
const SWARM: &str = r#"
#include <pthread.h>
#include <stdio.h>
__attribute__((noinline)) static long work(long x) { __asm__ volatile(""); return x ^ x << 3; }
static void *ends(void *x) { return (void *)work((long)x); }
static void *makes(void *x) {
    pthread_t t[4];
    long sum = 0;
    for (long i = 0; i < 6; i++) {
        void *result;
        for (int k = 0; k < 4; k++) pthread_create(&t[k], 0, ends, (void *)i);
        for (int k = 0; k < 4; k++) pthread_join(t[k], &result), sum += (long)result;
    }
    return (void *)sum;
}
int main(void) {
    pthread_t t[200];
    void *result;
    long sum = 0;
    for (int i = 0; i < 200; i++) pthread_create(&t[i], 0, makes, 0);
    for (int i = 0; i < 200; i++) pthread_join(t[i], &result), sum += (long)result;
    printf("%ld\n", sum);
    return 0;
}
"#;

fn instrument(input: &Path, output: &Path, more: &[&str]) {
    let mut args = vec!["instrument", text(input), "-o", text(output)];
    args.extend(more);
    let made = fettle(&args);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn compile(compiler: &str, source: &str, output: &Path, flags: &[&str]) {
    let extension = if compiler == "cc" { "c" } else { "cc" };
    let file = output.with_extension(extension);
    std::fs::write(&file, source).expect("source is written");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread"]).args(flags).arg(&file).arg("-o").arg(output);
    assert!(command.status().expect("a compiler").success());
}

/// Runs `original` and `new`, the latter also recorded into `trace`: all alike.
fn same(original: &Path, new: &Path, args: &[&str], trace: &Path) {
    let plain = Command::new(original).args(args).output().expect("the original runs");
    let off = Command::new(new).args(args).output().expect("the new file runs");
    let on = Command::new(new).args(args).env("FETTLE_RECORD", trace).output();
    let on = on.expect("the new file runs, recorded");
    for (what, run) in [("not recorded", off), ("recorded", on)] {
        assert_eq!(run.status, plain.status, "{} {what}", new.display());
        assert_eq!(
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&plain.stdout),
            "{} {what}",
            new.display()
        );
        assert_eq!(
            String::from_utf8_lossy(&run.stderr),
            String::from_utf8_lossy(&plain.stderr),
            "{} {what}",
            new.display()
        );
    }
}

/// Calls by name, of a trace that agrees with itself.
#[test]
fn counts_are_exact_for_every_kind_of_program() {
    let folder = folder("instrument-counts");
    for (kind, flags) in [
        ("pie", "-pie"),
        ("fixed", "-no-pie"),
        ("static", "-static"),
        ("static-pie", "-static-pie"),
    ] {
        let program = folder.join(kind);
        compile("cc", COUNTS, &program, &[flags]);
        for mode in ["events", "time", "count", "sample", "cpu", "blocks", "edges"] {
            let new = folder.join(format!("{kind}.{mode}"));
            instrument(&program, &new, &["--mode", mode]);
            let trace = folder.join(format!("{kind}.{mode}.fettle"));
            same(&program, &new, &["5"], &trace);
            if mode == "edges" {
                assert_eq!(branches_taken(&trace, "mid"), MIDS * 9, "{kind} {mode}");
            } else if mode != "blocks" {
                let calls = calls(&trace);
                assert_eq!(calls["mid"], MIDS, "{kind} {mode}");
                assert_eq!(calls["leaf"], MIDS * 10, "{kind} {mode}");
                assert_eq!(calls["work"], 4, "{kind} {mode}");
            }
            let trace = manifest(&trace);
            assert_eq!(trace.totals.lost, 0, "{kind} {mode}");
            assert_eq!(trace.totals.unmatched_exits, 0, "{kind} {mode}");
            assert_eq!(trace.totals.processes, 2, "{kind} {mode}");
            assert_eq!(trace.totals.threads, 6, "{kind} {mode}");
        }
    }
}

#[test]
fn forks_through_pointers_are_told_apart() {
    let folder = folder("instrument-forks");
    let source = COUNTS
        .replace("fork()", "by_pointer()")
        .replace("int main(", "static pid_t (*volatile by_pointer)(void) = fork;\nint main(");
    let program = folder.join("program");
    compile("cc", &source, &program, &[]);
    for mode in ["events", "time", "sample"] {
        let new = folder.join(mode);
        instrument(&program, &new, &["--mode", mode]);
        let trace = folder.join(format!("{mode}.fettle"));
        same(&program, &new, &["5"], &trace);
        assert_eq!(calls(&trace)["mid"], MIDS, "{mode}");
        let totals = manifest(&trace).totals;
        assert_eq!((totals.processes, totals.threads), (2, 6), "{mode}");
        assert_eq!(calls_by_process(&trace, "mid"), [50, MIDS - 50], "{mode}");
        assert_eq!((totals.lost, totals.unmatched_exits), (0, 0), "{mode}");
    }
}

/// Where threads' memory is forgotten, others' is made at the same address.
#[test]
fn many_threads_that_end_at_once() {
    let folder = folder("instrument-swarm");
    let program = folder.join("program");
    compile("cc", SWARM, &program, &["-pthread"]);
    let new = folder.join("new");
    instrument(&program, &new, &["--mode", "count"]);
    let plain = Command::new(&program).output().unwrap();
    // Thousands of files are made: not on a disk.
    let trace = tempfile::tempdir_in("/dev/shm").unwrap();
    for nth in 0..6 {
        let trace = trace.path().join(nth.to_string());
        let recorded = Command::new(&new).env("FETTLE_RECORD", &trace).output().unwrap();
        assert_eq!(recorded, plain, "run {nth}");
        if nth == 0 {
            assert_eq!(calls(&trace)["work"], 200 * 6 * 4);
        }
        std::fs::remove_dir_all(trace).unwrap();
    }
}

/// A call counts where it began: children return from their parents', and only their time there is
/// theirs.
#[test]
fn forked_children_make_no_calls_of_their_parents() {
    let folder = folder("instrument-forked");
    let program = folder.join("program");
    compile("cc", include_str!("programs/forks.c"), &program, &["-O2"]);
    for mode in ["events", "time", "cpu", "sample", "count"] {
        let new = folder.join(mode);
        instrument(&program, &new, &["--mode", mode]);
        let trace = folder.join(format!("{mode}.fettle"));
        same(&program, &new, &[], &trace);
        let calls = calls(&trace);
        let all = ["main", "outer", "forks", "works", "leaf"].map(|name| calls[name]);
        assert_eq!(all, [1, 5, 10, 9, 19], "{mode}");
        if ["events", "time", "sample"].contains(&mode) {
            let trace = Trace::open(&trace).expect("a trace");
            let functions = trace.functions().expect("functions");
            let (first, totals) = (trace.threads().expect("threads")[0].index, trace.totals());
            let totals = totals.expect("totals");
            let of_children = |name: &str| {
                let id = functions.iter().find(|f| f.name == name).expect("it is there").id;
                let children = totals.iter().filter(move |t| t.function == id && t.thread != first);
                children.map(|t| t.total_ns)
            };
            let longest = of_children("forks").max().expect("they return");
            assert!(longest < 150_000_000, "{mode}: {longest} ns");
            // Samples are written with calls, and these are the parent's.
            assert!(longest > 0 || mode == "sample", "{mode}");
            let works: u64 = of_children("works").sum();
            assert!(works > 8 * 30_000_000, "{mode}: {works} ns");
        }
    }
}

/// Calls of `function` in each process, rising.
fn calls_by_process(trace: &Path, function: &str) -> Vec<u64> {
    let trace = Trace::open(trace).expect("a trace");
    let functions = trace.functions().expect("functions");
    let id = functions.iter().find(|f| f.name == function).expect("it is there").id;
    let threads = trace.threads().expect("threads");
    let mut calls: HashMap<u32, u64> = HashMap::new();
    for total in trace.totals().expect("totals").iter().filter(|t| t.function == id) {
        let thread = threads.iter().find(|t| t.index == total.thread).expect("it is there");
        *calls.entry(thread.pid).or_default() += total.calls;
    }
    let mut calls: Vec<u64> = calls.into_values().collect();
    calls.sort_unstable();
    calls
}

/// How often the backward branches of `function` were taken.
fn branches_taken(trace: &Path, function: &str) -> u64 {
    common::assert_right(trace);
    let trace = Trace::open(trace).expect("a trace");
    let functions = trace.functions().expect("functions");
    let id = functions.iter().find(|f| f.name == function).expect("it is there").id;
    let counters = trace.counters().expect("counters");
    let back = counters
        .iter()
        .filter(|c| c.function == id && c.to_address.is_some_and(|to| to <= c.from_address));
    back.map(|c| c.count).sum()
}

/// The manifest of a trace, which is made of the slots first if it has not been.
fn manifest(path: &Path) -> fettle_trace::Manifest {
    common::assert_right(path);
    Trace::open(path).expect("a trace").manifest().clone()
}

#[test]
fn exceptions_unwind_rewritten_text() {
    let folder = folder("instrument-throws");
    for flags in ["-pie", "-no-pie", "-static", "-static-pie"] {
        let program = folder.join(&flags[1..]);
        compile("c++", THROWS, &program, &[flags]);
        let new = folder.join(format!("{}.new", &flags[1..]));
        let trace = folder.join(format!("{}.fettle", &flags[1..]));
        instrument(&program, &new, &[]);
        same(&program, &new, &[], &trace);
        let calls = calls(&trace);
        assert_eq!(calls["_Z7catcheri"], 200);
        assert_eq!(calls["_Z7throweriRi"], 10 * (1..=20).sum::<u64>());
    }
}

/// What is read ahead of a slot's file, on disks where that is megabytes, are zeros.
const READS: &str = r#"
#include <stdio.h>
#include <string.h>
int main(void) {
    char line[4096];
    int slot = 0, random = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (strchr(line, '/') || strchr(line, '['))
            slot = strstr(line, ".slot") != 0;
        if (slot && !strncmp(line, "VmFlags:", 8))
            random += strstr(line, " rr") != 0;
    }
    printf("%d\n", random);
    return 0;
}
"#;

#[test]
fn nothing_is_read_ahead_of_threads_files() {
    let folder = folder("instrument-reads");
    let (program, new) = (folder.join("program"), folder.join("new"));
    compile("cc", READS, &program, &[]);
    instrument(&program, &new, &[]);
    let mut run = Command::new(&new);
    let output = run.env("FETTLE_RECORD", folder.join("trace")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}

/// A program whose files may not become as large as a thread's runs as ever, and the reason why
/// nothing is recorded is reported.
#[test]
fn a_limit_on_files_is_reported() {
    let folder = folder("instrument-limited");
    let (program, new) = (folder.join("program"), folder.join("new"));
    compile("cc", COUNTS, &program, &[]);
    instrument(&program, &new, &[]);
    let plain = Command::new(&program).arg("5").output().unwrap();
    let script = format!("ulimit -f 1000; exec {} 5", text(&new));
    let mut limited = Command::new("bash");
    limited.args(["-c", &script]).env("FETTLE_RECORD", folder.join("trace"));
    let limited = limited.output().unwrap();
    assert_eq!((limited.stdout, limited.status), (plain.stdout, plain.status));
    let said = String::from_utf8_lossy(&limited.stderr);
    assert!(said.contains("RLIMIT_FSIZE"), "{said}");
}

#[test]
fn a_killed_program_leaves_its_counts() {
    let folder = folder("instrument-killed");
    let (program, new) = (folder.join("program"), folder.join("new"));
    compile("cc", COUNTS, &program, &[]);
    instrument(&program, &new, &[]);
    let trace = folder.join("killed.fettle");
    let mut child = Command::new(&new)
        .args(["5", "stay"])
        .env("FETTLE_RECORD", &trace)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it runs");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let early = fettle(&["report", text(&trace)]);
    assert_eq!(early.status.code(), Some(2), "a running program's folder is left alone");
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert_eq!(calls(&trace)["mid"], MIDS);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let folder = folder("instrument-refused");
    let (program, new) = (folder.join("program"), folder.join("new"));
    compile("cc", COUNTS, &program, &[]);
    instrument(&program, &new, &[]);
    let refused = |input: &Path, output: &Path, word: &str| {
        let run = fettle(&["instrument", text(input), "-o", text(output)]);
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(error.contains(word) && error.lines().count() == 1, "{error}");
        assert!(!output.exists());
    };
    refused(&new, &folder.join("twice"), "instrumented already");
    refused(&folder.join("program.c"), &folder.join("text"), "ELF");
    refused(&program, &folder.join("no/such/folder"), "cannot write");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let run = fettle(&["instrument", text(&program), "-o", text(&pipe)]);
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("no regular file"));
    assert!(!pipe.is_file() && pipe.exists());

    let dry = fettle(&["instrument", text(&program), "-o", text(&folder.join("dry")), "--dry-run"]);
    assert!(dry.status.success());
    assert!(!folder.join("dry").exists());

    // A folder that cannot be had: the program runs all the same, and says so once.
    let run =
        Command::new(&new).arg("5").env("FETTLE_RECORD", "/proc/none").output().expect("runs");
    assert_eq!(run.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&run.stderr).lines().count(), 1);
}

#[test]
fn programs_that_nobody_here_wrote() {
    let folder = folder("instrument-debian");
    let script = "f() { local i s=0; for ((i = 0; i < 300; i++)); do s=$((s + i)); done; echo $s; }\n\
                  f; x=$(f); echo \"$x\"; (f; exit 3); echo $?; echo a b | while read l; do echo \"[$l]\"; done\n\
                  trap 'echo bye' EXIT; exit 4";
    let sql = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c \
               where x<2000) insert into t select x,x*x from c; select sum(b) from t;";
    let lua = "local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end \
               print(fib(18), pcall(error, 'x'))";
    for (program, args) in [
        ("/usr/bin/bash", ["-c", script]),
        ("/usr/bin/lua5.4", ["-e", lua]),
        ("/usr/bin/sqlite3", [":memory:", sql]),
        ("/usr/bin/busybox", ["sh", "-c"]),
    ] {
        let program = Path::new(program);
        if !program.exists() {
            println!("{} is not installed: left out", program.display());
            continue;
        }
        let name = program.file_name().expect("a file").to_str().expect("plain name");
        let new = folder.join(name);
        instrument(program, &new, &[]);
        let trace = folder.join(format!("{name}.fettle"));
        let mut args = args.to_vec();
        if name == "busybox" {
            args.push("for i in 1 2 3; do echo $i; done; (exit 7); echo $?");
        }
        same(program, &new, &args, &trace);
        assert!(calls(&trace).values().sum::<u64>() > 10, "{name}");
    }
}

#[test]
fn a_library_records_itself() {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0");
    let program = Path::new("/usr/bin/sqlite3");
    if !library.exists() || !program.exists() {
        println!("sqlite3 is not installed: left out");
        return;
    }
    let folder = folder("instrument-library");
    instrument(library, &folder.join("libsqlite3.so.0"), &[]);
    let sql = "create table t(a); insert into t values (1), (2); select sum(a) from t;";
    let trace = folder.join("library.fettle");
    let plain = Command::new(program).args([":memory:", sql]).output().expect("runs");
    let run = |record: bool| {
        let mut command = Command::new(program);
        command.args([":memory:", sql]).env("LD_LIBRARY_PATH", &folder);
        if record {
            command.env("FETTLE_RECORD", &trace);
        }
        command.output().expect("runs")
    };
    assert_eq!(run(false), plain);
    assert_eq!(run(true), plain);
    assert!(calls(&trace).values().sum::<u64>() > 1000);
}

/// Tools that lay out a file anew: name, arguments in front of input and output. Those that are
/// not installed are left out.
fn strippers() -> Vec<(&'static str, &'static [&'static str])> {
    let all: [(&str, &[&str]); 6] = [
        ("strip", &["-o"]),
        ("strip", &["-g", "-o"]),
        ("strip", &["--strip-unneeded", "-o"]),
        ("objcopy", &["--strip-debug"]),
        ("llvm-strip", &["-o"]),
        ("llvm-objcopy", &["--strip-debug"]),
    ];
    let there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    all.into_iter().filter(|(tool, _)| there(tool)).collect()
}

fn strip(tool: &str, args: &[&str], input: &Path, output: &Path) {
    let mut command = Command::new(tool);
    match args.split_last() {
        Some((&"-o", first)) => command.args(first).arg("-o").arg(output).arg(input),
        _ => command.args(args).arg(input).arg(output),
    };
    let run = command.output().expect("it was there a moment ago");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success() && said.is_empty(), "{tool} {args:?}: {said}");
}

#[test]
fn what_was_stripped_still_records_itself() {
    let folder = folder("instrument-stripped");
    for flags in ["-pie", "-no-pie", "-static", "-static-pie"] {
        let program = folder.join(&flags[1..]);
        compile("c++", THROWS, &program, &[flags, "-g"]);
        let new = folder.join(format!("{}.new", &flags[1..]));
        instrument(&program, &new, &[]);
        for (i, (tool, args)) in strippers().into_iter().enumerate() {
            // LLVM 14's do not read any static program that glibc is linked into.
            if flags == "-static" && tool.starts_with("llvm") {
                continue;
            }
            let stripped = folder.join(format!("{}.{i}", &flags[1..]));
            strip(tool, args, &new, &stripped);
            let size = |path: &Path| std::fs::metadata(path).expect("a file").len();
            assert!(size(&stripped) < size(&new), "{tool} {args:?}");
            let trace = folder.join(format!("{}.{i}.fettle", &flags[1..]));
            same(&program, &stripped, &[], &trace);
            assert_eq!(calls(&trace)["_Z7throweriRi"], 10 * (1..=20).sum::<u64>(), "{tool}");
        }
    }
}

#[test]
fn a_stripped_library_still_records_itself() {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0");
    let program = Path::new("/usr/bin/sqlite3");
    if !library.exists() || !program.exists() {
        println!("sqlite3 is not installed: left out");
        return;
    }
    let folder = folder("instrument-stripped-library");
    let new = folder.join("new");
    instrument(library, &new, &[]);
    let sql = "create table t(a); insert into t values (1), (2); select sum(a) from t;";
    let plain = Command::new(program).args([":memory:", sql]).output().expect("runs");
    for (i, (tool, args)) in strippers().into_iter().enumerate() {
        let place = folder.join(i.to_string());
        std::fs::create_dir(&place).expect("a folder");
        strip(tool, args, &new, &place.join("libsqlite3.so.0"));
        let trace = place.join("library.fettle");
        let mut command = Command::new(program);
        command.args([":memory:", sql]).env("LD_LIBRARY_PATH", &place);
        assert_eq!(command.output().expect("runs"), plain, "{tool} {args:?}");
        command.env("FETTLE_RECORD", &trace);
        assert_eq!(command.output().expect("runs"), plain, "{tool} {args:?}, recorded");
        assert!(calls(&trace).values().sum::<u64>() > 1000);
    }
}

#[test]
fn a_file_without_room_is_reported() {
    const BARE: &str = r#"
        __attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x * 3 + 1; }
        void _start(void) {
            long status = leaf(4);
            __asm__ volatile("syscall" : : "a"(60), "D"(status));
            __builtin_unreachable();
        }"#;
    let folder = folder("instrument-no-room");
    let (program, new) = (folder.join("bare"), folder.join("new"));
    let flags = ["-nostdlib", "-static", "-Wl,-z,noseparate-code", "-Wl,--build-id=none"];
    compile("cc", BARE, &program, &flags);
    let made = fettle(&["instrument", text(&program), "-o", text(&new)]);
    assert!(made.status.success());
    assert!(String::from_utf8_lossy(&made.stdout).contains("do not strip"));
    let trace = folder.join("bare.fettle");
    same(&program, &new, &[], &trace);
    assert_eq!(calls(&trace)["leaf"], 1);
}

#[test]
fn debuggers_name_and_unwind_rewritten_text() {
    if Command::new("gdb").arg("--version").output().is_err() {
        println!("gdb is not installed: left out");
        return;
    }
    let folder = folder("instrument-debuggers");
    for stripped in [false, true] {
        let (program, new) = (folder.join("program"), folder.join("new"));
        compile("c++", THROWS, &program, if stripped { &["-s"] } else { &[] });
        instrument(&program, &new, &[]);
        let run = Command::new("gdb")
            .args(["-nx", "-batch", "-ex", "set debuginfod enabled off"])
            .arg("-ex")
            .arg(format!("set environment FETTLE_RECORD={}", folder.join("gdb.fettle").display()))
            .args(["-ex", "set breakpoint pending on", "-ex", "break __cxa_throw", "-ex", "run"])
            .args(["-ex", "backtrace 4", "-ex", "kill"])
            .arg(&new)
            .output()
            .expect("gdb runs");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        if said.contains("#0") || !said.contains("ptrace") {
            assert!(said.contains("#0"), "{said}");
            let frame = |n: &str| said.lines().find(|l| l.starts_with(n)).unwrap_or_default();
            assert!(frame("#1").contains("fettle"), "{said}");
            assert!(frame("#2").contains("fettle") && frame("#3").contains("fettle"), "{said}");
            assert!(stripped || frame("#1").contains("thrower(int, int&)"), "{said}");
        }
        let _ = std::fs::remove_dir_all(folder.join("gdb.fettle"));
    }
}
