//! The sister of `fuzz/fuzz_targets/relay.rs`: for one second, a recorder that knows the secret
//! sends frames that make no sense. The collector ends the connection or goes on, and what it has
//! of others, and of this one, stays as it says.

mod support;

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use fettle_relay::frame::{Blob, Content, FIRST, Head, Kind, LAST, Stream, VERSION};
use fettle_relay::{Channel, CollectorKey, Hub, Limits, serve};
use support::Plain;

/// Bytes that a peer has sent, and what it is answered.
struct Memory<'a> {
    from: &'a [u8],
    to: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.from.read(bytes)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel for Memory<'_> {
    fn within(&mut self, _: Duration) {}
}

/// A generator of numbers that is good enough to choose by.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn frame(bytes: &mut Vec<u8>, head: Head, payload: &[u8]) {
    bytes.extend_from_slice(&head.encode());
    bytes.extend_from_slice(payload);
}

/// A conversation that may have been meant well, of one of a few sessions.
fn conversation(random: &mut Random, secret: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = [secret, &[random.below(3) as u8; 16], b"../fuzz"].concat();
    frame(&mut bytes, Head { number: VERSION, ..Head::new(Kind::Hello, hello.len()) }, &hello);
    if random.below(4) > 0 {
        frame(&mut bytes, Head::new(Kind::Begin, 5), b"begin");
    }
    for _ in 0..random.below(12) {
        match random.below(8) {
            0..3 => {
                let content = Content::ALL[random.below(3) as usize];
                let count = random.below(40) as usize;
                let payload = vec![1; count * content.record_bytes().unwrap_or(1)];
                let stream = Stream { content, thread: random.below(5) as u32 };
                frame(&mut bytes, Head::append(stream, count as u32, payload.len()), &payload);
            }
            3 => {
                let blob = if random.below(2) == 0 { Blob::Checkpoint } else { Blob::Ending };
                let part = random.below(3) as u32;
                let first = if part == 0 { FIRST } else { 0 };
                let last = if random.below(2) == 0 { LAST } else { 0 };
                frame(&mut bytes, Head::blob(blob, part, first | last, 4), b"blob");
            }
            4 => {
                let words = [random.below(500), random.below(1000), 1, 2, 3, random.next()];
                let payload = words.map(u64::to_le_bytes).concat();
                frame(&mut bytes, Head::new(Kind::Gap, payload.len()), &payload);
            }
            5 | 6 => frame(&mut bytes, Head::new(Kind::Sync, 0), &[]),
            _ => frame(&mut bytes, Head::new(Kind::Bye, 0), &[]),
        }
    }
    // Damaged, or cut off.
    for _ in 0..random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.next() as u8;
    }
    if random.below(3) == 0 {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

#[test]
fn whatever_a_peer_sends_the_collector_stays_whole() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let root = tempfile::tempdir().unwrap();
    let (key, recorder, _) = CollectorKey::open_or_make(&root.path().join("keys")).unwrap();
    let line = recorder.line();
    let secret: Vec<u8> = (0..32)
        .map(|n| u8::from_str_radix(&line[line.len() - 64 + 2 * n..][..2], 16).unwrap())
        .collect();
    let traces = root.path().join("traces");
    let mut random = Random(seed);
    let begin = Instant::now();
    let mut spoken = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        // A hub for a few conversations: another one has to be able to go on.
        let notify = Box::new(|_| {});
        let hub = Hub::open(&traces, &key, Box::new(Plain), Limits::default(), notify).unwrap();
        for _ in 0..20 {
            let bytes = conversation(&mut random, &secret);
            let mut channel = Memory { from: &bytes, to: Vec::new() };
            let _ = serve(&mut channel, "fuzz", &hub, Box::new(|| {}));
            spoken += 1;
        }
        drop(hub);
        if std::fs::read_dir(&traces).unwrap().count() > 20 {
            std::fs::remove_dir_all(&traces).unwrap();
        }
    }
    assert!(spoken > 20);
    // Nothing of it left the folder of traces, which may just have been removed.
    let outside = std::fs::read_dir(root.path()).unwrap().count();
    assert!((1..=2).contains(&outside), "{outside}");
}
