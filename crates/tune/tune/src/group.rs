//! Process groups: processes that were forked from one execution of a program, a server and its workers.
//!
//! All have the same code at the same addresses, so a count of one holds for all, and rewritten text that is
//! made once fits all. Children of a patched process inherit its patches over fork (`fettle_live::forked`).

use fettle_live::{Mapping, Member, Process, members_of};
use fettle_types::{Pid, Tid};

use crate::error::TuneError;
use crate::target::Target;

/// How often forked children are looked for.
const LOOKS: usize = 8;

/// A process with its process group, or alone.
#[derive(Debug)]
pub struct ProcessGroup<'a> {
    /// The process that was named.
    pub leader: &'a Process,
    /// The other processes, the oldest first.
    pub others: Vec<Process>,
    /// Processes of the group that cannot be changed, and why.
    pub left: Vec<(Pid, String)>,
    /// The other processes of the group are not to be changed.
    pub alone: bool,
}

impl<'a> ProcessGroup<'a> {
    /// The living processes of `lead`'s group, or none.
    pub fn of(leader: &'a Process, alone: bool) -> ProcessGroup<'a> {
        let mut process_group =
            ProcessGroup { leader, others: Vec::new(), left: Vec::new(), alone };
        process_group.look();
        process_group
    }

    /// Adds processes that were forked meanwhile; returns how many. Those that are followed are not
    /// among them: they were forked by one that is, and have inherited its patches.
    pub fn look(&mut self) -> usize {
        let before = self.others.len();
        for member in self.all() {
            let known = self.members().any(|p| p.pid() == member.pid)
                || self.left.iter().any(|(pid, _)| *pid == member.pid);
            if known {
                continue;
            }
            match Process::open(member.pid) {
                // It may have executed another program since.
                Ok(process) if process.space() == self.leader.space() => self.others.push(process),
                Ok(_) => {}
                Err(_) if fettle_live::start_time(member.pid) != Some(member.start_time) => {}
                Err(_) if fettle_live::has_ended(member.pid) => {}
                Err(_) if fettle_live::is_followed(member.pid) => {}
                Err(error) => self.left.push((member.pid, error.reason())),
            }
        }
        self.others.len() - before
    }

    /// Calls `work` with each process of the group once, the oldest first, and with those that are
    /// forked meanwhile. Processes with which it fails are left unmodified.
    ///
    /// # Errors
    ///
    /// The error of `work` for the process that was named.
    pub fn for_each(
        &mut self,
        mut work: impl FnMut(&Process) -> Result<(), TuneError>,
    ) -> Result<(), TuneError> {
        let leader = self.leader.pid();
        let mut done: Vec<Pid> = Vec::new();
        for _ in 0..LOOKS {
            let mut left = Vec::new();
            for process in self.members() {
                let pid = process.pid();
                if done.contains(&pid) {
                    continue;
                }
                done.push(pid);
                match work(process) {
                    Ok(()) => {}
                    Err(error) if pid == leader => return Err(error),
                    Err(_) if !process.is_same() => {}
                    Err(error) => left.push((pid, error.reason())),
                }
            }
            self.others.retain(|p| !left.iter().any(|(pid, _)| *pid == p.pid()));
            self.left.extend(left);
            self.forget();
            if self.look() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Forgets processes that have ended.
    pub fn forget(&mut self) {
        self.others.retain(Process::is_same);
    }

    /// All processes of the group that live now.
    pub fn all(&self) -> Vec<Member> {
        let mut all = members_of(self.leader);
        all.retain(|r| !self.alone || r.pid == self.leader.pid());
        all
    }

    /// The processes that are to be changed, the oldest first: a parent comes before its children.
    pub fn members(&self) -> impl Iterator<Item = &Process> {
        let mut all: Vec<&Process> = self.others.iter().chain([self.leader]).collect();
        all.sort_by_key(|p| (p.start_time(), p.pid()));
        all.into_iter()
    }

    /// The threads of those members that have one of these numbers.
    pub(crate) fn threads_of(&self, pids: &[Pid]) -> Vec<Tid> {
        let meant = self.members().filter(|process| pids.contains(&process.pid()));
        meant.flat_map(|process| process.threads_now().unwrap_or_default()).collect()
    }

    /// The modules of all members.
    pub fn targets(&self, leader: &Target<'_>) -> Vec<Target<'_>> {
        self.members().map(|process| leader.of_member(process)).collect()
    }

    /// What is mapped in any of them.
    ///
    /// # Errors
    ///
    /// When the process that was named has ended.
    pub fn maps(&self) -> Result<Vec<Mapping>, TuneError> {
        let mut maps = self.leader.maps()?;
        for process in &self.others {
            maps.extend(process.maps().unwrap_or_default());
        }
        maps.sort_by_key(|m| (m.start, m.end));
        maps.dedup_by(|a, b| (a.start, a.end) == (b.start, b.end));
        Ok(maps)
    }

    /// CPU time that all have used, in nanoseconds. It only grows, except for children of the
    /// oldest that it has not waited for yet.
    pub fn cpu_ns(&self) -> Option<u64> {
        if self.alone {
            return self.leader.cpu_ns();
        }
        let times = self.all().into_iter().filter_map(|r| r.cpu_ns());
        Some(times.map(|(own, children)| own + children).sum())
    }

    /// Calls that read or write, of all.
    pub fn io_calls(&self) -> Option<u64> {
        if self.alone {
            return self.leader.io_calls();
        }
        Some(self.all().into_iter().filter_map(|r| r.io_calls()).sum())
    }
}
