//! A descriptor of ours that goes to a process which may find our files by no path: another user's, one in a container,
//! one that has given up rights.
//!
//! It has a pair of sockets made. We take one of them with `pidfd_getfd` (Linux 5.6), which a tracer may use on what it
//! traces, send the descriptor over it, and the process receives that from the other: the call is made by its thread,
//! with a message header that lies in its memory.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use fettle_types::Pid;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Where the parts of a message lie from its header on: the piece of data, its one byte, the control message.
const PIECE: u64 = size_of::<libc::msghdr>() as u64;
const BYTE: u64 = PIECE + size_of::<libc::iovec>() as u64;
const CONTROL: u64 = BYTE + 8;
/// A control message with one descriptor: length, level, kind, the descriptor, padding.
const CONTROL_LEN: usize = 24;
/// Bytes of a message that is received.
pub(crate) const MESSAGE_LEN: usize = CONTROL as usize + CONTROL_LEN;

/// A copy of another process's descriptor.
pub(crate) fn take(pid: Pid, number: RawFd) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.get()).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Sends a descriptor with one byte, without which there is no message.
pub(crate) fn send(socket: impl AsFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What has to lie at `at` in a process's memory for `recvmsg` with that address.
pub(crate) fn message(at: u64) -> Vec<u8> {
    // Neither a name nor flags.
    let header = [0, 0, at + PIECE, 1, at + CONTROL, CONTROL_LEN as u64, 0];
    let piece = [at + BYTE, 1];
    let to_come = [0; 4];
    header.into_iter().chain(piece).chain(to_come).flat_map(u64::to_le_bytes).collect()
}

/// The number of the descriptor that has come, by the message as it is then.
pub(crate) fn received(message: &[u8]) -> Option<RawFd> {
    let control = message.get(CONTROL as usize..)?;
    let word = |at: usize| Some(i32::from_le_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let is_one = (word(8)?, word(12)?) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    is_one.then(|| word(16)).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What a process would do by its calls, done here.
    #[test]
    fn a_file_goes_through_a_socket() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"shared").unwrap();
        let (ours, its) = UnixStream::pair().unwrap();
        let taken = take(Pid::own(), ours.as_raw_fd()).unwrap();
        send(&taken, file.as_fd()).unwrap();
        let mut page = [0u64; MESSAGE_LEN.div_ceil(8)];
        let at = page.as_mut_ptr();
        let words = message(at as u64);
        assert_eq!(words.len(), MESSAGE_LEN);
        for (place, word) in page.iter_mut().zip(words.chunks(8)) {
            *place = u64::from_le_bytes(word.try_into().unwrap());
        }
        assert_eq!(received(&words), None, "nothing has come yet");
        // SAFETY: the page has a header in the kernel's form, which names memory of the page.
        let got = unsafe {
            let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
            libc::recvmsg(its.as_raw_fd(), at.cast(), flags)
        };
        assert_eq!(got, 1, "{}", io::Error::last_os_error());
        let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: the kernel has just made it, and nothing else owns it.
        let mut other = unsafe { File::from_raw_fd(received(&bytes).unwrap()) };
        let mut text = String::new();
        other.rewind().unwrap();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
    }
}
