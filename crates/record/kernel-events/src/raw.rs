//! Records as the kernel's programs write them. Programs and reader share this file and nothing
//! else.
//!
//! ```text
//!  0  time       u64  CLOCK_MONOTONIC in nanoseconds
//!  8  tid        u32  thread that ran
//! 12  pid        u32  its process
//! 16  kind       u16  [`Kind`]
//! 18  flags      u16  by kind
//! 20  number     u32  by kind: a descriptor, say
//! 24  words      u64 each, by kind; after them a text, if the kind has one
//! ```

/// Where the time stands.
pub const TIME: i16 = 0;
/// Where the thread stands; its process follows.
pub const TID: i16 = 8;
/// Where kind and flags stand, sixteen bits each.
pub const KIND: i16 = 16;
/// Where the flags stand.
pub const FLAGS: i16 = 18;
/// Where the number stands.
pub const NUMBER: i16 = 20;
/// Where the words begin.
pub const WORDS: i16 = 24;
/// Most bytes of a text, with the zero that ends it. Longer ones are cut.
pub const TEXT: i32 = 256;

/// Where word `n` stands.
pub const fn word(n: i16) -> i16 {
    WORDS + 8 * n
}

/// Flag of [`Kind::Switch`]: the thread before waits within a system call.
pub const SWITCH_IN_CALL: u16 = 8;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// A processor goes from one thread to another. Words: thread before, thread after. Flags: 1
    /// the one before could go on; 2 the one before is observed; 4 the one after is; [`SWITCH_IN_CALL`].
    /// Number, where only calls are recorded: the system call that the one before is in and 1, or 0.
    Switch = 1,
    /// A thread is woken. Number: the thread. Flags: 1 by an interrupt. The word means nothing.
    Wake = 2,
    /// A thread or process begins. Words: its thread, its process.
    Fork = 3,
    /// A program begins. Text: its path.
    Exec = 4,
    /// A thread ends. Words: its status as `wait` gives it, and its name in two. Flags: 1 it was its
    /// process's last.
    Exit = 5,
    /// A signal is sent. Number: the signal. Word: the thread.
    Signal = 6,
    /// A signal arrives. Number: the signal.
    SignalDelivered = 7,
    /// Memory is not there yet. Word: the address. Flags: 1 it is now.
    Fault = 8,
    /// A call on something that is no socket begins or ends. Flags: [`io`]. Number: descriptor.
    /// Words: inode, result.
    Io = 9,
    /// A socket, of IP version 4. Flags: [`socket`]. Number: descriptor; of [`socket::RECEIVED`] for how
    /// many microseconds the last bytes have lain there, or 0. Words: inode, result, `sa_family`, type,
    /// local and remote port (16 bits each), local and remote address (32 bits each).
    SocketV4 = 10,
    /// As before, of IP version 6: two words for each address.
    SocketV6 = 11,
    /// As before, local: the last words are the kernel's numbers of the socket and its peer.
    SocketLocal = 12,
    /// As before, of another `sa_family`, without addresses.
    SocketOther = 13,
    /// A wait begins or ends. Flags: [`wait`]. Number: operation of a futex. Words: address of a
    /// futex or other argument (of a poll that ends: whether it may wait), result.
    Wait = 14,
    /// A file is opened. Number: descriptor or error. Words: inode, mode. Text: path as given.
    Open = 15,
    /// A descriptor is closed. Number: descriptor. Words: inode, mode.
    Close = 16,
    /// A pipe is made. Words: its inode, its descriptors.
    Pipe = 17,
    /// A descriptor has another number. Number: the old one. Word: the new one.
    Dup = 18,
    /// Descriptors are closed. Words: the first, the last.
    CloseRange = 19,
    /// Something was given to an `io_uring`. Word: result.
    Uring = 20,
    /// A transfer is given to a device. Words: device, sector, bytes. Flags: 1 to the device.
    BlockIssue = 21,
    /// It is done. Words: device, sector.
    BlockComplete = 22,
    /// Two local sockets are made for each other. Words: their inodes, their descriptors (32 bits
    /// each), the kernel's numbers of the sockets.
    SocketPair = 23,
    /// The first bytes of what the thread's next record of a socket is about. Flags: as that one's.
    /// Number: how many. Words: inode, result; then the bytes.
    Payload = 24,
    /// Which task the thread runs. Number: what a task's number is (`runtimes::CONTEXTS`, `FIBERS`). Words: its
    /// number, that of the one that made it, or has resumed it; 0 for none, -1 where that is not known.
    Task = 25,
    /// A task makes another one runnable that has waited for it. Words: number and maker of either; whether
    /// the other one is given something, rather than that it has given it away.
    TaskWake = 26,
    /// A task makes another one, or something that goes on for it later. Words: its number, that of the new
    /// one, which may have been another's before.
    TaskMade = 27,
    /// A task gives bytes to its event loop, which sends them later. Words: inode, number of the task.
    TaskSend = 28,
    /// A system call begins or ends. Flags: 1 it begins. Number: the call's. Word: its first argument.
    Call = 29,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 29] = [
        Kind::Switch,
        Kind::Wake,
        Kind::Fork,
        Kind::Exec,
        Kind::Exit,
        Kind::Signal,
        Kind::SignalDelivered,
        Kind::Fault,
        Kind::Io,
        Kind::SocketV4,
        Kind::SocketV6,
        Kind::SocketLocal,
        Kind::SocketOther,
        Kind::Wait,
        Kind::Open,
        Kind::Close,
        Kind::Pipe,
        Kind::Dup,
        Kind::CloseRange,
        Kind::Uring,
        Kind::BlockIssue,
        Kind::BlockComplete,
        Kind::SocketPair,
        Kind::Payload,
        Kind::Task,
        Kind::TaskWake,
        Kind::TaskMade,
        Kind::TaskSend,
        Kind::Call,
    ];

    /// Words of a record; of [`Kind::Io`] at its end.
    pub const fn words(self) -> i16 {
        match self {
            Kind::Switch | Kind::Fork | Kind::Io | Kind::Wait | Kind::Close | Kind::Payload => 2,
            Kind::Task | Kind::TaskMade | Kind::TaskSend => 2,
            Kind::Pipe | Kind::CloseRange | Kind::Open | Kind::BlockComplete => 2,
            Kind::Exec | Kind::SignalDelivered => 0,
            Kind::Wake | Kind::Signal | Kind::Fault | Kind::Dup | Kind::Uring | Kind::Call => 1,
            Kind::SocketOther | Kind::BlockIssue | Kind::Exit => 3,
            Kind::SocketV4 => 4,
            Kind::SocketLocal | Kind::SocketPair | Kind::TaskWake => 5,
            Kind::SocketV6 => 7,
        }
    }

    /// Bytes of a record; of [`Kind::Payload`] those before its bytes.
    pub const fn size(self) -> i32 {
        let text = if matches!(self, Kind::Exec | Kind::Open) { TEXT } else { 0 };
        word(self.words()) as i32 + text
    }
}

