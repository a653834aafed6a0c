//! What the port's papers measured, in the lab's kernel: shares of time, and speed-up over the uniprocessor's kernel.

use anyhow::{Result, ensure};

use super::run::{self, Machine, Run};

/// Where time went in one run.
pub struct Shares {
    /// How the kernel is locked.
    pub build: &'static str,
    /// On so many CPUs.
    pub cpus: u32,
    /// Percent of the CPUs' time in user mode, in the kernel, spinning and idle.
    pub shares: [f64; 4],
    /// Ticks that the load took.
    pub ticks: f64,
}

/// A load of two loops whose shares are measured.
pub struct Loops {
    /// What it is.
    pub title: &'static str,
    load: &'static str,
}

/// Loops in user mode beside ticking clocks, as in the paper; the same with clocks that tick evenly apart; loops that call.
pub const LOOPS: [Loops; 3] = [
    Loops { title: "user mode, clocks tick together (table 3.1)", load: "load=ticks size=2000" },
    Loops { title: "user mode, clocks tick evenly apart", load: "load=staggered size=2000" },
    Loops { title: "loops that call the kernel", load: "load=loops size=2000" },
];

/// Their shares on one CPU and on two.
pub fn shares(machine: &Machine, loops: &Loops) -> Result<Vec<Shares>> {
    let one = |(build, cpus)| {
        let run = measured(machine, build, cpus, loops.load)?;
        Ok(Shares { build, cpus, shares: run.shares(), ticks: run.ticks()? })
    };
    [("up", 1), ("giant", 1), ("giant", 2)].into_iter().map(one).collect()
}

/// A load whose speed-up is measured.
pub struct Load {
    /// Which figure has it.
    pub figure: &'static str,
    /// What it is.
    pub title: &'static str,
    line: &'static str,
}

/// Telephone calls by processes, and by threads with either heap.
pub const LOADS: [Load; 3] = [
    Load { figure: "Figure 4.6", title: "calls by processes", line: "load=processes size=400" },
    Load {
        figure: "Figure 4.7",
        title: "calls by threads, locked heap",
        line: "load=locked-heap size=400",
    },
    Load {
        figure: "Figure 4.7",
        title: "calls by threads, lock-free heap",
        line: "load=free-heap size=400",
    },
];

/// A point of a figure.
pub struct Point {
    /// How the kernel is locked.
    pub build: &'static str,
    /// On so many CPUs.
    pub cpus: u32,
    /// Over the uniprocessor's kernel.
    pub speed_up: f64,
    /// Percent of semaphores' claims that block, if there are any.
    pub blocked: Option<f64>,
}

/// All points of a load.
pub fn points(machine: &Machine, load: &Load) -> Result<Vec<Point>> {
    let base = measured(machine, "up", 1, load.line)?.ticks()?;
    let mut points = Vec::new();
    for build in ["giant", "coarse", "fine"] {
        for cpus in [1, 2, 4] {
            let run = measured(machine, build, cpus, load.line)?;
            let (claims, blocked) = run.claims();
            points.push(Point {
                build,
                cpus,
                speed_up: base / run.ticks()?,
                blocked: (claims > 0.0).then(|| 100.0 * blocked / claims),
            });
        }
    }
    Ok(points)
}

/// Shares that the paper has of the giant-locked kernel on two CPUs (table 3.1): user mode, kernel, spinning.
const PAPER: [(f64, f64); 3] = [(55.0, 59.0), (20.0, 22.0), (20.0, 23.0)];
/// By so many percent of all time they may differ.
const NEAR: f64 = 3.0;

/// Measures all, and prints it; false if table 3.1 is another one.
pub fn print(machine: &Machine) -> Result<bool> {
    let mut right = true;
    for (n, loops) in LOOPS.iter().enumerate() {
        println!("\nshares of time, two loops: {}", loops.title);
        for Shares { build, cpus, shares, ticks } in shares(machine, loops)? {
            let [user, kernel, spinning, idle] = shares;
            if (n, build, cpus) == (0, "giant", 2) {
                let near = |(share, (low, high)): (f64, (f64, f64))| {
                    (low - NEAR..=high + NEAR).contains(&share)
                };
                right &= shares.into_iter().zip(PAPER).all(near);
            }
            println!(
                "{build:7} {cpus} CPU: user {user:.1} %, kernel {kernel:.1} %, spinning {spinning:.1} %, idle {idle:.1} %; {ticks} ticks"
            );
        }
    }
    for load in &LOADS {
        println!("\n{} ({}): speed-up over the uniprocessor's kernel", load.title, load.figure);
        for points in points(machine, load)?.chunks(3) {
            let mut line = format!("{:7}", points[0].build);
            for point in points {
                line += &format!("  {} CPU {:.2}", point.cpus, point.speed_up);
                // With the other loads semaphores are claimed to answer only.
                if let Some(blocked) = point.blocked.filter(|_| load.title == LOADS[1].title) {
                    line += &format!(" ({blocked:.0} % of claims block)");
                }
            }
            println!("{line}");
        }
    }
    if !right {
        println!("table 3.1 is not the paper's within {NEAR} points");
    }
    Ok(right)
}

fn measured(machine: &Machine, build: &str, cpus: u32, load: &str) -> Result<Run> {
    let kernel = machine.build(&[build])?;
    let run = machine.boot_even(&kernel, cpus, load)?;
    ensure!(run.status == run::SUCCESS, "{build} on {cpus} CPUs, {load}:\n{}", run.text);
    Ok(run)
}
