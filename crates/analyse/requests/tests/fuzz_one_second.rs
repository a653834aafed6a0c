//! Broken schemas for a second: no panic, whatever they say. `fuzz/fuzz_targets/schema.rs` does the
//! same for longer. What compiles is also run, over events that make no sense either.

use std::time::{Duration, Instant};

use fettle_requests::{Batch, Engine, Options, SCHEMAS, Source, compile, shipped};

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

/// Pieces that the language is made of, and some that it is not.
const PIECES: [&str; 45] = [
    "on ",
    "event ",
    "timeline ",
    "actor ",
    "stream ",
    "use ",
    "kernel",
    "x",
    "y",
    "tid",
    "fd",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "->",
    "u32",
    "i64",
    "text",
    "where ",
    "and ",
    "or ",
    "not ",
    "in ",
    "-",
    "<<",
    "==",
    "<",
    "*",
    "0xffffffffffffffff",
    "7",
    "\"a\"",
    "\"",
    "start ",
    "stop ",
    "join ",
    "handoff ",
    "send ",
    "bytes ",
    "seed ",
    "end ",
    "let x = ",
    "\n",
];

fn mutate(state: &mut u64) -> String {
    let (_, text) = SCHEMAS[random(state) % SCHEMAS.len()];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random(state) % 8 {
        let at = random(state) % (bytes.len() + 1);
        match random(state) % 5 {
            0 => drop(bytes.drain(at..(at + random(state) % 40).min(bytes.len()))),
            1 if at < bytes.len() => bytes[at] = random(state) as u8,
            2 => {
                let (_, other) = SCHEMAS[random(state) % SCHEMAS.len()];
                let from = random(state) % other.len();
                let to = (from + random(state) % 200).min(other.len());
                bytes.splice(at..at, other.as_bytes()[from..to].iter().copied());
            }
            _ => {
                let piece = PIECES[random(state) % PIECES.len()].repeat(1 + random(state) % 3);
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn soup(state: &mut u64) -> String {
    (0..random(state) % 300).map(|_| PIECES[random(state) % PIECES.len()]).collect()
}

fn try_out(text: &str, state: &mut u64) {
    match compile(&[Source::new("fuzz", text)], &shipped) {
        Err(report) => assert!(!report.to_string().is_empty()),
        Ok(program) => {
            let events: Vec<_> =
                program.catalog().events().iter().map(|e| e.name.clone()).collect();
            if events.is_empty() {
                return;
            }
            let mut batch = Batch::new(program.catalog());
            for _ in 0..100 {
                let event = program.catalog().find(&events[random(state) % events.len()]).unwrap();
                let fields: Vec<u64> =
                    (0..program.catalog().width()).map(|_| (random(state) % 5) as u64).collect();
                batch.push((random(state) % 1000) as u64, event, &fields);
            }
            let mut engine = Engine::new(program, Options::default());
            engine.feed(&batch, &mut |request| drop(request.read().critical_path()));
            engine.finish(&mut |request| drop(request.read().critical_path()));
        }
    }
}

#[test]
fn broken_schemas_do_no_harm() {
    let mut state = 0x2545_f491_4f6c_dd1d ^ u64::from(std::process::id());
    println!("seed {state:#x}");
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let text = if random(&mut state).is_multiple_of(4) {
            soup(&mut state)
        } else {
            mutate(&mut state)
        };
        try_out(&text, &mut state);
    }
}

/// Texts made to be slow or deep.
#[test]
fn size_and_depth_are_limited() {
    let rule = |filter: &str| {
        let schema = format!("event e(x: u32) timeline t(x: u32) on e where {filter} {{ seed }}");
        compile(&[Source::new("deep", schema)], &|_| None).err().map(|report| report.to_string())
    };
    assert_eq!(rule("(((x == 1)))"), None);
    assert!(rule(&format!("{}x{}", "(".repeat(100_000), ")".repeat(100_000))).is_some());
    assert!(rule(&format!("{}x == 1", "not ".repeat(100_000))).is_some());
    assert!(rule(&format!("x == 1{}", " in (1)".repeat(100_000))).is_some());
    assert!(rule(&format!("x == 1{}", " or x == 1".repeat(50_000))).is_some());
    // The deepest tree that the parser lets through: chains within parentheses.
    let mut deepest = "x == 1".to_string();
    for _ in 0..100 {
        let deeper = format!("({deepest}){}", " or x == 1".repeat(31));
        if rule(&deeper).is_some() {
            break;
        }
        deepest = deeper;
    }
    assert!(deepest.len() > 5_000, "{}", deepest.len());
    try_out(&format!("event e(x: u32) timeline t(x: u32) on e where {deepest} {{ seed }}"), &mut 7);
    let names: Vec<String> = (0..4000).map(|n| format!("e{n}")).collect();
    let events: String = names.iter().map(|name| format!("event {name}(x: u32) ")).collect();
    let sum = format!("({})", vec!["x"; 30].join(" + "));
    let filter = vec![sum; 30].join(" + ");
    let text = format!("{events} on {} where {filter} == 1 {{ seed }}", names.join(", "));
    let report = compile(&[Source::new("wide", text)], &|_| None).unwrap_err().to_string();
    assert!(report.contains("too many"), "{report}");
    let long = "x".repeat(2 << 20);
    assert!(compile(&[Source::new("long", long)], &|_| None).is_err());
    // Derived fields are computed once each, not once per mention.
    let mut doubling = "let a0 = x + x ".to_string();
    (1..16).for_each(|n| doubling += &format!("let a{n} = a{} + a{} ", n - 1, n - 1));
    let text =
        format!("event e(x: u64) timeline t(k: u64) on e {{ {doubling} start t(a15) seed }}");
    let program = compile(&[Source::new("doubling", text)], &|_| None).unwrap();
    let event = program.catalog().find("e").unwrap();
    let mut batch = Batch::new(program.catalog());
    batch.push(1, event, &[3]);
    let mut engine = Engine::new(program, Options::default());
    let mut keys = Vec::new();
    engine.feed(&batch, &mut |_| {});
    engine.finish(&mut |request| keys.push(request.read().sections[0].key));
    assert_eq!(keys, [3 << 16]);
}
