//! `fettle record --lib`: programs behave as without, whatever libraries they use.

#[path = "common/programs.rs"]
mod programs;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use programs::Bench;

const MODES: [&str; 3] = ["count", "time", "events"];

/// What a program showed.
#[derive(PartialEq, Debug)]
struct Shown {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn plain(&self, command: &[&str]) -> Shown {
        let mut plain = Command::new(command[0]);
        let output = plain.args(&command[1..]).stdin(Stdio::null()).output().unwrap();
        Shown {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Records the program; also gives what `--json` says.
    fn recorded(&self, mode: &str, libs: &[&str], command: &[&str]) -> (Shown, serde_json::Value) {
        let trace = self.path("trace");
        let _ = fs::remove_dir_all(&trace);
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.args(["record", "--json", "--mode", mode, "--output"]).arg(&trace);
        record.arg("--cache").arg(self.path("cache"));
        for lib in libs {
            record.args(["--lib", lib]);
        }
        let output = record.arg("--").args(command).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let cut = stderr.rfind("{\"").unwrap_or(0);
        // The JSON is the last line; objects in it begin on the same line.
        let cut = stderr[..cut].rfind('\n').map_or(0, |at| at + 1);
        let json = serde_json::from_str(&stderr[cut..])
            .unwrap_or_else(|e| panic!("{command:?}: {e}: {stderr}"));
        let shown = Shown {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: stderr[..cut].to_owned(),
        };
        (shown, json)
    }

    /// Runs with all modes; nothing may be refused, and at least `modules` files be rewritten.
    fn same(&self, libs: &[&str], modules: usize, command: &[&str]) {
        if !exists(command[0]) {
            eprintln!("{} is not installed: not tried", command[0]);
            return;
        }
        let plain = self.plain(command);
        for mode in MODES {
            let (shown, json) = self.recorded(mode, libs, command);
            assert_eq!(shown, plain, "{command:?} in mode {mode}");
            eprintln!(
                "{} {mode}: {} calls, {} of {} functions in {} files",
                command[0],
                json["calls"],
                json["functions_lifted"],
                json["functions_seen"],
                json["modules"].as_array().unwrap().len()
            );
            assert_eq!(json["refused"], serde_json::json!([]), "{command:?}");
            assert!(json["modules"].as_array().unwrap().len() >= modules, "{json}");
            let (seen, lifted) = (&json["functions_seen"], &json["functions_lifted"]);
            let share = lifted.as_f64().unwrap() / seen.as_f64().unwrap();
            assert!(share > 0.95, "{command:?}: {share}");
        }
    }
}

fn exists(program: &str) -> bool {
    program.contains('/') && Path::new(program).exists()
}

/// A pattern that matches nothing is reported; at the end, for libraries may be opened at any time.
#[test]
fn patterns_that_match_nothing_are_reported() {
    let bench = Bench::new();
    let reported = |options: &[&str]| {
        let trace = bench.path("trace");
        let _ = fs::remove_dir_all(&trace);
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.args(["record", "--no-cache", "--output"]).arg(&trace);
        let output = record.args(options).args(["--", "/bin/true"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lib = |pattern: &str| format!("--lib '{pattern}' matches no library");
    let of = |option: &str, pattern: &str| format!("{option} '{pattern}' matches no function");
    let said = reported(&["--lib", "./nonexist", "--lib", "libc.so*", "--skip", "0x1-0x9"]);
    assert!(said.contains(&lib("./nonexist")) && said.contains(&of("--skip", "0x1-0x9")), "{said}");
    assert_eq!(said.matches(" matches no ").count(), 2, "{said}");
    let said =
        reported(&["--lib", "libc.so*", "--only", "zz", "--only", "mallo?", "--skip", "free"]);
    assert!(said.contains(&of("--only", "zz")), "{said}");
    assert_eq!(said.matches(" matches no ").count(), 1, "{said}");
    let said = reported(&["--only", "zz"]);
    assert!(said.contains(&of("--only", "zz")), "{said}");
    assert!(said.contains("none of the functions that are asked for"), "{said}");
    // Patterns for locks are not the user's.
    let said = reported(&["--locks"]);
    assert!(!said.contains(" matches no "), "{said}");
    assert_eq!(reported(&["-q", "--only", "zz", "--lib", "zz"]), "");
}

/// It cannot open our files, and is given what is in them.
#[test]
fn a_program_that_another_user_executes() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("only root can become somebody else");
        return;
    }
    let bench = Bench::new();
    let command =
        ["/usr/bin/setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/sort", "/etc/passwd"];
    bench.same(&["libc.so*"], 3, &command);
}

#[test]
fn coreutils_and_shell() {
    let bench = Bench::new();
    bench.same(&["*"], 3, &["/bin/ls", "-la", "/usr/lib"]);
    bench.same(&["*"], 2, &["/bin/grep", "-rc", "main", env!("CARGO_MANIFEST_DIR")]);
    let script = "for i in 1 2 3; do echo $i | cat | tr 1-3 a-c; done; (exit 3); echo $?; \
                  x=$(ls / | wc -l); echo $x; trap 'echo usr' USR1; kill -USR1 $$; exit 4";
    bench.same(&["*"], 6, &["/bin/bash", "-c", script]);
}

/// Its files are where neither its own paths lead, seen from here, nor ours, seen from there.
#[test]
fn a_program_with_another_root() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        return eprintln!("skipped 1 test: only root may change its root");
    }
    let bench = Bench::new();
    let root = bench.path("root");
    let needed = Command::new("ldd").arg("/bin/ls").output().unwrap().stdout;
    let needed = String::from_utf8(needed).unwrap();
    let files = needed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain(["/bin/ls"]) {
        let copy = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }
    let command = ["/usr/sbin/chroot", root.to_str().unwrap(), "/bin/ls", "-la", "/"];
    bench.same(&["*"], 6, &command);
    // All of them run with probes, also those that only the other root has.
    let (_, json) = bench.recorded("count", &["*"], &command);
    let lifted = json["modules"].as_array().unwrap().iter();
    let lifted: u64 = lifted.map(|module| module["functions_lifted"].as_u64().unwrap()).sum();
    assert_eq!(json["functions_lifted"].as_u64(), Some(lifted), "{json}");
}

#[test]
fn a_compiler() {
    let bench = Bench::new();
    let source = bench.path("x.c");
    fs::write(&source, "int f(int a, int b) { return a / b + a % b; }\n").unwrap();
    let output = bench.path("x.o").display().to_string();
    bench.same(&["*"], 5, &["/usr/bin/gcc", "-O2", "-c", source.to_str().unwrap(), "-o", &output]);
}

#[test]
fn interpreters_and_their_modules() {
    let bench = Bench::new();
    let script = "use POSIX; use List::Util qw(sum); use Digest::MD5 qw(md5_hex); \
                  print md5_hex('hello'), ' ', sum(1..100), ' ', POSIX::floor(3.7), \"\\n\"; \
                  eval { die {code => 5} }; print $@->{code}, \"\\n\"; \
                  if (!fork) { exec 'echo', 'child' } wait; exit 6";
    bench.same(&["*"], 5, &["/usr/bin/perl", "-e", script]);
    // Keccak is assembly with a convention of its own between its functions.
    let script = "import hashlib, sys\n\
                  for name in ('md5', 'sha1', 'sha256', 'sha512', 'sha3_256'):\n    \
                  print(name, hashlib.new(name, b'x' * 100000).hexdigest())\n\
                  sys.exit(9)";
    bench.same(&["libcrypto*"], 2, &["/usr/bin/python3", "-c", script]);
    let script = "import ctypes, json, re, threading, zlib\n\
                  print(json.loads('[1, 2.5]'), re.findall('a+', 'aabca'))\n\
                  print(len(zlib.decompress(zlib.compress(b'abc' * 10000))))\n\
                  threads = [threading.Thread(target=sum, args=([1] * 1000,)) for _ in range(8)]\n\
                  [t.start() for t in threads]; [t.join() for t in threads]\n\
                  kind = ctypes.POINTER(ctypes.c_int)\n\
                  compare = ctypes.CFUNCTYPE(ctypes.c_int, kind, kind)\n\
                  numbers = (ctypes.c_int * 4)(3, 1, 4, 2)\n\
                  order = compare(lambda a, b: a[0] - b[0])\n\
                  ctypes.CDLL(None).qsort(numbers, 4, 4, order); print(list(numbers))";
    bench.same(&["*"], 3, &["/usr/bin/python3", "-c", script]);
    let query = "create table t(a, b); with recursive c(x) as \
                 (select 1 union all select x + 1 from c where x < 5000) \
                 insert into t select x, x * x % 1009 from c; select sum(b) from t;";
    bench.same(&["libsqlite3*", "libc.so*"], 3, &["/usr/bin/sqlite3", ":memory:", query]);
}

#[test]
fn exceptions_threads_and_plugins() {
    let bench = Bench::new();
    let plugin = bench.build("plugin.cpp", "libplugin.so", &["-fPIC", "-shared"]);
    let host = bench.build("host.cpp", "host", &[]);
    bench.same(&["*"], 5, &[&host, &plugin, "20"]);
    bench.same(&["libplugin*"], 2, &[&host, &plugin, "20"]);
    bench.same(&["libstdc++*", "libgcc_s*"], 3, &[&host, &plugin, "20"]);
}

#[test]
fn signals_and_masks_are_the_programs_own() {
    let bench = Bench::new();
    let plugin = bench.build("plugin.cpp", "libplugin.so", &["-fPIC", "-shared"]);
    let hooked = bench.build("doors.c", "doors", &[]);
    bench.same(&["*"], 4, &[&hooked, &plugin, "100"]);
}

#[test]
fn libraries_are_in_the_trace() {
    let bench = Bench::new();
    let (_, json) = bench.recorded("time", &["libc.so*"], &["/bin/ls", "/"]);
    let modules = json["modules"].as_array().unwrap();
    let libc = modules.iter().find(|m| m["path"].as_str().unwrap().contains("libc.so"));
    assert!(libc.unwrap()["functions_lifted"].as_u64().unwrap() > 1000);
    let report = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .arg("report")
        .arg(bench.path("trace"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&report.stdout).contains("malloc"));
}

/// Samples know the callers of a library's functions, too; otherwise all time would be self time.
#[test]
fn samples_know_who_called_in_libraries() {
    let bench = Bench::new();
    let file = bench.path("words");
    let words = (0..200_000u32).map(|i| format!("{:x} ", i.wrapping_mul(2_654_435_761)));
    fs::write(&file, words.collect::<String>()).unwrap();
    let command = ["/usr/bin/xz", "-T1", "-9", "-c", file.to_str().unwrap()];
    if !exists(command[0]) {
        return eprintln!("no xz here: not tested");
    }
    let plain = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let trace = bench.path("trace");
    let record = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .args(["record", "--quiet", "--mode", "sample", "--lib", "*", "--no-cache", "--output"])
        .arg(&trace)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(record.status.success() && record.stdout == plain.stdout);
    let report = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .arg("report")
        .arg(&trace)
        .args(["--json", "--limit", "100000"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let all = report["run"]["cpu_ns"].as_u64().unwrap();
    let own = |function: &serde_json::Value| function["cpu_self_ns"].as_u64();
    let functions = report["functions"].as_array().unwrap();
    let Some(sum) = functions.iter().map(own).sum::<Option<u64>>() else {
        return eprintln!("the kernel does not tell of context switches here: not tested");
    };
    assert!(sum > all / 2 && sum < all * 3 / 2, "{sum} of {all} ns");
    let lzma = functions.iter().filter(|f| f["module"].as_str().unwrap().contains("lzma"));
    assert!(lzma.map(|f| own(f).unwrap()).sum::<u64>() > sum / 2);
}
