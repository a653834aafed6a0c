//! Torture of running programs: every function of a server under load gets rewritten text, with its
//! blocks in any order or with probes that record it, and is reverted, again and again.
//!
//! The programs check themselves, or clients check each answer. After each round the code in
//! memory must be the file's, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{apt, fettle, postgres, proc, repo};
pub use options::Options;
use rounds::Rounds;
pub(crate) use rounds::differing;

mod options;
mod process_group;
mod rounds;

/// A program to be changed while it works.
struct Subject {
    name: &'static str,
    packages: &'static [&'static str],
    /// Libraries that are changed as well.
    libraries: &'static [&'static str],
    start: fn(&Path) -> Result<Child>,
    /// Which process does the work, of the one that was started.
    worker: fn(u32) -> Option<u32>,
    /// Asks once and says whether the answer was right; `None` if the program checks itself.
    ask: Option<fn(&mut Client) -> Result<()>>,
    port: u16,
}

const SUBJECTS: [Subject; 6] = [
    Subject {
        name: "redis",
        packages: &["redis-server"],
        libraries: &["libc.so*", "libjemalloc*", "liblua*"],
        start: start_redis,
        worker: Some,
        ask: Some(ask_redis),
        port: 17391,
    },
    Subject {
        name: "nginx",
        packages: &["nginx"],
        libraries: &["libc.so*", "libz.so*"],
        start: start_nginx,
        worker: first_child,
        ask: Some(ask_nginx),
        port: 17392,
    },
    Subject {
        name: "python",
        packages: &["python3-minimal"],
        libraries: &["libc.so*"],
        start: start_python,
        worker: Some,
        ask: None,
        port: 0,
    },
    Subject {
        name: "thrower",
        packages: &["g++"],
        libraries: &["libstdc++*", "libgcc_s*"],
        start: start_thrower,
        worker: Some,
        ask: None,
        port: 0,
    },
    // Sees for itself how long it is kept from running, by us and by the machine.
    Subject {
        name: "spinner",
        packages: &["gcc"],
        libraries: &["libc.so*"],
        start: start_spinner,
        worker: Some,
        ask: None,
        port: 0,
    },
    // All but two of a thousand threads sleep.
    Subject {
        name: "thousand",
        packages: &["gcc"],
        libraries: &[],
        start: start_thousand,
        worker: Some,
        ask: None,
        port: 0,
    },
];

/// What a client keeps between questions.
struct Client {
    stream: BufReader<TcpStream>,
    number: u64,
    port: u16,
}

/// How it is recorded, in turns.
const MODES: [&str; 4] = ["events", "time", "sample", "cpu"];

/// Runs all of it; false if something was wrong.
pub fn run(options: &Options) -> Result<bool> {
    proc::no_core_files();
    let binary = fettle::binary(options.fettle.as_deref())?;
    let folder = repo::target_folder("attach")?;
    let mut right = true;
    for subject in SUBJECTS.iter().filter(|s| s.name.contains(&options.filter)) {
        let packages: Vec<String> =
            subject.packages.iter().map(std::string::ToString::to_string).collect();
        if let Err(error) = apt::ensure(&packages) {
            println!("skipped   {:<10} {error:#}", subject.name);
            continue;
        }
        right &= notify(subject.name, torture(subject, options, &binary, &folder));
    }
    if "postgres".contains(&options.filter) {
        let packages: Vec<String> =
            postgres::PACKAGES.iter().map(std::string::ToString::to_string).collect();
        match apt::ensure(&packages) {
            Err(error) => println!("skipped   postgres   {error:#}"),
            Ok(()) => {
                right &= notify("postgres", process_group::torture(options, &binary, &folder));
            }
        }
    }
    Ok(right)
}

