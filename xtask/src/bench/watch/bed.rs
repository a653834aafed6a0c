//! Servers that hang, and clients that wait.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::proc::{self, Group};
use crate::repo;

/// A server with one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// With an expression that has no end for some paths.
    Nginx,
    /// With `tests/watch/application.py`.
    Gunicorn,
    /// One process, with the same expression.
    Node,
    /// `tests/watch/hanging.c`.
    Own,
}

impl Server {
    /// Whether it has no workers: then a spare takes its place.
    fn is_alone(self) -> bool {
        self == Server::Node
    }
}

/// A way to hang.
#[derive(Debug)]
pub struct Hang {
    /// What the row is called.
    pub name: &'static str,
    /// Whose worker hangs.
    pub server: Server,
    /// What makes it hang: a path, or a word.
    pub by: &'static str,
    /// What the rule says of a worker, where `WORKER` is one of the server's program.
    rule: &'static str,
    /// The server has a time-out of its own for that.
    pub has_own_limit: bool,
    /// Between hangs, the new worker works for so long.
    pause: Duration,
}

const SPINS: &str = "WORKER spins 3ms without progress";
const SLEEPS: &str = "WORKER sleeps 5ms while it holds bytes";

/// All that are measured.
pub const HANGS: [Hang; 8] = [
    Hang {
        name: "nginx",
        server: Server::Nginx,
        by: "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
        rule: SPINS,
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "gunicorn",
        server: Server::Gunicorn,
        by: "/spins",
        rule: SPINS,
        has_own_limit: true,
        // Its master sleeps for up to 100 ms after it has started a worker, and starts no other meanwhile.
        pause: Duration::from_millis(150),
    },
    Hang {
        name: "node",
        server: Server::Node,
        by: "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
        rule: SPINS,
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "spin",
        server: Server::Own,
        by: "spins",
        rule: SPINS,
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "deadlock",
        server: Server::Own,
        by: "locks",
        rule: "WORKER waits in a cycle",
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "lost-wake-up",
        server: Server::Own,
        by: "waits",
        rule: SLEEPS,
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "sleep",
        server: Server::Own,
        by: "sleep",
        rule: SLEEPS,
        has_own_limit: false,
        pause: PAUSE,
    },
    Hang {
        name: "scalar",
        server: Server::Own,
        by: "still",
        rule: "scalar \"hanging.ticks\" of WORKER still for 4ms",
        has_own_limit: false,
        // A new worker's sensor is found some tenths of a second later.
        pause: Duration::from_millis(400),
    },
];

/// What came of it.
#[derive(Debug, Default)]
pub struct Healed {
    /// From the worker's last progress until the hang was found, as the watcher says.
    pub found: Vec<Duration>,
    /// Until a new worker was ready.
    pub replaced: Vec<Duration>,
    /// From the request that hung until the next one was answered, as a client sees it.
    pub waited: Vec<Duration>,
    /// The watcher's share of a processor.
    pub watcher: Option<f64>,
}

/// A hang that is not over after this is not healed.
const LIMIT: Duration = Duration::from_secs(20);
/// The usual pause between hangs.
const PAUSE: Duration = Duration::from_millis(40);
/// Before the first one, the watcher learns what is usual, from so many requests and for so long.
const LEARNED_FROM: usize = 1500;
const LEARNED_FOR: Duration = Duration::from_secs(3);

