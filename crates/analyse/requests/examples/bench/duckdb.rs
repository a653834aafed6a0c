//! The same question to a data base: which request each event belongs to, by DuckDB's ASOF join.
//!
//! Every event has its thread, and a thread works for the request that it read last, until it has
//! written the reply: so one join by thread and time answers it, where the engine follows files and
//! connections as well. The events lie in a Parquet file; what DuckDB takes to read that is measured
//! alone, and taken off.

use std::fmt::Write as _;
use std::fs::{File, create_dir_all, remove_dir_all};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fettle_requests::Batch;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::server::{BATCH, Server};

/// Makes Parquet files of the events and of the moments at which a thread's request changes.
const PREPARE: &str = "
COPY (SELECT * FROM read_csv('events.csv', header = false, columns =
      {'event': 'BIGINT', 'tid': 'INTEGER', 'begins': 'BIGINT', 'ends': 'BOOLEAN'}))
  TO 'events.parquet' (FORMAT parquet);
COPY (SELECT event, tid, begins AS request FROM 'events.parquet' WHERE begins IS NOT NULL
      UNION ALL SELECT event + 1, tid, NULL FROM 'events.parquet' WHERE ends)
  TO 'edges.parquet' (FORMAT parquet);";
/// Reads what is joined.
const SCAN: &str = "SET threads = 1;
SELECT count(*), sum(event + tid) FROM 'events.parquet';
SELECT count(*), sum(event + tid + request) FROM 'edges.parquet';";
/// Says how many events belong to requests.
const JOIN: &str = "SET threads = 1;
SELECT count(request) FROM 'events.parquet' AS e ASOF LEFT JOIN 'edges.parquet' AS b
    ON e.tid = b.tid AND e.event >= b.event;";

/// What DuckDB is.
enum Duck {
    /// The command `duckdb`.
    Command,
    /// The module `duckdb` of `python3`.
    Python,
}

/// What came of it.
pub struct Joined {
    /// Million events per CPU-second.
    pub rate: f64,
    /// How many belong to requests.
    pub in_requests: u64,
}

/// Joins so many batches of the events; `None` if there is no DuckDB.
pub fn join(mut server: Server, batch: &mut Batch, batches: usize) -> Option<Joined> {
    let duck = Duck::find()?;
    let folder = std::env::temp_dir().join(format!("fettle-bench-{}", std::process::id()));
    create_dir_all(&folder).expect("a folder for the events");
    let mut file = BufWriter::new(File::create(folder.join("events.csv")).expect("a file"));
    let mut line = String::new();
    for n in 0..batches {
        let mut request = server.requests;
        server.fill(batch);
        let [request_read, reply_write, ..] = server.kinds.0;
        for row in 0..batch.len() {
            let kind = batch.kind(row);
            let tid = batch.value(row, usize::from(server.has_pid(kind)));
            line.clear();
            write!(line, "{},{tid},", n * BATCH + row).expect("a text");
            if kind == request_read {
                request += 1;
                write!(line, "{request}").expect("a text");
            }
            writeln!(line, ",{}", kind == reply_write).expect("a text");
            file.write_all(line.as_bytes()).expect("room for the events");
        }
    }
    file.flush().expect("room for the events");
    duck.ask(PREPARE, &folder);
    let (scan_s, _) = duck.ask(SCAN, &folder);
    let (join_s, answer) = duck.ask(JOIN, &folder);
    remove_dir_all(&folder).expect("the folder is ours");
    let in_requests = answer.trim().parse().expect("a number of events");
    Some(Joined { rate: (batches * BATCH) as f64 / 1e6 / (join_s - scan_s), in_requests })
}

impl Duck {
    fn find() -> Option<Duck> {
        let works = |command: &mut Command| {
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        if works(Command::new("duckdb").arg("-version")) {
            return Some(Duck::Command);
        }
        works(Command::new("python3").args(["-c", "import duckdb"])).then_some(Duck::Python)
    }

    /// CPU-seconds of its process, and its answer to the last question.
    fn ask(&self, questions: &str, folder: &Path) -> (f64, String) {
        let mut command = match self {
            Duck::Command => Command::new("duckdb"),
            Duck::Python => Command::new("python3"),
        };
        match self {
            Duck::Command => command.args(["-noheader", "-csv", "-c", questions]),
            Duck::Python => {
                let program = "import duckdb, sys
answer = duckdb.connect().execute(sys.argv[1]).fetchone()
print(answer[0] if answer else '')";
                command.args(["-c", program, questions])
            }
        };
        let before_s = children_s();
        let output = command.current_dir(folder).output().expect("DuckDB was found");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        (children_s() - before_s, text.lines().last().unwrap_or_default().to_owned())
    }
}

/// CPU-seconds of all processes that have been waited for.
fn children_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("Linux says so");
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}
