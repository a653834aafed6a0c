//! Ruby: fibers, many of which share a thread where a scheduler runs them (the gem `async`).
//!
//! A thread-local pointer of `libruby`, `ruby_current_ec`, leads to the execution context that runs, which is a part of
//! its fiber. Where that pointer lies in the library's storage stands in the pair of words by which its own code
//! asks the loader for it, as `rb_fiber_current` does first. A fiber has the one that has resumed it: at first its
//! maker. The fiber with which a thread begins has no block, and is no task.
//!
//! Offsets were read from the code of each version, and compared in a running process: `rb_fiber_current` loads the fiber of
//! the context and its object, `rb_fiber_yield` the one that has resumed it.

use fettle_image::{Image, LinkAddr};
use fettle_types::Pid;

use super::layout::{FIBERS, Found, Layout, Runtime};
use super::memory::Memory;
use super::modules::{Files, Module, symbol};
use super::tls;

/// Of a version: where a fiber has its execution context, and the fiber that has resumed it.
const OFFSETS: [(&str, u64, u64); 1] = [("3.1.", 0x50, 0x200)];
/// Where it is as an object of Ruby's, which is no other fiber's for longer than its memory is.
const OBJECT: u64 = 16;
/// From the fiber that has resumed one back to its block.
const TO_BLOCK: u64 = 8;

/// `data16 lea rdi, [rip + …]`, with which code asks for the address of what is thread-local.
const ASKS: [u8; 4] = [0x66, 0x48, 0x8d, 0x3d];
/// So much of the function's code is looked at.
const CODE: usize = 64;

/// What a file says: Ruby's library, the C library, or the loader.
#[derive(Clone, Debug, Default)]
struct Library {
    /// Of [`OFFSETS`]: the context and what has resumed it.
    offsets: Option<(u64, u64)>,
    /// The pair of words that says where `ruby_current_ec` is, from where the file's beginning is mapped on.
    pair: Option<u64>,
    /// The address that the file was linked for.
    base: u64,
    /// The C library's: where the loader's entries have the offset of thread-local storage.
    offset_at: Option<u64>,
    /// The loader's list, from where its beginning is mapped on.
    list: Option<u64>,
}

/// What files say, which are read once each.
#[derive(Debug, Default)]
pub(super) struct Ruby {
    files: Files<Library>,
}

impl Ruby {
    /// The runtime of a running process that has these files mapped.
    pub fn identify(&mut self, pid: Pid, modules: &[Module]) -> Found {
        let Some(ruby) = modules.iter().find(|module| module.name.starts_with("libruby")) else {
            return Found::Nothing;
        };
        let Some(library) = self.files.library(ruby, read).cloned() else { return Found::Nothing };
        let (Some((context, resumer)), Some(pair)) = (library.offsets, library.pair) else {
            return Found::Nothing;
        };
        let mut of = |name: &str, what: fn(&Library) -> Option<u64>| {
            let module = modules.iter().find(|module| module.name.starts_with(name))?;
            Some((module.start, what(self.files.library(module, read)?)?))
        };
        let (Some((_, offset_at)), Some((loader, list))) =
            (of("libc.so.6", |of| of.offset_at), of("ld-linux", |of| of.list))
        else {
            return Found::Nothing;
        };
        let Some(memory) = Memory::of(pid) else { return Found::Nothing };
        // The loader fills in the pair before anything of the library runs.
        let at = |base: u64, distance: u64| base.checked_add(distance);
        let offset = || memory.word(at(ruby.start, pair)?.checked_add(8)?);
        let below = || {
            let address = ruby.start.checked_sub(library.base)?;
            tls::below_base(&memory, at(loader, list)?, offset_at, address)
        };
        let (Some(offset), Some(below)) = (offset(), below()) else { return Found::NotYet };
        let layout = Layout {
            slot: offset.wrapping_sub(below).cast_signed(),
            // The slot leads to the context.
            number: OBJECT.wrapping_sub(context),
            parent: resumer.wrapping_sub(context),
            identity: FIBERS,
            mounted: (resumer - TO_BLOCK).wrapping_sub(context),
            part: context,
            ..Layout::default()
        };
        Found::Known { runtime: Runtime { layout, places: Vec::new() }, is_whole: true }
    }
}

fn read(image: &Image, _: &Module) -> Option<Library> {
    let first = image.segments().iter().find(|segment| segment.file_offset == 0)?.start;
    let from_first = |at: LinkAddr| at.checked_offset_from(first);
    let version = symbol(image, "ruby_version").and_then(|at| image.read(at, 8));
    let known = OFFSETS
        .iter()
        .find(|(name, ..)| version.is_some_and(|version| version.starts_with(name.as_bytes())));
    Some(Library {
        offsets: known.map(|(_, context, resumer)| (*context, *resumer)),
        pair: symbol(image, "rb_fiber_current").and_then(|at| pair(image, at)).and_then(from_first),
        base: first.get(),
        offset_at: tls::offset_at(image),
        list: symbol(image, "_r_debug").and_then(from_first),
    })
}

/// The pair of words for which a function asks first.
fn pair(image: &Image, function: LinkAddr) -> Option<LinkAddr> {
    let code = image.read(function, CODE)?;
    let at = code.windows(ASKS.len()).position(|bytes| bytes == ASKS)?;
    let end = at + ASKS.len() + 4;
    let distance = i32::from_le_bytes(code.get(end - 4..end)?.try_into().ok()?);
    let next = function.get().checked_add(end as u64)?;
    Some(LinkAddr(next.checked_add_signed(distance.into())?))
}

#[cfg(test)]
mod tests {
    use super::super::modules::modules;
    use super::*;
    use std::process::{Command, Stdio};

    fn identify(pid: Pid) -> Found {
        Ruby::default().identify(pid, &modules(pid))
    }

    #[test]
    fn a_ruby_that_runs_is_found() {
        let program = "$stdout.puts RUBY_VERSION; $stdout.flush; $stdin.read";
        let mut ruby = Command::new("/usr/bin/ruby");
        ruby.args(["-e", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = ruby.spawn() else {
            eprintln!("skipped: there is no Ruby");
            return;
        };
        let mut version = [0; 4];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut version).unwrap();
        let found = identify(Pid::of_child(&child));
        drop(child.stdin.take());
        child.wait().unwrap();
        if OFFSETS.iter().any(|(known, ..)| known.as_bytes() == version) {
            let Found::Known { runtime, is_whole: true } = found else { panic!("{found:?}") };
            assert!(runtime.layout.slot < 0 && runtime.layout.mounted < runtime.layout.parent);
        } else {
            assert_eq!(found, Found::Nothing);
        }
        assert_eq!(identify(Pid::own()), Found::Nothing);
    }
}
