//! Guests that count.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::guest::{self, Clock, Kernel, Machine};
use crate::{kernel_live, repo};

/// How to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The command to measure; without one, it is built
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// The kernel: 6.1, 6.12, or a package of one
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// Only these loads: pipe, tcp, file, exec, fork, epoll
    #[arg(long, value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Only these parts: blocks, layout, install, root
    #[arg(long, value_delimiter = ',', default_value = "blocks,layout,install,root")]
    pub parts: Vec<String>,
    /// Show everything that the guest showed
    #[arg(long)]
    pub verbose: bool,
}

/// The load runs until there are rewritten functions for it; it is measured alone. Further arguments are those of the
/// command that tunes.
pub const MEASURE: &str = "
measure() { # LOAD TIMES ARGUMENTS...
    name=$1 times=$2; shift 2
    load $name 20 >/dev/null; load $name $times >/dev/null
    echo \"load: $name before\"; load $name $times marked
    nice -n 19 load $name 100000000 >/dev/null 2>&1 &
    loading=$!
    fettle kernel tune --time 0.5 --no-compare \"$@\" >/tmp/tuned 2>/tmp/said
    status=$?
    echo \"tuned: $status $(head -n 1 /tmp/tuned)\"
    [ $status = 0 ] || cat /tmp/said
    kill -9 $loading; wait $loading 2>/dev/null; sleep 1
    load $name 20 >/dev/null; load $name $times >/dev/null
    echo \"load: $name installed\"; load $name $times marked
    fettle undo --kernel
    load $name 20 >/dev/null; load $name $times >/dev/null
    echo \"load: $name after\"; load $name $times marked
}
";

impl Options {
    /// The usual kernel, and this command.
    pub fn of(fettle: Option<PathBuf>) -> Options {
        let (loads, parts) = (Vec::new(), Vec::new());
        Options { fettle, kernel: "6.1".to_string(), loads, parts, verbose: false }
    }
}

/// Boots a guest that counts, and gives what it showed and the plugin's file.
pub fn boot(options: &Options, script: &str) -> Result<(Kernel, String, PathBuf)> {
    let kernel = Kernel::fetch_image(&kernel_live::package(&options.kernel))?;
    let files = kernel_live::files(options.fettle.as_deref())?;
    let place = repo::target_folder("kernel-tune")?;
    let plugin = place.join("plugin.so");
    guest::plugin(&repo::root().join("xtask/src/bench/kernel_tune/plugin.c"), &plugin)?;
    let counts = place.join("counts");
    let machine = Machine {
        processors: 1,
        clock: Clock::Instructions,
        model: "max".to_string(),
        memory: 1024,
        // Else a kernel with one processor patches its lock prefixes out, which Fettle refuses.
        options: "noreplace-smp nowatchdog rcupdate.rcu_cpu_stall_suppress=1".to_string(),
        output: None,
        plugin: Some((plugin, format!("out={}", counts.display()))),
        limit: Duration::from_secs(3600),
    };
    let shown = guest::run(&kernel, &files, &machine, &format!("{}{script}", kernel_live::MOUNTS))?;
    if options.verbose {
        println!("{shown}");
    }
    Ok((kernel, shown, counts))
}
