//! CPython: contexts (`contextvars`), of which each task of asyncio and uvloop has one of its own.
//!
//! A thread's state (`PyThreadState`) is a thread-specific value of pthreads, whose key is in `_PyRuntime`; it
//! points to the context that runs. That is so whether the thread holds the interpreter's lock or not. All of it
//! stands at offsets by version, which were compared with the headers of each.

use fettle_image::{Image, LinkAddr};
use fettle_types::Pid;

use super::layout::{At, CONTEXTS, Found, Layout, Place, Runtime};
use super::memory::Memory;
use super::modules::{Files, Module, file_offset, symbol};
use super::pthread::{self, FIRST_KEYS};

/// Of CPython 3: where `_PyRuntime` has the key of thread states (`autoTSSkey`), and where a thread state has its
/// context.
const OFFSETS: [(u32, u64, u64); 6] = [
    (8, 1392, 240),
    (9, 584, 240),
    (10, 584, 240),
    (11, 592, 224),
    (12, 1544, 208),
    (13, 2160, 208),
];

/// What a file of CPython's, or of the C library, says.
#[derive(Clone, Debug, Default)]
struct Library {
    /// Of [`OFFSETS`].
    offsets: Option<(u64, u64)>,
    /// `_PyRuntime`.
    runtime: Option<LinkAddr>,
    /// Where the file has `PyContext_CopyCurrent` and `PySet_Add`.
    copy: Option<u64>,
    set_add: Option<u64>,
    /// The C library's: where a thread's structure leads to its values.
    specific: Option<u64>,
    /// What is to be subtracted from where the file's beginning is mapped.
    base: u64,
}

/// What files say, which are read once each.
#[derive(Debug, Default)]
pub(super) struct Python {
    files: Files<Library>,
}

/// The minor version of CPython 3 that a program or library of this name is of.
fn minor(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python3.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

impl Python {
    /// The runtime of a running process that has these files mapped.
    pub fn identify(&mut self, pid: Pid, modules: &[Module]) -> Found {
        let Some(python) =
            modules.iter().filter(|module| minor(&module.name).is_some()).find_map(|module| {
                let library = self.files.library(module, read)?;
                Some((module, library.clone())).filter(|(_, library)| library.runtime.is_some())
            })
        else {
            return Found::Nothing;
        };
        let specific =
            modules.iter().filter(|module| pthread::is_library(&module.name)).find_map(|module| {
                self.files.library(module, read).and_then(|library| library.specific)
            });
        let Some(specific) = specific else { return Found::Nothing };
        let Some(key) = key(pid, &python) else { return Found::NotYet };
        if key >= FIRST_KEYS {
            return Found::Nothing;
        }
        let (module, library) = python;
        let (Some((_, context)), Some(copy)) = (library.offsets, library.copy) else {
            return Found::Nothing;
        };
        let slot = pthread::slot(specific, key);
        let layout = Layout { slot, number: context, identity: CONTEXTS, ..Layout::default() };
        let place = |at, offset| Place { at, path: module.path.clone(), offset };
        let mut places = vec![place(At::Made, copy)];
        let is_uvloop =
            modules.iter().any(|module| module.path.iter().any(|part| part == "uvloop"));
        places.extend(library.set_add.filter(|_| is_uvloop).map(|at| place(At::Queued, at)));
        Found::Known { runtime: Runtime { layout, places }, is_whole: is_uvloop }
    }
}

fn read(image: &Image, module: &Module) -> Option<Library> {
    let first = image.segments().iter().find(|segment| segment.file_offset == 0)?;
    let offsets = minor(&module.name)
        .and_then(|minor| OFFSETS.iter().find(|(known, ..)| *known == minor))
        .map(|(_, key, context)| (*key, *context));
    Some(Library {
        offsets,
        runtime: symbol(image, "_PyRuntime").filter(|_| offsets.is_some()),
        copy: symbol(image, "PyContext_CopyCurrent").and_then(|at| file_offset(image, at)),
        set_add: symbol(image, "PySet_Add").and_then(|at| file_offset(image, at)),
        specific: pthread::specific(image),
        base: first.start.get(),
    })
}

/// The key of thread states, once the interpreter has made it.
fn key(pid: Pid, (module, library): &(&Module, Library)) -> Option<u32> {
    let (at, _) = library.offsets?;
    let address = library.runtime?.get().checked_sub(library.base)?;
    let address = module.start.checked_add(address)?.checked_add(at)?;
    let word = Memory::of(pid)?.word(address)?;
    let (is_made, key) = (word as u32, (word >> 32) as u32);
    (is_made == 1).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::super::modules::modules;
    use super::*;
    use std::process::{Command, Stdio};

    fn identify(pid: Pid) -> Found {
        Python::default().identify(pid, &modules(pid))
    }

    #[test]
    fn versions_are_in_names() {
        let names = ["python3.11", "libpython3.13.so.1.0", "python3", "python2.7", "perl"];
        assert_eq!(names.map(minor), [Some(11), Some(13), None, None, None]);
    }

    #[test]
    fn a_python_that_runs_is_found() {
        let program = "import sys; print('x', flush=True); sys.stdin.read()";
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = python.spawn() else {
            eprintln!("skipped: there is no Python");
            return;
        };
        let mut line = [0; 2];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut line).unwrap();
        let found = identify(Pid::of_child(&child));
        drop(child.stdin.take());
        child.wait().unwrap();
        let Found::Known { runtime, is_whole: false } = found else { panic!("{found:?}") };
        assert_eq!(runtime.layout.identity, CONTEXTS);
        assert_eq!(runtime.places.len(), 1);
        assert_eq!(identify(Pid::own()), Found::Nothing);
    }
}