/// Makes a server hang so many times, under the watcher if there is a binary.
pub fn measure(hang: &Hang, fettle: Option<&Path>, times: usize) -> Result<Healed> {
    let beats = hang.rule.starts_with("scalar");
    let bed = Bed::start(hang.server, fettle.is_none(), beats)?;
    let mut watcher = fettle.map(|binary| Watcher::start(binary, &bed, hang.rule)).transpose()?;
    let began = Instant::now();
    for request in 0.. {
        if request >= LEARNED_FROM && began.elapsed() >= LEARNED_FOR {
            break;
        }
        bed.answer(bed.ask("/")?)?;
        // It rests now and then, as servers do.
        std::thread::sleep(Duration::from_micros(if request % 20 == 0 { 5000 } else { 0 }));
    }
    let (began, used) = (Instant::now(), watcher.as_ref().map(Watcher::cpu_time).transpose()?);
    let mut healed = Healed::default();
    for _ in 0..times {
        if let Some(watcher) = watcher.as_ref().filter(|_| hang.server.is_alone()) {
            watcher.has_spare()?;
        }
        std::thread::sleep(hang.pause);
        bed.answer(bed.ask("/")?)?;
        let asked = Instant::now();
        let hung = bed.ask(hang.by)?;
        // The worker takes this one before the next comes.
        std::thread::sleep(Duration::from_millis(1));
        if !bed.is_answered_within(LIMIT)? {
            println!("  no answer within {LIMIT:?}");
            break;
        }
        healed.waited.push(asked.elapsed());
        drop(hung);
        if let Some(watcher) = &mut watcher {
            let Some((found, replaced)) = watcher.next_replaced()? else { break };
            healed.found.push(found);
            healed.replaced.push(replaced);
        }
    }
    if let (Some(watcher), Some(used)) = (&watcher, used) {
        let share = watcher.cpu_time()?.saturating_sub(used).as_secs_f64();
        healed.watcher = Some(share / began.elapsed().as_secs_f64());
    } else {
        // What healed them is the server itself.
        healed.found.clone_from(&healed.waited);
    }
    Ok(healed)
}

/// A server that runs.
pub(super) struct Bed {
    server: Server,
    port: u16,
    pub folder: PathBuf,
    pub master: Group,
}

