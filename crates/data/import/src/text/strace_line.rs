//! One line of strace's output.

use crate::value::seconds_ns;

/// What a line is.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    /// The thread, if the line says.
    pub tid: Option<u32>,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What happened.
    pub what: What<'a>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A call and its return.
    Whole {
        name: &'a str,
        arguments: &'a str,
        end: End<'a>,
    },
    /// A call that has not returned yet, up to where others interrupted the line.
    Unfinished {
        name: &'a str,
        arguments: &'a str,
    },
    /// The rest of such a line.
    Resumed {
        name: &'a str,
        rest: &'a str,
    },
    /// A signal arrives.
    Signal {
        name: &'a str,
    },
    /// The thread ends: with a status, or a signal.
    Exited(i32),
    Killed(&'a str),
    /// It goes, because another thread of its process calls `execve`.
    Superseded,
}

/// How a call returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End<'a> {
    /// The result; a negative error number.
    pub result: i64,
    /// The result as it stands there, descriptions included.
    pub text: &'a str,
    /// The error's name.
    pub error: &'a str,
    /// How long it took, with `-T`.
    pub took_ns: Option<u64>,
}

/// A line as it stands without `-xx`, which writes each byte of texts, paths and names in hexadecimal.
/// What could be taken for something else there, and what cannot be printed, stays an escape.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        plain.push_str(before);
        match hexadecimal(escape.as_bytes()) {
            Some(byte @ b' '..=b'~') if !b"\"\\<>".contains(&byte) => {
                plain.push(char::from(byte));
                rest = &escape[HEXADECIMAL..];
            }
            // The next character is no beginning of an escape, whatever it is.
            _ => {
                let length = escape.chars().take(2).map(char::len_utf8).sum();
                plain.push_str(&escape[..length]);
                rest = &escape[length..];
            }
        }
    }
    plain + rest
}

/// Bytes of such an escape.
const HEXADECIMAL: usize = "\\x2f".len();

/// The byte that an escape means, if it is hexadecimal.
fn hexadecimal(escape: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = *escape else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Reads a line; `None` if it is none of strace's.
pub fn line(text: &str) -> Option<Line<'_>> {
    // `-r` alone fills its times up with blanks.
    let mut rest = text.trim_start();
    let mut tid = None;
    if let Some(after) = rest.strip_prefix("[pid ") {
        let (number, after) = after.split_once(']')?;
        tid = Some(number.trim().parse().ok()?);
        rest = after.trim_start();
    }
    let (mut first, mut after) = rest.split_once(' ')?;
    if tid.is_none() && !first.contains('.') {
        tid = Some(first.parse().ok()?);
        (first, after) = after.trim_start().split_once(' ')?;
    }
    let time_ns = Some(first).filter(|time| time.contains('.')).and_then(seconds_ns)?;
    Some(Line { tid, time_ns, what: what(after.trim_start())? })
}

fn what(text: &str) -> Option<What<'_>> {
    if let Some(rest) = text.strip_prefix("--- ") {
        let name = rest.split([' ', '{']).next()?;
        return name.starts_with("SIG").then_some(What::Signal { name });
    }
    if let Some(rest) = text.strip_prefix("+++ ") {
        if let Some(status) = rest.strip_prefix("exited with ") {
            return status.split(' ').next()?.parse().ok().map(What::Exited);
        }
        if let Some(signal) = rest.strip_prefix("killed by ") {
            return Some(What::Killed(signal.split(' ').next()?));
        }
        return rest.starts_with("superseded").then_some(What::Superseded);
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        let (name, rest) = rest.split_once(" resumed>")?;
        return Some(What::Resumed { name, rest });
    }
    let (name, rest) = text.split_once('(')?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(good) {
        return None;
    }
    if let Some(arguments) = rest.strip_suffix("<unfinished ...>") {
        // What never returns has a bracket already.
        let whole = split(arguments).1;
        let arguments = whole.map_or(arguments, |at| &arguments[..at]);
        return Some(What::Unfinished { name, arguments: arguments.trim_end() });
    }
    let (arguments, end) = ended(rest)?;
    Some(What::Whole { name, arguments, end })
}

/// Arguments and how the call returned, of what stands behind the opening bracket.
pub fn ended(text: &str) -> Option<(&str, End<'_>)> {
    let close = split(text).1?;
    let mut rest = text[close + 1..].trim_start().strip_prefix('=')?.trim_start();
    let mut took_ns = None;
    if let Some((before, time)) = rest.strip_suffix('>').and_then(|rest| rest.rsplit_once(" <"))
        && let Some(ns) = seconds_ns(time)
    {
        took_ns = Some(ns);
        rest = before;
    }
    let rest = rest.trim_end();
    let (value, more) = rest.split_once(' ').unwrap_or((rest, ""));
    let digits = value.split('<').next()?;
    let mut result = match crate::value::number(digits) {
        Some(number) => number.bits()? as i64,
        // It never returned.
        None if value == "?" => 0,
        None => return None,
    };
    let mut error = "";
    if result == -1 && more.starts_with('E') || value == "?" && more.starts_with('E') {
        error = more.split(' ').next()?;
        result = -errno(error);
    }
    Some((&text[..close], End { result, text: rest, error, took_ns }))
}

