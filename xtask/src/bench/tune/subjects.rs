//! The programs, as Debian has them, and their work. Scripts lie in `benches/tune`; they take how
//! many rounds they go, and go on without an end otherwise.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::bolt::{Peer, builds};
use super::files::Piece;
use super::{mariadb, verilated};
use crate::postgres::{self, Cluster};
use crate::repo;

/// A program that works until it is asked to end.
pub struct Running {
    /// The process to be named.
    pub pid: i32,
    /// Ended when this is dropped.
    children: Vec<Child>,
    /// A command that prints a number that grows with the work; else read and write calls.
    pub work: Option<String>,
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

/// The same work with an end.
pub struct Bounded {
    /// So many rounds of it.
    pub piece: fn(&Path, u32) -> Result<Piece>,
    /// How many callgrind counts.
    pub counted: u32,
}

/// A program with its load.
pub struct Subject {
    pub name: &'static str,
    pub packages: &'static [&'static str],
    pub libraries: &'static [&'static str],
    pub start: fn(&Path) -> Result<Running>,
    pub bounded: Option<Bounded>,
    /// What BOLT is given in its place; its work is the bounded one.
    pub bolt: Option<Peer>,
}

pub const SUBJECTS: [Subject; 15] = [
    postgres("postgres-select", |folder| pgbench(folder, &["-S", "-c", "2"])),
    postgres("postgres-tpcb", |folder| pgbench(folder, &["-c", "2"])),
    postgres("postgres-sql", |folder| {
        pgbench(folder, &["-c", "2", "-f", &path("postgres.sql").display().to_string()])
    }),
    Subject {
        name: "mariadb",
        packages: &mariadb::PACKAGES,
        libraries: &[],
        start: |folder| {
            let mariadb::Loaded { server, load, work } = mariadb::start(folder)?;
            Ok(Running::of(vec![server, load], Some(work)))
        },
        bounded: None,
        bolt: None,
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
        bounded: Some(Bounded {
            piece: |folder, cycles| {
                let verilated::Simulation { program, firmware } = verilated::build(folder)?;
                let paths = [&firmware, &folder.join("progress")].map(|p| p.display().to_string());
                let arguments = paths.into_iter().chain([cycles.to_string()]).collect();
                Ok(Piece { program, arguments, input: None })
            },
            counted: 3000,
        }),
        bolt: None,
    },
    Subject {
        name: "bash",
        packages: &["bash"],
        libraries: &["libc.so*"],
        start: |_| BASH.start(),
        bounded: Some(Bounded { piece: |_, rounds| Ok(BASH.piece(rounds)), counted: 25 }),
        bolt: Some(Peer { build: builds::bash, rounds: 700, skip: &[] }),
    },
    Subject {
        name: "bash-completion",
        packages: &["bash", "bash-completion"],
        libraries: &["libc.so*"],
        start: |_| COMPLETION.start(),
        bounded: Some(Bounded { piece: |_, rounds| Ok(COMPLETION.piece(rounds)), counted: 3 }),
        bolt: Some(Peer { build: builds::bash, rounds: 30, skip: &[] }),
    },
    Subject {
        name: "lua",
        packages: &["lua5.4"],
        libraries: &["liblua*", "libc.so*"],
        start: |_| LUA.start(),
        bounded: Some(Bounded { piece: |_, rounds| Ok(LUA.piece(rounds)), counted: 120 }),
        bolt: Some(Peer { build: builds::lua, rounds: 14000, skip: &builds::LUA_SKIP }),
    },
    Subject {
        name: "python",
        packages: &["python3-minimal"],
        libraries: &["libc.so*"],
        start: |_| PYTHON.start(),
        bounded: Some(Bounded { piece: |_, rounds| Ok(PYTHON.piece(rounds)), counted: 300 }),
        bolt: Some(Peer { build: builds::python, rounds: 8000, skip: &builds::PYTHON_SKIP }),
    },
    Subject {
        name: "python-tools",
        packages: &[
            "python3-minimal",
            "python3-docutils",
            "python3-html5lib",
            "python3-mako",
            "python3-pygments",
            "python3-lib2to3",
        ],
        libraries: &["libc.so*"],
        start: |_| PYTHON_TOOLS.start(),
        bounded: Some(Bounded { piece: |_, rounds| Ok(PYTHON_TOOLS.piece(rounds)), counted: 2 }),
        bolt: Some(Peer { build: builds::python, rounds: 15, skip: &builds::PYTHON_SKIP }),
    },
    Subject {
        name: "sqlite",
        packages: &["sqlite3"],
        libraries: &["libsqlite3*"],
        start: sqlite,
        bounded: Some(Bounded { piece: sqlite_piece, counted: 300 }),
        bolt: Some(Peer { build: builds::sqlite, rounds: 3500, skip: &[] }),
    },
    script("perl", &["perl"], &["libc.so*"], |_| PERL.start()),
    script("gawk", &["gawk"], &["libc.so*"], |_| GAWK.start()),
    script("php", &["php8.2-cli"], &["libc.so*"], |_| PHP.start()),
    script("ruby", &["ruby3.1"], &["libruby*", "libc.so*"], |_| RUBY.start()),
];

