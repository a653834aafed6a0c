//! One visit of a thread to the dlopen hook.

use std::path::Path;
use std::sync::Arc;

use fettle_live::{Entry, FileMap, HookStop, LiveAddr, LiveError, Patch, Region, Request};
use fettle_rewrite::find_object::Region as Known;
use fettle_rewrite::{Linked, Plan};
use fettle_types::{LoadBias, Pid};

use crate::modules::{Module, Modules};
use crate::rewritten::Rewritten;

use super::candidate::Candidate;
use super::lead::{headers_patch, jumps};
use super::space::{Asked, Library, Probed, Space};

/// The undo recorder: it has given processes that ran before their dlopen hook. All that is done to such
/// a process is recorded here first, so that it can be reverted even if Fettle is killed.
pub trait UndoRecorder: Send {
    /// What a process has for its libraries, once it may have its dlopen hook patched in.
    fn space(&mut self, pid: Pid) -> Option<Space>;

    /// Something is about to be done, or was done.
    ///
    /// # Errors
    ///
    /// When it cannot be written down: then it must not be done.
    fn write_down(&mut self, pid: Pid, entries: Vec<Entry>) -> Result<(), LiveError>;

    /// Entry patches are about to lead a library to its rewritten text. Gives those that may be written.
    ///
    /// # Errors
    ///
    /// When the undo log cannot be written: then no patch may be written.
    fn leading(&mut self, pid: Pid, library: Opened<'_>) -> Result<Vec<Patch>, LiveError>;
}

/// A library that a process has opened, with the rewritten text that its entry patches will lead to.
#[derive(Clone, Copy)]
pub struct Opened<'a> {
    /// What it is called in the process.
    pub path: &'a Path,
    /// The loader's record of it.
    pub link_map: LiveAddr,
    /// Its dynamic section.
    pub dynamic: LiveAddr,
    /// What the loader has added to link addresses.
    pub bias: LoadBias,
    /// Its rewritten text.
    pub plan: &'a Arc<Plan>,
    /// The same with addresses.
    pub linked: &'a Linked,
    /// Where that is.
    pub regions: [Region; 2],
    /// What the loader's record is to say of its program headers.
    pub headers: &'a Patch,
    /// The entry patches.
    pub jumps: &'a [Patch],
}

/// What a process is to be given at exec: mappings, and bytes to write.
pub type Prepared = (Space, Vec<FileMap>, Vec<(LiveAddr, Vec<u8>)>);

/// What becomes of a library, as a recording reports it.
pub enum LibraryEvent {
    /// A module's rewritten text is mapped.
    Mapped(Rewritten),
    /// A library runs without probes.
    Refused(String, String),
}

/// A thread at its dlopen hook, with the undo recorder, if the process has one.
pub(super) struct Visit<'a> {
    pub(super) stop: &'a HookStop,
    pub(super) undo_recorder: Option<&'a mut (dyn UndoRecorder + 'static)>,
}

impl Visit<'_> {
    fn write_down(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), LiveError> {
        match &mut self.undo_recorder {
            Some(undo_recorder) => undo_recorder.write_down(self.stop.pid, entries.collect()),
            None => Ok(()),
        }
    }

    /// Whether rewritten text is written into memory of the process's own: for one that ran before,
    /// always.
    pub(super) fn gives(&self, library: &Candidate) -> bool {
        library.given || self.undo_recorder.is_some()
    }

    /// What maps a library's rewritten text.
    pub(super) fn map(&mut self, library: &Candidate) -> Result<[Request; 2], LiveError> {
        if !self.gives(library) {
            return Ok(library.maps());
        }
        let regions = library.regions();
        self.write_down(regions.into_iter().map(Entry::Map))?;
        Ok(regions.map(Request::Give))
    }

    /// Fills memory that has been mapped for a library, if it is not mapped with its contents.
    pub(super) fn mapped(&mut self, library: &Candidate) -> Result<(), LiveError> {
        if !self.gives(library) {
            return Ok(());
        }
        let (regions, linked) = (library.regions(), &library.placed.linked);
        self.write_down(regions.iter().map(|region| Entry::Mapped(region.at)))?;
        let contents = [&linked.text, &linked.constants];
        let fill = regions.iter().zip(contents).map(|(region, bytes)| (region.at, bytes.clone()));
        self.stop.write(&fill.collect::<Vec<_>>())
    }

    /// What unmaps regions; nothing if that cannot be written down.
    pub(super) fn unmap(&mut self, regions: &[Region]) -> Vec<Request> {
        let stop = self.stop;
        let written = self.write_down(regions.iter().map(|region| stop.unmapping(region)));
        // They stay until the recording is over.
        let regions = if written.is_ok() { regions } else { &[] };
        regions.iter().map(|region| Request::Unmap(region.at, region.len)).collect()
    }

    /// The patches that lead a library to its rewritten text.
    fn leading(&mut self, library: Opened<'_>) -> Result<Vec<Patch>, LiveError> {
        match &mut self.undo_recorder {
            Some(undo_recorder) => undo_recorder.leading(self.stop.pid, library),
            None => Ok(library.jumps.to_vec()),
        }
    }
}

