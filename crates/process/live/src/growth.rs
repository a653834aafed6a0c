//! Where a process's address space grows: its heap upward, from where the kernel says that it begins,
//! and its main thread's stack downward.
//!
//! The kernel has the heap begin at a random distance behind the program. Rewritten text belongs
//! into that gap, where nothing else will ever be. Where the gap is too small, the heap of a
//! program that has not run yet can be moved further up: `prctl(PR_SET_MM_MAP)`, which exists to
//! restore checkpoints, needs no privilege.

use fettle_types::Pid;

use crate::error::LiveError;
use crate::inject;
use crate::maps::{self, LiveAddr};
use crate::remote::{Call, Remote};
use crate::stop::ExecStop;

/// Areas that new mappings should keep away from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Where the heap begins; `None` if the kernel does not say.
    pub heap: Option<LiveAddr>,
    /// How large the main thread's stack may become, 0 if there is no limit.
    pub stack: u64,
}

impl Growth {
    /// That of a process.
    pub fn of(pid: Pid) -> Growth {
        let heap = stat(pid).map(|stat| stat.start_brk).filter(|heap| *heap != 0);
        Growth { heap: heap.map(LiveAddr), stack: stack_limit(pid).unwrap_or(0) }
    }
}

fn stack_limit(pid: Pid) -> Option<u64> {
    let limits = maps::read_proc(&format!("/proc/{pid}/limits")).ok()?;
    maps::status_field(&limits, "Max stack size")
}

/// What `/proc/PID/stat` says of an address space.
struct Stat {
    code: [u64; 2],
    stack: u64,
    data: [u64; 2],
    start_brk: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
}

fn stat(pid: Pid) -> Option<Stat> {
    let text = maps::read_proc(&format!("/proc/{pid}/stat")).ok()?;
    parse_stat(std::str::from_utf8(&text[text.iter().rposition(|byte| *byte == b')')?..]).ok()?)
}

/// Parses what stands behind the program's name, from its closing bracket on.
fn parse_stat(text: &str) -> Option<Stat> {
    // Numbered as in proc(5), where the bracket belongs to the second field.
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 2)?.parse::<u64>().ok();
    Some(Stat {
        code: [field(26)?, field(27)?],
        stack: field(28)?,
        data: [field(45)?, field(46)?],
        start_brk: field(47)?,
        arguments: [field(48)?, field(49)?],
        environment: [field(50)?, field(51)?],
    })
}

impl ExecStop<'_> {
    /// Has the program's heap begin at `to`, a multiple of the page size above where it begins now.
    ///
    /// # Errors
    ///
    /// When the kernel does not do that, or the process has filters for system calls. It is as it was.
    pub fn raise_heap(&self, to: LiveAddr) -> Result<(), LiveError> {
        let pid = self.pid;
        let refused = |what| LiveError::Injection { pid, what };
        if inject::has_own_filters(pid) {
            return Err(refused("its filters for system calls may not let its heap be moved"));
        }
        let old = stat(pid).ok_or(refused("the kernel does not say where its heap is"))?;
        if old.start_brk > to.0 || self.maps.iter().any(|m| m.name.as_deref() == Some("heap")) {
            return Err(refused("its heap is in use"));
        }
        // struct prctl_mm_map; it ends with an auxiliary vector (none), its size, and the program's
        // file (none).
        let [start_code, end_code] = old.code;
        let [start_data, end_data] = old.data;
        let ([arguments, arguments_end], [environment, environment_end]) =
            (old.arguments, old.environment);
        let words = [
            start_code,
            end_code,
            start_data,
            end_data,
            to.0,
            to.0,
            old.stack,
            arguments,
            arguments_end,
            environment,
            environment_end,
            0,
            0xffff_ffff << 32,
        ];
        let scratch: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let mut remote =
            Remote::enter(pid, self.registers, &self.memory, &self.maps, 1, scratch.len())?;
        let (set, map) = (libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64);
        let arguments = [set, map, remote.scratch().0, scratch.len() as u64, 0];
        let call = Call::new("move its heap", libc::SYS_prctl, &arguments).about(to.0);
        let result = remote.run(&mut [call], &scratch);
        let left = remote.leave();
        result.and(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ourselves() {
        let growth = Growth::of(Pid::own());
        // SAFETY: asks where the heap ends.
        let end = unsafe { libc::sbrk(0) } as u64;
        assert!(growth.heap.is_some_and(|heap| heap.0 <= end && end - heap.0 < 1 << 40));
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills a structure of ours.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) }, 0);
        let limit = Some(limit.rlim_cur).filter(|limit| *limit != libc::RLIM_INFINITY);
        assert_eq!(growth.stack, limit.unwrap_or(0));
    }

    #[test]
    fn names_may_hold_anything() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = parse_stat(&format!(") S {}", numbers.join(" "))).unwrap();
        assert_eq!((stat.code, stat.stack, stat.start_brk), ([26, 27], 28, 47));
        assert_eq!((stat.arguments, stat.environment), ([48, 49], [50, 51]));
        assert!(parse_stat(") S 1 2 3").is_none());
    }
}
