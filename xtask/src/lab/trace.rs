//! The lab's event log as a trace in Chrome's format, which `fettle import` reads: one row for each CPU, with kernel
//! calls, and within them the locks that are held.

use serde_json::{Value, json};

/// Names of the classes of locks, in the kernel's order (`lab/src/lock.rs`).
const CLASSES: [&str; 10] = [
    "giant",
    "ipc",
    "database",
    "ready",
    "pages",
    "timers",
    "tables",
    "semaphore",
    "mailbox",
    "bucket",
];

/// The trace. A tick is a nanosecond.
pub fn chrome(log: &str) -> String {
    let mut events: Vec<Value> = Vec::new();
    // Per CPU: what has begun and when.
    let mut open: Vec<Vec<(String, f64)>> = vec![Vec::new(); 64];
    for line in log.lines().filter_map(|line| line.strip_prefix("E ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, cpu, event, a, b] = words[..] else { continue };
        let (Ok(ticks), Ok(cpu), Ok(a)) =
            (time.parse::<f64>(), cpu.parse::<usize>(), a.parse::<usize>())
        else {
            continue;
        };
        let (us, Some(open)) = (ticks / 1000.0, open.get_mut(cpu)) else { continue };
        let class = CLASSES.get(a).copied().unwrap_or("?");
        match event {
            "call" => {
                // The kernel's calls do not nest; a log that was cut off may lack ends.
                open.clear();
                open.push((format!("call {a}"), us));
            }
            "lock" => open.push((format!("lock {class}"), us)),
            "unlock" => {
                let name = format!("lock {class}");
                if let Some(at) = open.iter().rposition(|(open, _)| *open == name) {
                    let (name, since) = open.remove(at);
                    events.push(span(&name, since, us, cpu));
                }
            }
            "leave" => {
                if let Some((name, since)) = open.first().cloned() {
                    open.clear();
                    events.push(span(&name, since, us, cpu));
                }
            }
            other => events.push(json!({
                "name": format!("{other} {a} {b}"), "ph": "i", "s": "t", "ts": us, "pid": 1, "tid": cpu + 1,
            })),
        }
    }
    let by_time = |event: &Value| event["ts"].as_f64().unwrap_or(0.0);
    events.sort_by(|a, b| by_time(a).total_cmp(&by_time(b)));
    json!({"traceEvents": events, "displayTimeUnit": "ns"}).to_string()
}

fn span(name: &str, since: f64, until: f64, cpu: usize) -> Value {
    json!({"name": name, "ph": "X", "ts": since, "dur": until - since, "pid": 1, "tid": cpu + 1})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_locks_are_spans() {
        let log = "lab: build\nE 1000 0 call 8 3\nE 1500 0 lock 1 0\nE 1750 0 unlock 1 0\nE 1950 1 idle 0 0\n\
                   E 2000 0 leave 3 0\nE broken\n";
        let trace: Value = serde_json::from_str(&chrome(log)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["call 8", "lock ipc", "idle 0 0"]);
        assert_eq!(events[0]["dur"], 1.0);
        assert_eq!(events[1]["dur"], 0.25);
    }
}
