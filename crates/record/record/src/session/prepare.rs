//! What is put into a program before its first instruction.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fettle_image::{Image, LinkAddr};
use fettle_lift::SkipReason;
use fettle_live::{ExecStop, FaultStop, FileMap, Injection, LiveAddr};
use fettle_types::{LoadBias, ModuleIndex, Pid};

use crate::libraries::{CODE, CONSTANTS, DATA};
use crate::room::{AddressSpace, find_gap, slots_from};
use crate::slots::ALIVE_AT;

use super::Recorder;
use super::state::Pending;

impl<'a> Recorder<'a> {
    pub(super) fn prepare(&mut self, stop: &ExecStop<'_>) -> Result<Injection, String> {
        if stop.compat {
            return Err("it is a 32-bit program".to_owned());
        }
        let exe = format!("/proc/{}/exe", stop.pid);
        let module = self
            .modules
            .get_as(&stop.executable, &executed_as(stop), Path::new(&exe))
            .map_err(|e| e.to_string())?;
        let image = &self.modules.at(module).image;
        let bias = load_bias(image, stop.auxv.entry);
        let probed = !self.modules.at(module).plan.functions.is_empty();
        let libraries = self.libraries.wanted() && self.alive.is_some();
        if !probed && !libraries {
            return Err(self.why_no_probe(module).to_owned());
        }
        let size = self.slots.layout().size();
        let slots_at = find_gap(slots_from(&stop.maps, size), size, &stop.maps)
            .ok_or_else(|| "no room for the session's memory in its address space".to_owned())?;
        let live = |at: LinkAddr| at + bias;
        let map = |fd: &Arc<OwnedFd>, offset, len, addr, prot, shared| FileMap {
            fd: fd.clone(),
            offset,
            len,
            addr,
            prot,
            shared,
            dont_dump: shared,
        };
        let mut injection = Injection::default();
        let mut taken = vec![(slots_at.0, size)];
        if probed {
            let mut space = AddressSpace::of(stop.pid, &stop.maps);
            let raised = self.modules.raised_heap(module, bias, space);
            // Where the kernel does not do it, rewritten text goes elsewhere.
            if let Some(heap) = raised.filter(|heap| stop.raise_heap(*heap).is_ok()) {
                space.growth.heap = Some(heap);
            }
            let placed = self.modules.place(module, bias, space).map_err(|e| e.to_string())?;
            let (linked, file) = (&placed.linked, &placed.file);
            let (text_len, constants_len) = (placed.text_len, placed.constants_len);
            let (text, constants) = (live(linked.text_at), live(linked.constants_at));
            injection.maps.push(map(file, 0, text_len, text, CODE, false));
            injection.maps.push(map(file, text_len, constants_len, constants, CONSTANTS, false));
            injection.writes.extend(linked.writes.iter().map(|(at, b)| (live(*at), b.clone())));
            injection.phdr = Some((live(linked.program_headers.0), linked.program_headers.1));
            if let Some(sampled) = &mut self.sampled {
                sampled.forget(stop.pid);
                sampled.add_code(stop.pid, text.0, text_len, module);
            }
            taken.extend([(text.0, text_len), (constants.0, constants_len)]);
        }
        injection.maps.push(map(&self.slots.file(), 0, size, slots_at, DATA, true));
        let mut space = None;
        if self.alive.is_some() {
            let alive = slots_at.0 + ALIVE_AT;
            match self.libraries.prepare(stop, alive, &taken) {
                Ok(Some((made, maps, writes))) => {
                    injection.maps.extend(maps);
                    injection.writes.extend(writes);
                    space = Some(made);
                }
                Ok(None) => {}
                Err(reason) => {
                    let of = format!("the libraries of {}", stop.executable.display());
                    self.refuse(of, reason);
                }
            }
        }
        if !probed && space.is_none() {
            return Err(self.why_no_probe(module).to_owned());
        }
        let slot = self.take_slot().ok_or_else(|| self.why_no_slot().to_owned())?;
        let base = self.slots.prepare(slot, stop.pid, stop.pid.first_thread(), slots_at.0);
        injection.gs_base = Some(base.ok_or_else(|| "there is no memory for it".to_owned())?);
        let pending = Pending { space, probed, slot, slots_at: slots_at.0, module, bias };
        self.pending.insert(stop.pid, pending);
        Ok(injection)
    }

    fn why_no_probe(&self, module: ModuleIndex) -> &'static str {
        let skipped = &self.modules.at(module).plan.skipped;
        match skipped.iter().any(|s| s.reason == SkipReason::NotSelected) {
            true => "it has none of the functions that are asked for",
            false => "it has no function to probe",
        }
    }

    fn why_no_slot(&self) -> &'static str {
        match self.slots.limited() {
            true => "the limit on files' sizes (RLIMIT_FSIZE, ulimit -f) leaves no room for it",
            false => "too many threads at once",
        }
    }

    /// Reports a program that has set its gs base, now that a fault shows it: probes took what lies
    /// there for their memory.
    pub(super) fn report_gs(&mut self, stop: &FaultStop) {
        let slots_at = self.processes.get(&stop.pid).and_then(|process| process.slots_at);
        let Some(offset) = slots_at.map(|at| stop.gs_base.0.wrapping_sub(at)) else { return };
        if offset < self.slots.layout().size() {
            return;
        }
        let program = std::fs::read_link(format!("/proc/{}/exe", stop.pid)).unwrap_or_default();
        let note = format!(
            "{} has set its gs base, through which probes reach their memory: it cannot be recorded, \
             and may have gone wrong by that",
            program.display()
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes what ran without probes, once.
    /// A process executes a file that may be executed but not read, so neither may its memory.
    pub(super) fn executed_unreadable(&mut self, pid: Pid) {
        self.close_threads(pid);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim_end().to_owned();
        if let Some(process) = self.processes.get_mut(&pid) {
            process.command.clone_from(&name);
            process.slots_at = None;
            process.space = None;
        }
        let reason = "its file may be executed but not read, and if it is set-user-ID or \
                      set-group-ID, it had its caller's rights only, because it was traced";
        self.refuse(name, reason.to_owned());
    }

    pub(super) fn refuse(&mut self, what: String, reason: String) {
        let refused = (what, reason);
        if !self.done.refused.contains(&refused) {
            self.done.refused.push(refused);
        }
    }
}

/// The path that was executed, if it leads to the program's file: `/proc/PID/exe` has symbolic
/// links resolved, so that `redis-server` would be called `redis-check-rdb`.
pub(super) fn executed_as(stop: &ExecStop<'_>) -> PathBuf {
    let real = stop.executable.clone();
    stop.execfn().map_or(real.clone(), |given| called(stop.pid, &given, real))
}

/// What a process's program goes by that was executed as `given`, and is the file `real`.
pub fn called(pid: Pid, given: &Path, real: PathBuf) -> PathBuf {
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let given = folder.join(given);
    let file = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if file(&given).is_some_and(|f| Some(f) == file(&real)) { given } else { real }
}

/// What the loader adds to `image`'s link addresses in a process whose entry is at `entry`.
fn load_bias(image: &Image, entry: LiveAddr) -> LoadBias {
    entry - image.entry()
}