/// Prints what became of a program; whether it was right.
fn notify(name: &str, result: Result<Rounds>) -> bool {
    match result {
        Ok(mut rounds) => {
            rounds.stops_ms.sort_by(f64::total_cmp);
            rounds.install_ms.sort_by(f64::total_cmp);
            let (stops, installs) = (&rounds.stops_ms, &rounds.install_ms);
            println!(
                "right     {:<10} {} rounds of {} jumps, {} of them recorded {} calls; stops: \
                     median {:.2} ms, 99 % within {:.2} ms, most {:.2} ms; installing: median {:.1} ms; rewritten text stayed \
                     for a while {} times, {} of them for `undo --memory`; for good, for a number that \
                     may be an address, {} times",
                name,
                rounds.count,
                rounds.jumps,
                rounds.recordings,
                rounds.calls,
                middle(stops),
                nearly_all(stops),
                stops.last().copied().unwrap_or(0.0),
                middle(installs),
                rounds.kept,
                rounds.by_memory,
                rounds.uncertain,
            );
            if let Some(gap) = rounds.said.lines().find(|line| line.starts_with("longest gap")) {
                println!("          {:<10} its own view: {gap} between two looks", "");
            }
            true
        }
        Err(error) => {
            println!("WRONG     {name:<10} {error:#}");
            false
        }
    }
}

fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// What 99 of 100 do not exceed.
fn nearly_all(sorted: &[f64]) -> f64 {
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Rounds until the time is over. Where rewritten text stays in a process, the rest are on another.
fn torture(subject: &Subject, options: &Options, binary: &Path, folder: &Path) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    let until = Instant::now() + Duration::from_secs(options.seconds);
    loop {
        torture_one(subject, (options, until), binary, folder, &mut rounds)?;
        if Instant::now() >= until || rounds.count >= options.rounds {
            return Ok(rounds);
        }
    }
}

fn torture_one(
    subject: &Subject,
    limits: (&Options, Instant),
    binary: &Path,
    folder: &Path,
    rounds: &mut Rounds,
) -> Result<()> {
    let mut child = (subject.start)(folder).context("it could not be started")?;
    let result = torture_started(subject, limits, binary, folder, (&mut child, rounds));
    if result.is_err() {
        let _ = child.kill();
        let _ = child.wait();
        return result;
    }
    // A program that checks itself says so at its end.
    let mut terminate = Command::new("kill");
    proc::step(terminate.args(["-TERM", &child.id().to_string()]))?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    if subject.ask.is_none() {
        ensure!(status.success() && said.contains("right"), "{status}: {said}");
    }
    rounds.said = said;
    Ok(())
}

fn torture_started(
    subject: &Subject,
    limits: (&Options, Instant),
    binary: &Path,
    folder: &Path,
    (child, rounds): (&mut Child, &mut Rounds),
) -> Result<()> {
    std::thread::sleep(Duration::from_secs(1));
    let pid = (subject.worker)(child.id()).context("it has no process that works")?;
    let over = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..if subject.ask.is_some() { 4 } else { 0 })
            .map(|_| scope.spawn(|| ask_on(subject, &over, &answers)))
            .collect();
        let ended = again_and_again(subject, limits, binary, folder, (pid, rounds));
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        ended?;
        let asked = answers.load(Ordering::Relaxed);
        ensure!(subject.ask.is_none() || asked > 1000, "only {asked} questions were answered");
        Ok(())
    })
}

