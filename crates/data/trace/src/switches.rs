//! When threads were switched out.
//!
//! A spool of switches holds, for each interval that its thread was switched out, both ends and the
//! ticks that it had been out before. So the off-CPU time before *any* time is one search, and that
//! of any call, however long, the difference of two.

use std::path::Path;

use crate::column::TableWriter;
use crate::error::Result;
use crate::manifest::{FileEntry, TickConverter};
use crate::spool::{self, Content, SpoolFile, SpoolReader};
use crate::switched_out::SwitchedOut;
use crate::tables::Switch;

/// Records kept in memory of a thread whose calls are read backwards.
const WINDOW: u64 = 1 << 12;

/// The off-CPU time of one thread before any time. Queries mostly go back in time.
#[derive(Debug)]
pub(crate) struct OffCpu {
    spool: SpoolReader,
    /// Consecutive records; the first has the number `first`.
    window: Vec<SwitchedOut>,
    first: u64,
}

impl OffCpu {
    /// By the thread's switches.
    pub(crate) fn by(spool: &SpoolFile) -> Result<OffCpu> {
        Ok(OffCpu { spool: spool.open()?, window: Vec::new(), first: 0 })
    }

    /// Ticks that the thread was out before `start` and before `end`, which is no earlier.
    #[inline]
    pub(crate) fn before(&mut self, start: u64, end: u64) -> Result<(u64, u64)> {
        self.move_to(end)?;
        let at = self.window.partition_point(|out| out.off < end);
        let Some(last) = at.checked_sub(1).map(|at| self.window[at]) else { return Ok((0, 0)) };
        let whole = ticks_before(last, end);
        // Nearly all calls: nothing happened inside.
        if last.on <= start {
            return Ok((whole, whole));
        }
        Ok((self.search(start)?, whole))
    }

    /// Makes the window hold the last record that begins before `moment`, if there is one.
    fn move_to(&mut self, moment: u64) -> Result<()> {
        let begins_before = |out: Option<&SwitchedOut>| out.is_some_and(|out| out.off < moment);
        let end = self.first + self.window.len() as u64;
        let low = self.first == 0 || begins_before(self.window.first());
        let high = end == self.spool.records || !begins_before(self.window.last());
        if low && high && !self.window.is_empty() || self.spool.records == 0 {
            return Ok(());
        }
        let end = self.count_before(moment)?.max(1);
        self.first = end.saturating_sub(WINDOW);
        self.spool.switches(self.first, (end - self.first) as usize, &mut self.window)
    }

    /// Number of records that begin before `moment`.
    fn count_before(&self, moment: u64) -> Result<u64> {
        let (mut low, mut high) = (0, self.spool.records);
        let mut one = Vec::new();
        while low < high {
            let middle = low.midpoint(high);
            self.spool.switches(middle, 1, &mut one)?;
            if one[0].off < moment {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Off-CPU ticks before a time that is not after the window.
    fn search(&self, moment: u64) -> Result<u64> {
        let at = self.window.partition_point(|out| out.off < moment);
        if let Some(at) = at.checked_sub(1) {
            return Ok(ticks_before(self.window[at], moment));
        }
        let Some(last) = self.count_before(moment)?.checked_sub(1) else { return Ok(0) };
        let mut one = Vec::new();
        self.spool.switches(last, 1, &mut one)?;
        Ok(ticks_before(one[0], moment))
    }
}

/// Ticks out before `moment`, of which `last` is the last record that begins before it.
fn ticks_before(last: SwitchedOut, moment: u64) -> u64 {
    last.before.saturating_add(moment.min(last.on).saturating_sub(last.off))
}

/// Writes the table of switches from the spools, a part at a time.
pub(crate) fn convert(trace: &Path, clock: TickConverter) -> Result<FileEntry> {
    let mut writer = TableWriter::create(trace)?;
    let mut outs = Vec::new();
    for spool in spool::all(trace, Content::Switches)? {
        let reader = spool.open()?;
        let mut first = 0;
        while first < spool.records {
            let count = (spool.records - first).min(1 << 17) as usize;
            reader.switches(first, count, &mut outs)?;
            first += count as u64;
            for out in &outs {
                writer.push(Switch {
                    thread: spool.thread,
                    off_ns: clock.since_start_ns(out.off),
                    on_ns: clock.since_start_ns(out.on),
                    preempted: out.preempted,
                })?;
            }
        }
    }
    writer.finish()
}
