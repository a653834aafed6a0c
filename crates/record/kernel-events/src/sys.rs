//! The `bpf` system call: maps, programs, and what they are attached to.
//!
//! All of them are file descriptors, so the kernel releases and detaches them when this process ends,
//! however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::asm::Insn;
use fettle_btf::TypeId;
use fettle_types::Pid;

/// What the system call is asked for.
#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    InfoByFd = 15,
    RawTracepointOpen = 17,
    LinkCreate = 28,
}

/// Kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// By any key.
    Hash = 1,
    /// By number.
    Array = 2,
    /// By number, one value for each processor.
    PerCpuArray = 6,
    /// Maps by number.
    ArrayOfMaps = 12,
    /// A ring of records.
    Ring = 27,
}

/// How a program is attached to a place in the kernel that BTF names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attach {
    /// To a tracepoint.
    Tracepoint = 23,
    /// Where a function begins.
    Entry = 24,
    /// Where a function returns.
    Exit = 25,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_how: u32,
    btf: u32,
    function_info_size: u32,
    function_info: u64,
    function_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_to: TypeId,
    attach_program: u32,
    pad: u32,
}

const _: () = assert!(size_of::<ProgramLoad>() == 120);

#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUprobes {
    program: u32,
    target: u32,
    attach_how: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    counters: u64,
    cookies: u64,
    count: u32,
    probe_flags: u32,
    pid: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct InfoByFd {
    fd: u32,
    len: u32,
    info: u64,
}

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_PROG_TYPE_KPROBE`, which functions of programs are probed by, too.
const PROBE: u32 = 2;
/// `BPF_TRACE_UPROBE_MULTI` (Linux 6.6).
const UPROBES: u32 = 48;
/// The kernel opens most helpers for programs whose licence goes together with its own.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// # Safety
///
/// `attributes` is what the kernel takes for `command`, and the addresses in it are valid for what
/// it reads and writes there.
unsafe fn bpf<T>(command: Command, attributes: &mut T) -> io::Result<i64> {
    // SAFETY: by contract; the kernel reads `size_of::<T>()` bytes of `attributes`.
    let result = unsafe {
        let at = std::ptr::from_mut(attributes);
        libc::syscall(libc::SYS_bpf, command as i32, at, size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: the kernel just made this descriptor for us, and nothing else knows it. It sets
    // close-on-exec on descriptors of this system call.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    // The last byte stays 0. Other characters than these are refused.
    let allowed = text.bytes().filter(|b| b.is_ascii_alphanumeric() || *b == b'_');
    name[..15].iter_mut().zip(allowed).for_each(|(to, from)| *to = from);
    name
}

/// A process as a key of maps.
pub fn key_of(pid: Pid) -> [u8; 4] {
    pid.unsigned().to_le_bytes()
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// Bytes that the kernel moves for one value.
    value_size: usize,
}

impl Map {
    /// Makes a map.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit or know it, or has no memory.
    pub fn new(kind: MapKind, key_size: u32, value_size: u32, entries: u32) -> io::Result<Map> {
        Map::create(kind, key_size, value_size, entries, 0)
    }

    /// Makes an array of maps that are like `inner`.
    ///
    /// # Errors
    ///
    /// As [`Map::new`].
    pub fn of_maps(entries: u32, inner: &Map) -> io::Result<Map> {
        Map::create(MapKind::ArrayOfMaps, 4, 4, entries, inner.fd() as u32)
    }

    fn create(kind: MapKind, key: u32, value: u32, entries: u32, inner: u32) -> io::Result<Map> {
        let mut attributes = MapCreate {
            kind: kind as u32,
            key_size: key,
            value_size: value,
            max_entries: entries,
            inner_map: inner,
            name: name("fettle"),
            ..MapCreate::default()
        };
        // SAFETY: no addresses in it.
        let fd = unsafe { bpf(Command::MapCreate, &mut attributes) }?;
        let per_processor = kind == MapKind::PerCpuArray;
        let copies = if per_processor { possible_processors()? } else { 1 };
        let value_size =
            if per_processor { (value as usize).next_multiple_of(8) } else { value as usize };
        Ok(Map { fd: owned(fd), key_size: key as usize, value_size: value_size * copies })
    }

    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Another handle on it, for mapping it into memory.
    pub(crate) fn file(&self) -> io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }

    fn element(&self, key: &[u8], value: u64) -> MapElement {
        assert_eq!(key.len(), self.key_size, "keys of a map are equally long");
        MapElement {
            map: self.fd() as u32,
            key: key.as_ptr() as u64,
            value,
            ..MapElement::default()
        }
    }

    /// The value of a key; of all processors, one behind the other, if each has one.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.value_size];
        let mut attributes = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: `key` has the map's key size and `value` room for what the kernel writes, which is
        // `value_size`; both exist until the call returns.
        match unsafe { bpf(Command::MapLookup, &mut attributes) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size, "values of a map are equally long");
        let mut attributes = self.element(key, value.as_ptr() as u64);
        // SAFETY: both have the map's sizes and live until the call returns.
        unsafe { bpf(Command::MapUpdate, &mut attributes) }.map(drop)
    }

    /// The key after another, or the first, in an order that changes as the map does.
    pub fn next_key(&self, key: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
        let mut next = vec![0; self.key_size];
        let mut attributes = MapElement {
            map: self.fd() as u32,
            key: key.map_or(0, |key| key.as_ptr() as u64),
            value: next.as_mut_ptr() as u64,
            ..MapElement::default()
        };
        assert!(key.is_none_or(|key| key.len() == self.key_size), "keys are equally long");
        // SAFETY: both have the map's key size and live until the call returns; without a key the
        // address is null, which asks for the first.
        match unsafe { bpf(Command::MapNextKey, &mut attributes) } {
            Ok(_) => Ok(Some(next)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a key, if it is there.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut attributes = self.element(key, 0);
        // SAFETY: the key has the map's size and exists until the call returns.
        match unsafe { bpf(Command::MapDelete, &mut attributes) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

/// A program that the kernel has accepted.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Why the kernel did not take a program.
#[derive(Debug)]
pub struct Rejection {
    /// What it said.
    pub error: io::Error,
    /// What its verifier said.
    pub log: String,
}

impl Program {
    /// Hands a program to the kernel, which proves that it is safe. `target` is what BTF calls
    /// the place that it will be attached to.
    ///
    /// # Errors
    ///
    /// With the verifier's words, if it has any.
    pub fn load(
        text: &str,
        code: &[Insn],
        attach: Attach,
        target: TypeId,
    ) -> Result<Program, Rejection> {
        Program::load_as(text, code, (TRACING, attach as u32, target))
    }

    /// Hands a program to the kernel that will be attached to functions of programs.
    ///
    /// # Errors
    ///
    /// As [`Program::load`].
    pub fn load_for_programs(text: &str, code: &[Insn]) -> Result<Program, Rejection> {
        Program::load_as(text, code, (PROBE, UPROBES, TypeId::default()))
    }

    fn load_as(
        text: &str,
        code: &[Insn],
        (kind, attach_how, attach_to): (u32, u32, TypeId),
    ) -> Result<Program, Rejection> {
        let mut attributes = ProgramLoad {
            kind,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            name: name(text),
            attach_how,
            attach_to,
            ..ProgramLoad::default()
        };
        // SAFETY: code and licence live until the call returns, which only reads them.
        match unsafe { bpf(Command::ProgramLoad, &mut attributes) } {
            Ok(fd) => Ok(Program { fd: owned(fd) }),
            Err(error) => {
                // Once more, with words: they cost time, so they are not asked for at first.
                let mut log = vec![0_u8; 1 << 20];
                attributes.log_level = 1;
                attributes.log_size = log.len() as u32;
                attributes.log = log.as_mut_ptr() as u64;
                // SAFETY: as above; `log` has the size that is given and is written only.
                let _ = unsafe { bpf(Command::ProgramLoad, &mut attributes) }.map(owned);
                let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
                Err(Rejection { error, log: String::from_utf8_lossy(&log[..end]).into_owned() })
            }
        }
    }

    /// Attaches it; it runs until what is returned is dropped.
    pub fn attach(&self) -> io::Result<OwnedFd> {
        let program = self.fd.as_raw_fd() as u32;
        let mut attributes = RawTracepointOpen { program, ..RawTracepointOpen::default() };
        // SAFETY: no address in it but a name, which may be null.
        unsafe { bpf(Command::RawTracepointOpen, &mut attributes) }.map(owned)
    }

    /// Attaches it to a place in a file, wherever that is mapped; it runs until what is returned is dropped.
    /// With `at_end`, it runs when the function that begins there returns.
    ///
    /// # Errors
    ///
    /// When the kernel is older than Linux 6.6, or there is no instruction.
    pub fn attach_in(
        &self,
        file: &std::ffi::CStr,
        offset: u64,
        at_end: bool,
    ) -> io::Result<OwnedFd> {
        let mut attributes = LinkUprobes {
            program: self.fd.as_raw_fd() as u32,
            attach_how: UPROBES,
            path: file.as_ptr() as u64,
            offsets: (&raw const offset) as u64,
            count: 1,
            probe_flags: u32::from(at_end),
            ..LinkUprobes::default()
        };
        // SAFETY: path and offset live until the call returns, which only reads them.
        unsafe { bpf(Command::LinkCreate, &mut attributes) }.map(owned)
    }

    /// How often it did not run because it was running on that processor already.
    pub fn missed(&self) -> io::Result<u64> {
        /// The offset of `recursion_misses` in `struct bpf_prog_info` (Linux 5.12).
        const MISSED: usize = 208;
        let mut info = [0_u64; 32];
        let mut attributes = InfoByFd {
            fd: self.fd.as_raw_fd() as u32,
            len: size_of_val(&info) as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: `info` has the size that is given; all addresses in it are null.
        unsafe { bpf(Command::InfoByFd, &mut attributes) }?;
        Ok(if attributes.len as usize >= MISSED + 8 { info[MISSED / 8] } else { 0 })
    }
}

/// Processors that the kernel has room for: per-processor maps have a value for each.
pub fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
