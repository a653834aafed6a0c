//! The clients of the fleet. They check each answer, and any that is wrong or does not come is an error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::postgres::Cluster;
use crate::proc::Group;

/// What PHP computes: its answer depends on `n` alone.
pub const WORK: &str = r#"<?php
$n = (int) $_GET['n'];
$words = [];
for ($i = 0; $i < 60; $i++) {
    $words[] = ['key' => md5("$n $i"), 'value' => ($n * 7919 + $i * 104729) % 1000];
}
usort($words, fn($a, $b) => $a['value'] <=> $b['value'] ?: strcmp($a['key'], $b['key']));
$text = json_encode($words);
$read = json_decode($text, true);
$found = preg_match_all('/[0-9]{2}[a-f]/', $text);
$sum = array_sum(array_column($read, 'value'));
echo "$n $sum $found " . md5($text) . " " . ucfirst(strrev(implode(',', array_slice(array_keys($words), 0, 9)))) . "\n";
"#;

/// What is asked of PHP.
const QUESTIONS: u64 = 40;
/// Who waits for longer has no answer.
const LIMIT: Duration = Duration::from_secs(30);

/// The page that nginx serves.
pub fn page() -> String {
    (0..300).map(|n| format!("line {n} of a page that is long enough\n")).collect()
}

/// A port that is free.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The body of an answer whose status is 200, over a connection of its own. `header` is one line or none.
pub fn get(port: u16, path: &str, header: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: fleet\r\n{header}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no whole answer")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "{path}: {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// A connection that stays.
struct Kept(BufReader<TcpStream>);

impl Kept {
    fn open(port: u16) -> Result<Kept> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Kept(BufReader::new(stream)))
    }

    fn get(&mut self, path: &str) -> Result<String> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: fleet\r\n\r\n")?;
        let mut line = || -> Result<String> {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "{path}: the connection was closed");
            Ok(line.trim_end().to_ascii_lowercase())
        };
        let status = line()?;
        ensure!(status.contains(" 200 "), "{path}: {status}");
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let header = line()?;
            if header.is_empty() {
                break;
            }
            if let Some(of) = header.strip_prefix("content-length: ") {
                length = of.parse()?;
            }
            is_chunked |= header == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if !is_chunked {
            body.resize(length, 0);
            self.0.read_exact(&mut body)?;
            return Ok(String::from_utf8(body)?);
        }
        loop {
            let mut size = String::new();
            self.0.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16)?;
            let begin = body.len();
            body.resize(begin + size + 2, 0);
            self.0.read_exact(&mut body[begin..])?;
            body.truncate(begin + size);
            if size == 0 {
                return Ok(String::from_utf8(body)?);
            }
        }
    }
}

/// Accounts, a counter of the work, and what a regular expression makes of some text.
pub fn fill(cluster: &Cluster) -> Result<()> {
    let fill = cluster.pgbench(&["-i", "-s", "1", "-q"]).output()?;
    ensure!(fill.status.success(), "{}", String::from_utf8_lossy(&fill.stderr));
    cluster.query("create sequence work cache 1")?;
    // An answer that is wrong divides by zero, which ends pgbench.
    let text = "sum(length(regexp_replace(md5(i::text), '[a-f]+', 'x', 'g'))) FROM \
                generate_series(1, 60) i";
    let right = cluster.query(&format!("SELECT {text}"))?;
    let shifted = text.replacen(" FROM", &format!(" = {right})::int FROM"), 1);
    let scripts = [
        (
            "usual.sql",
            "\\set aid random(1, 100000)\n\
             SELECT 1 / (count(*) = 1 AND min(bid) = 1)::int FROM pgbench_accounts WHERE aid = :aid;\n\
             SELECT nextval('work');\n"
                .to_owned(),
        ),
        ("shifted.sql", format!("SELECT 1 / ({shifted};\nSELECT nextval('work');\n")),
    ];
    for (name, script) in scripts {
        std::fs::write(cluster.folder().join(name), script)?;
    }
    Ok(())
}

/// The load of a cluster: clients that stay, and one that connects anew for each transaction.
pub struct Load {
    folder: PathBuf,
    stay: Group,
    come_and_go: Group,
}