/// Flags of [`Kind::Io`].
pub mod io {
    /// The call begins; otherwise it ends.
    pub const BEGIN: u16 = 1;
    /// It writes; otherwise it reads.
    pub const WRITE: u16 = 2;
    /// It makes sure that what was written is stored.
    pub const SYNC: u16 = 4;
    /// It is no file, but something of the kernel's with a descriptor.
    pub const ANONYMOUS: u16 = 8;
    /// The upper four bits are those of the inode's mode: what the descriptor is.
    pub const MODE_SHIFT: u16 = 12;
}

/// Flags of sockets' records: what happens.
pub mod socket {
    /// Bytes come.
    pub const RECEIVED: u16 = 0;
    /// Bytes go.
    pub const SENT: u16 = 1;
    /// A connection was accepted.
    pub const ACCEPT: u16 = 2;
    /// A connection was asked for.
    pub const CONNECT: u16 = 3;
    /// The last descriptor is gone.
    pub const CLOSE: u16 = 4;
}

/// What [`Kind::Wait`] waits for, in the flags' upper bits.
pub mod wait {
    /// The wait begins; otherwise it ends.
    pub const BEGIN: u16 = 1;
    /// For one of several descriptors.
    pub const POLL: u16 = 2;
    /// At a futex.
    pub const FUTEX: u16 = 4;
    /// For time to pass, or a signal.
    pub const SLEEP: u16 = 6;
    /// For a child.
    pub const CHILD: u16 = 8;
    /// No wait: at a futex others are woken.
    pub const FUTEX_WAKE: u16 = 10;
    /// For a connection that comes.
    pub const ACCEPT: u16 = 12;
    /// For a connection that was asked for.
    pub const CONNECT: u16 = 14;
}

/// A record, read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// Thread that ran.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// What it says.
    pub kind: Kind,
    /// By kind.
    pub flags: u16,
    /// By kind.
    pub number: u32,
    words: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record; `None` if it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        let u16_at = |at: i16| {
            let at = at as usize;
            Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
        };
        let u32_at = |at: i16| {
            let at = at as usize;
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let number = u16_at(KIND)?;
        let kind = *Kind::ALL.get(usize::from(number).checked_sub(1)?)?;
        if bytes.len() < kind.size() as usize {
            return None;
        }
        Some(Record {
            time_ns: time_of(bytes)?,
            tid: u32_at(TID)?,
            pid: u32_at(TID + 4)?,
            kind,
            flags: u16_at(FLAGS)?,
            number: u32_at(NUMBER)?,
            words: &bytes[WORDS as usize..],
        })
    }

    /// Word `n`.
    ///
    /// # Panics
    ///
    /// When the kind has no such word.
    pub fn word(&self, n: usize) -> u64 {
        let word = &self.words[8 * n..8 * n + 8];
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    }

    /// The bytes of [`Kind::Payload`].
    pub fn payload(&self) -> &'a [u8] {
        let bytes = self.words.get(8 * self.kind.words() as usize..).unwrap_or_default();
        &bytes[..bytes.len().min(self.number as usize)]
    }

    /// The text.
    pub fn text(&self) -> &'a [u8] {
        let text = &self.words[8 * self.kind.words() as usize..];
        text.split(|b| *b == 0).next().unwrap_or_default()
    }
}

/// A name of a thread in two words.
pub fn name(words: [u64; 2]) -> String {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// When a record was written.
pub fn time_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_from_one_on() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i + 1);
            let mut bytes = vec![0; kind.size() as usize];
            bytes[KIND as usize] = i as u8 + 1;
            assert_eq!(Record::read(&bytes).map(|r| r.kind), Some(kind));
            assert!(Record::read(&bytes[1..]).is_none());
        }
        assert!(Record::read(&[0; 64]).is_none());
        assert!(Record::read(&[0xff; 64]).is_none());
    }
}
