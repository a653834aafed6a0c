//! Virtual threads of a real JVM are reported: each writes to a connection of its own, whatever carrier it runs on.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{alone, observed, scratch};
use fettle_kernel_events::Event;

/// So many virtual threads write ten times each and wait in between.
const THREADS: usize = 20;

const PROGRAM: &str = r#"
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;

class Program {
    public static void main(String[] args) throws Exception {
        Thread.sleep(1500);
        ServerSocket server = new ServerSocket(0);
        ArrayList<Thread> threads = new ArrayList<>();
        ArrayList<Socket> taken = new ArrayList<>();
        for (int n = 0; n < 20; n++) {
            Socket socket = new Socket("127.0.0.1", server.getLocalPort());
            taken.add(server.accept());
            threads.add(Thread.ofVirtual().unstarted(() -> {
                try {
                    for (int times = 0; times < 10; times++) {
                        socket.getOutputStream().write(times);
                        Thread.sleep(5);
                    }
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
    }
}
"#;

/// A JDK whose virtual threads are known.
fn java() -> Option<PathBuf> {
    let homes = std::fs::read_dir("/usr/lib/jvm").ok()?;
    homes.flatten().map(|home| home.path()).find_map(|home| {
        let release = std::fs::read_to_string(home.join("release")).ok()?;
        let version = release.split("JAVA_VERSION=\"").nth(1)?;
        let major = version.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()?;
        (major >= 24).then(|| home.join("bin/java"))
    })
}

#[test]
fn each_virtual_thread_writes_as_a_task_of_its_own() {
    let _alone = alone();
    let Some(java) = java() else {
        eprintln!("skipped: there is no JDK of version 24 or newer");
        return;
    };
    let folder = scratch();
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("Program.java");
    std::fs::write(&source, PROGRAM).unwrap();
    let recorded = observed(|| {
        let mut program = Command::new(&java);
        Some(program.arg("-Xmx128m").arg(&source).stdout(Stdio::null()).spawn().unwrap())
    });
    std::fs::remove_dir_all(&folder).unwrap();
    let Some(recorded) = recorded else { return };
    // Those that write; others (the JVM's own) may have a task, too.
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    let mut makers = BTreeSet::new();
    for reported in recorded.of(Event::Task) {
        *times.entry(reported.number("task")).or_default() += 1;
        makers.insert(reported.number("parent"));
    }
    // A word that cannot be read at that moment leaves a write without a task.
    let often = times.iter().filter(|(task, times)| **task != 0 && **times >= 8).count();
    assert!(often >= THREADS, "{times:?}");
    assert_eq!(makers, BTreeSet::from([-1]), "nothing says who has made them");
}
