//! The kernel that runs here, read through its own files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fettle_kernel_image::{Image, Sources};

use crate::error::{Error, Result};
use crate::kernel::Source;

const SYMBOLS: &str = "/proc/kallsyms";
const MEMORY: &str = "/proc/kcore";
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";

/// Reads the image of the kernel that runs here.
///
/// # Errors
///
/// When one of the kernel's files is not there or not readable, or not as known kernels have it.
pub fn image() -> Result<Image> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let memory = File::open(MEMORY).map_err(|error| {
        let next =
            "a kernel with CONFIG_PROC_KCORE is needed, and lockdown=confidentiality must be off";
        unreadable(MEMORY, error, next)
    })?;
    let types = fs::read(TYPES).map_err(|error| {
        unreadable(TYPES, error, "a kernel with CONFIG_DEBUG_INFO_BTF is needed")
    })?;
    Ok(Image::read(Sources {
        release: &text(RELEASE, "is /proc mounted?")?,
        core: memory,
        kallsyms: &text(SYMBOLS, "a kernel with CONFIG_KALLSYMS is needed")?,
        btf: types,
        blacklist: &text(BLACKLIST, "mount -t debugfs none /sys/kernel/debug")?,
    })?)
}

fn text(path: &str, next: &'static str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error, next))
}

fn unreadable(path: &str, error: io::Error, next: &'static str) -> Error {
    Error::Unreadable { what: Path::new(path).into(), error, next }
}

impl Source for Image {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.named(name).next().map(|symbol| symbol.address)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let missing = || {
            let what = format!("the kernel's memory at {at:#x} is outside of its image");
            Error::Unfit(what)
        };
        into.copy_from_slice(self.bytes(at, into.len()).ok_or_else(missing)?);
        Ok(())
    }
}
