//! Passing one of our files to a process that runs.
//!
//! It may be another user's, or one that has given up rights, and then cannot open our files by any
//! path. So it makes a pair of sockets. We take one of them with `pidfd_getfd`, which a tracer may
//! use on what it traces, and send the file over it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use fettle_types::Pid;

use crate::caller::SystemCall;
use crate::entry::Region;
use crate::error::LiveError;
use crate::journal::Journal;
use crate::maps::{LiveAddr, PAGE, Prot};
use crate::process::Process;

/// Where things lie in the page that the process has for it: the sockets' numbers come first.
const HEADER: u64 = 64;
const PIECE: u64 = HEADER + mem::size_of::<libc::msghdr>() as u64;
const BYTE: u64 = PIECE + mem::size_of::<libc::iovec>() as u64;
const CONTROL: u64 = BYTE + 8;
/// A message that holds one descriptor: length, level, kind, the descriptor, padding.
const CONTROL_LEN: usize = 24;

impl Process {
    /// Has the process receive one of our files; returns its descriptor there. `at` is free, and
    /// will be again.
    ///
    /// # Errors
    ///
    /// When the kernel is older than 5.6, or the process cannot make the calls.
    pub(crate) fn receive(
        &self,
        journal: &mut Journal,
        at: LiveAddr,
        file: BorrowedFd<'_>,
    ) -> Result<(u64, Vec<Duration>), LiveError> {
        let prot = Prot { read: true, write: true, exec: false };
        let page = Region { at, len: PAGE, prot, shared: false };
        let mut stops = self.map(journal, &[page])?;
        let received = self.receive_through(journal, at, file, &mut stops);
        stops.extend(self.unmap(journal, &[page])?);
        Ok((received?, stops))
    }

    /// As [`Process::receive`], by a page of memory at `at`.
    fn receive_through(
        &self,
        journal: &mut Journal,
        at: LiveAddr,
        file: BorrowedFd<'_>,
        stops: &mut Vec<Duration>,
    ) -> Result<u64, LiveError> {
        let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
        let pair = [libc::AF_UNIX as u64, kind, 0, at.0, 0, 0];
        let pair = call("make a pair of sockets", libc::SYS_socketpair, pair);
        self.made(journal, &[pair], stops)?;
        let numbers = self.read(at, 8)?;
        let [ours, its] = [0, 4].map(|at| word(&numbers, at));
        let received = self.send(at, ours, file).and_then(|()| {
            let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
            let header = at.offset(HEADER).0;
            let receive = [u64::from(its), header, flags, 0, 0, 0];
            let receive = call("receive a file", libc::SYS_recvmsg, receive);
            self.made(journal, &[receive], stops)
        });
        let close =
            |number| call("close a socket", libc::SYS_close, [u64::from(number), 0, 0, 0, 0, 0]);
        self.made(journal, &[close(ours), close(its)], stops)?;
        received?;
        let control = self.read(at.offset(CONTROL), CONTROL_LEN)?;
        let what = (word(&control, 8), word(&control, 12));
        match what == (libc::SOL_SOCKET as u32, libc::SCM_RIGHTS as u32) {
            true => Ok(u64::from(word(&control, 16))),
            false => {
                let source = io::ErrorKind::InvalidData.into();
                Err(LiveError::Ptrace { action: "hand a file to it", pid: self.pid(), source })
            }
        }
    }

    /// Sends a file through the process's socket `number`, and writes at `at` the message header
    /// with which it is received.
    fn send(&self, at: LiveAddr, number: u32, file: BorrowedFd<'_>) -> Result<(), LiveError> {
        let failed =
            |source| LiveError::Ptrace { action: "hand a file to it", pid: self.pid(), source };
        let socket = take_descriptor(self.pid(), number).map_err(failed)?;
        send_file(socket.as_raw_fd(), file).map_err(failed)?;
        let words = [
            0, // no name
            0,
            at.offset(PIECE).0,
            1,
            at.offset(CONTROL).0,
            CONTROL_LEN as u64,
            0, // flags
            at.offset(BYTE).0,
            1,
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.fill(at.offset(HEADER), &bytes)
    }

    /// Makes calls, all of them.
    fn made(
        &self,
        journal: &mut Journal,
        calls: &[SystemCall],
        stops: &mut Vec<Duration>,
    ) -> Result<(), LiveError> {
        let made = self.make_calls(journal, &[], calls)?;
        stops.extend(made.stops);
        made.error.map_or(Ok(()), Err)
    }
}

fn call(action: &'static str, number: libc::c_long, arguments: [u64; 6]) -> SystemCall {
    SystemCall { action, number, arguments }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A descriptor of a process as one of ours.
fn take_descriptor(pid: Pid, number: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.get(), 0) })?;
    // SAFETY: takes numbers only; the descriptor is ours.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

fn owned(number: libc::c_long) -> io::Result<OwnedFd> {
    match number {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made it, and nothing else owns it.
        number => Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) }),
    }
}

/// Sends a file and one byte, without which there is no message.
fn send_file(socket: RawFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 0u8;
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; CONTROL_LEN / 8];
    // SAFETY: integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LEN;
    // SAFETY: the header names memory of ours that is there until the end of this function, and has
    // room for one message that holds one descriptor.
    let sent = unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(mem::size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(message).cast::<RawFd>().write_unaligned(file.as_raw_fd());
        libc::sendmsg(socket, &raw const header, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What a process would do by its calls, done here.
    #[test]
    fn a_file_goes_through_a_socket() {
        let mut file = tempfile();
        file.write_all(b"shared").unwrap();
        let (ours, its) = UnixStream::pair().unwrap();
        let taken = take_descriptor(Pid::own(), ours.as_raw_fd() as u32).unwrap();
        send_file(taken.as_raw_fd(), file.as_fd()).unwrap();
        let mut page = [0u64; 64];
        let at = page.as_mut_ptr() as u64;
        let words = [0, 0, at + PIECE, 1, at + CONTROL, CONTROL_LEN as u64, 0, at + BYTE, 1];
        page[HEADER as usize / 8..][..words.len()].copy_from_slice(&words);
        // SAFETY: the page has a header in the kernel's form, which names memory of the page.
        let got = unsafe {
            let header = page.as_mut_ptr().byte_add(HEADER as usize).cast();
            libc::recvmsg(its.as_raw_fd(), header, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT)
        };
        assert_eq!(got, 1, "{}", io::Error::last_os_error());
        let control: Vec<u8> =
            page[CONTROL as usize / 8..].iter().flat_map(|w| w.to_le_bytes()).collect();
        let what = (word(&control, 8) as i32, word(&control, 12) as i32);
        assert_eq!(what, (libc::SOL_SOCKET, libc::SCM_RIGHTS));
        let number = libc::c_long::from(word(&control, 16) as i32);
        let mut other = File::from(owned(number).unwrap());
        let mut text = String::new();
        other.rewind().unwrap();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
    }

    fn tempfile() -> File {
        // SAFETY: the name is a C string.
        let number = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        File::from(owned(libc::c_long::from(number)).unwrap())
    }
}