impl Bed {
    /// Its own time-out is short if it `is_alone`; its worker has a heartbeat if it `beats`.
    pub fn start(server: Server, is_alone: bool, beats: bool) -> Result<Bed> {
        let folder = repo::target().join("bench/watch");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let sources = repo::root().join("tests/watch");
        let mut command = match server {
            Server::Nginx => nginx(&folder, port)?,
            Server::Gunicorn => {
                let mut gunicorn = Command::new("gunicorn");
                let limit = if is_alone { "1" } else { "30" };
                gunicorn.args(["--workers", "1", "--timeout", limit, "--log-level", "critical"]);
                gunicorn.args(["--bind", &format!("127.0.0.1:{port}"), "application"]);
                gunicorn.current_dir(&sources);
                gunicorn
            }
            Server::Node => {
                let mut node = Command::new("node");
                node.args(["-e", NODE, &port.to_string()]);
                node
            }
            Server::Own => {
                let program = folder.join("hanging");
                let mut gcc = Command::new("gcc");
                gcc.args(["-O2", "-pthread", "-I"]).arg(repo::root().join("runtime/sensor"));
                proc::step(gcc.arg("-o").arg(&program).arg(sources.join("hanging.c")))?;
                let mut hanging = Command::new(program);
                hanging.arg(port.to_string()).env("XDG_RUNTIME_DIR", &folder);
                if beats {
                    hanging.env("HEARTBEAT", "1").env("FETTLE_SENSORS", "1");
                }
                hanging
            }
        };
        command.stdout(Stdio::null()).stderr(std::fs::File::create(folder.join("server.err"))?);
        let bed = Bed { server, port, master: Group::start(&mut command)?, folder };
        ensure!(bed.is_answered_within(LIMIT)?, "{server:?} does not answer");
        Ok(bed)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name that the workers' program goes by.
    pub fn program(&self) -> Result<String> {
        let path = std::fs::read_link(format!("/proc/{}/exe", self.master.pid()))?;
        Ok(path.file_name().context("a program without a name")?.to_string_lossy().into_owned())
    }

    fn ask(&self, what: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        match self.server {
            // What follows the word is not read by who hangs.
            Server::Own => stream.write_all(format!("{what:5}more").as_bytes())?,
            Server::Nginx | Server::Gunicorn | Server::Node => {
                let head = "Host: bed\r\nConnection: close";
                write!(stream, "GET {what} HTTP/1.1\r\n{head}\r\n\r\n")?;
            }
        }
        Ok(stream)
    }

    /// Whether there is an answer: none if the worker has ended meanwhile.
    fn answer(&self, mut stream: TcpStream) -> Result<bool> {
        let mut text = String::new();
        // A connection that a dead worker had taken is reset, maybe behind its answer.
        let _ = stream.read_to_string(&mut text);
        Ok(text.contains("done"))
    }

    fn is_answered_within(&self, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        while began.elapsed() < limit {
            // While there is no worker yet, nothing listens.
            if let Ok(stream) = self.ask("/")
                && self.answer(stream)?
            {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(false)
    }
}

const NODE: &str = "require('http').createServer((question, answer) => answer.end(\
                    /^\\/(a|aa|b+)+$/.test(question.url) ? 'matched' : 'done')).listen(+process.argv[1], '127.0.0.1')";

fn nginx(folder: &Path, port: u16) -> Result<Command> {
    let place = folder.display();
    let text = format!(
        "user root; worker_processes 1; daemon off; pid {place}/pid; error_log {place}/error.log crit;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; client_body_temp_path {place}; proxy_temp_path {place};\n\
         server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000;\n\
         location ~ \"^/(a|aa|b+)+$\" {{ return 200 \"matched\"; }}\n\
         location / {{ return 200 \"done\"; }} }} }}\n"
    );
    let conf = folder.join("nginx.conf");
    std::fs::write(&conf, text)?;
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(folder).arg("-c").arg(&conf);
    Ok(nginx)
}

/// `fettle watch --act`.
struct Watcher {
    group: Group,
    lines: Receiver<Value>,
    /// What has taken the server's place, which is in no group of ours.
    served_by: Option<i32>,
    is_alone: bool,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let pid = self.served_by.map(nix::unistd::Pid::from_raw);
        let _ = pid.map(|pid| nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL));
    }
}

impl Watcher {
    fn start(fettle: &Path, bed: &Bed, rule: &str) -> Result<Watcher> {
        let (whose, how) = match bed.server.is_alone() {
            true => ("process", "replace"),
            false => ("worker", "kill"),
        };
        let rule = rule.replace("WORKER", &format!("{whose} of {:?}", bed.program()?));
        let file = bed.folder.join("rules");
        std::fs::write(
            &file,
            format!("rule hang {{ {rule} -> restart {how} at most 10000 in 1m }}\n"),
        )?;
        let mut watch = Command::new(fettle);
        watch.arg("watch").arg(&file).args(["--act", "--json", "--state"]);
        watch.arg(bed.folder.join("state")).args(["-p", &bed.master.pid().to_string()]);
        watch.env("XDG_RUNTIME_DIR", &bed.folder).stdout(Stdio::piped());
        let mut group = Group::start(&mut watch)?;
        let lines = proc::json_lines(group.out()?);
        let watcher = Watcher { group, lines, served_by: None, is_alone: bed.server.is_alone() };
        match watcher.next()? {
            Some(value) if value["kind"] == "watching" => Ok(watcher),
            other => bail!("fettle watch does not watch: {other:?}"),
        }
    }

    fn next(&self) -> Result<Option<Value>> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(value) => Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("fettle watch has ended"),
        }
    }

    /// How long after the last progress the next hang was found, and a new worker ready.
    fn next_replaced(&mut self) -> Result<Option<(Duration, Duration)>> {
        while let Some(value) = self.next()? {
            let ns = |name: &str| value[name].as_u64().map(Duration::from_nanos);
            match value["kind"].as_str() {
                Some("replaced") => {
                    let new = value["new"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                    self.served_by = new.filter(|_| self.is_alone);
                    return Ok(ns("found_after_ns").zip(ns("after_ns")));
                }
                Some("not-replaced") => {
                    println!("  {value}");
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits until the server has a spare.
    fn has_spare(&self) -> Result<()> {
        while let Some(value) = self.next()? {
            match value["kind"].as_str() {
                Some("spare") => return Ok(()),
                Some("no-spare") => bail!("the server has no spare: {value}"),
                _ => {}
            }
        }
        bail!("the server has no spare within {LIMIT:?}")
    }

    /// CPU time of all its threads.
    fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.group.pid())
    }
}

/// CPU time of a process's threads, as precise as the scheduler knows it.
pub(super) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        ns += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(ns))
}
