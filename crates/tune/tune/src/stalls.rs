//! Whether the front end is a bottleneck, by the processor's own counters where a process may read
//! them: the share of its cycles in which the front end delivers nothing to the back end.
//!
//! Kernels know such a counter by one name for many processors (`stalled-cycles-frontend`); where they
//! know none, or there are no counters (most virtual machines), the model stands in.

use std::time::Duration;

use fettle_record::perf::{Count, Counted};

use crate::count;
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::stop::Stop;

/// How long it is counted.
const TIME: Duration = Duration::from_millis(500);

/// The share of a process group's cycles that are front-end stalls; `None` if there is no such
/// counter.
///
/// # Errors
///
/// When we are interrupted.
pub fn share(process_group: &ProcessGroup<'_>, stop: Stop<'_>) -> Result<Option<f64>, TuneError> {
    share_of([Count::FETCH_STALLS, Count::CYCLES], process_group, stop)
}

/// The ratio of two counts of a process group.
fn share_of(
    counts: [Count; 2],
    process_group: &ProcessGroup<'_>,
    stop: Stop<'_>,
) -> Result<Option<f64>, TuneError> {
    // If the event is not available at all, it is not opened for each thread.
    if counts.iter().any(|count| Counted::of_this_thread(*count).is_err()) {
        return Ok(None);
    }
    let threads = process_group.threads_of(&count::workers(process_group, stop)?);
    let [Ok(part), Ok(whole)] = counts.map(|count| Counted::of(&threads, count)) else {
        return Ok(None);
    };
    stop.wait(process_group.leader.pid(), TIME)?;
    let (part, whole) = (part.read(), whole.read());
    Ok((whole > 0.0).then(|| (part / whole).min(1.0)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use fettle_live::Process;
    use fettle_types::Pid;

    use super::*;

    /// With two events that every kernel counts: two clocks of the same CPU time, of a process at
    /// work.
    #[test]
    fn a_share_of_what_the_kernel_counts() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let process = Process::open(Pid::of_child(&child)).unwrap();
        let process_group = ProcessGroup::of(&process, true);
        let wanted = AtomicBool::new(false);
        let clocks = share_of([Count::TASK_CLOCK, Count::CPU_CLOCK], &process_group, Stop(&wanted));
        let stalls = share(&process_group, Stop(&wanted));
        child.kill().unwrap();
        child.wait().unwrap();
        let may_count = Counted::of_this_thread(Count::TASK_CLOCK).is_ok();
        assert_eq!(clocks.unwrap().is_some_and(|share| share > 0.5), may_count);
        // On a machine with the counters it is some share, on another one none.
        let has_counters = Counted::of_this_thread(Count::FETCH_STALLS).is_ok();
        assert_eq!(stalls.unwrap().is_some(), has_counters);
    }
}
