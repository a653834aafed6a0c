//! The matrix: four kinds of calls, nine ends, and what the stubs on both sides reported of each.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::language::{Language, Programs};
use super::proxy::Proxy;
use crate::{proc, repo};

/// Kinds of calls, as tags name them, in the order of the service's methods.
pub const KINDS: [&str; 4] = ["unary", "server", "client", "bidi"];

/// An end, and which of gRPC's statuses the two sides may report. Without any, the side may report nothing.
struct End {
    name: &'static str,
    client: &'static [u64],
    server: &'static [u64],
    /// Whether the server has to report it: not if it may not have heard of the call, or was killed.
    reaches: bool,
}

const OK: u64 = 0;
const CANCELLED: u64 = 1;
const UNKNOWN: u64 = 2;
const INVALID: u64 = 3;
const DEADLINE: u64 = 4;
const ABORTED: u64 = 10;
const UNAVAILABLE: u64 = 14;

/// The ends. A server that sees a connection close cannot know that the client's time was up, so it may call
/// that cancelled; a server that was killed reports nothing.
const ENDS: [End; 9] = [
    End { name: "ok", client: &[OK], server: &[OK], reaches: true },
    End { name: "error", client: &[INVALID], server: &[INVALID], reaches: true },
    End { name: "cancel", client: &[CANCELLED], server: &[CANCELLED], reaches: true },
    End { name: "deadline", client: &[DEADLINE], server: &[DEADLINE, CANCELLED], reaches: true },
    End { name: "abort", client: &[ABORTED], server: &[ABORTED], reaches: true },
    End { name: "cut", client: &[UNAVAILABLE], server: &[CANCELLED], reaches: true },
    // The server is killed while it is open.
    End {
        name: "idle",
        client: &[OK, CANCELLED, UNAVAILABLE],
        server: &[OK, CANCELLED],
        reaches: false,
    },
    End { name: "forgotten", client: &[OK, CANCELLED], server: &[OK, CANCELLED], reaches: false },
    End { name: "killed", client: &[UNAVAILABLE], server: &[], reaches: false },
];

/// Statuses that tonic's own clients see instead: it calls a limit that is over cancelled, and a connection that
/// breaks unknown.
const TONIC: [(&str, u64); 3] = [("deadline", CANCELLED), ("cut", UNKNOWN), ("killed", UNKNOWN)];

/// What one side reported of a call.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub tag: String,
    pub begin_ns: u64,
    method: u64,
    pub server: bool,
    pub status: u64,
    pub span: u64,
    pub parent: u64,
    sent: u64,
    received: u64,
}

/// A cell of the table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The client's status and the server's, or what is wrong.
    pub text: String,
    /// Whether each side reported the call once, with a right status.
    pub right: bool,
}

/// Runs the programs and gives the cells by end, then kind.
pub fn run(programs: &Programs, fettle: &Path, language: Language) -> Result<Vec<Vec<Cell>>> {
    let sensors = sensor_folder()?;
    let result = drive(programs, &sensors).and_then(|()| reports(fettle, &sensors));
    let _ = std::fs::remove_dir_all(&sensors);
    Ok(judge(&result?, language))
}

