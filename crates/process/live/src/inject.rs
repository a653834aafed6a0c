//! Applies an injection to a process that has just exec'ed: all of it, or nothing.
//!
//! The order makes each step safe by itself, should the tracer die between two: first the files
//! are mapped, then the gs base is set, then bytes are written (which may lead into the mapped
//! files), last the auxiliary vector changes. What was done is reverted in reverse.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use fettle_types::Pid;

use crate::auxv::{AT_PHDR, AT_PHNUM};
use crate::descriptor;
use crate::error::LiveError;
use crate::maps::{self, LiveAddr, PAGE, Prot};
use crate::memory::Memory;
use crate::ptrace;
use crate::remote::{Call, OPENED, Remote};
use crate::stop::ExecStop;

/// A part of one of our files to be mapped into a process.
#[derive(Clone, Debug)]
pub struct FileMap {
    /// The file, usually a memfd. Several maps may share it.
    pub fd: Arc<OwnedFd>,
    /// Where in the file the mapping begins: a multiple of the page size.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Where in the process: a multiple of the page size, and free.
    pub addr: LiveAddr,
    /// What the process may do with it.
    pub prot: Prot,
    /// Whether its writes reach the file; otherwise they are private copies.
    pub shared: bool,
    /// Whether core dumps leave it out.
    pub dont_dump: bool,
}

impl FileMap {
    pub(crate) fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// What is injected into a process before it runs.
#[derive(Clone, Debug, Default)]
pub struct Injection {
    /// Files to map.
    pub maps: Vec<FileMap>,
    /// Bytes to write, in this order where they overlap; into read-only memory too.
    pub writes: Vec<(LiveAddr, Vec<u8>)>,
    /// The program headers' address and number that the loader is to see.
    pub phdr: Option<(LiveAddr, u64)>,
    /// The first thread's gs base.
    pub gs_base: Option<u64>,
}

/// Tracing options are changed for as long as a seccomp filter has to be suspended.
pub(crate) fn apply(
    stop: &ExecStop<'_>,
    injection: &Injection,
    options: i32,
) -> Result<(), LiveError> {
    let pid = stop.pid;
    if stop.compat {
        return Err(LiveError::Compat { pid });
    }
    let pages = PagePatches::new(&injection.writes);
    let phdr = injection.phdr.map(|phdr| auxv_writes(stop, phdr)).transpose()?;

    let mut mapped = false;
    let result =
        (|| {
            if !injection.maps.is_empty() {
                let suspended = suspend_seccomp(pid, options)?;
                let done = map_files(stop, &injection.maps);
                if suspended {
                    let _ = ptrace::set_options(pid.first_thread(), options);
                }
                done?;
                mapped = true;
            }
            if let Some(base) = injection.gs_base {
                let action = "set the gs base";
                ptrace::set_gs_base(pid.first_thread(), base)
                    .map_err(|source| LiveError::Ptrace { action, pid, source })?;
            }
            let undo = pages.apply(&stop.memory)?;
            if let Some(writes) = &phdr {
                PagePatches::new(writes)
                    .apply(&stop.memory)
                    .inspect_err(|_| undo.revert(&stop.memory))?;
            }
            Ok(())
        })();

    if result.is_err() {
        // A process that is gone fails here again, which changes nothing.
        if injection.gs_base.is_some() {
            let _ = ptrace::set_gs_base(pid.first_thread(), 0);
        }
        if mapped {
            let _ = unmap(stop, &injection.maps);
        }
    }
    result
}

/// The changes that make the vector on the stack name other program headers.
fn auxv_writes(
    stop: &ExecStop<'_>,
    (address, count): (LiveAddr, u64),
) -> Result<Vec<(LiveAddr, Vec<u8>)>, LiveError> {
    [(AT_PHDR, address.0), (AT_PHNUM, count)]
        .into_iter()
        .map(|(kind, value)| {
            let what = "no program headers in the auxiliary vector";
            let at = stop.auxv.value_address(kind);
            let at = at.ok_or(LiveError::Stack { pid: stop.pid, what })?;
            Ok((at, value.to_le_bytes().to_vec()))
        })
        .collect()
}

/// Writes gathered by page, so that thousands of small ones cost one read and one write a page.
pub(crate) struct PagePatches<'a>(BTreeMap<u64, Vec<(usize, &'a [u8])>>);

