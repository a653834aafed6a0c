//! What rounds of attaching came to.

use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};

/// How long threads were paused, and what else the rounds have shown.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    /// Of these, those that recorded; and calls that were recorded.
    pub(crate) recordings: usize,
    pub(crate) calls: u64,
    pub(crate) jumps: u64,
    pub(crate) stops_ms: Vec<f64>,
    pub(crate) install_ms: Vec<f64>,
    /// How often rewritten text stayed for a while, and of these, how often for
    /// `fettle undo --memory`.
    pub(crate) kept: usize,
    pub(crate) by_memory: usize,
    /// How often it stayed for good: a number in the program's data may be a return address in it, for all that is
    /// known. Programs at low addresses have such numbers (hashes of 32 bits, pairs of characters).
    pub(crate) uncertain: usize,
    /// What the program said at its end, if it checks itself.
    pub(crate) said: String,
}

impl Rounds {
    /// What fettle has reported of a change.
    pub(crate) fn add(&mut self, reported: &serde_json::Value) {
        let stops = reported["stops_ms"].as_array().into_iter().flatten();
        let stops = stops.chain(Some(&reported["longest_stop_ms"]));
        self.stops_ms.extend(stops.filter_map(serde_json::Value::as_f64));
        self.install_ms.extend(reported["install_ms"].as_f64());
        self.jumps = self.jumps.max(reported["jumps"].as_u64().unwrap_or(0));
        self.calls += reported["calls"].as_u64().unwrap_or(0);
    }

    /// Unmaps rewritten text that stayed for a while: a word that a program keeps, or an exception
    /// has left on a stack, may refer to it for as long as it likes. False if it stays for good, which only a
    /// number that is not certain to be an address may bring about.
    pub(crate) fn free(
        &mut self,
        undo: impl Fn(&[&str]) -> Result<serde_json::Value>,
    ) -> Result<bool> {
        self.kept += 1;
        let mut freed = undo(&["--wait", "10"])?;
        if !freed["kept"].is_null() {
            self.by_memory += 1;
            freed = undo(&["--memory", "--wait", "30"])?;
        }
        if freed["kept"].is_null() {
            return Ok(true);
        }
        let why = freed["why_kept"].as_str().unwrap_or_default();
        let is_uncertain = why.contains("not certain to be an address");
        ensure!(is_uncertain, "round {}: rewritten text stays: {why}", self.count);
        self.uncertain += 1;
        Ok(false)
    }
}

/// A place of a process's code, from a file, that is not what the file says.
pub(crate) fn differing(pid: &str) -> Result<Option<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = fields[..] else { continue };
        let Ok(file) = std::fs::read(path) else { continue };
        let hex = |text: &str| u64::from_str_radix(text, 16);
        let (start, end) = range.split_once('-').context("a range")?;
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)? as usize);
        let mut now = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut now, start)?;
        let then = &file[offset.min(file.len())..];
        if let Some(i) = now.iter().zip(then).position(|(a, b)| a != b) {
            return Ok(Some(format!("{path} at {:#x}", offset + i)));
        }
    }
    Ok(None)
}
