//! What a daemon leaves for the next one: how each group stands. Written anew at each change, and read
//! once.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fleet::{Fleet, GroupKey, State};

/// A group, as it stands in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Group {
    key: GroupKey,
    seen: u64,
    state: State,
}

/// The groups of an earlier daemon; none where there is no file, or one that is not whole: then
/// processes show by themselves what was changed in them.
pub fn read(path: &Path) -> BTreeMap<GroupKey, (u64, State)> {
    let text = std::fs::read(path).unwrap_or_default();
    let groups: Vec<Group> = serde_json::from_slice(&text).unwrap_or_default();
    groups.into_iter().map(|group| (group.key, (group.seen, group.state))).collect()
}

/// Replaces the file.
///
/// # Errors
///
/// Those of the file; then it is as it was.
pub fn write(path: &Path, fleet: &Fleet) -> io::Result<()> {
    let groups: Vec<Group> = fleet
        .groups()
        .iter()
        .map(|(key, group)| Group { key: *key, seen: group.seen, state: group.state.clone() })
        .collect();
    let new = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(&groups)?)?;
    std::fs::rename(&new, path)
}
