//! The kernel that runs accepts every program, in all their forms.

mod common;

use common::capture;
use fettle_kernel_events::Options;

#[test]
fn every_program_is_accepted() {
    for system in [false, true] {
        for old_reads in [false, true] {
            let (ring_bytes, payload) = (1 << 16, fettle_kernel_events::PAYLOAD_MOST);
            let options = Options {
                system,
                old_reads,
                ring_bytes,
                payload,
                task_wakes: true,
                ..Options::default()
            };
            let Some(mut capture) = capture(options) else { return };
            println!("system {system}, old reads {old_reads}: without {:?}", capture.without);
            let start = std::time::Instant::now();
            capture.start().unwrap();
            println!("attached in {:?}", start.elapsed());
            let start = std::time::Instant::now();
            drop(capture);
            println!("detached in {:?}", start.elapsed());
        }
    }
}