/// A folder of its own for sensors, which no other user may enter.
pub(super) fn sensor_folder() -> Result<std::path::PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = Path::new("/dev/shm").join(format!("fettle-rpc-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Runs server and client, and does for the client what only its parent can.
fn drive(programs: &Programs, sensors: &Path) -> Result<()> {
    let start = |command: &mut Command| {
        let command = command.env("FETTLE_SENSORS", sensors);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut server = start(&mut programs.server()).context("starting the server")?;
    let mut line = String::new();
    let output = server.stdout.as_mut().context("the server has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let port =
        line.trim().parse().with_context(|| format!("the server printed {line:?}, no port"))?;
    let proxy = Proxy::to(port)?;
    let mut command = programs.client();
    let mut client = start(command.arg(proxy.port.to_string())).context("starting the client")?;
    let output = client.stdout.take().context("the client has no output")?;
    let mut input = client.stdin.take().context("the client has no input")?;
    let mut done = false;
    for line in BufReader::new(output).lines() {
        match line?.trim() {
            "cut" => proxy.cut(),
            "kill" => {
                server.kill()?;
                server.wait()?;
            }
            "done" => {
                done = true;
                break;
            }
            other => println!("  {other}"),
        }
        writeln!(input)?;
    }
    drop(input);
    let status = client.wait()?;
    // It was killed already, unless the client gave up.
    let _ = server.kill();
    let _ = server.wait();
    if !done || !status.success() {
        bail!("the client ended early: {status}");
    }
    Ok(())
}

/// What both sides reported.
pub(super) fn reports(fettle: &Path, sensors: &Path) -> Result<Vec<Report>> {
    reports_of(&events(fettle, sensors)?)
}

/// The events as `fettle sensors read` writes them.
pub(super) fn events(fettle: &Path, sensors: &Path) -> Result<String> {
    let mut read = Command::new(fettle);
    read.args(["sensors", "--directory"]).arg(sensors).args(["read", "rpc.calls", "--json"]);
    proc::output_of(read.current_dir(repo::root()))
}

/// What such events say.
pub(super) fn reports_of(text: &str) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line)?;
        if value["type"] == "end" && value["lost"] != 0 {
            bail!("events were lost: {line}");
        }
        if value["event"] != 1 {
            continue;
        }
        let words = value["words"].as_array().context("an event has no words")?;
        let word = |at: usize| words.get(at).and_then(Value::as_u64).unwrap_or(0);
        let tag = tag(words);
        let ticks = value["ticks"].as_u64().unwrap_or(0).wrapping_sub(word(0));
        let took_ns = ticks as i64 as f64 * value["ns_per_tick"].as_f64().unwrap_or(0.0);
        reports.push(Report {
            tag,
            begin_ns: value["time_ns"].as_u64().unwrap_or(0).saturating_sub(took_ns as u64),
            method: word(1) >> 16 & 0xffff,
            server: word(1) & 1 != 0,
            status: word(1) >> 8 & 0xff,
            span: word(7),
            parent: word(8),
            sent: word(2) & 0xffff_ffff,
            received: word(2) >> 32,
        });
    }
    Ok(reports)
}

/// The field `tag` of an event's words.
pub(super) fn tag(words: &[Value]) -> String {
    let word = |at: usize| words.get(at).and_then(Value::as_u64).unwrap_or(0);
    let bytes: Vec<u8> = (9..13).flat_map(|at| word(at).to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

fn judge(reports: &[Report], language: Language) -> Vec<Vec<Cell>> {
    // By the client's call, what its server reported.
    let mut served: BTreeMap<u64, Vec<&Report>> = BTreeMap::new();
    for report in reports.iter().filter(|report| report.server) {
        served.entry(report.parent).or_default().push(report);
    }
    let none = Vec::new();
    let cell = |end: &End, method: usize, kind: &str| {
        let tag = format!("{kind}/{}", end.name);
        let clients: Vec<&Report> =
            reports.iter().filter(|report| !report.server && report.tag == tag).collect();
        let [client] = clients[..] else {
            return wrong(format!("{} ends at the client", clients.len()));
        };
        let servers = served.get(&client.span).unwrap_or(&none);
        if client.method != method as u64 || servers.iter().any(|it| it.method != client.method) {
            return wrong("wrong method".to_owned());
        }
        let tonic = language == Language::Rust && TONIC.contains(&(end.name, client.status));
        if !tonic && !end.client.contains(&client.status) {
            return wrong(format!("client says {}", client.status));
        }
        match servers[..] {
            [] if end.reaches => wrong("no end at the server".to_owned()),
            [] => Cell { text: format!("{} -", client.status), right: true },
            [server] if !end.server.contains(&server.status) => {
                wrong(format!("server says {}", server.status))
            }
            // All that was sent has come, and is counted on both sides.
            [server]
                if end.name == "ok"
                    && (language.counts_streams() || method == 0)
                    && (server.sent, server.received) != (client.received, client.sent) =>
            {
                wrong("messages do not add up".to_owned())
            }
            [server] => Cell { text: format!("{} {}", client.status, server.status), right: true },
            _ => wrong(format!("{} ends at the server", servers.len())),
        }
    };
    let row = |end: &End| KINDS.iter().enumerate().map(|(n, kind)| cell(end, n, kind)).collect();
    ENDS.iter().map(row).collect()
}

fn wrong(text: String) -> Cell {
    Cell { text, right: false }
}

/// Prints a language's cells.
pub fn print(language: &str, cells: &[Vec<Cell>]) {
    println!("\n{language}: status at client and server (- : none)");
    print!("{:12}", "");
    KINDS.iter().for_each(|kind| print!("{kind:>24}"));
    println!();
    for (end, row) in ENDS.iter().zip(cells) {
        print!("{:12}", end.name);
        row.iter().for_each(|cell| {
            print!(
                "{:>24}",
                if cell.right { cell.text.clone() } else { format!("! {}", cell.text) }
            );
        });
        println!();
    }
}
