//! Object files that record themselves in the programs they are linked into, from outside: only
//! compilers, linkers, the command line, the programs' output and the traces.

mod common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fettle_trace::Trace;

use common::{calls, fettle, folder, text};

const MAIN: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int mid(int x);
int choose(int x);
void unused(void);
static __thread int calls;
static __attribute__((noinline)) int own(int x) { __asm__ volatile(""); calls++; return mid(x); }
static void *work(void *p) { long s = 0; for (int i = 0; i < 500; i++) s += own(i) + choose(i & 15); return (void *)(s + calls); }
int main(int argc, char **argv) {
    pthread_t t[3];
    long sum = 0;
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < 3; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
    if (argc > 5) unused();
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) { for (int i = 0; i < 50; i++) sum += own(i); printf("child %ld\n", sum); exit(3); }
    int st;
    waitpid(p, &st, 0);
    printf("parent %ld %d %s\n", sum, WEXITSTATUS(st), getenv("HOME") ? "home" : "");
    return 7;
}
"#;

const PARTS: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x * 3 + 1; }
__attribute__((noinline)) int mid(int x) { int s = 0; for (int i = 0; i < 10; i++) s += leaf(x + i); return s; }
__attribute__((noinline)) int choose(int x) {
    switch (x) {
    case 0: return mid(1); case 1: return leaf(4) + 1; case 2: return 3; case 3: return leaf(9) * 2;
    case 4: return leaf(2); case 5: return 77; case 6: return mid(x) + 1; case 7: return 5 - leaf(x);
    default: return -1;
    }
}
/* No default: where a value cannot occur, compilers fill the jump table with anything. */
__attribute__((noinline)) long *field(int kind, long *p) {
    __asm__ volatile("");
    switch (kind) {
    case 5: p += 6; break; case 6: p += 4; break; case 7: p += 9; break; case 8: p += 7; break;
    case 10: p += 15; break; case 30: p += 1; break; case 38: p += 2; break;
    default: __builtin_unreachable();
    }
    *p += kind;
    return p;
}
int not_there(void);
int missing(void);
void unused(void) {
    long fields[16] = {0};
    static const int kinds[] = {5, 6, 7, 8, 10, 30, 38, 38};
    for (int i = 0; i < 8; i++) printf("%ld ", (long)(field(kinds[i], fields) - fields));
}
__attribute__((constructor)) static void begin(void) { unused(); }
"#;
/// Three threads of 500 and a child of 50.
const OWN: u64 = 3 * 500 + 50;
/// And two of the sixteen kinds of calls of `choose`.
const MIDS: u64 = OWN + 3 * (32 + 31);
/// Besides those of `mid`: four kinds.
const LEAVES: u64 = 3 * (32 + 32 + 31 + 31);

const THROWS: &str = r#"
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
struct Guard { int &count; Guard(int &c) : count(c) {} ~Guard() { count++; } };
template <typename T> __attribute__((noinline)) int deep(T d, int &c) {
    Guard g(c);
    if (d == 0) throw std::runtime_error("deep");
    return deep<T>(d - 1, c) + 1;
}
int elsewhere(int n);
__attribute__((noinline)) int catcher(int d) {
    int c = 0;
    try { return deep<int>(d, c) + elsewhere(d); }
    catch (const std::exception &e) { return c + (int)std::string(e.what()).size(); }
}
int main() {
    std::map<std::string, std::vector<int>> all;
    int s = 0;
    for (int i = 0; i < 200; i++) { s += catcher(i % 20); all[std::to_string(i % 7)].push_back(i); }
    for (auto &[k, v] : all) s += (int)(k.size() * v.size());
    printf("%d %d\n", s, elsewhere(3));
    try { throw 5; } catch (int x) { return x; }
}
"#;
const ELSEWHERE: &str = r#"
#include <stdexcept>
struct Guard { int &count; Guard(int &c) : count(c) {} ~Guard() { count++; } };
template <typename T> __attribute__((noinline)) int deep(T d, int &c) {
    Guard g(c);
    if (d == 0) throw std::runtime_error("deep");
    return deep<T>(d - 1, c) + 1;
}
int elsewhere(int n) { int c = 0; try { return deep<int>(n, c); } catch (std::exception &) { return c; } }
"#;

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("left out: there is no {program}");
    }
    found
}

