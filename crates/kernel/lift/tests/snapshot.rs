//! Lifting all functions of a real kernel, where a snapshot of one is there
//! (`cargo xtask kernel --snapshot`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fettle_kernel_image::snapshot;
use fettle_kernel_lift::{Lifter, Reason};

fn snapshots() -> Vec<PathBuf> {
    snapshot::kept(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
}

#[test]
fn nearly_all_functions_are_lifted() {
    for folder in snapshots() {
        let image = snapshot::read(&folder).unwrap();
        let began = std::time::Instant::now();
        let lifter = Lifter::new(&image);
        println!("noreturn: {} in {:?}", lifter.noreturn().len(), began.elapsed());
        for known in ["panic", "do_exit", "__stack_chk_fail"] {
            assert!(lifter.noreturn().contains(image.symbols.address(known).unwrap()), "{known}");
        }
        for returning in ["schedule", "vfs_read", "_printk"] {
            assert!(!lifter.noreturn().contains(image.symbols.address(returning).unwrap()));
        }
        let entries = lifter.traceable();
        let (lifted, skipped) = lifter.lift(&entries);
        let mut reasons: BTreeMap<Reason, Vec<&str>> = BTreeMap::new();
        for one in &skipped {
            reasons.entry(one.reason).or_default().push(&one.name);
        }
        println!(
            "{}: {} of {} lifted, {} blocks, {} without room, in {:?}",
            image.release,
            lifted.len(),
            entries.len(),
            lifted.iter().map(|f| f.code.blocks.len()).sum::<usize>(),
            lifted.iter().filter(|f| f.room.is_none()).count(),
            began.elapsed()
        );
        for (reason, names) in &reasons {
            println!(
                "{:5} {} e.g. {:?}",
                names.len(),
                reason.describe(),
                &names[..names.len().min(8)]
            );
        }
        assert!(entries.len() > 30_000);
        assert!(lifted.len() * 100 >= entries.len() * 98);
    }
}