impl<'a> PagePatches<'a> {
    pub(crate) fn new(writes: &'a [(LiveAddr, Vec<u8>)]) -> PagePatches<'a> {
        let mut pages = BTreeMap::<u64, Vec<(usize, &[u8])>>::new();
        for (address, bytes) in writes {
            let (mut at, mut rest) = (address.0, bytes.as_slice());
            while !rest.is_empty() {
                let within = at % PAGE;
                let (now, later) = rest.split_at(rest.len().min((PAGE - within) as usize));
                pages.entry(at - within).or_default().push((within as usize, now));
                at = at.wrapping_add(now.len() as u64);
                rest = later;
            }
        }
        PagePatches(pages)
    }

    /// Writes all, or reverts what was written and says why.
    pub(crate) fn apply(&self, memory: &Memory) -> Result<Undo, LiveError> {
        let mut undo = Undo(Vec::with_capacity(self.0.len()));
        for (page, patches) in &self.0 {
            let result = patch_page(memory, *page, patches, &mut undo);
            result.inspect_err(|_| undo.revert(memory))?;
        }
        Ok(undo)
    }
}

fn patch_page(
    memory: &Memory,
    page: u64,
    patches: &[(usize, &[u8])],
    undo: &mut Undo,
) -> Result<(), LiveError> {
    let first = patches.iter().map(|patch| patch.0).min().unwrap_or(0);
    let end = patches.iter().map(|patch| patch.0 + patch.1.len()).max().unwrap_or(0);
    let address = LiveAddr(page + first as u64);
    let before = memory.read(address, end - first)?;
    let mut after = before.clone();
    for (at, bytes) in patches {
        after[at - first..at - first + bytes.len()].copy_from_slice(bytes);
    }
    undo.0.push((address, before));
    memory.write(address, &after)
}

/// The bytes that were overwritten.
pub(crate) struct Undo(Vec<(LiveAddr, Vec<u8>)>);

impl Undo {
    fn revert(&self, memory: &Memory) {
        for (address, before) in self.0.iter().rev() {
            // The addresses were writable just before: a write fails only if the process is gone.
            let _ = memory.write(*address, before);
        }
    }
}

/// Filters that the process has and we do not could kill it for the calls that we make. Suspends
/// them if there are any.
fn suspend_seccomp(pid: Pid, options: i32) -> Result<bool, LiveError> {
    if !has_own_filters(pid) {
        return Ok(false);
    }
    let filters = |process: &str| seccomp(process).map_or(0, |(_, filters)| filters);
    let own = filters(&pid.to_string()).saturating_sub(filters("self"));
    ptrace::set_options(pid.first_thread(), options | ptrace::O_SUSPEND_SECCOMP)
        .map_err(|_| LiveError::Seccomp { pid, filters: own })?;
    Ok(true)
}

/// Whether a process that descends from us has filters that we do not have.
pub(crate) fn has_own_filters(pid: Pid) -> bool {
    let (mode, filters) = seccomp(&pid.to_string()).unwrap_or((0, 0));
    if mode == 0 {
        return false;
    }
    // Filters are only ever added, and this process descends from us: as many as we have
    // ourselves are the same ones, and those let us do what we are about to do.
    let (own_mode, own_filters) = seccomp("self").unwrap_or((0, 0));
    !(mode == own_mode && filters == own_filters && filters > 0)
}

/// Mode and number of filters from `/proc/PID/status`.
fn seccomp(process: &str) -> Option<(u64, u64)> {
    let status = maps::read_proc(&format!("/proc/{process}/status")).ok()?;
    let field = |name| maps::status_field(&status, name);
    Some((field("Seccomp:")?, field("Seccomp_filters:").unwrap_or(0)))
}

/// Where a file was mapped and how long it is.
type Mapped = (u64, u64);

/// Maps all files, in one go if the process can see them, through descriptors that are closed
/// again.
fn map_files(stop: &ExecStop<'_>, maps: &[FileMap]) -> Result<(), LiveError> {
    let pid = stop.pid;
    for map in maps {
        let aligned = (map.addr.0 | map.offset) % PAGE == 0 && map.len > 0;
        let fits = map.addr.0.checked_add(map.len).is_some_and(|end| end < 1 << 47);
        if !(aligned && fits) {
            let what = "a mapping is empty, not page-aligned, or beyond the address space";
            return Err(LiveError::Injection { pid, what });
        }
    }
    let groups: Vec<&[FileMap]> =
        maps.chunk_by(|one, other| one.fd.as_raw_fd() == other.fd.as_raw_fd()).collect();
    let paths: Vec<Option<String>> =
        groups.iter().map(|group| visible_path(pid, group[0].fd.as_raw_fd())).collect();
    // At worst each map is opened, mapped, advised upon and closed.
    let calls = maps.len() * 4;
    let scratch = paths.iter().flatten().map(|path| path.len() + 1).sum::<usize>();
    let scratch = scratch.max(descriptor::MESSAGE_LEN);
    let mut remote = Remote::enter(pid, stop.registers, &stop.memory, &stop.maps, calls, scratch)?;

    let mut done = Vec::new();
    let result = map_groups(&mut remote, pid, &groups, &paths, &mut done);
    if result.is_err() && !done.is_empty() {
        let _ = remote.run(&mut unmap_calls(&done), &[]);
    }
    let left = remote.leave();
    result.and(left)
}

fn map_groups(
    remote: &mut Remote<'_>,
    pid: Pid,
    groups: &[&[FileMap]],
    paths: &[Option<String>],
    done: &mut Vec<Mapped>,
) -> Result<(), LiveError> {
    let mut by_message = Vec::new();
    let mut calls = Vec::new();
    let mut scratch = Vec::new();
    let mut opens = Vec::new();
    for (group, path) in groups.iter().zip(paths) {
        let Some(path) = path else {
            by_message.push(*group);
            continue;
        };
        let writable = group.iter().any(|map| map.shared && map.prot.write);
        let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
        let flags = (access | libc::O_CLOEXEC) as u64;
        let at = remote.scratch().offset(scratch.len() as u64);
        opens.push((calls.len(), *group));
        calls.push(Call::new("open one of our files", libc::SYS_open, &[at.0, flags]));
        push_maps(&mut calls, group, OPENED);
        scratch.extend(path.as_bytes());
        scratch.push(0);
    }
    if !calls.is_empty() {
        let result = run_maps(remote, &mut calls, &scratch, done);
        // A process of another user sees our file and may not open it: it and the ones behind it
        // are sent instead.
        let refused = |&(index, _): &(usize, _)| {
            let call: &Call = &calls[index];
            call.result.is_some_and(|result| result < 0)
        };
        match opens.iter().position(refused) {
            Some(first) => by_message.extend(opens[first..].iter().map(|open| open.1)),
            None => result?,
        }
    }
    for group in by_message {
        let descriptor = send_descriptor(remote, pid, group[0].fd.as_fd())?;
        let mut calls = Vec::new();
        push_maps(&mut calls, group, descriptor);
        run_maps(remote, &mut calls, &[], done)?;
    }
    Ok(())
}

/// The calls that map the parts of one open file and close it.
pub(crate) fn push_maps(calls: &mut Vec<Call>, group: &[FileMap], descriptor: u64) {
    for map in group {
        let kind = if map.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let flags = (kind | libc::MAP_FIXED_NOREPLACE) as u64;
        let arguments = [map.addr.0, map.len, map.prot.bits(), flags, descriptor, map.offset];
        let map_call = Call::new("map one of our files", libc::SYS_mmap, &arguments);
        calls.push(map_call.about(map.addr.0));
        if map.dont_dump {
            let arguments = [map.addr.0, map.len, libc::MADV_DONTDUMP as u64];
            let advise = Call::new("keep our file out of dumps", libc::SYS_madvise, &arguments);
            calls.push(advise.about(map.addr.0));
        }
    }
    calls.push(Call::new("close one of our files", libc::SYS_close, &[descriptor]));
}

/// Runs calls, adds the mappings that they made to `done`, and closes what a failure left open.
fn run_maps(
    remote: &mut Remote<'_>,
    calls: &mut [Call],
    scratch: &[u8],
    done: &mut Vec<Mapped>,
) -> Result<(), LiveError> {
    let mut result = remote.run(calls, scratch);
    let given = calls.first().filter(|call| call.number == libc::SYS_mmap);
    let mut open = given.map(|call| call.arguments[4]);
    for call in calls.iter() {
        let Some(value) = call.result.filter(|value| *value >= 0) else { continue };
        match call.number {
            libc::SYS_open => open = Some(value as u64),
            libc::SYS_close => open = None,
            libc::SYS_mmap => {
                done.push((value as u64, call.arguments[1]));
                // Kernels before 4.17 do not know MAP_FIXED_NOREPLACE and map elsewhere.
                if value as u64 != call.arguments[0] && result.is_ok() {
                    let source = io::Error::from_raw_os_error(libc::EEXIST);
                    let (action, pid) = (call.action, remote.pid());
                    result = Err(LiveError::Remote { action, pid, address: call.about, source });
                }
            }
            _ => {}
        }
    }
    if let (Err(_), Some(descriptor)) = (&result, open) {
        let close = Call::new("close one of our files", libc::SYS_close, &[descriptor]);
        let _ = remote.run(&mut [close], &[]);
    }
    result
}

fn unmap_calls(done: &[Mapped]) -> Vec<Call> {
    let unmap = |(address, len): &Mapped| {
        Call::new("unmap our file", libc::SYS_munmap, &[*address, *len]).about(*address)
    };
    done.iter().map(unmap).collect()
}

/// Unmaps all files again.
fn unmap(stop: &ExecStop<'_>, maps: &[FileMap]) -> Result<(), LiveError> {
    let mut calls = unmap_calls(&maps.iter().map(|map| (map.addr.0, map.len)).collect::<Vec<_>>());
    let registers = stop.registers;
    let mut remote = Remote::enter(stop.pid, registers, &stop.memory, &stop.maps, calls.len(), 0)?;
    let result = remote.run(&mut calls, &[]);
    let left = remote.leave();
    result.and(left)
}

/// The path under which the process finds our descriptor, if it does: in another container or
/// under another root, `/proc` is absent or shows other processes.
pub(crate) fn visible_path(pid: Pid, file: i32) -> Option<String> {
    let path = format!("/proc/{}/fd/{file}", std::process::id());
    let seen = std::fs::metadata(format!("/proc/{pid}/root{path}")).ok()?;
    let own = std::fs::metadata(&path).ok()?;
    ((seen.dev(), seen.ino()) == (own.dev(), own.ino())).then_some(path)
}

/// Passes one of our descriptors to the process without any path. Returns its number there.
fn send_descriptor(
    remote: &mut Remote<'_>,
    pid: Pid,
    file: BorrowedFd<'_>,
) -> Result<u64, LiveError> {
    let at = remote.scratch().0;
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
    let arguments = [libc::AF_UNIX as u64, kind, 0, at];
    let pair = Call::new("make a pair of sockets", libc::SYS_socketpair, &arguments);
    remote.run(&mut [pair], &[])?;
    let ends = remote.read_scratch(8)?;
    let end = |at: usize| i32::from_le_bytes(ends[at..at + 4].try_into().expect("four bytes"));
    let (theirs, ours) = (end(0), end(4));

    let received = (|| {
        let socket = descriptor::take(pid, ours)
            .map_err(|source| LiveError::Os { action: "take a socket from a process", source })?;
        descriptor::send(&socket, file)
            .map_err(|source| LiveError::Os { action: "send a descriptor", source })?;
        receive(remote, at, theirs)
    })();
    let close = |file: i32| Call::new("close a socket", libc::SYS_close, &[file as u64]);
    let closed = remote.run(&mut [close(theirs), close(ours)], &[]);
    let received = received?;
    closed?;
    Ok(received)
}

/// Has the process receive the descriptor.
fn receive(remote: &mut Remote<'_>, at: u64, socket: i32) -> Result<u64, LiveError> {
    let message = descriptor::message(at);
    let arguments = [socket as u64, at, libc::MSG_CMSG_CLOEXEC as u64];
    let call = Call::new("receive a descriptor", libc::SYS_recvmsg, &arguments);
    remote.run(&mut [call], &message)?;
    let answer = remote.read_scratch(descriptor::MESSAGE_LEN)?;
    let what = "it received no descriptor";
    let none = LiveError::Injection { pid: remote.pid(), what };
    descriptor::received(&answer).map(|number| number as u64).ok_or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_gathered_by_page() {
        let writes = vec![
            (LiveAddr(0x1ffe), vec![1, 2, 3, 4]),
            (LiveAddr(0x1000), vec![9]),
            (LiveAddr(0x1fff), vec![7, 8]),
        ];
        let pages = PagePatches::new(&writes).0;
        assert_eq!(pages.keys().collect::<Vec<_>>(), [&0x1000, &0x2000]);
        let expected: [(usize, &[u8]); 3] = [(0xffe, &[1, 2]), (0, &[9]), (0xfff, &[7])];
        assert_eq!(pages[&0x1000], expected);
        let expected: [(usize, &[u8]); 2] = [(0, &[3, 4]), (0, &[8])];
        assert_eq!(pages[&0x2000], expected);
    }
}