/// Compiles `source` and gives the object file and its instrumented copy.
fn compile(compiler: &str, source: &str, at: &Path, flags: &[&str]) -> [PathBuf; 2] {
    let file = at.with_extension(if compiler.ends_with("++") { "cc" } else { "c" });
    std::fs::write(&file, source).expect("source is written");
    let object = at.with_extension("o");
    let mut command = Command::new(compiler);
    command.args(flags).arg("-pthread").arg("-c").arg(&file).arg("-o").arg(&object);
    assert!(command.status().expect("a compiler").success(), "{command:?}");
    let new = at.with_extension("new.o");
    let made = fettle(&["instrument", text(&object), "-o", text(&new)]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    [object, new]
}

fn link(compiler: &str, objects: &[&Path], output: &Path, flags: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(objects).arg("-pthread").args(flags).arg("-o").arg(output);
    let linked = command.output().expect("a linker");
    let errors = String::from_utf8_lossy(&linked.stderr);
    assert!(linked.status.success(), "{command:?}: {errors}");
    assert!(!errors.contains("relocation in read-only section"), "{command:?}: {errors}");
}

/// Runs both programs, the new one also recorded into `trace`: all alike. Gives calls by name.
fn same(plain: &Path, new: &Path, trace: &Path) -> HashMap<String, u64> {
    let run = |path: &Path, record: bool| {
        let mut command = Command::new(path);
        if record {
            command.env("FETTLE_RECORD", trace);
        }
        let out = command.output().expect("the program runs");
        (out.status, String::from_utf8_lossy(&out.stdout).into_owned(), out.stderr)
    };
    let expected = run(plain, false);
    assert_eq!(run(new, false), expected, "{} not recorded", new.display());
    assert_eq!(run(new, true), expected, "{} recorded", new.display());
    calls(trace)
}

/// Calls by name, of a trace that agrees with itself.
#[test]
fn counts_are_exact_whatever_compiles_and_links() {
    let folder = folder("objects-counts");
    let mut number = 0;
    for compiler in ["gcc", "clang"].into_iter().filter(|c| has(c)) {
        let builds: [(&[&str], &[&str]); 5] = [
            (&["-O0", "-g"], &[]),
            (&["-O2"], &["-fuse-ld=gold"]),
            (&["-O2", "-fno-pie"], &["-no-pie"]),
            (&["-O2", "-fno-pie"], &["-static"]),
            (
                &["-O1", "-fno-plt", "-ffunction-sections", "-fdata-sections"],
                &["-fuse-ld=lld", "-Wl,--gc-sections"],
            ),
        ];
        for (flags, link_flags) in builds {
            if link_flags.contains(&"-fuse-ld=lld") && !has("ld.lld")
                || link_flags.contains(&"-fuse-ld=gold") && !has("ld.gold")
            {
                continue;
            }
            number += 1;
            let at = |name: &str| folder.join(format!("{number}-{name}"));
            let [main, new_main] = compile(compiler, MAIN, &at("main"), flags);
            let [parts, new_parts] = compile(compiler, PARTS, &at("parts"), flags);
            link(compiler, &[&main, &parts], &at("plain"), link_flags);
            link(compiler, &[&new_main, &new_parts], &at("new"), link_flags);
            let calls = same(&at("plain"), &at("new"), &at("trace"));
            assert_eq!(calls["own"], OWN, "{compiler} {flags:?}: {calls:?}");
            // Compilers make copies of functions for some callers.
            let all = |name: &str| -> u64 {
                calls.iter().filter(|(n, _)| n.starts_with(name)).map(|(_, calls)| calls).sum()
            };
            assert_eq!(all("mid"), MIDS, "{compiler} {flags:?}: {calls:?}");
            assert_eq!(all("leaf"), MIDS * 10 + LEAVES, "{compiler} {flags:?}: {calls:?}");
            assert_eq!(calls["main"], 1);
        }
    }
    assert!(number > 0, "no compiler");
}

#[test]
fn a_program_may_be_linked_of_instrumented_files_and_others() {
    let folder = folder("objects-mixed");
    let [main, new_main] = compile("gcc", MAIN, &folder.join("main"), &["-O2"]);
    let [parts, new_parts] = compile("gcc", PARTS, &folder.join("parts"), &["-O2"]);
    let plain = folder.join("plain");
    link("gcc", &[&main, &parts], &plain, &[]);
    for (name, objects) in [("first", [&new_main, &parts]), ("second", [&main, &new_parts])] {
        let new = folder.join(name);
        link("gcc", &[objects[0], objects[1]], &new, &[]);
        let calls = same(&plain, &new, &folder.join(format!("{name}-trace")));
        assert_eq!(calls.contains_key("own"), name == "first", "{calls:?}");
        assert_eq!(calls.contains_key("leaf"), name == "second", "{calls:?}");
    }
}

#[test]
fn programs_of_object_files_can_be_stripped() {
    let folder = folder("objects-strip");
    let [main, new_main] = compile("gcc", MAIN, &folder.join("main"), &["-O2", "-g"]);
    let [parts, new_parts] = compile("gcc", PARTS, &folder.join("parts"), &["-O2", "-g"]);
    let (plain, new) = (folder.join("plain"), folder.join("new"));
    link("gcc", &[&main, &parts], &plain, &[]);
    link("gcc", &[&new_main, &new_parts], &new, &[]);
    assert!(Command::new("strip").arg(&new).status().expect("strip").success());
    assert_eq!(same(&plain, &new, &folder.join("trace"))["own"], OWN);
}

#[test]
fn libraries_may_be_linked_of_them() {
    let folder = folder("objects-library");
    let [_, parts] = compile("gcc", PARTS, &folder.join("parts"), &["-O2", "-fPIC"]);
    let [main, _] = compile("gcc", MAIN, &folder.join("main"), &["-O2"]);
    let [plain_parts, _] = compile("gcc", PARTS, &folder.join("plain-parts"), &["-O2"]);
    let (plain, new, library) =
        (folder.join("plain"), folder.join("new"), folder.join("libparts.so"));
    link("gcc", &[&main, &plain_parts], &plain, &[]);
    link("gcc", &[&parts], &library, &["-shared"]);
    link("gcc", &[&main, &library], &new, &[&format!("-Wl,-rpath,{}", folder.display())]);
    let calls = same(&plain, &new, &folder.join("trace"));
    assert!(calls["leaf"] > OWN * 10 && !calls.contains_key("own"), "{calls:?}");
}

#[test]
fn exceptions_pass_through_functions_of_groups() {
    let folder = folder("objects-throws");
    for compiler in ["g++", "clang++"].into_iter().filter(|c| has(c)) {
        for (name, flags) in [("o0", "-O0"), ("o2", "-O2"), ("fixed", "-fno-pie")] {
            let at = |what: &str| folder.join(format!("{compiler}-{name}-{what}"));
            let kind: &[&str] = if name == "fixed" { &["-no-pie"] } else { &[] };
            let flags = ["-O1", "-std=c++17", flags];
            let [main, new_main] = compile(compiler, THROWS, &at("main"), &flags);
            let [other, new_other] = compile(compiler, ELSEWHERE, &at("other"), &flags);
            link(compiler, &[&main, &other], &at("plain"), kind);
            link(compiler, &[&new_main, &new_other], &at("new"), kind);
            let calls = same(&at("plain"), &at("new"), &at("trace"));
            assert_eq!(calls["_Z7catcheri"], 200, "{compiler} {name}: {calls:?}");
            assert_eq!(calls["_Z4deepIiEiT_Ri"], 200 / 20 * 210 + 4, "{compiler} {name}");
        }
    }
}

#[test]
fn what_cannot_be_instrumented_is_refused() {
    let folder = folder("objects-refused");
    let [object, new] = compile("gcc", PARTS, &folder.join("parts"), &["-O2"]);
    let refused = |input: &Path, why: &str| {
        let made = fettle(&["instrument", text(input), "-o", text(&folder.join("out.o"))]);
        let message = String::from_utf8_lossy(&made.stderr).into_owned();
        assert_eq!(made.status.code(), Some(2), "{message}");
        assert!(message.contains(why), "{message}");
        assert!(!folder.join("out.o").exists());
    };
    refused(&new, "instrumented already");
    let archive = folder.join("libparts.a");
    assert!(Command::new("ar").arg("rcs").args([&archive, &object]).status().unwrap().success());
    refused(&archive, "archive");
    let lto = folder.join("lto.o");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-flto", "-c"]).arg(folder.join("parts.c")).arg("-o").arg(&lto);
    assert!(command.status().unwrap().success());
    refused(&lto, "-flto");
    let whole = std::fs::read(&object).expect("object");
    let cut = folder.join("cut.o");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
    refused(&cut, "outside of the file");
    // A file without functions goes on as it is.
    let [data, same] = compile("gcc", "int x = 5;", &folder.join("data"), &["-O2"]);
    assert_eq!(std::fs::read(data).unwrap(), std::fs::read(same).unwrap());
}

#[test]
fn forks_through_pointers_are_told_apart_in_every_mode() {
    const FORKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t (*volatile by_pointer)(void) = fork;
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x * 3 + 1; }
int main(void) {
    int sum = 0, status;
    for (int i = 0; i < 1000; i++) sum += leaf(i);
    pid_t child = by_pointer();
    if (child == 0) { for (int i = 0; i < 50; i++) sum += leaf(i); exit(sum & 63); }
    waitpid(child, &status, 0);
    printf("%d %d\n", sum, WEXITSTATUS(status));
    return 0;
}
"#;
    let folder = folder("objects-forks");
    for mode in ["events", "time", "sample", "cpu"] {
        let [object, new] = compile("cc", FORKS, &folder.join(mode), &["-O1"]);
        let made = fettle(&["instrument", text(&object), "-o", text(&new), "--mode", mode]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (plain, probed) = (folder.join("plain"), folder.join(format!("{mode}.probed")));
        link("cc", &[&object], &plain, &[]);
        link("cc", &[&new], &probed, &[]);
        let trace = folder.join(format!("{mode}.fettle"));
        assert_eq!(same(&plain, &probed, &trace)["leaf"], 1050, "{mode}");
        let trace = Trace::open(&trace).expect("a trace");
        let functions = trace.functions().expect("functions");
        let leaf = functions.iter().find(|f| f.name == "leaf").expect("it is there").id;
        let totals = trace.totals().expect("totals");
        let mut calls: Vec<u64> =
            totals.iter().filter(|t| t.function == leaf).map(|t| t.calls).collect();
        calls.sort_unstable();
        assert_eq!(calls, [50, 1000], "{mode}");
        assert_eq!(trace.manifest().totals.unmatched_exits, 0, "{mode}");
    }
}
