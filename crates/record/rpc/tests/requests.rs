//! Broken requests for a second: no panic, whatever they say. `fuzz/fuzz_targets/rpc.rs` does the same for
//! longer.

use std::time::{Duration, Instant};

/// A generator of numbers, by Marsaglia.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }

    fn broken(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let (at, other) = (self.below(bytes.len()), self.below(bytes.len()));
            match self.below(4) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes.truncate(at + 1),
                2 => bytes.swap(at, other),
                _ => {
                    let part = bytes[at.min(other)..at.max(other)].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    }
}

#[test]
fn requests() {
    let whole = include_bytes!("golden/shop.request");
    // The file with the service is the last; the rest is what it imports.
    let tail = &whole[whole.len().saturating_sub(2000)..];
    let seed = Instant::now().elapsed().as_nanos() as u64 ^ u64::from(std::process::id()) << 20 | 1;
    println!("seed {seed}");
    let mut random = Xorshift(seed);
    fettle_rpc::read_request(whole);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        fettle_rpc::read_request(&random.broken(tail));
        fettle_rpc::read_request(&random.broken(whole));
    }
}

/// A field of a message: a number, or what is in it.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut part in [number << 3 | 2, bytes.len() as u32] {
        while part > 0x7f {
            out.push(part as u8 | 0x80);
            part >>= 7;
        }
        out.push(part as u8);
    }
    out.extend(bytes);
    out
}

/// The request for a service whose question has one field with these options, at line 7 and column 3.
fn with_options(kind: u8, options: &[u8]) -> Vec<u8> {
    let text = |number, text: &str| field(number, text.as_bytes());
    let one =
        [text(1, "card"), vec![3 << 3, 1, 4 << 3, 1, 5 << 3, kind], field(8, options)].concat();
    let message = [text(1, "Order"), field(2, &one)].concat();
    let method = [text(1, "Buy"), text(2, ".p.Order"), text(3, ".p.Order")].concat();
    let service = [text(1, "Shop"), field(2, &method)].concat();
    let location = [field(1, &[4, 0, 2, 0]), field(2, &[6, 2, 20])].concat();
    let file = [
        text(1, "shop.proto"),
        text(2, "p"),
        field(4, &message),
        field(6, &service),
        field(9, &field(1, &location)),
    ];
    [text(1, "shop.proto"), text(2, "lang=go"), field(15, &file.concat())].concat()
}

fn problem(kind: u8, options: &[u8]) -> String {
    let request = with_options(kind, options);
    let request = fettle_rpc::read(&request).unwrap();
    fettle_rpc::model(&request).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn options_that_cannot_be_are_reported_with_line_and_column() {
    const TEXT: u8 = 9;
    const NUMBER: u8 = 5;
    const MESSAGE: u8 = 11;
    let key = field(fettle_rpc::OPTION, &[1 << 3, 1]);
    let size = field(fettle_rpc::OPTION, &[2 << 3, 1]);
    // Number 16, debug_redact.
    let redact = vec![0x80, 1, 1];
    assert_eq!(problem(TEXT, &key), "");
    assert_eq!(problem(TEXT, &redact), "");
    let reported = problem(TEXT, &[redact.clone(), key.clone()].concat());
    assert!(
        reported.starts_with("shop.proto:7:3: field card is marked debug_redact"),
        "{reported}"
    );
    let reported = problem(TEXT, &[redact, size.clone()].concat());
    assert!(
        reported.starts_with("shop.proto:7:3: field card is marked debug_redact"),
        "{reported}"
    );
    let reported = problem(MESSAGE, &key);
    assert!(
        reported.starts_with("shop.proto:7:3: field card is a message or repeated"),
        "{reported}"
    );
    let reported = problem(NUMBER, &size);
    assert!(reported.starts_with("shop.proto:7:3: field card has no size"), "{reported}");
    let reported = problem(TEXT, &field(fettle_rpc::OPTION, &[9 << 3, 1]));
    assert!(
        reported.starts_with("shop.proto:7:3: field card: (fettle) has a part with number 9"),
        "{reported}"
    );
}
