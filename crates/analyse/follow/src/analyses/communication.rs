//! Communication: a graph whose nodes are processes, and addresses of others.
//!
//! A connection is one direction between two of them, as its sender sees it. Of sockets, the receiver is
//! the process that has the other end (`connections.rs`); if none has it, the host outside. Of pipes, it
//! is the reader. Ephemeral ports of clients are not distinguished.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::analysis::{Analysis, Wanted};
use super::connections::{Connections, End, Names};
use super::found::{Cell, Findable, Found, Unit, share};
use crate::session::Context;

const EVENTS: [Wanted; 7] = [
    ("sent", &["pid", "socket", "local", "remote", "bytes"]),
    ("received", &["pid", "socket", "local", "remote", "bytes"]),
    ("pipe_write", &["pid", "pipe", "bytes"]),
    ("pipe_read", &["pid", "pipe", "bytes"]),
    ("wakeup", &["tid", "target", "interrupt"]),
    ("poll", &["pid", "ready"]),
    ("socket_close", &["socket", "local", "remote"]),
];

#[derive(Clone, Copy, Default)]
struct Sum {
    messages: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The analysis.
#[derive(Default)]
pub(super) struct Communication {
    connections: Connections,
    /// What processes sent, by process, end and the other's address.
    sent: HashMap<(u64, End, u64), Sum>,
    /// What they received.
    received: HashMap<(u64, End, u64), Sum>,
    /// Writers of pipes, and their readers.
    written: HashMap<(u64, u64), Sum>,
    readers: HashMap<u64, HashSet<u64>>,
    /// Wake-ups, by threads; by none where an interrupt woke.
    woken: HashMap<(Option<u64>, u64), u64>,
    /// Times that a process asked what is ready, and times that nothing was in time.
    polls: BTreeMap<u64, (u64, u64)>,
}

/// A connection: sender, receiver, and by what.
type Edge = (String, String, &'static str);

impl Analysis for Communication {
    fn events(&self) -> &'static [Wanted] {
        &EVENTS
    }

    fn event(&mut self, which: usize, _: u64, values: &[u64]) {
        // How many bytes, or what else there is to say.
        let last = values.last().copied().unwrap_or(0);
        match which {
            0 | 1 => {
                let (pid, socket) = (values[0], values[1]);
                let names = Names { local: values[2], remote: values[3] };
                let end = self.connections.seen(names, socket, pid);
                if last as i64 > 0 {
                    let sums = if which == 0 { &mut self.sent } else { &mut self.received };
                    sums.entry((pid, end, names.remote)).or_default().add(last);
                }
            }
            2 if last as i64 > 0 => {
                self.written.entry((values[0], values[1])).or_default().add(last);
            }
            3 if last as i64 > 0 => {
                self.readers.entry(values[1]).or_default().insert(values[0]);
            }
            4 => {
                // The thread that was interrupted has nothing to do with it.
                let by = (last == 0).then_some(values[0]);
                *self.woken.entry((by, values[1])).or_default() += 1;
            }
            5 => {
                let polls = self.polls.entry(values[0]).or_default();
                polls.0 += 1;
                polls.1 += u64::from(last as i64 == 0);
            }
            6 => {
                let names = Names { local: values[1], remote: values[2] };
                self.connections.closed(names, values[0]);
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, context: &Context<'_>) -> Found {
        let mut edges: BTreeMap<Edge, Sum> = BTreeMap::new();
        let mut add = |from: String, to: String, by: &'static str, sum: Sum| {
            let edge = edges.entry((from, to, by)).or_default();
            edge.messages += sum.messages;
            edge.bytes = edge.bytes.saturating_add(sum.bytes);
        };
        let all = &self.connections;
        let is_nobody = |address: &str| address.is_empty() || address.ends_with(":0");
        let open = all.open(|name| is_nobody(context.text(name)));
        let peer = |end: End, remote: u64| all.peer(end).or_else(|| open.get(&remote).copied());
        let outside = |remote: u64| format!("{} (outside)", host(context.text(remote)));
        for ((pid, end, remote), sum) in &self.sent {
            let to = peer(*end, *remote);
            let to = to.map_or_else(|| outside(*remote), |pid| context.process(pid));
            add(context.process(*pid), to, "socket", *sum);
        }
        // What a process of the trace sent is counted there.
        for ((pid, end, remote), sum) in &self.received {
            if peer(*end, *remote).is_none() {
                add(outside(*remote), context.process(*pid), "socket", *sum);
            }
        }
        for ((pid, pipe), sum) in &self.written {
            let readers = self.readers.get(pipe);
            let mut names: Vec<String> =
                readers.into_iter().flatten().map(|pid| context.process(*pid)).collect();
            names.sort();
            names.dedup();
            // Bytes that several may read are reported of all of them together.
            let to = if names.is_empty() { "nobody seen".to_owned() } else { names.join(" or ") };
            add(context.process(*pid), to, "pipe", *sum);
        }
        let mut wakes: BTreeMap<(String, String), u64> = BTreeMap::new();
        for ((tid, target), count) in &self.woken {
            let by = tid.map_or_else(|| "an interrupt".to_owned(), |tid| context.process_of(tid));
            let pair = (by, context.process_of(*target));
            *wakes.entry(pair).or_default() += count;
        }
        let mut edges: Vec<(Edge, Sum)> = edges.into_iter().collect();
        edges.sort_by_key(|(_, sum)| Reverse((sum.messages, sum.bytes)));
        let dot = dot(&edges);
        let tables = vec![connections(&edges), wakeups(wakes), time_outs(&self.polls, context)];
        let tables = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
        Found { tables, notes: Vec::new(), dot: Some(dot) }
    }
}

/// An address without its port.
fn host(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    }
}

fn connections(edges: &[(Edge, Sum)]) -> Findable {
    let columns = [
        ("messages", Unit::Count),
        ("usage", Unit::Share),
        ("so far", Unit::Share),
        ("bytes", Unit::Bytes),
        ("of all bytes", Unit::Share),
        ("mean size", Unit::Bytes),
        ("connection", Unit::Text),
    ];
    let mut table = Findable::new("Connections, most used first", &columns);
    let all = edges.iter().fold(Sum::default(), |all, (_, sum)| Sum {
        messages: all.messages + sum.messages,
        bytes: all.bytes.saturating_add(sum.bytes),
    });
    let mut so_far = 0;
    for ((from, to, by), sum) in edges {
        so_far += sum.messages;
        table.rows.push(vec![
            Cell::Number(sum.messages),
            share(sum.messages, all.messages),
            share(so_far, all.messages),
            Cell::Number(sum.bytes),
            share(sum.bytes, all.bytes),
            Cell::Number(sum.bytes.checked_div(sum.messages).unwrap_or(0)),
            Cell::Text(format!("{from} → {to}  {by}")),
        ]);
    }
    table
}

fn wakeups(wakes: BTreeMap<(String, String), u64>) -> Findable {
    let columns = [("wake-ups", Unit::Count), ("%", Unit::Share), ("who wakes whom", Unit::Text)];
    let mut table = Findable::new("Wake-ups", &columns);
    let all: u64 = wakes.values().sum();
    let mut wakes: Vec<_> = wakes.into_iter().collect();
    wakes.sort_by_key(|(_, count)| Reverse(*count));
    for ((from, to), count) in wakes {
        let who = Cell::Text(format!("{from} → {to}"));
        table.rows.push(vec![Cell::Number(count), share(count, all), who]);
    }
    table
}

fn time_outs(polls: &BTreeMap<u64, (u64, u64)>, context: &Context<'_>) -> Findable {
    let columns = [
        ("waits", Unit::Count),
        ("in vain", Unit::Count),
        ("time-out ratio", Unit::Share),
        ("process", Unit::Text),
    ];
    let mut table = Findable::new("Waits for whoever comes first", &columns);
    for (pid, (count, empty)) in polls {
        table.rows.push(vec![
            Cell::Number(*count),
            Cell::Number(*empty),
            share(*empty, *count),
            Cell::Text(context.process(*pid)),
        ]);
    }
    table
}

/// The graph for GraphViz: thick edges carry many messages.
fn dot(edges: &[(Edge, Sum)]) -> String {
    let quoted = |text: &str| {
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let text: String = plain.collect();
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let mut out = String::from(
        "digraph communication {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n  \
         edge [fontname=\"sans-serif\", fontsize=10];\n",
    );
    let most = edges.iter().map(|(_, sum)| sum.messages).max().unwrap_or(1).max(1);
    for ((from, to, by), sum) in edges {
        let width = 1.0 + 4.0 * sum.messages as f64 / most as f64;
        let label = format!("{by}: {} messages, {} bytes", sum.messages, sum.bytes);
        // Writing into a text cannot fail.
        let _ = writeln!(
            out,
            "  {} -> {} [label={}, penwidth={width:.1}];",
            quoted(from),
            quoted(to),
            quoted(&label)
        );
    }
    out.push_str("}\n");
    out
}
