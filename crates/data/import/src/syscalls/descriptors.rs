//! What descriptors are of, followed through the calls that make, copy and close them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::args::Fd;

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    File,
    Directory,
    Device,
    Anonymous,
    Pipe,
    Socket,
    Other,
}

impl Of {
    /// As the events name it.
    pub fn name(self) -> &'static str {
        match self {
            Of::File => "file",
            Of::Directory => "directory",
            Of::Device => "device",
            Of::Anonymous => "anonymous",
            Of::Pipe => "pipe",
            Of::Socket => "socket",
            Of::Other => "other",
        }
    }
}

/// What is behind a descriptor; copies of a descriptor share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    pub of: Of,
    /// Its inode if that is known; of pipes and sockets otherwise a number of this import's own.
    pub id: u64,
    /// The ends of a connection, or nothing.
    pub local: Rc<str>,
    pub remote: Rc<str>,
    /// Whether calls on it never wait.
    pub nonblocking: bool,
}

/// Numbers of this import's own begin here: inodes are smaller.
const OWN_IDS: u64 = 1 << 48;

/// The descriptors of all processes.
#[derive(Debug, Default)]
pub struct Descriptors {
    of: HashMap<u32, HashMap<i32, Behind>>,
    made: u64,
}

impl Descriptors {
    /// A number for something whose inode is not known.
    pub fn new_id(&mut self) -> u64 {
        self.made += 1;
        OWN_IDS + self.made
    }

    /// Something new.
    pub fn made(&mut self, of: Of) -> Behind {
        let id = if matches!(of, Of::Pipe | Of::Socket) { self.new_id() } else { 0 };
        Behind { of, id, local: "".into(), remote: "".into(), nonblocking: false }
    }

    /// What a descriptor is of. A description says more than what is known from before.
    pub fn get(&mut self, pid: u32, fd: Fd<'_>) -> Behind {
        let known = self.of.get(&pid).and_then(|of| of.get(&fd.number)).cloned();
        let Some(text) = fd.of else {
            return known.unwrap_or_else(|| self.made(Of::Other));
        };
        let mut reported = described(text);
        // A connection is not identified by inode: it keeps the number that it got.
        match known.filter(|known| known.of == reported.of) {
            Some(known) => {
                reported.nonblocking = known.nonblocking;
                if reported.id == 0 || reported.of == Of::Socket {
                    reported.id = known.id;
                }
                if reported.local.is_empty() {
                    (reported.local, reported.remote) = (known.local, known.remote);
                }
            }
            None if reported.id == 0 && matches!(reported.of, Of::Pipe | Of::Socket) => {
                reported.id = self.new_id();
            }
            None => {}
        }
        self.set(pid, fd.number, reported.clone());
        reported
    }

    /// A descriptor is of this from now on.
    pub fn set(&mut self, pid: u32, fd: i32, behind: Behind) {
        if fd >= 0 {
            self.of.entry(pid).or_default().insert(fd, behind);
        }
    }

    /// A descriptor is closed; what it was, and whether no other of any process is left.
    pub fn close(&mut self, pid: u32, fd: i32) -> Option<(Behind, bool)> {
        let closed = self.of.get_mut(&pid)?.remove(&fd)?;
        let last = closed.id == 0 || !self.holds(&closed);
        Some((closed, last))
    }

    /// Descriptors of a process from one number to another.
    pub fn within(&self, pid: u32, first: u64, last: u64) -> Vec<i32> {
        let wanted = |fd: &&i32| (first..=last).contains(&(**fd as u64));
        let mut within: Vec<i32> = self
            .of
            .get(&pid)
            .into_iter()
            .flat_map(|of| of.keys())
            .filter(wanted)
            .copied()
            .collect();
        within.sort_unstable();
        within
    }

    fn holds(&self, behind: &Behind) -> bool {
        let same = |other: &Behind| other.id == behind.id && other.of == behind.of;
        self.of.values().any(|of| of.values().any(same))
    }

    /// A process has what its parent has.
    pub fn fork(&mut self, parent: u32, child: u32) {
        if let (true, Some(of)) = (parent != child, self.of.get(&parent)) {
            let copy = of.clone();
            self.of.insert(child, copy);
        }
    }

    /// A process has ended. Its sockets that no other process has are closed with it.
    pub fn exit(&mut self, pid: u32) -> Vec<Behind> {
        let Some(of) = self.of.remove(&pid) else { return Vec::new() };
        let mut gone: Vec<Behind> = of.into_values().filter(|it| it.of == Of::Socket).collect();
        gone.sort_by_key(|it| it.id);
        gone.dedup_by_key(|it| it.id);
        gone.retain(|it| !self.holds(it));
        gone
    }
}