impl Load {
    /// Starts it, with one of the scripts.
    pub fn start(cluster: &Cluster, script: &str, rate: u32) -> Result<Load> {
        let folder = cluster.folder().to_owned();
        let log = |name: &str| folder.join(format!("{script}-{name}.log"));
        let rate = rate.to_string();
        let mut stay = cluster.pgbench(&["-T", "100000", "-c", "2", "-R", &rate, "-f", script]);
        let mut come_and_go = cluster.pgbench(&["-T", "100000", "-C", "-c", "1", "-R", "4"]);
        Ok(Load {
            stay: Group::logged(&mut stay, &log("stay"))?,
            come_and_go: Group::logged(&mut come_and_go, &log("come-and-go"))?,
            folder,
        })
    }

    /// Whether all answers were right so far.
    pub fn check(&mut self) -> Result<()> {
        let alive = self.stay.is_alive() && self.come_and_go.is_alive();
        let mut said = String::new();
        for entry in std::fs::read_dir(&self.folder)?.flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "log") {
                let text = std::fs::read_to_string(entry.path())?;
                let bad = |line: &&str| line.contains("error") || line.contains("aborted");
                said.extend(text.lines().filter(bad).take(1).map(|line| format!(" {line}")));
            }
        }
        ensure!(alive && said.is_empty(), "{}: a client has ended:{said}", self.folder.display());
        Ok(())
    }
}

/// Whether balances of a cluster add up.
pub fn check_sums(cluster: &Cluster) -> Result<()> {
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from \
                pgbench_history) and (select sum(tbalance) from pgbench_tellers) = (select \
                sum(bbalance) from pgbench_branches) and (select count(*) from pgbench_history) > 10";
    ensure!(cluster.query(sums)? == "t", "{}: balances do not add up", cluster.folder().display());
    Ok(())
}

/// Clients of nginx, threads of this process.
pub struct HttpClients {
    over: Arc<AtomicBool>,
    /// Answers that were right, by thread.
    answered: Arc<[AtomicU64; 3]>,
    wrong: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl HttpClients {
    /// Notes what is right, and begins to ask.
    pub fn start(port: u16) -> Result<HttpClients> {
        let mut right = Vec::new();
        for n in 0..QUESTIONS {
            let answer = get(port, &format!("/work.php?n={n}"), "")?;
            ensure!(answer.starts_with(&format!("{n} ")), "/work.php?n={n}: {answer:?}");
            right.push(answer);
        }
        let right = Arc::new(right);
        let mut clients = HttpClients {
            over: Arc::default(),
            answered: Arc::default(),
            wrong: Arc::default(),
            threads: Vec::new(),
        };
        for number in 0..3 {
            let (over, right) = (Arc::clone(&clients.over), Arc::clone(&right));
            let (answered, wrong) = (Arc::clone(&clients.answered), Arc::clone(&clients.wrong));
            clients.threads.push(std::thread::spawn(move || {
                if let Err(error) = ask(number, port, &right, (&over, &answered[number])) {
                    let mut all = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push(format!("{error:#}"));
                }
            }));
        }
        Ok(clients)
    }

    /// Whether all answers were right so far.
    pub fn check(&self) -> Result<()> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match wrong.first() {
            Some(first) => bail!("a client of nginx has ended: {first}"),
            None => Ok(()),
        }
    }

    /// Right answers so far.
    pub fn answered(&self) -> u64 {
        self.answered.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Waits until each client has had a further answer.
    pub fn go_on(&self) -> Result<()> {
        let counts = || self.answered.iter().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<u64> = counts().collect();
        let begun = Instant::now();
        while counts().zip(&before).any(|(now, before)| now <= *before) {
            self.check()?;
            ensure!(begun.elapsed() < LIMIT, "nginx gives no answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for HttpClients {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it found is in `wrong`.
            let _ = thread.join();
        }
    }
}

/// Asks until it is over: two keep their connection, one opens one each time.
fn ask(
    number: usize,
    port: u16,
    right: &[String],
    (over, answered): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    let mut kept = Kept::open(port)?;
    let text = page();
    for n in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let question = (n * 7 + number) % right.len();
        let path = format!("/work.php?n={question}");
        let answer = match number {
            2 => get(port, &path, "")?,
            _ => kept.get(&path)?,
        };
        ensure!(answer == right[question], "{path} gave {answer:?}, not {:?}", right[question]);
        for _ in 0..4 {
            ensure!(kept.get("/page.txt")? == text, "/page.txt is not what it was");
        }
        answered.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
