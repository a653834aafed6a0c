//! The kernel's events of a system's processes, while it does something.

use std::convert::Infallible;

use fettle_kernel_events::raw::{self, Kind};
use fettle_kernel_events::{Capture, Options, ring};
use fettle_types::Pid;

use super::steps::{HostCall, Record, What};
use crate::error::CompareError;

/// Where a switch's record says that the thread after it is observed.
const AFTER_IS_OBSERVED: u16 = 4;

/// A record as the kernel's programs have written it.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) time_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Decoded records, in order of time.
pub(super) fn decoded(raw: &[Raw]) -> Vec<Record> {
    let read = |raw: &Raw| raw::Record::read(&raw.bytes).map(|record| read(raw.cpu, &record));
    raw.iter().filter_map(read).collect()
}

/// A recording that can be begun and ended again and again.
#[derive(Debug)]
pub(crate) struct Watch {
    capture: Capture,
    lost: u64,
}

impl Watch {
    /// Puts the programs into the kernel.
    pub(crate) fn new() -> Result<Watch, CompareError> {
        let options = Options { begins: true, ..Options::default() };
        Ok(Watch { capture: Capture::new(&options)?, lost: 0 })
    }

    /// Runs `work` while a process and all that descend from it are recorded, in order of time. `None` for the
    /// records where some were lost.
    pub(crate) fn during<T>(
        &mut self,
        pid: Pid,
        work: impl FnOnce() -> Result<T, CompareError>,
    ) -> Result<(T, Option<Vec<Raw>>), CompareError> {
        self.capture.processes().observe_tree(pid)?;
        self.capture.start()?;
        let worked = work();
        self.capture.stop();
        let mut records = Vec::new();
        let drained: Result<usize, Infallible> = self.capture.drain(|cpu, bytes| {
            for range in ring::records(bytes) {
                let bytes = &bytes[range];
                let raw = |time_ns| Raw { time_ns, cpu, bytes: bytes.to_vec() };
                records.extend(raw::time_of(bytes).map(raw));
            }
            Ok(())
        });
        let Ok(_) = drained;
        records.sort_by_key(|record: &Raw| record.time_ns);
        let lost = self.capture.losses()?.total();
        let is_whole = std::mem::replace(&mut self.lost, lost) == lost;
        Ok((worked?, is_whole.then_some(records)))
    }
}

fn read(cpu: u32, raw: &raw::Record<'_>) -> Record {
    let what = match raw.kind {
        Kind::Switch => {
            let is_observed = raw.flags & AFTER_IS_OBSERVED != 0;
            What::Switch(is_observed.then_some(raw.word(1) as u32))
        }
        Kind::Io if raw.flags & raw::io::BEGIN == 0 => What::End(raw.tid),
        Kind::Io if raw.flags & raw::io::WRITE != 0 => What::Begin(raw.tid, HostCall::Write),
        Kind::Io if raw.flags & raw::io::SYNC != 0 => What::Other,
        Kind::Io => What::Begin(raw.tid, HostCall::Read),
        Kind::Wait => {
            let call = match raw.flags & !raw::wait::BEGIN {
                raw::wait::POLL => Some(HostCall::Poll),
                raw::wait::FUTEX => Some(HostCall::Futex),
                raw::wait::SLEEP => Some(HostCall::Sleep),
                raw::wait::CHILD => Some(HostCall::Child),
                _ => None,
            };
            match call {
                Some(call) if raw.flags & raw::wait::BEGIN != 0 => What::Begin(raw.tid, call),
                Some(_) => What::End(raw.tid),
                None => What::Other,
            }
        }
        _ => What::Other,
    };
    let of_call = matches!(raw.kind, Kind::Io | Kind::Wait);
    Record { time_ns: raw.time_ns, cpu, what, of_call }
}