/// What strace's description says.
fn described(text: &str) -> Behind {
    let mut behind =
        Behind { of: Of::Other, id: 0, local: "".into(), remote: "".into(), nonblocking: false };
    let inode = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    if let Some(rest) = text.strip_prefix("pipe:[") {
        behind.of = Of::Pipe;
        behind.id = inode(rest).unwrap_or(0);
    } else if text.starts_with("anon_inode:") {
        behind.of = Of::Anonymous;
    } else if text.contains("<char ") || text.contains("<block ") {
        behind.of = Of::Device;
    } else if text.starts_with('/') {
        behind.of = of_path(text);
    } else if let Some((protocol, rest)) = text.split_once(":[") {
        behind.of = Of::Socket;
        let ends = rest.strip_suffix(']').unwrap_or(rest);
        match ends.split_once("->") {
            Some((local, remote)) if protocol.starts_with("UNIX") => {
                // A path or more may stand behind.
                let number = |end: &str| inode(end).map(|inode: u64| format!("unix:{inode}"));
                behind.local = number(local).unwrap_or_default().into();
                behind.remote = number(remote).unwrap_or_default().into();
            }
            Some((local, remote)) => {
                (behind.local, behind.remote) = (end(local).into(), end(remote).into());
            }
            None if ends.bytes().all(|byte| byte.is_ascii_digit()) => {
                behind.id = inode(ends).unwrap_or(0);
            }
            None if !protocol.starts_with("UNIX") => behind.local = end(ends).into(),
            None => {}
        }
    }
    behind
}

/// What a file with that path most often is; strace does not say.
pub fn of_path(path: &str) -> Of {
    match path.strip_prefix("/dev/") {
        Some(rest) if !rest.starts_with("shm/") => Of::Device,
        _ => Of::File,
    }
}

/// An end of a connection as all events name it: IPv4 addresses in IPv6 clothes are IPv4.
pub fn end(text: &str) -> String {
    match text.parse::<std::net::SocketAddr>() {
        Ok(address) => {
            std::net::SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
        }
        Err(_) => text.to_owned(),
    }
}

/// A socket's address as strace writes it: `{sa_family=AF_INET, sin_port=htons(80),
/// sin_addr=inet_addr("127.0.0.1")}`.
pub fn address(text: &str) -> Option<String> {
    let after = |mark: &str| text.find(mark).map(|at| &text[at + mark.len()..]);
    let quoted = |text: &str| text.split('"').next().map(str::to_owned);
    if let Some(path) = after("sun_path=\"").or_else(|| after("sun_path=@\"")) {
        return quoted(path).map(|path| format!("unix:{path}"));
    }
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok();
    let port = after("_port=htons(").and_then(digits)?;
    let address = after("inet_addr(\"").or_else(|| after("inet_pton(AF_INET6, \""));
    let address: IpAddr = quoted(address?)?.parse().ok()?;
    Some(std::net::SocketAddr::new(address.to_canonical(), port).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_strace_writes_them() {
        let v4 = r#"{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("127.0.0.1")}"#;
        assert_eq!(address(v4).as_deref(), Some("127.0.0.1:8080"));
        let v6 = r#"{sa_family=AF_INET6, sin6_port=htons(1), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}"#;
        assert_eq!(address(v6).as_deref(), Some("[::1]:1"));
        let local = r#"{sa_family=AF_UNIX, sun_path="/run/x.sock"}"#;
        assert_eq!(address(local).as_deref(), Some("unix:/run/x.sock"));
        assert_eq!(address("0x7ffd"), None);
        assert_eq!(end("[::ffff:127.0.0.1]:80"), "127.0.0.1:80");
    }

    #[test]
    fn descriptions_tell_ends_and_inodes() {
        let tcp = described("TCP:[127.0.0.1:80->127.0.0.1:4711]");
        assert_eq!(
            (tcp.of, &*tcp.local, &*tcp.remote),
            (Of::Socket, "127.0.0.1:80", "127.0.0.1:4711")
        );
        let v6 = described("TCPv6:[[::1]:80->[::1]:4711]");
        assert_eq!((&*v6.local, &*v6.remote), ("[::1]:80", "[::1]:4711"));
        let unix = described("UNIX-STREAM:[22->23,\"/x\"]");
        assert_eq!((&*unix.local, &*unix.remote), ("unix:22", "unix:23"));
        assert_eq!((described("TCP:[991]").id, described("pipe:[5]").id), (991, 5));
        assert_eq!(described("/dev/null<char 1:3>").of, Of::Device);
        assert_eq!(described("anon_inode:[eventpoll]").of, Of::Anonymous);
        assert_eq!(described("/dev/shm/x").of, Of::File);
    }

    #[test]
    fn a_socket_is_gone_with_its_last_descriptor() {
        let mut all = Descriptors::default();
        let socket = all.made(Of::Socket);
        all.set(1, 3, socket.clone());
        all.fork(1, 2);
        assert_eq!(all.close(1, 3).map(|(_, last)| last), Some(false));
        assert_eq!(all.close(1, 3), None);
        assert_eq!(all.exit(2), [socket]);
        let reported = all.get(9, Fd { number: 4, of: Some("TCP:[991]") });
        let later = all.get(9, Fd { number: 4, of: Some("TCP:[1.1.1.1:1->2.2.2.2:2]") });
        assert_eq!((reported.id, later.id, &*later.remote), (991, 991, "2.2.2.2:2"));
    }
}
