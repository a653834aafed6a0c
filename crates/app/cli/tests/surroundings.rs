//! What Fettle is started in: limits, full disks, namespaces, files that are none.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a line of the shell in the folder, with `$F` for the command; it is killed after a minute.
    fn shell(&self, line: &str) -> Output {
        let mut shell = Command::new("timeout");
        shell.args(["--signal=KILL", "60", "sh", "-c", line]).stdin(Stdio::null());
        shell.env("F", env!("CARGO_BIN_EXE_fettle")).env("XDG_CACHE_HOME", self.path());
        shell.current_dir(self.path()).output().unwrap()
    }

    /// Whether a line of the shell works here at all; if not, the test says that it is skipped.
    fn can(&self, line: &str) -> bool {
        let output = self.shell(line);
        if !output.status.success() {
            eprintln!("skipped 1 test: {line}: {}", said(&output));
        }
        output.status.success()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The limit is the program's.
#[test]
fn a_small_stack_is_the_programs_business() {
    let bench = Bench::new();
    for options in ["--mode events", "--mode count --lib 'libc.so*'", "--mode sample"] {
        let line = format!(
            "rm -rf t; ulimit -s 64; $F record -q -o t {options} -- sh -c 'ulimit -s; exit 3' && \
             exit 1; $F report t >&2 || exit 2; exit 3"
        );
        let output = bench.shell(&line);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert_eq!(output.stdout, b"64\n", "{}", said(&output));
    }
}

/// Signals to the process are heard, though the thread that does the work is not its first.
#[test]
fn signals_reach_the_program_at_once() {
    let bench = Bench::new();
    let begun = Instant::now();
    let output = bench.shell(
        "$F record -q -o t -- sh -c 'trap \"echo heard; exit 5\" TERM; echo on > on; sleep 50 > /dev/null 2>&1 & wait' & \
         while ! test -s on; do sleep 0.05; done; kill -TERM $!; wait $!",
    );
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"heard\n"[..]));
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_be_executed_is_reported_as_shells_do() {
    let bench = Bench::new();
    assert!(bench.can("mkfifo -m 755 fifo && echo text > text && mkdir -m 755 folder"));
    for (program, status) in [
        ("./fifo", 126),
        ("/dev/null", 126),
        ("./text", 126),
        ("./folder", 126),
        ("./nothing", 127),
        ("nothing-of-this-name", 127),
    ] {
        let output = bench.shell(&format!("$F record -q -o t -- {program}"));
        assert_eq!(output.status.code(), Some(status), "{program}: {}", said(&output));
        assert!(!output.stderr.is_empty() && !bench.path().join("t").exists(), "{program}");
    }
}

/// The message on a refusal does not name the tracer.
#[test]
fn programs_that_trace_are_reported() {
    let bench = Bench::new();
    let source =
        "#include <sys/ptrace.h>\nint main(void) { return ptrace(PTRACE_TRACEME, 0, 0, 0) != 0; }";
    std::fs::write(bench.path().join("tracer.c"), source).unwrap();
    assert!(bench.can("cc -o tracer tracer.c && ./tracer"));
    let output = bench.shell("$F record -o t -- ./tracer");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("tracer calls ptrace"), "{}", said(&output));
}

/// Such a program fails, and the reason is reported.
#[test]
fn programs_that_set_their_gs_base_are_reported() {
    let bench = Bench::new();
    let source = "#include <unistd.h>\n#include <sys/syscall.h>\n\
        __attribute__((noinline)) int twice(int x) { __asm__ volatile(\"\"); return 2 * x; }\n\
        int main(int n, char **v) { syscall(SYS_arch_prctl, 0x1001, 8); return twice(n); }";
    std::fs::write(bench.path().join("sets.c"), source).unwrap();
    assert!(bench.can("cc -O1 -o sets sets.c && { ./sets; test $? = 2; }"));
    let output = bench.shell("$F record -o t -- ./sets");
    assert!(said(&output).contains("sets has set its gs base"), "{}", said(&output));
    let output = bench.shell("$F record -o t2 -- sh -c 'kill -SEGV $$'");
    assert!(!said(&output).contains("gs base"), "{}", said(&output));
}

