//! The memory of a stopped process, through `/proc/PID/mem`.
//!
//! A tracer may write there even where the process may not: the kernel then gives the process a
//! private copy of the page. Kernels can be built to refuse that (`CONFIG_PROC_MEM_NO_FORCE`);
//! then words are poked by ptrace one at a time, which is slower and always allowed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use fettle_types::Pid;

use crate::error::LiveError;
use crate::maps::LiveAddr;
use crate::ptrace;

/// The address space that a process had when this was opened. After an exec it is another one.
#[derive(Debug)]
pub(crate) struct Memory {
    pid: Pid,
    file: File,
}

impl Memory {
    pub(crate) fn open(pid: Pid) -> io::Result<Memory> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(Memory { pid, file })
    }

    /// Reads up to the end of what is mapped; less than asked for is no error.
    pub(crate) fn read_some(&self, address: LiveAddr, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], address.0.wrapping_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(crate) fn read_exact(&self, address: LiveAddr, buffer: &mut [u8]) -> io::Result<()> {
        if self.read_some(address, buffer)? == buffer.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    pub(crate) fn read(&self, address: LiveAddr, len: usize) -> Result<Vec<u8>, LiveError> {
        let mut bytes = vec![0; len];
        self.read_exact(address, &mut bytes).map_err(|source| LiveError::Memory {
            action: "read",
            pid: self.pid,
            address,
            len,
            source,
        })?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, address: LiveAddr, bytes: &[u8]) -> Result<(), LiveError> {
        let done = self.file.write_all_at(bytes, address.0).or_else(|_| self.poke(address, bytes));
        let (pid, len) = (self.pid, bytes.len());
        done.map_err(|source| LiveError::Memory { action: "write", pid, address, len, source })
    }

    /// Writes while the process runs, which only works by the file.
    pub(crate) fn write_running(&self, address: LiveAddr, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address.0)
    }

    /// Writes word by word, keeping the bytes around.
    fn poke(&self, address: LiveAddr, bytes: &[u8]) -> io::Result<()> {
        let first = address.0 & !7;
        let end = (address.0 + bytes.len() as u64).next_multiple_of(8);
        let mut words = vec![0; (end - first) as usize];
        self.read_exact(LiveAddr(first), &mut words)?;
        let skip = (address.0 - first) as usize;
        words[skip..skip + bytes.len()].copy_from_slice(bytes);
        for (index, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("a chunk of eight bytes"));
            ptrace::poke(self.pid.first_thread(), first + index as u64 * 8, word)?;
        }
        Ok(())
    }
}
