//! Passing one of our files to a process that runs.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::caller::SystemCall;
use crate::descriptor;
use crate::entry::Region;
use crate::error::LiveError;
use crate::journal::Journal;
use crate::maps::{LiveAddr, PAGE, Prot};
use crate::process::Process;

/// Where the message lies in the page that the process has for it: the sockets' numbers come first.
const HEADER: u64 = 64;

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
        let number =
            |at: usize| RawFd::from_le_bytes(numbers[at..at + 4].try_into().expect("four bytes"));
        let [ours, its] = [0, 4].map(number);
        let header = at.offset(HEADER);
        let received = self.send(header, ours, file).and_then(|()| {
            let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
            let receive = [its as u64, header.0, flags, 0, 0, 0];
            let receive = call("receive a file", libc::SYS_recvmsg, receive);
            self.made(journal, &[receive], stops)
        });
        let close =
            |number| call("close a socket", libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]);
        self.made(journal, &[close(ours), close(its)], stops)?;
        received?;
        let message = self.read(header, descriptor::MESSAGE_LEN)?;
        let number = descriptor::received(&message).ok_or_else(|| {
            let source = io::ErrorKind::InvalidData.into();
            LiveError::Ptrace { action: "hand a file to it", pid: self.pid(), source }
        })?;
        Ok(number as u64)
    }

    /// Sends a file through the process's socket `number`, and writes at `at` the message header
    /// with which it is received.
    fn send(&self, at: LiveAddr, number: RawFd, file: BorrowedFd<'_>) -> Result<(), LiveError> {
        let failed =
            |source| LiveError::Ptrace { action: "hand a file to it", pid: self.pid(), source };
        let socket = descriptor::take(self.pid(), number).map_err(failed)?;
        descriptor::send(&socket, file).map_err(failed)?;
        self.fill(at, &descriptor::message(at.0))
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
