//! What is known of servers by their names.

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
