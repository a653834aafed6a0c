//! Which process groups of the machine the rules mean.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fettle_live::GroupKey;
use fettle_types::Pid;

use crate::rules::Rule;

/// A process group that a rule means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its oldest process.
    pub leader: Pid,
    /// How many processes it has.
    pub processes: usize,
    /// The path of its program.
    pub program: String,
    /// Its systemd unit, if it has one.
    pub unit: Option<String>,
    /// The place of the rule in the file.
    pub rule: usize,
}

/// Looks for processes. It remembers the build ids of programs.
#[derive(Debug, Default)]
pub struct Finder {
    /// By device, number and time of change of the file.
    build_ids: HashMap<(u64, u64, i64), Option<String>>,
}

impl Finder {
    /// The process groups that rules mean, each by the first rule that matches its oldest process.
    pub fn find(&mut self, rules: &[Rule]) -> BTreeMap<GroupKey, Found> {
        let mut groups: BTreeMap<GroupKey, Vec<(u64, Pid)>> = BTreeMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
        let own = Pid::own();
        for pid in pids.filter(|pid| *pid != own) {
            if let (Some(key), Some(start)) =
                (fettle_live::group_key(pid), fettle_live::start_time(pid))
            {
                groups.entry(key).or_default().push((start, pid));
            }
        }
        let mut found = BTreeMap::new();
        for (key, mut processes) in groups {
            processes.sort_unstable();
            let (_, leader) = processes[0];
            if let Some(group) = self.meant(leader, processes.len(), rules) {
                found.insert(key, group);
            }
        }
        found
    }

    fn meant(&mut self, leader: Pid, processes: usize, rules: &[Rule]) -> Option<Found> {
        let program = fs::read_link(format!("/proc/{leader}/exe")).ok()?;
        // An upgraded program that still runs is what it was.
        let program = program.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
        let cgroup = fs::read_to_string(format!("/proc/{leader}/cgroup")).ok().and_then(cgroup_in);
        let unit = cgroup.as_deref().and_then(unit_in);
        let mut matches = |rule: &Rule| {
            let is = |pattern: &Option<crate::rules::Pattern>, name: Option<&str>| {
                pattern.as_ref().is_none_or(|p| name.is_some_and(|name| p.is_match(name)))
            };
            is(&rule.program, Some(&program))
                && is(&rule.cgroup, cgroup.as_deref())
                && is(&rule.unit, unit)
                && (rule.build_id.is_none() || is(&rule.build_id, self.build_id(leader).as_deref()))
        };
        let rule = rules.iter().position(&mut matches)?;
        Some(Found { leader, processes, unit: unit.map(ToOwned::to_owned), program, rule })
    }

    /// The build id of a process's program. The file is the one that runs, whatever its path leads
    /// to by now.
    fn build_id(&mut self, pid: Pid) -> Option<String> {
        let path = format!("/proc/{pid}/exe");
        let meta = fs::metadata(&path).ok()?;
        let read = || {
            let image = fettle_record::modules::open_image(Path::new(&path)).ok()?;
            fettle_record::rows::build_id(&image).filter(|id| !id.is_empty())
        };
        self.build_ids.entry((meta.dev(), meta.ino(), meta.ctime())).or_insert_with(read).clone()
    }
}

/// The path in the unified hierarchy, or in systemd's own where all are at the root of that (cgroup v1).
fn cgroup_in(text: String) -> Option<String> {
    let path = |begin: &str| text.lines().find_map(|line| line.strip_prefix(begin));
    let systemd =
        || text.lines().find_map(|line| line.split_once(":name=systemd:").map(|(_, path)| path));
    let unified = path("0::");
    unified.filter(|path| *path != "/").or_else(systemd).or(unified).map(ToOwned::to_owned)
}

/// The innermost service or scope in the path of a control group.
fn unit_in(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_from_control_groups() {
        let text =
            "12:pids:/a\n0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        let path = cgroup_in(text.to_owned()).unwrap();
        assert_eq!(unit_in(&path), Some("postgresql@15-main.service"));
        let old = "1:name=systemd:/user.slice/session-2.scope/x\n";
        let path = cgroup_in(old.to_owned()).unwrap();
        assert_eq!(unit_in(&path), Some("session-2.scope"));
        let both = format!("{old}0::/\n");
        assert_eq!(cgroup_in(both).unwrap(), path);
        assert_eq!(cgroup_in("0::/\n".to_owned()).unwrap(), "/");
        assert_eq!(unit_in("/"), None);
    }
}
