//! One Fettle at a time works on a process. Its work takes several steps. Between them the process
//! looks untouched, and a second Fettle would change what the first relies on.
//!
//! A claim is a lock on the process's folder in `/proc`: it needs no file of ours, is the same for
//! all users, and the kernel releases it when its owner ends, however that ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use fettle_types::Pid;

use crate::error::LiveError;

/// The message for a process that is claimed.
const CLAIMED: &str = "another fettle is at work on this process";

/// The right to change some processes, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    _folders: Vec<File>,
}

impl Claim {
    /// Claims a process. Others that have ended, or cannot be seen, are left out.
    ///
    /// # Errors
    ///
    /// When another Fettle has claimed one of them.
    pub fn of(pid: Pid, others: impl IntoIterator<Item = Pid>) -> Result<Claim, LiveError> {
        let others = others.into_iter().filter(|other| *other != pid);
        let mut held = Vec::new();
        for one in std::iter::once(pid).chain(others) {
            let Ok(folder) = File::open(format!("/proc/{one}")) else { continue };
            // SAFETY: takes numbers only.
            let locked = unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            if locked == 0 {
                held.push(folder);
                continue;
            }
            if std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
                let why = match one == pid {
                    true => CLAIMED.to_owned(),
                    false => format!(
                        "another fettle is at work on process {one}, which is of the same group"
                    ),
                };
                return Err(LiveError::Unattachable { pid, why });
            }
        }
        Ok(Claim { _folders: held })
    }
}

/// Why a process cannot be attached to that process `tracer` traces. A second Fettle may try while
/// the first one, which has a claim, traces: the error is the same as if it had tried between two
/// pauses.
pub(crate) fn traced_already(pid: Pid, tracer: Pid) -> LiveError {
    let folder = format!("/proc/{pid}");
    let mut open = std::fs::read_dir(format!("/proc/{tracer}/fd")).into_iter().flatten().flatten();
    let claimed =
        open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(&folder)));
    let why = match claimed {
        true => format!("{CLAIMED} (process {tracer})"),
        false => format!("process {tracer} traces it already (a debugger, strace or Fettle)"),
    };
    LiveError::Unattachable { pid, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, own) = (Pid::of_child(&child), Pid::own());
        let claim = Claim::of(pid, [pid]).unwrap();
        let said = Claim::of(pid, []).unwrap_err().to_string();
        assert!(said.contains("another fettle is at work on this process"), "{said}");
        let said = traced_already(pid, own).to_string();
        assert!(said.contains("another fettle is at work on this process"), "{said}");
        let said = Claim::of(own, [pid]).unwrap_err().to_string();
        assert!(said.contains(&format!("another fettle is at work on process {pid}")), "{said}");
        drop(claim);
        let said = traced_already(pid, own).to_string();
        assert!(said.contains(&format!("process {own} traces it already")), "{said}");
        drop(Claim::of(own, [pid]).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        // There is no process to claim any more.
        assert!(Claim::of(pid, []).is_ok());
    }
}
