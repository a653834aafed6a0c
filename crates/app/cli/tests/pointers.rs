//! Indirect calls in running processes: their targets are counted, and calls that mostly have one
//! target are promoted; programs do what they did, whatever they call.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A program under test, ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs fettle with `--json`; gives its exit status and what it printed.
fn json(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut fettle = Command::new(env!("CARGO_BIN_EXE_fettle"));
    fettle.args(arguments).arg("--json").env("XDG_CACHE_HOME", folder.join("cache"));
    let output = fettle.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}\n{error}"));
    (output.status.code(), value)
}

/// Has a process laid out by what is counted; returns how many indirect calls are compared, and the
/// share of them whose targets were seen.
fn tune(folder: &Path, pid: &str, more: &[&str]) -> (u64, f64) {
    let arguments = ["tune", "-p", pid, "--time", "0.7", "--keep", "--threshold", "0"];
    let (status, value) = json(folder, &[&arguments, more].concat());
    assert_eq!(status, Some(0), "{value}");
    let modules = value["modules"].as_array().unwrap();
    let sum = |name: &str| -> u64 {
        modules.iter().map(|module| module["pointers"][name].as_u64().unwrap()).sum()
    };
    assert!(sum("found") <= sum("known") && sum("known") <= sum("calls"), "{value}");
    (sum("promoted"), sum("known") as f64 / sum("calls").max(1) as f64)
}

fn undo(folder: &Path, pid: &str) {
    let (status, value) = json(folder, &["undo", pid, "--wait", "60"]);
    assert_eq!(status, Some(0), "{value}");
}

fn build(folder: &Path, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pointed.cpp");
    let output = folder.join("pointed");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-pthread"]).args(flags).arg(&source).arg("-o").arg(&output);
    assert!(compiler.status().unwrap().success());
    output
}

/// Virtual functions, exceptions out of either call, tail calls, a pointer that changes meanwhile.
#[test]
fn any_target_is_called_and_may_throw() {
    for (name, flags) in [("pie", &[][..]), ("fixed", &["-no-pie", "-fcf-protection=full"])] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut program = Command::new(build(folder, flags));
        let mut running = Running(program.stdout(Stdio::piped()).spawn().unwrap());
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = running.0.id().to_string();
        let profile = folder.join("profile");
        let (promoted, known) = tune(folder, &pid, &["--save", text(&profile)]);
        assert!(promoted >= 2 && known > 0.8, "{name}: {promoted} calls, {known} known");
        std::thread::sleep(Duration::from_millis(300));
        undo(folder, &pid);
        // By the same profile they are the same calls.
        let arguments = ["tune", "-p", &pid, "--keep", "--threshold", "0", "--profile"];
        let (status, value) = json(folder, &[&arguments[..], &[text(&profile)]].concat());
        assert_eq!(status, Some(0), "{value}");
        assert_eq!(value["modules"][0]["pointers"]["promoted"], promoted, "{value}");
        std::thread::sleep(Duration::from_millis(300));
        undo(folder, &pid);
        // Original and rewritten text in turns.
        let (status, value) = json(
            folder,
            &[
                &arguments[..3],
                &["--threshold", "0", "--pairs", "6", "--turn", "0.05"],
                &["--work", "date +%s%N", "--profile", text(&profile)],
            ]
            .concat(),
        );
        assert!(matches!(status, Some(0 | 1)), "{value}");
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        out.read_to_string(&mut said).unwrap();
        assert_eq!(said, "right after many rounds\n", "{name}");
        assert!(running.0.wait().unwrap().success());
    }
}

/// Prints a line each round, until there is a file or there were so many rounds.
const SCRIPT: &str = r#"
local stop, most = arg[1], tonumber(arg[2])
local round = 0
io.stdout:setvbuf("line")
while round ~= most do
  round = round + 1
  local words = {}
  for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do
    words[#words + 1] = word:upper() .. #word * round % 7
  end
  table.sort(words, function(a, b) return a > b end)
  local text = table.concat(words, ","):gsub("%a", function(c) return c:lower() end)
  local right = pcall(function() if round % 3 == 0 then error("three") end end)
  print(round, text, right, string.format("%5.2f", round / 3))
  if not most and io.open(stop) then break end
end
"#;

/// Debian's Lua calls its C functions, its allocator and its readers through pointers.
#[test]
fn lua_prints_what_it_did() {
    let lua = "/usr/bin/lua5.4";
    if !Path::new(lua).exists() {
        eprintln!("skipped: there is no {lua}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (script, stop, out) = (folder.join("work.lua"), folder.join("stop"), folder.join("out"));
    fs::write(&script, SCRIPT).unwrap();
    let mut program = Command::new(lua);
    program.args([&script, &stop]).stdout(fs::File::create(&out).unwrap());
    let mut running = Running(program.spawn().unwrap());
    let pid = running.0.id().to_string();
    std::thread::sleep(Duration::from_millis(200));
    let mut compared = 0;
    for _ in 0..2 {
        let (promoted, known) = tune(folder, &pid, &["--lib", "liblua*", "--lib", "libc.so*"]);
        compared += promoted;
        assert!(known > 0.5, "{known}");
        std::thread::sleep(Duration::from_millis(300));
        undo(folder, &pid);
    }
    assert!(compared > 0);
    fs::write(&stop, "").unwrap();
    assert!(running.0.wait().unwrap().success());
    let printed = fs::read_to_string(&out).unwrap();
    let rounds = printed.lines().count().to_string();
    let plain = Command::new(lua).args([text(&script), text(&stop), &rounds]).output().unwrap();
    assert!(printed == String::from_utf8_lossy(&plain.stdout), "after {rounds} rounds");
}
