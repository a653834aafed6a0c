//! Broken rules and looks for a second: no panic, whatever they say. `fuzz/fuzz_targets/rules.rs` does the
//! same for longer.

use std::time::{Duration, Instant};

use fettle_watch::{Judge, parse, recording};

const RULES: &str = r#"
rule stuck { worker of "nginx" spins 3ms without progress -> keep evidence, restart kill }
rule dead { process of "app" waits in a cycle -> run "logger", signal TERM at most 2 in 1m }
rule asleep { worker of "é" sleeps 1.5s while it holds bytes -> log }
rule beat { scalar "web.ticks" of process of "web" still for 4ms -> signal USR1 }
rule told { process of "db" waits in a cycle -> webhook "http://[::1]:9000/a?b=c%20d", log }
rule bad { share of failed requests "GET /é*" of process of "db" > 2% over 1s -> log }
rule slow { p99 of requests "*" of process of "db" > 2ms over 1s for 2 windows until 1ms -> log }
rule late { p99.9 of histogram "e" of process of "é" > 2ms over 1s for 2 windows -> locate over 5s, tune by "cat" }
"#;

const LOOK: &str = r#"{"at_ns":5,"processes":[{"id":{"pid":7,"start":1},"program":"app","is_worker":true,"cpu_ns":5,"held":null,"threads":[{"tid":7,"cpu_ns":18446744073709551615,"progress":{"calls":1,"waits":2}}],"waits":[{"tid":7,"mutex":16,"owner":7}],"unread":3,"scalars":[["web.ticks",-5]]}]}"#;

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
fn broken_rules_and_looks_do_no_harm() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let rules = parse::parse("rules", RULES).unwrap_or_else(|report| panic!("{report}"));
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        let text = String::from_utf8_lossy(&random.broken(RULES.as_bytes())).into_owned();
        if let Err(report) = parse::parse("broken", &text) {
            assert!(!report.to_string().is_empty(), "{text}");
        }
        let mut judge = Judge::new(rules.clone());
        let looks = [random.broken(LOOK.as_bytes()), LOOK.into(), random.broken(LOOK.as_bytes())];
        for look in recording::read(&looks.join(&b'\n')[..]).flatten() {
            judge.see(&look);
        }
        rounds += 1;
    }
    assert!(rounds > 10);
}
