//! The industrial SMP port (2008), and the thesis' chapters 2 to 4.

use anyhow::{Context, Result, anyhow};

use super::paper::Paper;
use super::table::{Row, Table, Value};
use crate::bench::smp::{self, Speeds};
use crate::lab::{self, figures};

pub const PAPER: Paper = Paper {
    name: "smp-port",
    page: "smp-port",
    title: "Porting a kernel to multiprocessors (2008)",
    tables: |sources| {
        let most = if sources.quick { 2 } else { 8 };
        let measured = KERNELS.map(|(name, package)| (name, smp::scaling(package, most, false)));
        vec![small_files(&measured), transformation(&measured), shares(), processes(), threads()]
    },
    missing: &[
        (
            "Tables 2.2 and 2.3",
            "locks and lines of Linux 2.0 to 2.6: `fettle census REVISION…` counts them in a clone of the kernel's history, which is not in a package",
        ),
        (
            "Figures 2.2 and 2.3 of Linux 2.0 to 2.6",
            "those kernels are not at hand either; the paper draws both figures and gives no numbers",
        ),
    ],
};

const COMMAND: &str = "cargo xtask lab --figures";
const SCALING: &str = "cargo xtask bench smp --parts scaling --processors 8 --kernel PACKAGE";

/// Kernels of Debian that are measured, and their packages.
const KERNELS: [(&str, &str); 2] =
    [("Linux 6.1", "linux-image-amd64"), ("Linux 6.12", "linux-image-6.12-amd64")];

/// What was measured of a kernel, or why nothing.
type Scaled = (&'static str, Result<Speeds>);

/// How a program scales on each kernel.
fn scaled(measured: &[Scaled], program: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kernel, speeds) in measured {
        let speeds = speeds.as_ref().map_err(|why| anyhow!("{kernel}: {why:#}"))?;
        for processors in 1..=speeds.most() {
            let speed = speeds.speed_up("linux", processors, program).context("not measured")?;
            rows.push(Row {
                what: format!("{kernel}, {processors} CPU"),
                paper: None,
                ours: Some(Value::of(speed)),
                peer: None,
            });
        }
    }
    Ok(rows)
}

/// Figure 2.2: small files.
fn small_files(measured: &[Scaled]) -> Result<Table> {
    Ok(Table {
        name: "Figure 2.2",
        about: "Speed-up of eight processes that work with small files, in the manner of Postmark",
        note: "The paper has ext2 on Linux 2.0 to 2.6, and says that 2.6 scales practically linearly up to 7 CPUs and the others hardly. \
               Here files are in memory (tmpfs), 100 a process and 400 transactions each; time is instructions of processors in step, \
               without caches. Eight processes that the kernel does not move in so short a time are two rounds on four to seven CPUs. One run \
               of each: where processors got out of step, another run of 6.12 had 4.28 at eight CPUs.",
        less_is_better: false,
        command: SCALING.to_owned(),
        rows: scaled(measured, "postmark")?,
    })
}

/// Figure 2.3: a Fourier transformation.
fn transformation(measured: &[Scaled]) -> Result<Table> {
    Ok(Table {
        name: "Figure 2.3",
        about: "Speed-up of a Fourier transformation by eight threads, in the manner of SPLASH-2",
        note: "Eight threads on any number of CPUs, as in the paper, with barriers between phases: on five to seven CPUs some of them \
               have two threads, and the others wait.",
        less_is_better: false,
        command: SCALING.to_owned(),
        rows: scaled(measured, "fft")?,
    })
}

/// Table 3.1: where time goes.
fn shares() -> Result<Table> {
    let [loops, ..] = &figures::LOOPS;
    let measured = figures::shares(&lab::machine()?, loops)?;
    let mut rows = Vec::new();
    for (build, cpus, paper) in [("up", 1, [64.0, 36.0, 0.1]), ("giant", 2, [57.0, 21.0, 21.5])] {
        let found = measured.iter().find(|found| (found.build, found.cpus) == (build, cpus));
        let found = found.context("not measured")?;
        for (what, paper, ours) in [
            ("user mode", paper[0], found.shares[0]),
            ("kernel", paper[1], found.shares[1]),
            ("spinning", paper[2], found.shares[2]),
        ] {
            rows.push(Row {
                what: format!("{build}, {cpus} CPU: {what}"),
                paper: Some(paper),
                ours: Some(Value::of(ours)),
                peer: None,
            });
        }
    }
    Ok(Table {
        name: "Table 3.1",
        about: "Percent of all CPUs' time while two programs run in user mode alone",
        note: "The paper has ranges at two CPUs (55 to 59, 20 to 22, 20 to 23), whose middles stand here. Its programs make no \
               calls, so what takes them into the kernel are clocks and the system's own processes, by time and not by work: here \
               each CPU's clock ticks at the same moments, and takes 36 % of one CPU. That tick's part on each CPU (5 % of a \
               period, the rest is done once) was chosen; the other shares follow. The kernel lab is in virtual time.",
        less_is_better: false,
        command: COMMAND.to_owned(),
        rows,
    })
}

/// Points of a load, beside those of the paper.
fn points(load: &figures::Load, paper: &[(&str, u32, f64)]) -> Result<Vec<Row>> {
    let row = |point: figures::Point| Row {
        what: format!("{}, {}, {} CPU", load.title, point.build, point.cpus),
        paper: paper
            .iter()
            .find(|(build, cpus, _)| (*build, *cpus) == (point.build, point.cpus))
            .map(|(.., value)| *value),
        ours: Some(Value::of(point.speed_up)),
        peer: None,
    };
    Ok(figures::points(&lab::machine()?, load)?.into_iter().map(row).collect())
}

/// Figure 4.6: calls by processes.
fn processes() -> Result<Table> {
    let [load, ..] = &figures::LOADS;
    let paper = [
        ("giant", 1, 0.98),
        ("giant", 2, 1.20),
        ("giant", 4, 1.48),
        ("coarse", 2, 1.23),
        ("coarse", 4, 1.61),
    ];
    Ok(Table {
        name: "Figure 4.6",
        about: "Speed-up over the uniprocessor's kernel, telephone calls by processes",
        note: "The paper's coarse kernel had the database under the giant lock; a fine one it did not have.",
        less_is_better: false,
        command: COMMAND.to_owned(),
        rows: points(load, &paper)?,
    })
}

/// Figure 4.7: calls by threads, with both heaps.
fn threads() -> Result<Table> {
    let [_, locked, free] = &figures::LOADS;
    let mut rows = points(locked, &[])?;
    rows.extend(points(free, &[])?);
    Ok(Table {
        name: "Figure 4.7",
        about: "The same by threads of one container, with a locked heap and a lock-free one",
        note: "The paper draws this figure and gives no numbers: with the locked heap several CPUs are no faster than one, and over \
               80 % of the semaphores' claims block (here all do); with the lock-free heap it scales.",
        less_is_better: false,
        command: COMMAND.to_owned(),
        rows,
    })
}
