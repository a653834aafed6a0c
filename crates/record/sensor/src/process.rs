//! Which processes and threads still live.

use std::fs;

/// A process, identified uniquely: process ids are reused, but not at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Kernel's process id.
    pub pid: u32,
    /// Start, in clock ticks since boot; 0 if unknown.
    pub start_time: u64,
}

impl ProcessId {
    /// Whether the process runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        match state_and_start(&format!("/proc/{}/stat", self.pid)) {
            Some((state, start)) => {
                !matches!(state, 'Z' | 'X') && (self.start_time == 0 || self.start_time == start)
            }
            None => false,
        }
    }

    /// Whether the process has that thread.
    pub(crate) fn has_thread(&self, tid: u32) -> bool {
        let stat = state_and_start(&format!("/proc/{}/task/{tid}/stat", self.pid));
        stat.is_some_and(|(state, _)| !matches!(state, 'Z' | 'X')) && self.is_alive()
    }
}

/// Fields 3 and 22 of a `stat` file.
fn state_and_start(path: &str) -> Option<(char, u64)> {
    let text = fs::read_to_string(path).ok()?;
    // The second field is the program's name, which may hold anything, in parentheses.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_others_do_not() {
        let pid = std::process::id();
        let (_, start_time) = state_and_start("/proc/self/stat").unwrap();
        assert!(ProcessId { pid, start_time }.is_alive());
        assert!(ProcessId { pid, start_time: 0 }.is_alive());
        assert!(!ProcessId { pid, start_time: start_time + 1 }.is_alive());
        assert!(!ProcessId { pid: u32::MAX, start_time: 0 }.is_alive());
        assert!(ProcessId { pid, start_time }.has_thread(pid));
        assert!(!ProcessId { pid, start_time }.has_thread(u32::MAX));
    }
}