/// Firefox opens such a library when it runs, so that probes would be there first.
#[test]
fn programs_whose_libraries_set_the_gs_base_are_refused() {
    let bench = Bench::new();
    let library = "int hold(char *at) { __asm__(\"wrgsbase %0\" :: \"r\"(at)); return at[7]; }";
    let program = "#include <dlfcn.h>\n#include <string.h>\n#include <unistd.h>\n\
        int main(void) { char path[4096]; path[readlink(\"/proc/self/exe\", path, 4000)] = 0; \
        strcpy(strrchr(path, '/') + 1, \"libheld.so\"); return dlopen(path, RTLD_NOW) == 0; }";
    std::fs::write(bench.path().join("held.c"), library).unwrap();
    std::fs::write(bench.path().join("opens.c"), program).unwrap();
    assert!(bench.can(
        "cc -shared -fPIC -mfsgsbase -o libheld.so held.c && cc -fno-builtin -o opens opens.c"
    ));
    let output = bench.shell("$F record -o t -- ./opens");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("libheld.so sets its gs base"), "{}", said(&output));
    // Started by another program, it runs as it is.
    let output = bench.shell("$F record -o t --lib '*' -- sh -c './opens; echo $?'");
    assert!(output.status.success() && output.stdout == b"0\n", "{}", said(&output));
    assert!(said(&output).contains("opens ran without probes"), "{}", said(&output));
    // The name of another library is none of this.
    assert!(bench.can("mv libheld.so libother.so && { ./opens; test $? = 1; }"));
    let output = bench.shell("$F record -q -o t2 -- ./opens");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn what_is_no_range_of_addresses_is_refused() {
    let bench = Bench::new();
    assert!(bench.can("echo only 0x10- > file"));
    for options in
        ["--only 0x2000-0x1000", "--skip 0xzz", "--only 0x10-", "--select file", "--args 0x1-0x1"]
    {
        let output = bench.shell(&format!("$F record -q -o t {options} -- /bin/true"));
        assert_eq!(output.status.code(), Some(2), "{options}: {}", said(&output));
        assert!(said(&output).contains("address"), "{options}: {}", said(&output));
    }
}

/// A trace that is not whole is an error, unless the program has one.
#[test]
fn a_full_disk_is_reported_by_the_status() {
    let bench = Bench::new();
    let mount = "mkdir -p m && mount -t tmpfs -o size=$SIZE none m";
    if !bench.can(&format!("export SIZE=1m; unshare -m sh -c '{mount}'")) {
        return;
    }
    let program = "awk \"BEGIN { for (i = 0; i < 40000; i++) n += length(i); exit $STATUS }\"";
    for (size, status) in [("32k", 0), ("400k", 0), ("800k", 0), ("32k", 3), ("400k", 3)] {
        let record = format!("{mount} && $F record -q -o m/t -- {program}");
        let line = format!("export SIZE={size} STATUS={status}; unshare -m sh -c '{record}'");
        let output = bench.shell(&line);
        let expected = if status == 0 { 2 } else { status };
        assert_eq!(output.status.code(), Some(expected), "{size}: {}", said(&output));
        assert!(said(&output).contains("the disk is full"), "{size}: {}", said(&output));
    }
}

#[test]
fn a_limit_on_files_is_not_taken_for_the_programs_file() {
    let bench = Bench::new();
    let output = bench.shell("ulimit -f 200; $F record -o t --mode count -- bash -c 'echo ran'");
    let reported = said(&output);
    assert!(output.stdout == b"ran\n" && output.status.success(), "{reported}");
    assert!(reported.contains("ulimit -f") && !reported.contains("cannot read"), "{reported}");
    assert!(reported.contains("; 0 of "), "{reported}");
}

#[test]
fn without_a_proc_of_its_own_nothing_runs() {
    let bench = Bench::new();
    if !bench.can("unshare --fork --pid --mount true") {
        return;
    }
    let record = "$F record -o t -- echo ran";
    for around in
        ["unshare --fork --pid", "unshare -m sh -c 'mount -t tmpfs none /proc; exec \"$@\"' x"]
    {
        let output = bench.shell(&format!("{around} {record}"));
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("/proc is not mounted"), "{}", said(&output));
        assert!(output.stdout.is_empty(), "{}", said(&output));
    }
    let output = bench.shell(&format!("unshare --fork --pid --mount-proc {record}"));
    assert!(output.status.success() && output.stdout == b"ran\n", "{}", said(&output));
}

/// Windows programs have the gs base to themselves, which Wine's loader is known by.
#[test]
fn wine_is_refused() {
    let bench = Bench::new();
    let source = "#include <dlfcn.h>\nint main(void) { return dlsym(0, \"__wine_main\") != 0; }";
    std::fs::write(bench.path().join("loader.c"), source).unwrap();
    assert!(bench.can("cc -o loader loader.c"));
    let output = bench.shell("$F record -o t -- ./loader");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("Wine"), "{}", said(&output));
    let output = bench.shell("$F record -o t --lib '*' -- sh -c './loader; echo $?'");
    assert!(output.status.success() && output.stdout == b"0\n", "{}", said(&output));
    assert!(said(&output).contains("loader ran without probes"), "{}", said(&output));
    assert!(!said(&output).contains("/proc/"), "{}", said(&output));
}
