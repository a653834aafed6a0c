//! The daemon, on a server that works for ever.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[allow(dead_code)]
mod common;

const SERVER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) int request(unsigned seed)
{
    int values[256];
    for (int i = 0; i < 256; i++)
        values[i] = (int)((seed = seed * 1103515245u + 12345u) >> 8);
    qsort(values, 256, sizeof values[0], compare);
    return values[0];
}
int main(void)
{
    for (unsigned long i = 0, sum = 0;; i++) {
        sum += request((unsigned)i);
        printf("%lu\n", sum);
        fflush(stdout);
    }
}
"#;

/// A server, and a folder for a daemon.
struct Bench {
    folder: PathBuf,
    server: Child,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let folder = common::folder(name);
        let (source, program) = (folder.join("server.c"), folder.join(name));
        std::fs::write(&source, SERVER).unwrap();
        let mut gcc = Command::new("gcc");
        assert!(gcc.args(["-O2", "-o"]).args([&program, &source]).status().unwrap().success());
        let server = Command::new(&program).stdout(Stdio::null()).spawn().unwrap();
        Bench { folder, server }
    }

    fn rules(&self, name: &str, more: &str) -> PathBuf {
        let path = self.folder.join("rules.toml");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "[daemon]\nmetrics = \"{free}\"\nlook = \"200ms\"\ncpu_share = 1.0\n\
             [[rule]]\nname = \"server\"\nprogram = \"*/{name}\"\nafter = \"0s\"\ncount = \"300ms\"\n{more}"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn fettle(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.args(arguments).env("XDG_CACHE_HOME", self.folder.join("cache"));
        command
    }

    fn daemon(&self, rules: &Path) -> Daemon {
        let out = std::fs::File::create(self.folder.join("out")).unwrap();
        let mut command = self.fettle(&["tuned", common::text(rules), "--json"]);
        Daemon(command.stdout(out).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// What the daemon has said, once it is `said`.
    fn wait(&self, said: &str) -> String {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let text = std::fs::read_to_string(self.folder.join("out")).unwrap();
            if text.contains(said) {
                return text;
            }
            assert!(Instant::now() < end, "it does not say {said}: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_changed(&self) -> bool {
        self.fettle(&["status"]).output().unwrap().status.success()
    }

    fn works(&self) -> bool {
        let reads = || {
            let io = std::fs::read_to_string(format!("/proc/{}/io", self.server.id())).unwrap();
            io.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse::<u64>().ok())
        };
        let before = reads();
        std::thread::sleep(Duration::from_millis(300));
        reads() > before
    }
}

/// A daemon, which ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn interrupt(mut daemon: Daemon) {
    let pid = daemon.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(daemon.0.wait().unwrap().success());
}

#[test]
fn a_server_is_tuned_and_compared() {
    let bench = Bench::new("tuned-server");
    let rules = bench.rules("tuned-server", "");
    let check = bench.fettle(&["tuned", common::text(&rules), "--check"]).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(said.contains("1 rule, 1 process group meant now"), "{said}");
    let daemon = bench.daemon(&rules);
    let said = bench.wait("\"ended\":\"tune\"");
    let ended: serde_json::Value =
        serde_json::from_str(said.lines().find(|line| line.contains("ended")).unwrap()).unwrap();
    // Whether a layout helps this program is not certain.
    let words = ["faster", "slower", "equal", "undecided", "not compared"];
    assert!(words.contains(&ended["result"].as_str().unwrap_or_default()), "{ended}");
    assert_eq!(ended["pid"], bench.server.id());
    let metrics = scrape(&bench, &rules);
    assert!(metrics.contains("fettle_tuned_groups{rule=\"server\",state="), "{metrics}");
    assert!(metrics.contains("fettle_tuned_processor_time_seconds_total"), "{metrics}");
    interrupt(daemon);
    let audit = std::fs::read_to_string(bench.folder.join("cache/fettle/audit.jsonl")).unwrap();
    assert!(audit.contains("\"what\":\"tune\"") && audit.contains("rule server"), "{audit}");
    assert!(bench.works());
}

/// What a reader with the token is shown; one without is refused.
fn scrape(bench: &Bench, rules: &Path) -> String {
    let text = std::fs::read_to_string(rules).unwrap();
    let address = text.split('"').nth(1).unwrap().to_owned();
    let get = |header: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let refused = get("");
    assert!(refused.starts_with("HTTP/1.1 401") && !refused.contains("groups"), "{refused}");
    let path = bench.folder.join("cache/fettle/tuned/metrics-token");
    let token = std::fs::read_to_string(path).unwrap();
    get(&format!("Authorization: Bearer {token}\r\n"))
}

#[test]
fn what_fails_its_check_is_reverted() {
    let bench = Bench::new("tuned-checked");
    let pid = bench.server.id().to_string();
    // It is tuned by hand; the daemon takes it on.
    let tune = ["tune", "-p", &pid, "--time", "0.3", "--no-compare", "--threshold", "0"];
    assert!(bench.fettle(&tune).output().unwrap().status.success());
    assert!(bench.is_changed());
    let well = bench.folder.join("well");
    std::fs::write(&well, "").unwrap();
    let check = format!(
        "check = \"test -e {} -a -d /proc/{{pid}}\"\ncheck_every = \"200ms\"\n",
        well.display()
    );
    let rules = bench.rules("tuned-checked", &check);
    let daemon = bench.daemon(&rules);
    std::thread::sleep(Duration::from_secs(1));
    assert!(bench.is_changed(), "as long as all is well it stays");
    std::fs::remove_file(&well).unwrap();
    let said = bench.wait("\"ended\":\"undo\"");
    assert_eq!(said.matches("\"ended\":\"check\"").count(), 2, "{said}");
    assert!(!bench.is_changed(), "{said}");
    interrupt(daemon);
    assert!(bench.works());
}

#[test]
fn a_daemon_that_is_killed_leaves_servers_that_work() {
    let mut bench = Bench::new("tuned-killed");
    let rules = bench.rules("tuned-killed", "retry = \"0s\"\n");
    for after in [50, 300, 700, 1500] {
        let daemon = bench.daemon(&rules);
        bench.wait("\"begun\":\"tune\"");
        std::thread::sleep(Duration::from_millis(after));
        drop(daemon);
        // What it has started reverts what it has begun, and ends.
        let end = Instant::now() + Duration::from_secs(60);
        while bench.is_changed() {
            assert!(Instant::now() < end, "still changed, killed after {after} ms");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(bench.works(), "killed after {after} ms");
        assert!(bench.server.try_wait().unwrap().is_none());
    }
}

#[test]
fn a_core_file_has_names_when_its_process_has_ended() {
    let mut bench = Bench::new("tuned-core");
    let pid = bench.server.id().to_string();
    let tune = ["tune", "-p", &pid, "--time", "0.3", "--no-compare", "--threshold", "0"];
    assert!(bench.fettle(&tune).output().unwrap().status.success());
    let core = bench.folder.join("core");
    let made = Command::new("gcore").arg("-o").arg(&core).arg(&pid).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return eprintln!("skipped 1 test: there is no gcore (apt-get install gdb)");
    }
    bench.server.kill().unwrap();
    bench.server.wait().unwrap();
    let core = bench.folder.join(format!("core.{pid}"));
    let output =
        bench.fettle(&["symbols", "--core", common::text(&core), "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let object = value["object"].as_str().unwrap();
    let names = Command::new("nm").arg(object).output().unwrap();
    let names = String::from_utf8_lossy(&names.stdout);
    assert!(names.contains("request.fettle"), "{names}");
    assert!(value["command"].as_str().unwrap().contains("tuned-core"), "{value}");
    // Another program's core file has none.
    let output = bench.fettle(&["symbols", "--core", "/proc/self/exe"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("no core file"), "{said}");
}

#[test]
fn wrong_rules_are_refused_with_their_place() {
    let bench = Bench::new("tuned-wrong");
    let rules = bench.rules("tuned-wrong", "recheck = 7\n");
    let output = bench.fettle(&["tuned", common::text(&rules)]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("line 10"), "{said}");
    // A user who can write to it could have commands run.
    let rules = bench.rules("tuned-wrong", "");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&rules, open).unwrap();
    let output = bench.fettle(&["tuned", common::text(&rules), "--check"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("chmod go-w"), "{said}");
    let output = bench.fettle(&["tuned", "/nonexistent.toml"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("cannot read the rules"), "{said}");
}