/// One that is tuned while it runs, and not counted or given to BOLT.
const fn script(
    name: &'static str,
    packages: &'static [&'static str],
    libraries: &'static [&'static str],
    start: fn(&Path) -> Result<Running>,
) -> Subject {
    Subject { name, packages, libraries, start, bounded: None, bolt: None }
}

const fn postgres(name: &'static str, start: fn(&Path) -> Result<Running>) -> Subject {
    script(name, &postgres::PACKAGES, &["libc.so*"], start)
}

/// An interpreter and its script.
struct Script {
    interpreter: &'static str,
    options: &'static [&'static str],
    name: &'static str,
}

const BASH: Script = Script { interpreter: "/bin/bash", options: &[], name: "bash.sh" };
const COMPLETION: Script = Script { interpreter: "/bin/bash", options: &[], name: "completion.sh" };
const LUA: Script = Script { interpreter: "/usr/bin/lua5.4", options: &[], name: "lua.lua" };
const PYTHON: Script = Script { interpreter: "/usr/bin/python3", options: &[], name: "python.py" };
const PYTHON_TOOLS: Script =
    Script { interpreter: "/usr/bin/python3", options: &["-W", "ignore"], name: "python_tools.py" };

const PERL: Script = Script { interpreter: "/usr/bin/perl", options: &[], name: "perl.pl" };
const GAWK: Script = Script { interpreter: "/usr/bin/gawk", options: &["-f"], name: "awk.awk" };
const PHP: Script = Script { interpreter: "/usr/bin/php8.2", options: &[], name: "php.php" };
const RUBY: Script = Script { interpreter: "/usr/bin/ruby3.1", options: &[], name: "ruby.rb" };

impl Script {
    fn arguments(&self) -> impl Iterator<Item = String> {
        let options = self.options.iter().map(std::string::ToString::to_string);
        options.chain([path(self.name).display().to_string()])
    }

    fn start(&self) -> Result<Running> {
        let mut command = Command::new(self.interpreter);
        command.args(self.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Running::of(vec![command.spawn()?], None))
    }

    fn piece(&self, rounds: u32) -> Piece {
        let arguments = self.arguments().chain([rounds.to_string()]).collect();
        Piece { program: self.interpreter.into(), arguments, input: None }
    }
}

/// A file of `benches/tune`.
fn path(name: &str) -> PathBuf {
    repo::root().join("benches/tune").join(name)
}

/// A cluster under `pgbench`, which logs each transaction in a file.
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

/// One statement after another through the shell, from a pipe that never ends.
fn sqlite(_: &Path) -> Result<Running> {
    let shell = "cat sqlite-table.sql; while :; do cat sqlite.sql; done";
    let mut source = Command::new("sh");
    source.current_dir(path("")).args(["-c", shell]).stdout(Stdio::piped());
    let mut source = source.spawn()?;
    let input = source.stdout.take().context("a pipe")?;
    let mut command = Command::new("sqlite3");
    let child = command.arg(":memory:").stdin(input).stdout(Stdio::null()).spawn()?;
    Ok(Running::of(vec![child, source], None))
}

/// The same statements a few times.
fn sqlite_piece(folder: &Path, rounds: u32) -> Result<Piece> {
    let read = |name: &str| std::fs::read_to_string(path(name));
    let input = folder.join("piece.sql");
    let text = read("sqlite-table.sql")? + &read("sqlite.sql")?.repeat(rounds as usize);
    std::fs::write(&input, text)?;
    let arguments = vec![":memory:".to_owned()];
    Ok(Piece { program: "/usr/bin/sqlite3".into(), arguments, input: Some(input) })
}