impl Space {
    /// Asks for a library's rewritten text to be mapped.
    pub(super) fn ask(
        &mut self,
        library: Candidate,
        visit: &mut Visit<'_>,
        requests: &mut Vec<Request>,
    ) -> Result<(), LibraryEvent> {
        let refused = |error: LiveError| {
            LibraryEvent::Refused(library.path.display().to_string(), error.to_string())
        };
        requests.extend(visit.map(&library).map_err(refused)?);
        self.asked.libraries.push(library);
        Ok(())
    }

    /// Writes the entry patches of libraries whose rewritten text could be mapped; gives those for which
    /// that failed from our file, and into which it is to be written.
    pub(super) fn finish(
        &mut self,
        asked: Asked,
        done: &[Result<(), LiveError>],
        modules: &Modules,
        visit: &mut Visit<'_>,
        unmaps: &mut Vec<Region>,
        events: &mut Vec<LibraryEvent>,
    ) -> Vec<Candidate> {
        let mut again = Vec::new();
        let (unmapped, mapped) = done.split_at(asked.unmaps.len());
        let gone = asked.unmaps.iter().zip(unmapped).filter(|(_, result)| result.is_ok());
        // If it cannot be written down, it shows in the process.
        let _ = visit.write_down(gone.map(|(region, _)| Entry::Unmapped(region.at)));
        for (library, mapped) in asked.libraries.iter().zip(mapped.chunks(2)) {
            if !visit.gives(library) && mapped.iter().all(Result::is_err) {
                again.push(Candidate { given: true, ..library.clone() });
                continue;
            }
            let failed = mapped.iter().find_map(|result| result.as_ref().err());
            let result = match failed {
                Some(error) => Err(error.to_string()),
                None => self.lead(library, modules.at(library.module), visit),
            };
            let parts = library.regions();
            match result {
                Ok(region) => {
                    let probed = Some(Probed { region, parts });
                    self.known.insert(library.link_map, Library { bias: library.bias, probed });
                    let (module, bias, [text, _]) = (library.module, library.bias, parts);
                    let (text, text_len) = (text.at, text.len);
                    events.push(LibraryEvent::Mapped(Rewritten { module, text, text_len, bias }));
                }
                Err(reason) => {
                    events.push(LibraryEvent::Refused(library.path.display().to_string(), reason));
                    let made = parts.into_iter().zip(mapped);
                    let (made, not): (Vec<_>, Vec<_>) =
                        made.partition(|(_, result)| result.is_ok());
                    let _ = visit.write_down(not.iter().map(|(r, _)| Entry::Unmapped(r.at)));
                    unmaps.extend(made.into_iter().map(|(region, _)| region));
                }
            }
        }
        again
    }

    /// Makes unwinders and the loader know a library's rewritten text, and patches the library to enter
    /// it.
    pub(super) fn lead(
        &mut self,
        library: &Candidate,
        module: &Module,
        visit: &mut Visit<'_>,
    ) -> Result<usize, String> {
        let (linked, image, stop) = (&library.placed.linked, &module.image, visit.stop);
        let failed = |error: LiveError| error.to_string();
        visit.mapped(library).map_err(failed)?;
        let jumps = jumps(library, image, stop)?;
        let (link_map, bias) = (LiveAddr(library.link_map), library.bias);
        let read = |at, len| stop.read_some(at, len).ok();
        let headers = headers_patch((link_map, bias), image, linked, read)
            .ok_or("the loader's record of it has a form that is not known")?;
        let regions = library.regions();
        let opened = Opened {
            path: &library.path,
            link_map,
            dynamic: LiveAddr(library.dynamic),
            bias,
            plan: &module.plan,
            linked,
            regions,
            headers: &headers,
            jumps: &jumps,
        };
        let jumps = visit.leading(opened).map_err(failed)?;
        let [text, constants] = regions;
        let region = self.add_region(
            Known {
                start: text.at.0,
                end: constants.at.0 + constants.len,
                link_map: library.link_map,
                eh_frame_hdr: library.live(linked.eh_frame_hdr).0,
            },
            stop,
        )?;
        let writes = [headers].into_iter().chain(jumps).map(|patch| (patch.at, patch.after));
        stop.write(&writes.collect::<Vec<_>>()).map_err(|error| {
            self.drop_region(region, stop);
            failed(error)
        })?;
        Ok(region)
    }
}
