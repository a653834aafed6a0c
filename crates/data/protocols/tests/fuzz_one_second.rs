//! Broken conversations for a second: no panic, whatever is said. `fuzz/fuzz_targets/protocols.rs`
//! does the same for longer.

use std::path::Path;
use std::time::{Duration, Instant};

use fettle_protocols::{Connections, Side};

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[test]
fn broken_conversations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured");
    let mut conversations: Vec<Vec<(Side, Vec<u8>)>> = Vec::new();
    for name in [
        "amqp",
        "fastcgi",
        "grpc",
        "http1",
        "http2",
        "kafka",
        "memcached",
        "mqtt",
        "mysql",
        "nats",
        "postgres",
        "redis",
        "websocket",
    ] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        for line in text.lines() {
            let Some((sign, hex)) = line.split_once(' ') else {
                conversations.push(Vec::new());
                continue;
            };
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let bytes = (0..hex.len()).step_by(2).map(byte).collect();
            let side = if sign == ">" { Side::Received } else { Side::Sent };
            conversations.last_mut().unwrap().push((side, bytes));
        }
    }
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut state = seed;
    let until = Instant::now() + Duration::from_secs(1);
    let (mut runs, mut reported) = (0_u64, 0_u64);
    while Instant::now() < until {
        let mut connections = Connections::new();
        let which = random(&mut state) % conversations.len();
        for (side, bytes) in &conversations[which] {
            let mut bytes = bytes.clone();
            for _ in 0..random(&mut state) % 4 {
                let at = random(&mut state) % bytes.len();
                match random(&mut state) % 4 {
                    0 => bytes[at] = random(&mut state) as u8,
                    1 => bytes.truncate(at + 1),
                    2 => bytes.insert(at, b"\r\n\0\xff:$*9"[random(&mut state) % 8]),
                    _ => bytes[at] ^= 1 << (random(&mut state) % 8),
                }
            }
            let known = &bytes[..random(&mut state) % (bytes.len() + 1)];
            let known = if random(&mut state).is_multiple_of(4) { known } else { &bytes };
            let missing = [0, 0, 1, 100, u64::MAX / 2][random(&mut state) % 5];
            let all = (known.len() as u64).saturating_add(missing);
            connections.transfer(1, *side, known, all, &mut |_| reported += 1);
        }
        runs += 1;
    }
    println!("{runs} conversations, {reported} messages");
    assert!(runs > 10 && reported > 10);
}