fn again_and_again(
    subject: &Subject,
    (options, until): (&Options, Instant),
    binary: &Path,
    folder: &Path,
    (pid, rounds): (u32, &mut Rounds),
) -> Result<()> {
    let pid = pid.to_string();
    let cache = folder.join("cache");
    let trace = folder.join(format!("{}-recorded", subject.name));
    let fettle = |arguments: &[&str]| -> Result<serde_json::Value> {
        let mut command = Command::new(binary);
        command.args(arguments).arg("--json").env("XDG_CACHE_HOME", &cache);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code().is_some_and(|code| code < 2), "{arguments:?}: {said}");
        // A recorded program may write to standard output, so that the result is on standard error.
        let reported = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
        Ok(serde_json::from_slice(reported)?)
    };
    let mut seed = options.seed + rounds.count as u64;
    while Instant::now() < until && rounds.count < options.rounds {
        let number = seed.to_string();
        let mode = MODES[seed as usize / 3 % MODES.len()];
        let recorded = seed.is_multiple_of(3);
        let mut arguments = match recorded {
            true => vec!["record", "-p", &pid, "--mode", mode, "--duration", "300ms", "-o"],
            false => vec!["tune", "--alone", "-p", &pid, "--shuffle", &number],
        };
        if recorded {
            let _ = std::fs::remove_dir_all(&trace);
            arguments.push(trace.to_str().context("a plain name")?);
        }
        arguments.extend(options.only.iter().flat_map(|only| ["--only", only]));
        // Now with libraries, now without.
        if seed.is_multiple_of(2) && options.only.is_empty() {
            arguments.extend(subject.libraries.iter().flat_map(|library| ["--lib", library]));
        }
        let changed = fettle(&arguments)?;
        rounds.add(&changed);
        rounds.count += 1;
        seed += 1;
        let kept = if recorded {
            rounds.recordings += 1;
            changed["stuck"].as_array().is_some_and(|stuck| !stuck.is_empty())
        } else {
            std::thread::sleep(Duration::from_millis(50 + seed * 37 % 200));
            let undone = fettle(&["undo", &pid, "--wait", "20"])?;
            rounds.add(&undone);
            !undone["kept"].is_null()
        };
        if kept && !rounds.free(|more| fettle(&[&["undo", &pid], more].concat()))? {
            // So does what unwinders need of it.
            break;
        }
        if let Some(place) = differing(&pid)? {
            bail!("round {}: {place} is not what it was", rounds.count);
        }
    }
    Ok(())
}

