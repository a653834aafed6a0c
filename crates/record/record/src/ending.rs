//! All that is known when a recording has ended, and the trace that becomes of it.
//!
//! It is plain data, so that the trace can be made on this machine or on another that has the
//! spools: by the same code, from the same numbers.

use std::fs;

use fettle_trace::{Finish, Manifest, ProbeMode, TraceWriter};
use serde::{Deserialize, Serialize};

use crate::kernel::KernelEnding;

/// What is known at the end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ending {
    /// Tables and manifest, but for the events.
    finish: Finish,
    /// Of the kernel's events.
    kernel: Option<KernelEnding>,
}

impl Ending {
    /// An ending of its parts.
    pub fn new(finish: Finish, kernel: Option<KernelEnding>) -> Ending {
        Ending { finish, kernel }
    }

    /// The manifest as it is known without the spools.
    pub fn manifest(&self) -> &Manifest {
        &self.finish.manifest
    }

    /// The same, to add to it.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.finish.manifest
    }

    /// Makes the trace of the spools that lie in the writer's folder; more than `most` records are
    /// left to its first reader, which the second result says.
    ///
    /// # Errors
    ///
    /// Those of the trace; the folder then holds a recording that was cut off.
    pub fn write(
        self,
        writer: TraceWriter,
        most: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Manifest, bool), fettle_trace::Error> {
        let Ending { mut finish, kernel } = self;
        if let Some(kernel) = kernel {
            // What an attempt before this one made of the same spool.
            let _ = fs::remove_dir_all(writer.path().join("events"));
            let converted = kernel.convert(writer.path(), &mut finish.manifest)?;
            let end_ns = finish.manifest.duration_ns;
            converted.process_table.add_to(end_ns, &mut finish.processes, &mut finish.threads);
            finish.events = converted.events;
        }
        if finish.manifest.probe_mode == ProbeMode::None {
            finish.manifest.totals.processes = finish.processes.len() as u64;
            finish.manifest.totals.threads = finish.threads.len() as u64;
        }
        writer.finish_or_defer(finish, most, progress)
    }
}
