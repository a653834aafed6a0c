//! How long installing and taking out take, and what others notice of it, by the guest's clock: two nanoseconds an
//! instruction.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::boot::{Options, boot};

/// Some thousand functions, installed and taken out; then functions that threads sleep in, a thousand threads
/// asleep in them, again and again.
const INSTALL: &str = "
. /cases.sh
fettle kernel count 's*' --duration 1000s >/dev/null 2>&1 &
counting=$!
await_installed && fettle status --kernel --json && fettle undo --kernel --json
kill -9 $counting; wait $counting 2>/dev/null
fettle kernel count schedule,do_wait,ep_poll,pipe_read --duration 1000s >/dev/null 2>&1 &
counting=$!
await_installed
load crowd 820 >/tmp/crowd 2>&1 &
crowd=$!
sleep 1
load turns 100
kill -9 $crowd; wait $crowd 2>/dev/null
cat /tmp/crowd
";

/// A thread looks at the clock: while another one is busy on the same processor, and while that installs and
/// takes out.
const PAUSES: &str = "
. /cases.sh
fettle kernel count 's*' --duration 1000s >/dev/null 2>&1 &
await_installed
sh -c 'while :; do :; done' &
busy=$!
load gap 2
kill -9 $busy; wait $busy 2>/dev/null
load turns 3 &
turning=$!
load gap 4
wait $turning
";

/// What installing and taking out may take, s.
const SECONDS: f64 = 1.0;
/// What all processors may be stopped for, with a thousand threads, ms.
const STOPPED: f64 = 1.0;
/// What the longest pause may be over that of a busy machine, ms.
const PAUSE: f64 = 10.0;

/// Measures and prints; false if a figure is missed.
pub fn run(options: &Options) -> Result<bool> {
    let (kernel, shown, _) = boot(options, INSTALL)?;
    let mut printed = shown.lines().filter(|line| line.starts_with('{'));
    let mut next = || -> Result<Value> {
        let line = printed.next().with_context(|| format!("nothing was installed:\n{shown}"))?;
        Ok(serde_json::from_str(line)?)
    };
    let (installed, undone, turns) = (next()?["module"].take(), next()?["status"].take(), next()?);
    let (install, undo) = (number(&installed, "install_ns")?, number(&undone, "remove_ns")?);
    println!(
        "kernel-tune: {}, {} functions: installed in {:.2} s, taken out in {:.2} s, stopped for {:.2} ms",
        kernel.release,
        number(&installed, "entries")?,
        install / 1e9,
        undo / 1e9,
        number(&undone, "stopped_ns")? / 1e6,
    );
    let (all, at_once) = (number(&turns, "turns")?, number(&turns, "at_once")?);
    let stopped = number(&turns, "most_ns")? / 1e6;
    println!(
        "  schedule, do_wait, ep_poll and pipe_read, {} threads: {at_once} of {all} times out at once, {} return \
         addresses exchanged, stopped for {:.2} to {stopped:.2} ms",
        number(&turns, "tasks")?,
        number(&turns, "moved")?,
        number(&turns, "least_ns")? / 1e6,
    );
    ensure!(!shown.contains("load crowd:"), "a thread of the crowd failed:\n{shown}");
    let (_, shown, _) = boot(options, PAUSES)?;
    let gaps: Vec<f64> = shown.lines().filter_map(gap).collect();
    let [usual, meanwhile] = gaps[..] else {
        return Err(anyhow::anyhow!("no pauses were measured:\n{shown}"));
    };
    println!(
        "  longest pause of another thread on the same processor: {usual:.2} ms beside a busy one, {meanwhile:.2} ms \
         beside one that installs and takes out"
    );
    Ok(install / 1e9 <= SECONDS
        && undo / 1e9 <= SECONDS
        && at_once == all
        && stopped <= STOPPED
        && meanwhile <= usual + PAUSE)
}

fn number(of: &Value, key: &str) -> Result<f64> {
    of[key].as_f64().with_context(|| format!("no {key} in what the guest says: {of}"))
}

/// What `load gap` prints.
fn gap(line: &str) -> Option<f64> {
    line.strip_prefix("load gap: largest ")?.strip_suffix(" ms")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gap_is_read() {
        assert_eq!(gap("load gap: largest 12.50 ms"), Some(12.5));
        assert_eq!(gap("load gap: ok"), None);
    }
}
