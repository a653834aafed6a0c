//! Children of processes, whichever of their threads has begotten them.

use std::fs;

/// Children of a process that live.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let lists: Vec<String> = lists.filter_map(Result::ok).collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    numbers.map(|child| child.parse().unwrap()).collect()
}
