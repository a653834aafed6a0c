//! Guests that count.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::{apt, kernel_live, repo};

/// How to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The command to measure; without one, it is built
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// The kernel: 6.1, 6.12, or a package of one
    #[arg(long, default_value = "6.1")]
    pub kernel: String,
    /// Only these loads: pipe, tcp, file, exec, fork, epoll, redis, nginx
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
    # What a kernel does by itself after its start, or a load before, is done then: waiting takes no time here.
    sleep 60
    /serve $name
    /work $name 20 >/dev/null; /work $name $times >/dev/null
    echo \"load: $name before\"; /work $name $times marked
    nice -n 19 /work $name 1000000 >/dev/null 2>&1 &
    loading=$!
    fettle kernel tune --time 0.5 --no-compare \"$@\" >/tmp/tuned 2>/tmp/said
    status=$?
    echo \"tuned: $status $(head -n 1 /tmp/tuned)\"
    [ $status = 0 ] || cat /tmp/said
    kill -9 $loading; wait $loading 2>/dev/null; sleep 1
    /work $name 20 >/dev/null; /work $name $times >/dev/null
    echo \"load: $name installed\"; /work $name $times marked
    fettle undo --kernel
    /work $name 20 >/dev/null; /work $name $times >/dev/null
    echo \"load: $name after\"; /work $name $times marked
}
";

/// Starts a load's server, if it has one.
const SERVE: &str = "#!/bin/sh
case $1 in
redis) redis-server --save '' --port 6379 --daemonize yes >/dev/null ;;
nginx) mkdir -p /var/log/nginx /var/lib/nginx; echo served >/var/lib/page; nginx -c /etc/nginx.conf ;;
*) exit 0 ;;
esac
sleep 2
";

/// One worker, which sends a small file.
const NGINX: &str = "user root; worker_processes 1; pid /tmp/nginx.pid; error_log /tmp/nginx.log;
events { worker_connections 64; }
http { access_log off; server { listen 127.0.0.1:8080; root /var/lib; } }
";

/// Does a load so many times: `load` itself, or a server's client, between the marks that tell the plugin.
const WORK: &str = "#!/bin/sh
case $1 in
redis) program=\"redis-benchmark -q -c 8 -t set,get -n $2\" ;;
nginx) program=\"ab -q -c 8 -n $2 http://127.0.0.1:8080/page\" ;;
*) exec load \"$@\" ;;
esac
[ \"$3\" = marked ] || exec $program
load mark 1 >/dev/null; $program >/tmp/work 2>&1; status=$?; load mark 0 >/dev/null
[ $status = 0 ] && echo \"load $1: ok\" || cat /tmp/work
exit $status
";

/// Servers and their clients, with the packages that they are of.
const PROGRAMS: [(&str, &str); 4] = [
    ("/usr/bin/redis-server", "redis-server"),
    ("/usr/bin/redis-benchmark", "redis-tools"),
    ("/usr/sbin/nginx", "nginx"),
    ("/usr/bin/ab", "apache2-utils"),
];

/// Puts there what the loads are done with.
fn put_loads(files: &Files, script: &str) -> Result<()> {
    files.put_text("serve", SERVE)?;
    files.put_text("work", WORK)?;
    files.put_text("etc/nginx.conf", NGINX)?;
    files.put_text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    files.put_text("etc/group", "root:x:0:\n")?;
    // Programs that are not asked for need not be here.
    if SERVERS.iter().any(|server| script.contains(&format!("measure {server} "))) {
        apt::ensure(&PROGRAMS.map(|(_, package)| package.to_string()))?;
        for (program, _) in PROGRAMS {
            let path = Path::new(program);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.put_program(path, &format!("bin/{name}"))?;
        }
    }
    Ok(())
}

/// Loads that have a server.
pub const SERVERS: [&str; 2] = ["redis", "nginx"];

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
    put_loads(&files, script)?;
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
