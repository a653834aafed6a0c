//! The transport library (`runtime/transport`): messages arrive whole and in order, whatever happens to the two
//! processes, and the way that a knob says is taken.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Bench;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/transport")
}

/// Compiles one of the library's programs with it.
fn compile(bench: &Bench, name: &str, flags: &[&str]) -> PathBuf {
    let program = bench.folder.path().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    cc.arg("-I").arg(common::header_folder()).arg("-o").arg(&program);
    cc.args([name, "transport", "choose"].map(|file| folder().join(format!("{file}.c"))));
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn check(program: &Path, kinds: &[&str]) {
    let seed = common::Random::new().next().to_string();
    for kind in kinds {
        let output = Command::new(program).args([*kind, &seed]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind} {seed}: {:?} {said}", output.status);
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let bench = Bench::new();
    let program = compile(&bench, "check", &["-O2"]);
    check(&program, &["content", "interrupted", "limited", "both", "room", "refused", "killed"]);
}

#[test]
fn sanitizers_find_nothing() {
    let bench = Bench::new();
    let sanitizers = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile(&bench, "check", &sanitizers);
    check(&program, &["content", "interrupted", "limited", "both", "room", "refused"]);
}

#[test]
fn the_knob_says_which_way() {
    let bench = Bench::new();
    let program = compile(&bench, "measure", &["-O2"]);
    let mut command = bench.command(&program);
    // Some 200,000 messages; the knob is set during the first of them.
    command.args(["auto", "4096", "4000000", "0", "0", "200"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let pid = running.id();
    let knob = bench.wait_for_where("transport.way", |s| s.description().producer.pid == pid);
    let state = knob.knob().unwrap();
    assert_eq!((state.value, state.least, state.greatest), (-1, -1, 3));
    let mut knob = knob.into_knob().unwrap();
    knob.set(0).unwrap();
    let said = String::from_utf8(running.wait_with_output().unwrap().stderr).unwrap();
    // How many messages went by each way.
    let line = said.lines().find(|line| line.trim_start().starts_with("4096:")).unwrap();
    let counts: Vec<u64> = line
        .split('(')
        .skip(1)
        .map(|part| part.split(')').next().unwrap().parse().unwrap())
        .collect();
    let [by_socket, others @ ..] = &counts[..] else { panic!("{said}") };
    assert!(*by_socket > 4 * others.iter().sum::<u64>(), "{said}");
}
