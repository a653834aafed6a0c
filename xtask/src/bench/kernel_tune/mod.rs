//! What laying the running kernel's hot code out anew brings, by counted instructions and modelled caches in
//! a guest.
//!
//! A guest has no performance counters, and is translated, so its times say nothing. A plugin of QEMU's (`plugin.c`)
//! counts the kernel's instructions, and what caches of common sizes would miss: before, while rewritten text is
//! installed, and after it was taken out, in one boot. The guest's time is that of its instructions, so that the three do
//! the same.

use anyhow::{Context, Result, bail, ensure};

mod blocks;
mod boot;
mod install;
mod reading;
pub mod root;

pub use boot::Options;
use boot::{MEASURE, boot};
pub use reading::Counts;
use reading::Load;

/// A load: its name, how often it does what it does, and the most that its misses may be of those before.
struct Asked {
    name: &'static str,
    times: u32,
    misses: f64,
    exact: Exact,
}

/// How nearly the same a load is each time: the most that instructions may grow, and how near to the first measurement
/// the last one must be, which shows what noise there is.
struct Exact {
    instructions: f64,
    noise: f64,
}

const ALONE: Exact = Exact { instructions: 1.003, noise: 0.005 };
/// A server takes as many requests at once as are there by chance.
const SERVER: Exact = Exact { instructions: 1.01, noise: 0.01 };

/// All loads. Of the first two the misses must shrink; of the others they must not grow.
const LOADS: [Asked; 8] = [
    Asked { name: "pipe", times: 1000, misses: 0.15, exact: ALONE },
    Asked { name: "tcp", times: 1000, misses: 0.60, exact: ALONE },
    Asked { name: "file", times: 1000, misses: 1.01, exact: ALONE },
    Asked { name: "exec", times: 100, misses: 1.01, exact: ALONE },
    Asked { name: "fork", times: 200, misses: 1.01, exact: ALONE },
    Asked { name: "epoll", times: 1000, misses: 1.01, exact: ALONE },
    Asked { name: "redis", times: 2000, misses: 1.01, exact: SERVER },
    Asked { name: "nginx", times: 1000, misses: 1.01, exact: SERVER },
];

/// Measures and prints; false if a figure is missed.
pub fn run(options: &Options) -> Result<bool> {
    let mut right = true;
    for part in &options.parts {
        right &= match part.as_str() {
            "blocks" => blocks::run(options)?,
            "layout" => layout(options)?,
            "install" => install::run(options)?,
            "root" => root::run(options)?,
            other => bail!("{other} is none of blocks, layout, install, root"),
        };
    }
    Ok(right)
}

/// A load before, while, and after its code is laid out anew.
fn layout(options: &Options) -> Result<bool> {
    let is_wanted =
        |name: &str| options.loads.is_empty() || options.loads.iter().any(|own| own == name);
    let wanted: Vec<&Asked> = LOADS.iter().filter(|load| is_wanted(load.name)).collect();
    ensure!(
        !wanted.is_empty(),
        "none of the loads is one of pipe, tcp, file, exec, fork, epoll, redis, nginx"
    );
    let mut script = String::from(MEASURE);
    for load in &wanted {
        script.push_str(&format!("measure {} {}\n", load.name, load.times));
    }
    let (kernel, shown, counts) = boot(options, &script)?;
    let counts = std::fs::read_to_string(&counts).context("what the plugin counted")?;
    let loads = reading::read(&shown, &counts)?;
    ensure!(loads.len() == wanted.len(), "not all loads were measured:\n{shown}");
    println!("kernel-tune: {}, caches of 32 KiB, 8 ways (16 KiB, 4 ways)", kernel.release);
    let mut right = true;
    for (asked, load) in wanted.iter().zip(&loads) {
        println!("{}", load.said);
        right &= show(asked, load);
    }
    Ok(right)
}

fn show(asked: &Asked, load: &Load) -> bool {
    let share = |of: fn(&Counts) -> u64, counts: &Counts| {
        of(counts) as f64 / (of(&load.before) as f64).max(1.0)
    };
    for (name, counts) in
        [("before", &load.before), ("installed", &load.installed), ("after", &load.after)]
    {
        println!(
            "  {:<6} {name:<9} {:>10} instructions ({:+.2} %)  {:>8} misses ({:+.1} %)  {:>8} ({:+.1} %)  {:>8} jumps ({:+.1} %)",
            load.name,
            counts.kernel,
            100.0 * (share(|c| c.kernel, counts) - 1.0),
            counts.misses,
            100.0 * (share(|c| c.misses, counts) - 1.0),
            counts.small,
            100.0 * (share(|c| c.small, counts) - 1.0),
            counts.jumps,
            100.0 * (share(|c| c.jumps, counts) - 1.0),
        );
    }
    let misses = share(|c| c.misses, &load.installed);
    let instructions = share(|c| c.kernel, &load.installed);
    let noise = (share(|c| c.misses, &load.after) - 1.0)
        .abs()
        .max((share(|c| c.kernel, &load.after) - 1.0).abs());
    let mut right = true;
    let mut ask = |what: &str, value: f64, most: f64| {
        if value > most {
            println!("  {}: {what} {value:.3}, asked {most:.3} at most", load.name);
            right = false;
        }
    };
    ask("misses", misses, asked.misses);
    ask("instructions", instructions, asked.exact.instructions);
    ask("difference after the undo", noise, asked.exact.noise);
    right
}
