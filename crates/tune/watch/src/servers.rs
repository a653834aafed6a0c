//! What is known of servers by their names.

/// Whether a program of that name starts those anew that it has started, or ends with them. (systemd is the parent of
/// others, too; its services are known by their control groups.)
pub(crate) fn supervises(program: &str) -> bool {
    const SUPERVISORS: [&str; 11] = [
        "supervisord",
        "s6-supervise",
        "runsv",
        "pm2",
        "PM2",
        "monit",
        "containerd-shim",
        "docker-init",
        "tini",
        "dumb-init",
        "forever",
    ];
    // The kernel keeps fifteen bytes of a name, and pm2 has a longer one.
    SUPERVISORS.iter().any(|name| program.starts_with(name))
}

/// Whether a thread of that name belongs to a run time, which compiles and collects garbage by it for as long as that
/// takes, and not to the program: those of JVMs and of Node.js.
pub(crate) fn is_of_run_time(thread: &str) -> bool {
    const THREADS: [&str; 10] = [
        "C1 CompilerThre",
        "C2 CompilerThre",
        "GC Thread",
        "G1 ",
        "VM Thread",
        "VM Periodic Tas",
        "Shenandoah",
        "ZWorker",
        "ZDriver",
        "V8Worker",
    ];
    THREADS.iter().any(|name| thread.starts_with(name))
}

/// Why a server's process must not be killed outright, if so.
pub(crate) fn never_kill(program: &str) -> Option<&'static str> {
    match program {
        // Its other processes share memory with it, which may be damaged: the postmaster ends them all.
        "postgres" | "postmaster" => Some(
            "PostgreSQL ends all connections when one of its processes is killed; use `signal TERM`",
        ),
        "haproxy" => Some(
            "HAProxy's master ends when one of its workers is killed; use `run \"systemctl restart haproxy\"`",
        ),
        _ => None,
    }
}
