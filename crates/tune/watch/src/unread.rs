//! Bytes that a process's TCP connections hold for it, while it sleeps.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;

use fettle_types::Pid;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

/// Of more sockets, the kernel's tables are read instead.
const ASKED_MAX: usize = 1024;

/// A process's sockets, which stay what they are while it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// The process's CPU time when they were listed.
    listed_at: Option<u64>,
    sockets: Vec<Socket>,
    /// We may not take the process's descriptors.
    is_refused: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    pub(crate) descriptor: RawFd,
    inode: u64,
}

impl Connections {
    /// Bytes to read in its established TCP connections, when it has used so much CPU time.
    ///
    /// Each is asked by a copy of its descriptor, which is closed at once; where we may not have that, or there are
    /// very many, the kernel's tables say it, which take milliseconds to read where they are large.
    ///
    /// Those that one of its `children` has, too, are left out where there are bytes: it may be who reads them, as in sshd.
    pub fn unread(
        &mut self,
        pid: Pid,
        handle: Option<&OwnedFd>,
        cpu_ns: u64,
        children: impl FnOnce() -> Vec<Pid>,
    ) -> u64 {
        let all = self.unread_in_all(pid, handle, cpu_ns);
        let children = if all == 0 { Vec::new() } else { children() };
        if children.is_empty() {
            return all;
        }
        let theirs = children.into_iter().flat_map(sockets).map(|socket| socket.inode);
        let theirs: HashSet<u64> = theirs.collect();
        self.sockets.retain(|socket| !theirs.contains(&socket.inode));
        self.unread_in_all(pid, handle, cpu_ns)
    }

    fn unread_in_all(&mut self, pid: Pid, handle: Option<&OwnedFd>, cpu_ns: u64) -> u64 {
        if self.listed_at != Some(cpu_ns) {
            (self.listed_at, self.sockets) = (Some(cpu_ns), sockets(pid));
        }
        if self.sockets.is_empty() {
            return 0;
        }
        if let Some(handle) = handle
            && !self.is_refused
            && self.sockets.len() <= ASKED_MAX
        {
            let asked: Result<u64, _> =
                self.sockets.iter().map(|socket| ask(handle, *socket)).sum();
            match asked {
                Ok(sum) => return sum,
                Err(Refused) => self.is_refused = true,
            }
        }
        let inodes: HashSet<u64> = self.sockets.iter().map(|socket| socket.inode).collect();
        let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        ["tcp", "tcp6"]
            .map(|name| unread_in(&table(name).unwrap_or_default(), &inodes))
            .iter()
            .sum()
    }
}

/// The kernel does not give us the process's descriptors.
struct Refused;

/// Bytes to read in a connection; 0 if it is none, or has been closed since.
fn ask(handle: &OwnedFd, socket: Socket) -> Result<u64, Refused> {
    let copy = match pidfd_getfd(handle, socket.descriptor, PidfdGetfdFlags::empty()) {
        Ok(copy) => copy,
        Err(rustix::io::Errno::PERM | rustix::io::Errno::NOSYS) => return Err(Refused),
        Err(_) => return Ok(0),
    };
    let is_same = rustix::fs::fstat(&copy).is_ok_and(|stat| stat.st_ino == socket.inode);
    Ok(if is_same && is_connection(&copy) {
        rustix::io::ioctl_fionread(&copy).unwrap_or(0)
    } else {
        0
    })
}

fn is_connection(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    let is_internet = sockopt::socket_domain(socket)
        .is_ok_and(|domain| domain == AddressFamily::INET || domain == AddressFamily::INET6);
    let is_stream = || sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
    let listens = || sockopt::socket_acceptconn(socket).unwrap_or(true);
    is_internet && is_stream() && !listens()
}

/// A process's sockets.
pub(crate) fn sockets(pid: Pid) -> Vec<Socket> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let socket = |path: &Path| {
        let name = fs::read_link(path).ok()?;
        let inode = name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some(Socket { descriptor: path.file_name()?.to_str()?.parse().ok()?, inode })
    };
    files.flatten().filter_map(|file| socket(&file.path())).collect()
}

/// Bytes to read in those of a table's established connections that a process has.
fn unread_in(table: &str, sockets: &HashSet<u64>) -> u64 {
    const ESTABLISHED: &str = "01";
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let inode: u64 = fields.get(9)?.parse().ok()?;
        let state = *fields.get(3)?;
        let (_, unread) = fields.get(4)?.split_once(':')?;
        (state == ESTABLISHED && sockets.contains(&inode))
            .then(|| u64::from_str_radix(unread, 16).ok())
            .flatten()
    };
    table.lines().skip(1).filter_map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::{Duration, Instant};

    /// What `asks` says, once it says `expected`.
    fn settles(mut asks: impl FnMut() -> u64, expected: u64) -> u64 {
        let began = Instant::now();
        loop {
            let said = asks();
            if said == expected || began.elapsed() > Duration::from_secs(5) {
                return said;
            }
        }
    }

    #[test]
    fn only_established_connections_of_the_process_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 11 1
   1: 0100007F:1F90 0100007F:C350 01 00000000:0000002A 00:00000000 00000000     0        0 12 1
   2: 0100007F:1F90 0100007F:C351 01 00000000:00000005 00:00000000 00000000     0        0 13 1
   3: nonsense";
        assert_eq!(unread_in(table, &HashSet::from([11, 12])), 42);
        assert_eq!(unread_in("", &HashSet::from([11])), 0);
    }

    #[test]
    fn both_ways_count_what_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut asking = TcpStream::connect(address).unwrap();
        let (_answering, _) = listener.accept().unwrap();
        // What is no connection is not counted.
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.send_to(b"xy", datagrams.local_addr().unwrap()).unwrap();
        asking.write_all(b"unread").unwrap();
        let handle = rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        );
        let handle = handle.unwrap();
        for is_refused in [false, true] {
            // Other tests have connections, too, so this process's sum is at least that.
            let mut connections = Connections { is_refused, ..Connections::default() };
            let mut clock = 0;
            let said = settles(
                || {
                    clock += 1;
                    connections.unread(Pid::own(), Some(&handle), clock, Vec::new).min(6)
                },
                6,
            );
            assert_eq!((said, connections.is_refused), (6, is_refused));
        }
        let own = sockets(Pid::own());
        let of = |name: u16| own.iter().filter(|socket| asks_port(&handle, **socket, name)).count();
        assert_eq!(of(address.port()), 1, "the one that listens has none");
    }

    /// Whether a socket holds bytes and its own end has that port.
    fn asks_port(handle: &OwnedFd, socket: Socket, port: u16) -> bool {
        let Ok(copy) = pidfd_getfd(handle, socket.descriptor, PidfdGetfdFlags::empty()) else {
            return false;
        };
        let is_own = rustix::net::getsockname(&copy)
            .ok()
            .and_then(|address| std::net::SocketAddr::try_from(address).ok())
            .is_some_and(|address| address.port() == port);
        is_own && matches!(ask(handle, socket), Ok(6))
    }
}
