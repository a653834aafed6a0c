//! One POST to a receiver that may do anything: not answer, answer for ever, or answer nonsense.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::url::Url;

/// Time to connect; and from then on to the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER_MAX: usize = 4096;
/// Once its status is known, the rest of an answer is waited for only so long: for a receiver that writes
/// an answer should see it read.
const REST: Duration = Duration::from_millis(100);

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It was taken, with this status.
    Taken(u16),
    /// It was not, and would not be if it were sent again.
    Refused(String),
    /// It was not, and might be later.
    Failed(String),
}

/// Sends `body`, and reads what is said to it.
pub(crate) fn post(url: &Url, body: &[u8]) -> Attempt {
    match exchange(url, body) {
        Ok(status @ 200..=299) => Attempt::Taken(status),
        Ok(status @ 300..=399) => {
            Attempt::Refused(format!("it answers {status}, and redirects are not followed"))
        }
        // A time-out, too early, too many requests: those pass.
        Ok(status @ (408 | 425 | 429 | 500..=599)) => {
            Attempt::Failed(format!("it answers {status}"))
        }
        Ok(status) => Attempt::Refused(format!("it answers {status}")),
        Err(why) => Attempt::Failed(why),
    }
}

fn exchange(url: &Url, body: &[u8]) -> Result<u16, String> {
    let mut stream = connect(url)?;
    let end = Instant::now() + PATIENCE;
    let (target, host) = (url.target(), url.authority());
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fettle/{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    let message = [head.as_bytes(), body].concat();
    send(&mut stream, &message, end).map_err(|error| failed("it cannot be sent to", &error))?;
    answer(&mut stream, end)
}

/// Tries the addresses of the host, all of them within the time.
fn connect(url: &Url) -> Result<TcpStream, String> {
    let end = Instant::now() + PATIENCE;
    let addresses = url.peer().to_socket_addrs();
    let addresses = addresses.map_err(|error| format!("{} is not known: {error}", url.peer().0))?;
    let mut why = format!("{} has no address", url.peer().0);
    for address in addresses {
        let Ok(left) = left(end) else { break };
        match connect_to(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = failed("it cannot be reached", &error),
        }
    }
    Err(why)
}

fn connect_to(address: &SocketAddr, left: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, left)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the status is known, and what else comes without delay.
fn answer(stream: &mut TcpStream, mut end: Instant) -> Result<u16, String> {
    let (mut bytes, mut filled) = ([0; ANSWER_MAX], 0);
    let mut status = None;
    while filled < ANSWER_MAX {
        let read = left(end).and_then(|left| {
            stream.set_read_timeout(Some(left))?;
            stream.read(&mut bytes[filled..])
        });
        match read {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if status.is_some() => break,
            Err(error) => return Err(failed("it does not answer", &error)),
        }
        if status.is_none() {
            status = last_status(&bytes[..filled])?;
            if status.is_some() {
                end = end.min(Instant::now() + REST);
            }
        }
    }
    status.ok_or_else(|| match filled {
        0 => "it closes the connection without an answer".to_owned(),
        _ => "what it answers is no HTTP".to_owned(),
    })
}

/// The status, if that has come: before the one that counts there may be heads that say only that it goes on (`100
/// Continue`, `103 Early Hints`; RFC 9110, 15.2).
fn last_status(mut bytes: &[u8]) -> Result<Option<u16>, String> {
    loop {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let status = status_of(&bytes[..end]).ok_or("what it answers is no HTTP")?;
        if !(100..200).contains(&status) {
            return Ok(Some(status));
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        bytes = &bytes[end + 4..];
    }
}

/// The number in `HTTP/1.1 204 No Content`.
fn status_of(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', digits @ ..] = rest else { return None };
    let (digits, behind) = digits.split_at_checked(3)?;
    if !matches!(behind.first(), None | Some(b' ' | b'\r')) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    digits.parse().ok().filter(|status| (100..600).contains(status))
}

fn failed(what: &str, error: &io::Error) -> String {
    match error.kind() {
        // What a socket's time-out comes as.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{what} within {} s", PATIENCE.as_secs())
        }
        _ => format!("{what}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_has_a_status() {
        assert_eq!(status_of(b"HTTP/1.1 204 No Content\r"), Some(204));
        assert_eq!(status_of(b"HTTP/1.0 500"), Some(500));
        let wrong: [&[u8]; 7] = [
            b"",
            b"HTTP/1.1",
            b"HTTP/2 200",
            b"HTTP/1.1 20",
            b"HTTP/1.1 2000",
            b"HTTP/1.1 +20 ",
            b"SSH-2.0",
        ];
        for line in wrong {
            assert_eq!(status_of(line), None, "{line:?}");
        }
    }

    #[test]
    fn heads_before_the_answer_are_passed_over() {
        let early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        assert_eq!(last_status(early), Ok(None));
        assert_eq!(last_status(&early[..30]), Ok(None));
        assert_eq!(last_status(&[early, &b"HTTP/1.1 204 \r\n"[..]].concat()), Ok(Some(204)));
        assert!(last_status(&[early, &b"junk\n"[..]].concat()).is_err());
    }

    /// A receiver that does this with each connection.
    fn receiver(does: impl Fn(TcpStream) + Send + 'static) -> Url {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        std::thread::spawn(move || listener.incoming().flatten().for_each(does));
        url.parse().unwrap()
    }

    fn says(text: &'static [u8]) -> Url {
        receiver(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(text);
        })
    }

    #[test]
    fn what_receivers_say_is_understood() {
        let said = |text| post(&says(text), b"{}");
        assert_eq!(said(b"HTTP/1.1 204 No Content\r\n\r\n"), Attempt::Taken(204));
        assert_eq!(said(b"HTTP/1.0 200\n"), Attempt::Taken(200));
        let moved = said(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n");
        assert!(
            matches!(&moved, Attempt::Refused(why) if why.contains("not followed")),
            "{moved:?}"
        );
        assert_eq!(said(b"HTTP/1.1 404 No\r\n\r\n"), Attempt::Refused("it answers 404".into()));
        assert_eq!(said(b"HTTP/1.1 503 No\r\n\r\n"), Attempt::Failed("it answers 503".into()));
        for (text, why) in
            [(&b"SSH-2.0-x\r\n"[..], "no HTTP"), (b"HTTP", "no HTTP"), (b"", "closes")]
        {
            let came = said(text);
            assert!(matches!(&came, Attempt::Failed(said) if said.contains(why)), "{came:?}");
        }
    }

    #[test]
    fn a_receiver_that_is_not_there_is_no_wait() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let begun = Instant::now();
        let came = post(&format!("http://{free}").parse().unwrap(), b"{}");
        assert!(
            matches!(&came, Attempt::Failed(why) if why.contains("cannot be reached")),
            "{came:?}"
        );
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }

    /// Makes an attempt, which must end in time, whatever it comes to.
    fn in_time(url: &Url) -> Attempt {
        let begun = Instant::now();
        let came = post(url, b"{}");
        assert!(begun.elapsed() < PATIENCE * 2, "{:?}: {came:?}", begun.elapsed());
        came
    }

    #[test]
    fn receivers_that_never_answer_are_left() {
        let silent = receiver(std::mem::forget);
        let came = in_time(&silent);
        assert!(matches!(&came, Attempt::Failed(why) if why.contains("within 2 s")), "{came:?}");
        // Each byte comes in time, the answer does not.
        let slow = receiver(|mut stream| {
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let came = in_time(&slow);
        assert!(matches!(&came, Attempt::Failed(why) if why.contains("within 2 s")), "{came:?}");
    }

    #[test]
    fn endless_answers_are_cut_off() {
        fn endless(begin: &'static [u8]) -> Url {
            receiver(move |mut stream| {
                let _ = stream.read(&mut [0; 4096]);
                let mut sent = stream.write_all(begin);
                while sent.is_ok() {
                    sent = stream.write_all(&[b'x'; 1024]);
                }
            })
        }
        assert_eq!(in_time(&endless(b"")), Attempt::Failed("what it answers is no HTTP".into()));
        assert_eq!(in_time(&endless(b"HTTP/1.1 200 OK\r\n\r\n")), Attempt::Taken(200));
    }
}
