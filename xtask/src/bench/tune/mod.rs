//! What tuning brings to programs as their packages have them, while they run.
//!
//! Each program works until it is told to end; `fettle tune` counts, lays out, and compares old
//! and new code in turns (old, new, new, old) in the living process. What is shown is its own
//! comparison: processor time for a unit of work, by the kernel's account, as the geometric mean
//! over rounds with its 95 % interval; the model's misses beside it; and, of programs whose work has
//! an end where that is wanted, instructions and misses by callgrind ([`files`]).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

mod files;
mod mariadb;
mod verilated;

use files::Piece;

use super::machine;
use crate::postgres::{self, Cluster};
use crate::{apt, fettle, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds of four turns for each program
    #[arg(long, default_value_t = 40)]
    pub pairs: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 0.5)]
    pub turn: f64,
    /// Seconds of counting
    #[arg(long, default_value_t = 5.0)]
    pub time: f64,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_parser = names())]
    pub programs: Vec<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Print what was measured as JSON
    #[arg(long)]
    pub json: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(SUBJECTS.iter().map(|subject| subject.name))
}

/// A program that works until it is told to end.
struct Running {
    /// The process to be named.
    pid: i32,
    /// Ended when this is dropped.
    children: Vec<Child>,
    /// A command that prints a number that grows with the work; else read and write calls.
    work: Option<String>,
    _cluster: Option<Cluster>,
}

impl Running {
    /// Programs, the first of which is to be named.
    fn of(children: Vec<Child>, work: Option<String>) -> Running {
        Running { pid: children[0].id() as i32, children, work, _cluster: None }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program with its load.
struct Subject {
    name: &'static str,
    packages: &'static [&'static str],
    libraries: &'static [&'static str],
    start: fn(&Path) -> Result<Running>,
    /// A piece of the same work, once it was started.
    piece: Option<fn(&Path) -> Result<Piece>>,
}

const SUBJECTS: [Subject; 9] = [
    Subject {
        name: "postgres-select",
        packages: &postgres::PACKAGES,
        libraries: &["libc.so*"],
        start: |folder| pgbench(folder, &["-S", "-c", "2"]),
        piece: None,
    },
    Subject {
        name: "postgres-tpcb",
        packages: &postgres::PACKAGES,
        libraries: &["libc.so*"],
        start: |folder| pgbench(folder, &["-c", "2"]),
        piece: None,
    },
    Subject {
        name: "postgres-sql",
        packages: &postgres::PACKAGES,
        libraries: &["libc.so*"],
        start: |folder| {
            std::fs::create_dir_all(folder)?;
            let script = folder.with_extension("sql");
            std::fs::write(&script, MIXED_SQL)?;
            pgbench(folder, &["-c", "2", "-f", script.to_str().context("a path")?])
        },
        piece: None,
    },
    Subject {
        name: "mariadb",
        packages: &mariadb::PACKAGES,
        libraries: &[],
        start: |folder| {
            let mariadb::Loaded { server, load, work } = mariadb::start(folder)?;
            Ok(Running::of(vec![server, load], Some(work)))
        },
        piece: None,
    },
    Subject {
        name: "verilated-core",
        packages: &verilated::PACKAGES,
        libraries: &[],
        start: |folder| {
            let verilated::Simulation { program, firmware } = verilated::build(folder)?;
            let progress = folder.join("progress");
            let mut command = Command::new(program);
            let child = command.args([&firmware, &progress]).stdout(Stdio::null()).spawn()?;
            Ok(Running::of(vec![child], Some(format!("cat {}", progress.display()))))
        },
        piece: Some(|folder| {
            let verilated::Simulation { program, firmware } = verilated::build(folder)?;
            let arguments = [&firmware, &folder.join("progress")].map(|p| p.display().to_string());
            let arguments = arguments.into_iter().chain(["3000".to_owned()]).collect();
            Ok(Piece { program, arguments, input: None })
        }),
    },
    Subject {
        name: "bash",
        packages: &["bash"],
        libraries: &["libc.so*"],
        start: |folder| interpreter(folder, "/bin/bash", "work.sh", BASH),
        piece: Some(|folder| Ok(script(folder, "/bin/bash", "work.sh", 25))),
    },
    Subject {
        name: "lua",
        packages: &["lua5.4"],
        libraries: &["liblua*", "libc.so*"],
        start: |folder| interpreter(folder, "/usr/bin/lua5.4", "work.lua", LUA),
        piece: Some(|folder| Ok(script(folder, "/usr/bin/lua5.4", "work.lua", 120))),
    },
    Subject {
        name: "python",
        packages: &["python3-minimal"],
        libraries: &["libc.so*"],
        start: |folder| interpreter(folder, "/usr/bin/python3", "work.py", PYTHON),
        piece: Some(|folder| Ok(script(folder, "/usr/bin/python3", "work.py", 300))),
    },
    Subject {
        name: "sqlite",
        packages: &["sqlite3"],
        libraries: &["libsqlite3*"],
        start: sqlite,
        piece: Some(sqlite_piece),
    },
];

