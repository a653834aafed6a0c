//! The image of a real kernel, where a snapshot of one is there (`cargo xtask kernel --snapshot`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fettle_kernel_image::{Entry, snapshot};

fn snapshots() -> Vec<PathBuf> {
    snapshot::kept(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
}

/// Every function that the kernel's own tracer knows begins with the nop that this crate looks for, and
/// the tables and types say what is known of any kernel.
#[test]
fn what_the_tracer_knows_is_found() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let traceable = std::fs::read_to_string(folder.join("traceable")).unwrap();
        let names: HashSet<&str> = image
            .functions
            .all()
            .iter()
            .filter(|f| matches!(f.entry, Entry::Fentry(_)))
            .map(|f| &*f.name)
            .collect();
        let known = traceable
            .lines()
            .filter(|line| !line.contains('[') && !line.contains("__ftrace_invalid_address"));
        let all: Vec<&str> = known.collect();
        let missing: Vec<&&str> = all.iter().filter(|name| !names.contains(**name)).collect();
        println!(
            "{}: {} of {} found, e.g. not {:?}",
            image.release,
            all.len() - missing.len(),
            all.len(),
            &missing[..missing.len().min(9)]
        );
        // Names of aliases are another's.
        assert!(all.len() > 30_000 && missing.len() * 200 < all.len(), "{missing:?}");
        let (tables, types) = (&image.tables, &image.types);
        println!(
            "exceptions {}, jump labels {}, static calls {}, bugs {}, unwind rows {}",
            tables.exceptions().len(),
            tables.jump_labels().len(),
            tables.static_calls().len(),
            tables.bugs().len(),
            image.orc.len()
        );
        let inside = |at: &u64| image.bytes(*at, 5).is_some();
        assert!(tables.jump_labels().iter().map(|label| label.target).all(|at| inside(&at)));
        assert!(tables.bugs().iter().map(|bug| bug.file).all(|at| inside(&at)));
        let name = tables.bugs()[0].file;
        let name = image.bytes(name, 8).unwrap();
        assert!(name.iter().all(u8::is_ascii), "{name:?}");
        assert!(types.field("task_struct", "stack").unwrap().offset > 0);
        assert!(types.field("module", "name").unwrap().offset > 0);
        let schedule = image.symbols.address("schedule").unwrap();
        // Where it begins, only the return address is on the stack.
        assert_eq!(image.orc.at(schedule).unwrap().offset(), 8);
    }
}
