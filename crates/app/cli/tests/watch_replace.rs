//! `restart replace`: a spare takes the place of a server of one process that hangs.

mod watching;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use watching::{Group, next, python, start, watch};

/// It says its number, and reports what descriptors it has. It closes all that it has not opened, as daemons do.
const SERVER: &str = r#"
import os, socket, sys
os.closerange(3, 65536)
for at in range(3, 5000):
    try: os.close(at)
    except OSError: pass
sys.stderr.write("starts\n")
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(64)
while True:
    c, _ = s.accept()
    word = c.recv(100)
    if word == b"spin":
        while True: pass
    files = sorted(int(at) for at in os.listdir("/proc/self/fd"))
    status = open("/proc/self/status").read()
    tracer = status.split("TracerPid:")[1].split()[0]
    c.sendall(f"{os.getpid()} {os.environ['MARK']} {sys.argv[1:]} {os.getcwd()} {tracer} {max(files)}".encode()); c.close()
"#;

/// Ends what serves in the end, which is in no group of ours.
struct Serving(Option<i32>);

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(pid) = self.0.take() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn server(folder: &TempDir, port: u16) -> Group {
    let mut python = Command::new("python3");
    python.current_dir(folder.path()).args(["-c", SERVER, &port.to_string(), "an argument"]);
    python.env("MARK", "of its environment").stderr(std::process::Stdio::null());
    let server = start(&mut python);
    while ask(port, "who").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

/// What it answers: its number, and the rest.
fn ask(port: u16, word: &str) -> Option<(i32, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (pid, rest) = text.split_once(' ')?;
    Some((pid.parse().ok()?, rest.to_owned()))
}

fn kind(out: &mut impl std::io::BufRead, kind: &str) -> Value {
    loop {
        let value = next(out);
        if value["kind"] == kind {
            return value;
        }
        assert_ne!(value["kind"], "no-spare", "{value}");
    }
}

fn rules(more: &str) -> String {
    format!(
        "rule stuck {{ process of {:?} spins exactly 200ms without progress -> restart replace{more} }}",
        python()
    )
}

#[test]
fn a_server_of_one_process_is_replaced_again_and_again() {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    let server = server(&folder, port);
    let (first, at_first) = ask(port, "who").unwrap();
    let (_watcher, mut out) = watch(folder.path(), &rules(""), server.0.id(), &["--act"]);
    let mut serving = Serving(None);
    let mut last = first;
    for _ in 0..2 {
        let spare = kind(&mut out, "spare")["spare"].as_i64().unwrap();
        assert_eq!(ask(port, "who").unwrap().0, last, "a spare serves only when it is let go");
        let mut hung = TcpStream::connect(("127.0.0.1", port)).unwrap();
        hung.write_all(b"spin").unwrap();
        // It is not accepted yet, and is not lost.
        let waiting = std::thread::spawn(move || ask(port, "who"));
        let found = kind(&mut out, "found");
        assert_eq!(found["entry"]["done"][0]["error"], Value::Null, "{found}");
        serving.0 = i32::try_from(spare).ok();
        let replaced = kind(&mut out, "replaced");
        assert_eq!(
            (replaced["old"].as_i64(), replaced["new"].as_i64()),
            (Some(last.into()), Some(spare))
        );
        let (pid, rest) = waiting.join().unwrap().unwrap();
        assert_eq!(i64::from(pid), spare);
        assert_eq!(rest, at_first, "as it was started, not traced, and with no descriptor more");
        last = pid;
    }
}

#[test]
fn a_spare_goes_with_its_watcher() {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    let server = server(&folder, port);
    let (watcher, mut out) = watch(folder.path(), &rules(""), server.0.id(), &["--act"]);
    let spare = kind(&mut out, "spare")["spare"].as_i64().unwrap();
    drop(watcher);
    let at = format!("/proc/{spare}/stat");
    while std::fs::read_to_string(&at).is_ok_and(|stat| !stat.contains(") Z")) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(ask(port, "who").is_some());
}

/// What would not be the same process again is not started.
#[test]
fn what_cannot_be_started_alike_has_no_spare() {
    let folder = TempDir::new().unwrap();
    let no_spare = |server: &Group| {
        let (_watcher, mut out) = watch(folder.path(), &rules(""), server.0.id(), &["--act"]);
        assert_eq!(next(&mut out)["kind"], "watching");
        let value = next(&mut out);
        assert_eq!(value["kind"], "no-spare", "{value}");
        value["why"].as_str().unwrap().to_owned()
    };
    let python = |text: &str| {
        let text = format!("{text}\nprint(1, flush=True)\nimport time\ntime.sleep(1000)");
        let mut server = start(Command::new("python3").args(["-c", &text]));
        server.0.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
        server
    };
    assert!(no_spare(&python("")).contains("does not listen on TCP"));
    let path = folder.path().join("socket");
    let text =
        format!("import socket\ns = socket.socket(socket.AF_UNIX); s.bind({path:?}); s.listen()");
    assert!(no_spare(&python(&text)).contains("UNIX socket"));
    // A second one of these ends before it comes to its socket.
    let once =
        "import os, socket, sys\nos.mkdir('once')\ns = socket.create_server(('127.0.0.1', 0))";
    let once = python(&format!("import os\nos.chdir({:?})\n{once}", folder.path()));
    let why = no_spare(&once);
    assert!(why.contains("ended before it listened: exit status 1"), "{why}");
}
