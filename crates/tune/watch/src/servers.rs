//! What is known of servers by their names.

/// Whether a program of that name starts those anew that it has started.
pub(crate) fn restarts(program: &str) -> bool {
    const SUPERVISORS: [&str; 12] = [
        "systemd",
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

/// Why a server's process must not be killed outright, if so.
pub(crate) fn never_kill(program: &str) -> Option<&'static str> {
    match program {
        // Its other processes share memory with it, which may be damaged: the postmaster ends them all.
        "postgres" | "postmaster" => Some(
            "PostgreSQL ends all connections when one of its processes is killed; use `signal TERM`",
        ),
        _ => None,
    }
}
