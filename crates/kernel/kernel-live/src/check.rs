//! Whether rewritten text may come into this kernel at all. Asked before anything is done.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::kernel::Source;

/// What rules it out, from the kernel's files and memory.
///
/// # Errors
///
/// The first obstacle, as one line that says what to do about it.
pub fn check(source: &dyn Source) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    lockdown(&file("/sys/kernel/security/lockdown"))?;
    loading(&file("/proc/sys/kernel/modules_disabled"))?;
    signatures(&file("/sys/module/module/parameters/sig_enforce"))?;
    livepatches(Path::new("/sys/kernel/livepatch"))?;
    conventions(source)?;
    one_processor(source)
}

fn unfit(what: &str) -> Result<()> {
    Err(Error::Unfit(what.to_string()))
}

/// The word in brackets is the one in force.
fn lockdown(text: &str) -> Result<()> {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((mode, _)) if mode != "none" => unfit(&format!(
            "the kernel is locked down ({mode}), by Secure Boot or lockdown=: it loads no unsigned module"
        )),
        _ => Ok(()),
    }
}

fn loading(text: &str) -> Result<()> {
    match text.trim() {
        "1" => unfit(
            "the kernel loads no more modules (kernel.modules_disabled is 1 until the next boot)",
        ),
        _ => Ok(()),
    }
}

fn signatures(text: &str) -> Result<()> {
    match text.trim() {
        "Y" => unfit("the kernel loads signed modules only (module.sig_enforce)"),
        _ => Ok(()),
    }
}

fn livepatches(folder: &Path) -> Result<()> {
    let name = fs::read_dir(folder)
        .ok()
        .and_then(|mut entries| entries.next())
        .and_then(std::result::Result::ok);
    match name {
        Some(entry) => unfit(&format!(
            "a livepatch is in the kernel ({}): functions may not be what they were built as",
            entry.file_name().to_string_lossy()
        )),
        None => Ok(()),
    }
}

/// Ways of calling functions that copies do not keep to.
fn conventions(source: &dyn Source) -> Result<()> {
    // From 2 on indirect calls are checked: kCFI, then FineIBT.
    if number(source, "cfi_mode")?.is_some_and(|mode| mode >= 2)
        || source.symbol("__cfi_vfs_read").is_some()
    {
        return unfit(
            "the kernel checks indirect calls (kCFI or FineIBT), which copies are not made for",
        );
    }
    match byte(source, "thunks_initialized")? {
        Some(1..) => {
            unfit("the kernel tracks call depth (retbleed=stuff), which copies are not made for")
        }
        _ => Ok(()),
    }
}

/// A kernel that began with one processor has its lock prefixes patched out, and puts them back when a second
/// one comes: into its own text, not into copies.
fn one_processor(source: &dyn Source) -> Result<()> {
    match byte(source, "uniproc_patched")? {
        Some(1..) => unfit(
            "the kernel was started with one processor and has its lock prefixes patched out: start it with \
             two, or with the option noreplace-smp",
        ),
        _ => Ok(()),
    }
}

fn byte(source: &dyn Source, name: &str) -> Result<Option<u8>> {
    let mut byte = [0];
    let found = source.symbol(name).map(|at| source.read(at, &mut byte)).transpose()?;
    Ok(found.map(|()| byte[0]))
}

fn number(source: &dyn Source, name: &str) -> Result<Option<u32>> {
    let mut bytes = [0; 4];
    let found = source.symbol(name).map(|at| source.read(at, &mut bytes)).transpose()?;
    Ok(found.map(|()| u32::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Variables with their first four bytes.
    struct Variables(BTreeMap<&'static str, u32>);

    impl Source for Variables {
        fn symbol(&self, name: &str) -> Option<u64> {
            self.0.keys().position(|own| *own == name).map(|index| index as u64)
        }

        fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
            let value = self.0.values().nth(at as usize).unwrap().to_le_bytes();
            into.copy_from_slice(&value[..into.len()]);
            Ok(())
        }
    }

    #[test]
    fn locked_down_kernels_are_refused() {
        assert!(lockdown("").is_ok(), "no such file");
        assert!(lockdown("[none] integrity confidentiality\n").is_ok());
        let error = lockdown("none [integrity] confidentiality\n").unwrap_err().to_string();
        assert!(error.contains("(integrity)"), "{error}");
        assert!(loading("1\n").is_err() && loading("0\n").is_ok());
        assert!(signatures("Y\n").is_err() && signatures("N\n").is_ok());
    }

    #[test]
    fn kernels_of_other_conventions_are_refused() {
        let fit =
            Variables([("cfi_mode", 1), ("thunks_initialized", 0), ("uniproc_patched", 0)].into());
        assert!(conventions(&fit).is_ok() && one_processor(&fit).is_ok());
        let none = Variables(BTreeMap::new());
        assert!(conventions(&none).is_ok() && one_processor(&none).is_ok());
        assert!(conventions(&Variables([("cfi_mode", 3)].into())).is_err());
        assert!(conventions(&Variables([("__cfi_vfs_read", 0)].into())).is_err());
        assert!(conventions(&Variables([("thunks_initialized", 1)].into())).is_err());
        assert!(one_processor(&Variables([("uniproc_patched", 1)].into())).is_err());
    }

    #[test]
    fn a_livepatch_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(livepatches(folder.path()).is_ok());
        fs::create_dir(folder.path().join("cve_fix")).unwrap();
        let error = livepatches(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cve_fix"), "{error}");
    }
}
