//! The memory of a running process, which may say anything.

use std::fs::File;
use std::os::unix::fs::FileExt;

use fettle_types::Pid;

/// Longer texts than this are none that are looked for.
pub(super) const TEXT_MAX: usize = 32;

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
}

impl Memory {
    /// Of this process, if it may be read.
    pub fn of(pid: Pid) -> Option<Memory> {
        Some(Memory { file: File::open(format!("/proc/{pid}/mem")).ok()? })
    }

    /// So many bytes at an address.
    pub fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// 64 bits at an address.
    pub fn word(&self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    /// Whether a text of C's is this one.
    pub fn is_text(&self, at: u64, text: &str) -> bool {
        let mut bytes = [0; TEXT_MAX];
        let Some(bytes) = bytes.get_mut(..=text.len()) else { return false };
        let is_read = self.file.read_exact_at(bytes, at).is_ok();
        is_read && bytes.strip_suffix(b"\0") == Some(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_whole() {
        let memory = Memory::of(Pid::own()).unwrap();
        let text = c"_threads".as_ptr() as u64;
        assert!(memory.is_text(text, "_threads"));
        assert!(!memory.is_text(text, "_thread"));
        assert!(!memory.is_text(text, "_threads_"));
        assert!(!memory.is_text(text, &"_".repeat(TEXT_MAX)));
        assert!(!memory.is_text(0, "_threads"));
    }
}