fn ask_on(subject: &Subject, over: &AtomicBool, answers: &AtomicU64) -> Result<()> {
    let Some(ask) = subject.ask else { return Ok(()) };
    let mut client = connect(subject.port)?;
    while !over.load(Ordering::Relaxed) {
        ask(&mut client)?;
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn connect(port: u16) -> Result<Client> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    // No two clients share a key.
    let number = u64::from(stream.local_addr()?.port()) << 32;
    Ok(Client { stream: BufReader::new(stream), number, port })
}

fn start_redis(folder: &Path) -> Result<Child> {
    let mut server = Command::new("redis-server");
    server.args(["--port", "17391", "--save", "", "--appendonly", "no"]);
    Ok(server.current_dir(folder).stdout(Stdio::null()).spawn()?)
}

/// A list of the client's own, a script, and a sorted set: each answer is known.
fn ask_redis(client: &mut Client) -> Result<()> {
    client.number += 1;
    let n = client.number;
    let script = "return redis.call('incrby',KEYS[1],ARGV[1])";
    let key = format!("key{n}");
    let number = n.to_string();
    let questions: [(&[&str], String); 5] = [
        (&["SET", &key, &number], "+OK".into()),
        (&["EVAL", script, "1", &key, "5"], format!(":{}", n + 5)),
        (&["GET", &key], format!("${}", (n + 5).to_string().len())),
        (&["ZADD", &format!("z{key}"), "1", "a", "2", "b", "3", "c"], ":3".into()),
        (&["DEL", &key, &format!("z{key}")], ":2".into()),
    ];
    for (question, expected) in questions {
        let mut request = format!("*{}\r\n", question.len());
        for word in question {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        client.stream.get_mut().write_all(request.as_bytes())?;
        let mut answer = String::new();
        client.stream.read_line(&mut answer)?;
        ensure!(answer.trim_end() == expected, "redis: {question:?} gave {answer:?}");
        if answer.starts_with('$') {
            answer.clear();
            client.stream.read_line(&mut answer)?;
            ensure!(answer.trim_end() == (n + 5).to_string(), "redis: GET gave {answer:?}");
        }
    }
    Ok(())
}

/// The page that nginx serves.
fn page() -> String {
    (0..2000).map(|n| format!("line {n} of a page that is long enough\n")).collect()
}

fn start_nginx(folder: &Path) -> Result<Child> {
    let place = folder.join("nginx");
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join("page.txt"), page())?;
    let at = place.display();
    let configuration = format!(
        "daemon off; worker_processes 1; user root; pid {at}/pid; error_log {at}/error.log;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log {at}/access.log; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s; gzip off;\n\
         server {{ listen 127.0.0.1:17392; root {at}; }} }}\n"
    );
    std::fs::write(place.join("conf"), configuration)?;
    let mut server = Command::new("nginx");
    server.arg("-p").arg(&place).arg("-c").arg(place.join("conf"));
    Ok(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn ask_nginx(client: &mut Client) -> Result<()> {
    // A connection of its own for each question.
    *client = connect(client.port)?;
    let request = "GET /page.txt HTTP/1.0\r\nHost: here\r\n\r\n";
    client.stream.get_mut().write_all(request.as_bytes())?;
    let mut answer = String::new();
    client.stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    ensure!(body == Some(&page()), "nginx: {:?}", answer.get(..100));
    Ok(())
}

fn first_child(pid: u32) -> Option<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    list.split_whitespace().next()?.parse().ok()
}

const PYTHON: &str = r#"
import hashlib, json, re, signal, threading, zlib
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
wrong = []
def deep(n):
    if n == 0: raise ValueError('bottom')
    try: deep(n - 1)
    finally: pass
def work(seed):
    while not over:
        data = {str(i): [i, i * seed, 'x' * (i % 7)] for i in range(200)}
        text = json.dumps(data, sort_keys=True)
        if json.loads(text) != data: wrong.append('json')
        if zlib.decompress(zlib.compress(text.encode())) != text.encode(): wrong.append('zlib')
        if sorted(re.findall(r'"(\d+)":', text)) != sorted(data): wrong.append('re')
        if hashlib.sha256(b'a' * 1000).hexdigest()[:8] != '41edece4': wrong.append('sha')
        try: deep(50)
        except ValueError as e:
            if str(e) != 'bottom': wrong.append('exception')
threads = [threading.Thread(target=work, args=(s,)) for s in (3, 5)]
[t.start() for t in threads]
import time
while not over: time.sleep(0.01)
[t.join() for t in threads]
print('WRONG ' + str(wrong[:3]) if wrong else 'right')
"#;

fn start_python(folder: &Path) -> Result<Child> {
    let script = folder.join("work.py");
    std::fs::write(&script, PYTHON)?;
    let mut python = Command::new("/usr/bin/python3");
    Ok(python.arg(script).stdout(Stdio::piped()).spawn()?)
}

fn start_spinner(folder: &Path) -> Result<Child> {
    start_compiled(folder, "spinner")
}

fn start_thousand(folder: &Path) -> Result<Child> {
    start_compiled(folder, "thousand")
}

/// A program of the tests.
fn start_compiled(folder: &Path, name: &str) -> Result<Child> {
    let program = folder.join(name);
    let source = repo::root().join(format!("crates/app/cli/tests/programs/{name}.c"));
    let mut compile = Command::new("gcc");
    proc::output_of(compile.arg("-O2").arg(source).arg("-o").arg(&program).arg("-pthread"))?;
    Ok(Command::new(program).stdout(Stdio::piped()).spawn()?)
}

fn start_thrower(folder: &Path) -> Result<Child> {
    let program = folder.join("thrower");
    let source = repo::root().join("crates/app/cli/tests/programs/thrower.cpp");
    let mut compile = Command::new("g++");
    proc::output_of(compile.arg("-O2").arg(source).arg("-o").arg(&program).arg("-pthread"))?;
    Ok(Command::new(program).stdout(Stdio::piped()).spawn()?)
}
