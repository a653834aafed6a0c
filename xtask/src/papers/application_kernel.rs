//! S. Kågström et al., *The application kernel approach*, 2006.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};
use crate::bench::smp::{self as bench, Measurement, Speeds};
use crate::{apt, proc, repo};

pub const PAPER: Paper = Paper {
    name: "application-kernel",
    page: "application-kernel",
    title: "The application kernel (2006)",
    tables: |sources| {
        let measured = measure(sources);
        let with = |table: fn(&Measured) -> Result<Table>| match &measured {
            Ok(measured) => table(measured),
            Err(why) => Err(anyhow!("{why:#}")),
        };
        vec![with(latency), with(single), with(parallel), lines(), complexity()]
    },
    missing: &[
        ("Table I", "the benchmarks: ours are in `tests/smp/measured`, in the manner of SPLASH-2"),
        (
            "Table II on hardware",
            "no machine with a processor to spare; instructions are counted, as the paper's simulator does",
        ),
        ("Figures 1 to 6", "drawings of the structure: `docs/internals/smp.md`"),
    ],
};

/// What the guests measured.
struct Measured {
    costs: Vec<Measurement>,
    speeds: Speeds,
}

const COMMAND: &str = "cargo xtask bench smp";

fn measure(sources: &Sources) -> Result<Measured> {
    let options = bench::Options {
        fettle: Some(sources.fettle.clone()),
        kernel: "linux-image-amd64".to_owned(),
        processors: if sources.quick { 2 } else { 4 },
        parts: Vec::new(),
        programs: Vec::new(),
        verbose: false,
    };
    Ok(Measured { costs: bench::costs(&options)?, speeds: bench::speeds(&options)? })
}

/// Table II: a call that does nothing.
fn latency(measured: &Measured) -> Result<Table> {
    let each = |system: &str| -> Result<Value> {
        let mut all = measured.costs.iter();
        let one = all.find(|one| one.system == system && one.what == "forwarded");
        let one = one.context("not measured")?;
        Ok(Value::of(one.ticks as f64 / one.count as f64))
    };
    let row = |what: &str, paper, ours| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: Some(ours),
        peer: None,
    };
    Ok(Table {
        name: "Table II",
        about: "Latency of a call that does nothing, in instructions of a simulated processor",
        note: "The paper calls getpid in Linux 2.4. Ours answers that on the spot, so getppid is called, in Debian's kernel with its mitigations.",
        less_is_better: true,
        command: COMMAND.to_owned(),
        rows: vec![
            row("Linux", 74.0, each("linux")?),
            row("application kernel", 860.0, each("lent")?),
        ],
    })
}

/// Table III: programs with one thread.
fn single(measured: &Measured) -> Result<Table> {
    let row = |what: &str, paper| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: measured.speeds.speed_up("lent", 1, what).map(Value::of),
        peer: None,
    };
    Ok(Table {
        name: "Table III",
        about: "Speed of programs with one thread, against one of Linux's processors",
        note: "The paper's figures are those with one lent processor beside Linux's. Ours run cc1 -O2 on a small file and gzip on a program.",
        less_is_better: false,
        command: COMMAND.to_owned(),
        rows: vec![row("find", 0.7844), row("gcc", 0.8976), row("gzip", 0.9461)],
    })
}

/// The paper's speed-ups with so many lent processors, one more than which the machine has: RADIX, FFT, LU and the
/// mixture.
const PAPER_SPEED_UPS: [[f64; 4]; 4] = [
    [1.0834, 1.0401, 1.2662, 0.9705],
    [2.5174, 1.8654, 2.0795, 1.1375],
    [3.7227, 2.3235, 2.9941, 1.1779],
    [4.8200, 2.6323, 3.8009, 1.1878],
];

/// Table IV and figure 7: parallel programs, and many at once.
fn parallel(measured: &Measured) -> Result<Table> {
    let mut rows = Vec::new();
    for (program, column) in bench::PROGRAMS.iter().zip(0..) {
        for lent in 1..=measured.speeds.most() {
            let paper = PAPER_SPEED_UPS.get(lent as usize - 1).map(|row| row[column]);
            let speed = |system| measured.speeds.speed_up(system, lent, program).map(Value::of);
            rows.push(Row {
                what: format!("{program}, {lent} lent"),
                paper,
                ours: speed("lent"),
                peer: speed("linux").map(|value| (format!("Linux on {lent}"), value)),
            });
        }
    }
    Ok(Table {
        name: "Table IV and figure 7",
        about: "Speed-up on lent processors against one of Linux's",
        note: "Programs run `--mixed`, as in table III: threads that mostly make calls come home. Smaller sizes than the paper's, one thread a processor; time is instructions of processors in step, without caches. Beside n lent processors there is one of Linux's, which does the calls; the peer is Linux on n, without that one.",
        less_is_better: false,
        command: COMMAND.to_owned(),
        rows,
    })
}

/// Table V: lines of code.
fn lines() -> Result<Table> {
    apt::ensure(&["sloccount".to_owned()])?;
    let count = |folder: &str| -> Result<f64> {
        let text = proc::output_of(Command::new("sloccount").arg(repo::root().join(folder)))?;
        let line = text.lines().find(|line| line.starts_with("Total Physical Source Lines"));
        let number =
            line.and_then(|line| line.rsplit('=').next()).context("sloccount says no number")?;
        Ok(number.trim().replace(',', "").parse()?)
    };
    let row = |what: &str, paper, folder| -> Result<Row> {
        let ours = Some(Value::of(count(folder)?));
        Ok(Row { what: what.to_owned(), paper, ours, peer: None })
    };
    Ok(Table {
        name: "Table V",
        about: "Lines of code without empty ones and comments",
        note: "The paper's application kernel runs static programs of a 32-bit Linux; ours runs those of Debian, with threads and signals.",
        less_is_better: true,
        command: "sloccount runtime/appkernel".to_owned(),
        rows: vec![
            row("all", Some(3600.0), "runtime/appkernel")?,
            row("the Linux module", Some(250.0), "runtime/appkernel/linux")?,
        ],
    })
}

/// Figure 8: McCabe's cyclomatic complexity.
fn complexity() -> Result<Table> {
    apt::ensure(&["pmccabe".to_owned()])?;
    let mut files = Vec::new();
    sources_below(&repo::root().join("runtime/appkernel"), &mut files)?;
    let text = proc::output_of(Command::new("pmccabe").args(&files))?;
    // The second number of a line is McCabe's, the traditional one.
    let all: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .collect();
    let share = |below: f64| {
        let few = all.iter().filter(|value| **value < below).count();
        Some(Value::of(few as f64 / all.len().max(1) as f64 * 100.0))
    };
    let row = |what: &str, ours| Row { what: what.to_owned(), paper: None, ours, peer: None };
    Ok(Table {
        name: "Figure 8",
        about: "Functions by McCabe's cyclomatic complexity, per cent",
        note: "The paper has it as a histogram: nearly all functions of its application kernel are below 10.",
        less_is_better: false,
        command: "pmccabe runtime/appkernel/*/*.c".to_owned(),
        rows: vec![
            row("below 5", share(5.0)),
            row("below 10", share(10.0)),
            row("below 20", share(20.0)),
            row("functions", Some(Value::of(all.len() as f64))),
        ],
    })
}

fn sources_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources_below(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}
