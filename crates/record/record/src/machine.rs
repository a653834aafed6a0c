//! What a trace says of the machine it was made on.

use std::fs;

use fettle_trace::Machine;

/// This machine.
pub fn describe() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name").and_then(|r| r.split_once(": ")))
        .map_or("unknown", |(_, name)| name);
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    Machine {
        cpu_model: model.trim().to_owned(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        kernel: read("osrelease"),
        host: read("hostname"),
        boot: read("random/boot_id"),
    }
}