/// Arguments at commas that stand in no brackets or quotes, and where the call's bracket closes.
pub fn split(text: &str) -> (Vec<&str>, Option<usize>) {
    let bytes = text.as_bytes();
    let mut parts = Vec::new();
    let (mut depth, mut begin, mut at) = (0_usize, 0, 0);
    let mut close = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = quoted(bytes, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                close = Some(at);
                break;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // A description: a path may have any sign.
            b'<' if digits_before(bytes, at) < at => {
                if let Some(fd) = crate::syscalls::args::fd(&text[digits_before(bytes, at)..]) {
                    at += fd.of.map_or(0, |of| of.len() + 1);
                }
            }
            b',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = text[begin.min(text.len())..close.unwrap_or(text.len())].trim();
    if !last.is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    (parts, close)
}

fn digits_before(bytes: &[u8], at: usize) -> usize {
    let before = bytes.get(..at).unwrap_or_default().iter().rev();
    at - before.take_while(|byte| byte.is_ascii_digit()).count()
}

/// Where the quote that begins at a place ends; the end if it does not.
fn quoted(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Names of signals, from 1 on.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The number of a signal; 0 if it has none.
pub fn signal(name: &str) -> u32 {
    if let Some(number) = name.strip_prefix("SIGRT_") {
        return number.parse::<u32>().map_or(0, |number| number.saturating_add(32));
    }
    SIGNALS.iter().position(|known| *known == name).map_or(0, |place| place as u32 + 1)
}

/// Numbers of errors that calls give back, by name; those of others are -1.
const ERRORS: [(&str, i64); 46] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EPIPE", 32),
    ("ERANGE", 34),
    ("EDEADLK", 35),
    ("ENAMETOOLONG", 36),
    ("ENOSYS", 38),
    ("ENOTEMPTY", 39),
    ("ELOOP", 40),
    ("ENOTSOCK", 88),
    ("EMSGSIZE", 90),
    ("EOPNOTSUPP", 95),
    ("EADDRINUSE", 98),
    ("ENETUNREACH", 101),
    ("ECONNRESET", 104),
    ("EISCONN", 106),
    ("ENOTCONN", 107),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EALREADY", 114),
    ("EINPROGRESS", 115),
];

fn errno(name: &str) -> i64 {
    if name.starts_with("ERESTART") {
        // What the program sees if it is not restarted.
        return 4;
    }
    ERRORS.iter().find(|(known, _)| *known == name).map_or(1, |(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> What<'_> {
        line(text).expect(text).what
    }

    #[test]
    fn calls_whole_and_in_pieces() {
        let text = r#"12 1700000000.000001 read(3</etc/a,b (x)>, "a\")=\n", 100) = 5 <0.000020>"#;
        let line = line(text).unwrap();
        assert_eq!((line.tid, line.time_ns), (Some(12), 1_700_000_000_000_001_000));
        let What::Whole { name, arguments, end } = line.what else { panic!("{line:?}") };
        assert_eq!((name, end.result, end.took_ns), ("read", 5, Some(20_000)));
        assert_eq!(split(arguments).0, ["3</etc/a,b (x)>", r#""a\")=\n""#, "100"]);
        let text = "1.5 accept4(3, {sa_family=AF_INET}, [16], SOCK_CLOEXEC <unfinished ...>";
        let What::Unfinished { name, arguments } = of(text) else { panic!("{text}") };
        assert_eq!((name, split(arguments).0.len()), ("accept4", 4));
        let What::Resumed { name, rest } = of("[pid 7] 1.5 <... read resumed>\"x\", 1) = 1") else {
            panic!("resumed")
        };
        assert_eq!((name, ended(rest).map(|(_, end)| end.result)), ("read", Some(1)));
    }

    #[test]
    fn results_and_errors() {
        let end = |text| ended(text).map(|(_, end)| (end.result, end.error)).unwrap();
        assert_eq!(end("3) = -1 EAGAIN (Resource temporarily unavailable)"), (-11, "EAGAIN"));
        assert_eq!(end("3) = ? ERESTARTSYS (To be restarted)"), (-4, "ERESTARTSYS"));
        assert_eq!(end("0) = ?"), (0, ""));
        assert_eq!(end("x) = 0x7f00 <0.1>"), (0x7f00, ""));
        assert_eq!(end("x)   = 5<TCP:[1.1.1.1:1->2.2.2.2:2]> <0.1>"), (5, ""));
        assert_eq!(end("[{fd=3}], 1, 5) = 1 ([{fd=3, revents=POLLIN}])"), (1, ""));
    }

    #[test]
    fn signals_and_ends() {
        assert_eq!(of("1.5 --- SIGCHLD {si_signo=SIGCHLD} ---"), What::Signal { name: "SIGCHLD" });
        assert_eq!(of("9 1.5 +++ exited with 3 +++"), What::Exited(3));
        assert_eq!(of("9 1.5 +++ killed by SIGKILL (core dumped) +++"), What::Killed("SIGKILL"));
        assert_eq!((signal("SIGKILL"), signal("SIGRT_1"), signal("SIGX")), (9, 33, 0));
    }

    #[test]
    fn other_lines_are_none() {
        for text in [
            "",
            "hello",
            "12 hello world",
            "1.5",
            "12:30:01 read(3) = 1",
            "1.5 re ad(3) = 1",
            "1.5 read(3",
            "1.5 read(3) = x",
            "5 read(3) = 0",
        ] {
            assert_eq!(line(text), None, "{text:?}");
        }
    }
}