const MIXED_SQL: &str = "\
\\set a random(1, 90000)
SELECT count(*), sum(abalance), avg(bid) FROM pgbench_accounts WHERE aid BETWEEN :a AND :a + 300;
SELECT t.tid, b.bbalance, upper(substr(md5(t.tid::text), 1, 7)) FROM pgbench_tellers t \
JOIN pgbench_branches b USING (bid) WHERE t.tid < 20 ORDER BY 3;
SELECT bid, max(abalance), string_agg((aid % 7)::text, ',') FROM pgbench_accounts \
WHERE aid BETWEEN :a AND :a + 50 GROUP BY bid HAVING count(*) > 1;
UPDATE pgbench_tellers SET tbalance = CASE WHEN tbalance > 100 THEN 0 ELSE tbalance + 1 END \
WHERE tid = 1 + :a % 10;
";

// Scripts take how many rounds they go; without an end otherwise.

const BASH: &str = r#"
declare -A seen
rounds=${1:--1}
fib() { local n=$1; if ((n < 2)); then REPLY=1; else fib $((n - 1)); local a=$REPLY
  fib $((n - 2)); REPLY=$((a + REPLY)); fi; }
while ((rounds-- != 0)); do
  fib 9
  text="the quick brown fox jumps over the lazy dog $REPLY"
  for word in $text; do
    case $word in (q*|*x) seen[$word]=$((${seen[$word]:-0} + 1)) ;; (*) w=${word/o/0}; w=${w^^} ;; esac
    [[ $w =~ ^[A-Z]+$ ]] && n=$((n + ${#w}))
  done
  printf -v line '%s %05d' "${text:4:9}" "$REPLY"
  echo "$line"
done >/dev/null
"#;

const LUA: &str = r#"
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
io.stdout:setvbuf("no")
local rounds = tonumber(arg[1]) or -1
while rounds ~= 0 do
  rounds = rounds - 1
  local words = {}
  for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do
    words[#words + 1] = word:upper() .. #word
  end
  table.sort(words)
  local object = setmetatable({}, { __index = function(_, k) return k * 2 end })
  local sum = fib(14)
  for i = 1, 300 do sum = sum + object[i] % 7 + (words[i % 9 + 1]:byte() or 0) end
  io.write(string.format("%d %s\n", sum, table.concat(words, ",")))
end
"#;

const PYTHON: &str = r#"
import json, os, re, sys
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else -1
out = os.open('/dev/null', os.O_WRONLY)
class Node:
    def __init__(self, value): self.value, self.next = value, None
    def add(self, n): return self.value + n
while rounds:
    rounds -= 1
    head = None
    for i in range(100):
        node = Node(i); node.next = head; head = node
    total = 0
    while head is not None:
        total = head.add(total); head = head.next
    data = {str(i): [i, i * 3, 'x' * (i % 7)] for i in range(40)}
    words = sorted(re.findall(r'[a-z]+', json.dumps(data)))
    text = ','.join(f'{w}:{len(w)}' for w in words if w)
    os.write(out, b'.')
"#;

/// Measures, prints, and keeps the raw rounds.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("bench/tune")?;
    let mut all = Vec::new();
    let wanted =
        |name: &str| options.programs.is_empty() || options.programs.iter().any(|p| p == name);
    if !options.json {
        println!(
            "{:<16} {:>8} {:>17} {:>7} {:>15} {:>10} {:>9}  {:>17} {:>18}",
            "program",
            "speed-up",
            "95 % interval",
            "rounds",
            "modelled misses",
            "functions",
            "stop, ms",
            "M instructions",
            "K misses"
        );
    }
    for subject in SUBJECTS.iter().filter(|s| wanted(s.name)) {
        let packages: Vec<String> = subject.packages.iter().map(|p| p.to_string()).collect();
        if let Err(error) = apt::ensure(&packages) {
            eprintln!("skipped {}: {error:#}", subject.name);
            continue;
        }
        let (value, counted) = measure(subject, &binary, &folder, options)
            .with_context(|| format!("{} could not be measured", subject.name))?;
        if !options.json {
            println!("{}", line(subject.name, &value, &counted));
        }
        all.push(json!({ "program": subject.name, "tune": value, "callgrind": counted }));
    }
    let all = json!({ "version": 1, "machine": machine::describe(), "programs": all });
    std::fs::write(folder.join("tune.json"), format!("{all}\n"))?;
    if options.json {
        println!("{all}");
    }
    Ok(true)
}

fn line(name: &str, value: &Value, counted: &Value) -> String {
    let measured = |field: &str| measured_gain(value, field);
    let misses = |when: &str| -> f64 {
        let cost = |m: &Value| {
            let number = |field: &str| m[when]["cost"][field].as_f64().unwrap_or(0.0);
            (number("misses"), number("insns"))
        };
        let costs: Vec<(f64, f64)> =
            value["modules"].as_array().into_iter().flatten().map(cost).collect();
        let (misses, insns) = costs.iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
        misses * 1000.0 / f64::max(insns, 1.0)
    };
    let functions: usize = value["modules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|m| m["functions"].as_array().map_or(0, Vec::len))
        .sum();
    let stops = ["counted", "measured"].iter().flat_map(|part| value[part]["stops_ms"].as_array());
    let longest = stops.flatten().filter_map(Value::as_f64).fold(0.0, f64::max);
    let counted = |what: &str, unit: f64| -> String {
        let count = |i: usize| Some(counted[what][i].as_f64()? / unit);
        let both = count(0).zip(count(1));
        both.map_or_else(|| "-".to_owned(), |(a, b)| format!("{a:.1} to {b:.1}"))
    };
    format!(
        "{name:<16} {:>8.3} {:>8.3} to {:>5.3} {:>7} {:>6.2} to {:>5.2} {functions:>10} {longest:>9.1}  {:>17} {:>18}",
        measured("ratio"),
        measured("high"),
        measured("low"),
        value["measured"]["ratios"].as_array().map_or(0, Vec::len),
        misses("model_before"),
        misses("model_after"),
        counted("instructions", 1e6),
        counted("misses", 1e3),
    )
}

/// How many times as fast.
fn measured_gain(value: &Value, field: &str) -> f64 {
    1.0 / value["measured"][field].as_f64().unwrap_or(f64::NAN)
}

/// What `fettle tune` says, and what callgrind counts of files that are laid out in the same way.
fn measure(
    subject: &Subject,
    binary: &Path,
    folder: &Path,
    options: &Options,
) -> Result<(Value, Value)> {
    let own = folder.join(subject.name);
    let profile = folder.join(format!("{}.profile", subject.name));
    let _ = std::fs::remove_file(&profile);
    let running = (subject.start)(&own)?;
    // Caches, plans and jump tables fill first.
    std::thread::sleep(Duration::from_secs(2));
    let mut tune = Command::new(binary);
    tune.args(["tune", "--json", "-p", &running.pid.to_string()]);
    tune.args(["--pairs", &options.pairs.to_string(), "--turn", &options.turn.to_string()]);
    tune.args(["--time", &options.time.to_string()]);
    tune.args(subject.libraries.iter().flat_map(|library| ["--lib", library]));
    tune.args(running.work.iter().flat_map(|work| ["--work", work]));
    tune.arg("--save").arg(&profile);
    tune.env("XDG_CACHE_HOME", folder.join("cache"));
    let output = tune.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code().is_some_and(|code| code < 2), "{said}");
    let value: Value = serde_json::from_slice(&output.stdout)?;
    drop(running);
    let Some(piece) = subject.piece else { return Ok((value, Value::Null)) };
    let modules = value["modules"].as_array().into_iter().flatten();
    let modules: Vec<&str> = modules.filter_map(|module| module["path"].as_str()).collect();
    let counted = files::count(&piece(&own)?, &modules, &profile, binary, &own)?;
    Ok((value, counted))
}

/// A cluster under `pgbench`, which tells of each transaction in a file.
fn pgbench(folder: &Path, arguments: &[&str]) -> Result<Running> {
    let cluster = Cluster::start(folder)?;
    let fill = cluster.pgbench(&["-i", "-s", "1", "-q"]).output()?;
    ensure!(fill.status.success(), "{}", String::from_utf8_lossy(&fill.stderr));
    let log = folder.join("transactions");
    let prefix = format!("--log-prefix={}", log.display());
    let mut load = cluster.pgbench(&["-T", "100000", "-l", &prefix]);
    load.args(arguments);
    let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Running {
        pid: cluster.postmaster()?,
        children: vec![load],
        work: Some(format!("cat {}.* | wc -c", log.display())),
        _cluster: Some(cluster),
    })
}

fn interpreter(folder: &Path, program: &str, name: &str, text: &str) -> Result<Running> {
    std::fs::create_dir_all(folder)?;
    let script = folder.join(name);
    std::fs::write(&script, text)?;
    let mut command = Command::new(program);
    let child = command.arg(&script).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    Ok(Running::of(vec![child], None))
}

/// So many rounds of the script that [`interpreter`] wrote.
fn script(folder: &Path, program: &str, name: &str, rounds: u32) -> Piece {
    let script = folder.join(name).display().to_string();
    Piece { program: program.into(), arguments: vec![script, rounds.to_string()], input: None }
}

const SQLITE_TABLE: &str = "CREATE TABLE t(a INTEGER, b TEXT); CREATE INDEX i ON t(a); \
    INSERT INTO t VALUES(1, 2), (3, 4);\n";

/// Each round makes and takes away as much, and does the same in each run.
const SQLITE: &str = "\
INSERT INTO t(a, b) SELECT rowid * 7919 % 1000, hex(rowid * 104729) FROM t LIMIT 20;
SELECT count(*), sum(a), max(b) FROM t WHERE a BETWEEN 100 AND 300;
SELECT a % 10, group_concat(substr(b, 1, 2)) FROM t WHERE a < 50 GROUP BY 1 ORDER BY 2;
DELETE FROM t WHERE rowid < (SELECT max(rowid) - 2000 FROM t);
";

/// One statement after another through the shell, from a pipe that never ends.
fn sqlite(folder: &Path) -> Result<Running> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("table.sql"), SQLITE_TABLE)?;
    std::fs::write(folder.join("work.sql"), SQLITE)?;
    let shell = "cat table.sql; while :; do cat work.sql; done";
    let mut source = Command::new("sh");
    source.current_dir(folder).args(["-c", shell]).stdout(Stdio::piped());
    let mut source = source.spawn()?;
    let input = source.stdout.take().context("a pipe")?;
    let mut command = Command::new("sqlite3");
    let child = command.arg(":memory:").stdin(input).stdout(Stdio::null()).spawn()?;
    Ok(Running::of(vec![child, source], None))
}

/// The same statements a few times.
fn sqlite_piece(folder: &Path) -> Result<Piece> {
    let input = folder.join("piece.sql");
    std::fs::write(&input, format!("{SQLITE_TABLE}{}", SQLITE.repeat(300)))?;
    let arguments = vec![":memory:".to_owned()];
    Ok(Piece { program: "/usr/bin/sqlite3".into(), arguments, input: Some(input) })
}
