//! The session gets each birth and each end, and its answers are carried out.

mod common;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::*;
use fettle_live::*;
use fettle_types::Pid;

fn follow_all(
    recorder: &mut Recorder,
    program: impl AsRef<std::path::Path>,
    args: &[&str],
) -> ExitStatus {
    run(&launch(program, args), recorder, options(WaitFor::All)).unwrap()
}

#[test]
fn a_pipeline() {
    let (mut recorder, counter) = counting_recorder();
    let script = "for i in 1 2 3; do /bin/echo $i | /bin/cat; done > /dev/null; exit 4";
    let status = follow_all(&mut recorder, "/bin/bash", &["-c", script]);
    assert_eq!(status, ExitStatus::Code(4));
    assert_eq!(recorder.errors(), Vec::<String>::new());
    recorder.assert_lives_are_whole();
    assert_eq!((recorder.execs("echo"), recorder.execs("cat")), (3, 3));
    assert_eq!(recorder.births(Birth::Fork), 6);
    assert_eq!(recorder.exits().len(), 7);
    assert_eq!(counts(&counter), (7, 7));
}

#[test]
fn kinds_of_births() {
    let (mut recorder, _) = counting_recorder();
    let script = format!("{} > /dev/null", program("births").display());
    let status = follow_all(&mut recorder, "/bin/sh", &["-c", &script]);
    assert_eq!(status, ExitStatus::Code(134));
    recorder.assert_lives_are_whole();
    // 50 by pthread_create, two by clone.
    assert_eq!(recorder.births(Birth::Thread), 52);
    // vfork twice, posix_spawn twice, system, clone with CLONE_VM twice.
    assert!(recorder.births(Birth::Vfork) >= 6, "{}", recorder.births(Birth::Vfork));
    assert!(recorder.births(Birth::Fork) > 30);
    let statuses = recorder.exits();
    for code in [11, 12, 13, 15, 16, 17, 18, 19] {
        assert!(statuses.contains(&ExitStatus::Code(code)), "{code}");
    }
    assert!(
        statuses.contains(&ExitStatus::Signal { signal: 11, core: false })
            || statuses.contains(&ExitStatus::Signal { signal: 11, core: true })
    );
    let killed = ExitStatus::Signal { signal: 9, core: false };
    assert!(statuses.iter().filter(|status| **status == killed).count() >= 30);
}

/// It is about to execute something, and cannot be changed by itself.
#[test]
fn a_child_in_its_parents_memory_is_no_member() {
    let mut command = Command::new(program("vforked"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = Pid::of_child(&child);
    let members_of = members_of(&Process::open(pid).unwrap());
    assert_eq!(members_of.iter().map(|member| member.pid).collect::<Vec<_>>(), [pid]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn gs_bases() {
    let (mut recorder, _) = counting_recorder();
    recorder.next_gs = Some(0x10_0000);
    let file = temporary("gs.out");
    let status = follow_all(&mut recorder, program("gs"), &[file.to_str().unwrap()]);
    assert_eq!(status, ExitStatus::Code(0));
    recorder.assert_lives_are_whole();
    let mut expected = HashMap::new();
    let mut next = 0x10_0000;
    for event in &recorder.events {
        match event {
            Event::Exec { pid, .. } => {
                expected.insert(pid.first_thread(), DATA);
            }
            Event::Born { tid, .. } => {
                expected.insert(*tid, next);
                next += PAGE;
            }
            _ => {}
        }
    }
    let text = std::fs::read_to_string(file).unwrap();
    let mut seen = 0;
    for line in text.lines() {
        let (tid, base) = line.split_once(' ').unwrap();
        assert_eq!(expected[&tid.parse().unwrap()], base.parse::<u64>().unwrap(), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 1 + 8 + 3 * 2 + 1);
    assert_eq!((recorder.births(Birth::Thread), recorder.births(Birth::Fork)), (11, 3));
}

#[test]
fn threads_swallowed_by_exec() {
    let (mut recorder, counter) = counting_recorder();
    let script = format!("exec {} 4 > /dev/null", program("exec_thread").display());
    let status = follow_all(&mut recorder, "/bin/sh", &["-c", &script]);
    assert_eq!(status, ExitStatus::Code(21));
    recorder.assert_lives_are_whole();
    assert_eq!(recorder.births(Birth::Thread), 4 * 6);
    let ends =
        recorder.events.iter().filter(|event| matches!(event, Event::ThreadExit { .. })).count();
    assert_eq!(ends, 4 * 6);
    assert_eq!(recorder.execs("exec_thread"), 5);
    assert_eq!(counts(&counter), (6, 6));
    // All is one process.
    assert_eq!(recorder.exits(), [ExitStatus::Code(21)]);
}

#[test]
fn cpu_time_is_each_ones_own() {
    let mut recorder = Recorder::new(|_| None);
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let script = format!("/bin/sh -c '{busy}'; /bin/sh -c '{busy}'; exit 0");
    follow_all(&mut recorder, "/bin/sh", &["-c", &script]);
    let mut times: Vec<Duration> = recorder.cpu.values().copied().collect();
    times.sort();
    assert_eq!(times.len(), 3);
    assert!(times[0] * 5 < times[1], "the waiting shell has little: {times:?}");
    assert!(times[2] < times[1] * 3, "{times:?}");
}

#[test]
fn ticks_come_when_quiet_and_when_busy() {
    let mut recorder = Recorder::new(|_| None);
    follow_all(&mut recorder, "/bin/sleep", &["0.5"]);
    assert!((50..=110).contains(&recorder.ticks), "quiet: {}", recorder.ticks);

    let mut recorder = Recorder::new(|_| None);
    let start = std::time::Instant::now();
    follow_all(&mut recorder, "/bin/bash", &["-c", "for i in {1..300}; do (true); done"]);
    let expected = (start.elapsed().as_millis() / 5) as u32;
    assert!(recorder.ticks >= expected / 3, "busy: {} of {expected}", recorder.ticks);
}

#[test]
fn two_runs_at_once_keep_apart() {
    let runs: Vec<_> = (0..4)
        .map(|code| {
            std::thread::spawn(move || {
                let (mut recorder, counter) = counting_recorder();
                let script = format!("for i in 1 2 3 4 5; do /bin/true; done; exit {code}");
                let status = follow_all(&mut recorder, "/bin/sh", &["-c", &script]);
                assert_eq!(status, ExitStatus::Code(code));
                recorder.assert_lives_are_whole();
                assert_eq!(counts(&counter), (6, 6));
            })
        })
        .collect();
    runs.into_iter().for_each(|run| run.join().unwrap());
}

#[test]
fn what_an_exec_stop_shows() {
    let mut recorder = Recorder::new(|stop| {
        if !stop.executable.ends_with("env") {
            return None;
        }
        assert!(stop.executable_readable && !stop.compat && !stop.secure);
        assert_eq!(stop.execfn().unwrap(), std::path::Path::new("/usr/bin/env"));
        assert_eq!(stop.arguments().unwrap(), ["env", "a=b", "true"]);
        assert_eq!(stop.auxv.pagesize, 4096);
        let holds = |address| stop.maps.iter().find(|mapping| mapping.contains(address));
        assert!(holds(stop.auxv.phdr).is_some());
        assert_eq!(holds(stop.auxv.entry).unwrap().path.as_ref(), Some(&stop.executable));
        assert!(holds(stop.auxv.entry).unwrap().executable);
        assert!(holds(stop.auxv.base).unwrap().path.is_some());
        assert_eq!(
            holds(stop.instruction).unwrap().path,
            holds(stop.auxv.base).unwrap().path,
            "the loader comes first"
        );
        assert_eq!(holds(stop.stack).unwrap().name.as_deref(), Some("stack"));
        assert_eq!(stop.read(stop.auxv.base, 4).unwrap(), b"\x7fELF");
        assert!(stop.read(LiveAddr(8), 4).is_err());
        None
    });
    let script = "(exec -a env /usr/bin/env a=b true)";
    assert_eq!(follow_all(&mut recorder, "/bin/bash", &["-c", script]), ExitStatus::Code(0));
    assert_eq!(recorder.execs("env"), 1);
}

#[test]
fn killed_at_any_moment_of_an_exec() {
    let script = "for i in {1..150}; do /bin/true & kill -9 $! 2> /dev/null; \
                  (exec /bin/true) & sleep 0.000$((i % 10))$((i % 7)); kill -9 $!; done \
                  2> /dev/null; wait; exit 2";
    let (mut recorder, _) = counting_recorder();
    let status = follow_all(&mut recorder, "/bin/bash", &["-c", script]);
    assert_eq!(status, ExitStatus::Code(2));
    recorder.assert_lives_are_whole();
}

#[test]
fn many_threads() {
    let (mut recorder, _) = counting_recorder();
    recorder.next_gs = Some(0x10_0000);
    let script = "import threading
e = threading.Event()
ts = [threading.Thread(target=e.wait) for _ in range(1000)]
[t.start() for t in ts]; e.set(); [t.join() for t in ts]";
    let status = follow_all(&mut recorder, "python3", &["-c", script]);
    assert_eq!(status, ExitStatus::Code(0));
    recorder.assert_lives_are_whole();
    assert!(recorder.births(Birth::Thread) >= 1000);
}

#[test]
fn a_moment_does_not_wait_for_those_that_execute_programs() {
    let (executed, a_while) = (Arc::new(AtomicU32::new(0)), Duration::from_millis(1));
    let counter = executed.clone();
    let mut recorder = Recorder::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        // Rewritten text for it takes long.
        std::thread::sleep(Duration::from_millis(400));
        None
    });
    let script = "for i in 1 2 3 4; do (while :; do /bin/true; done) & done; while :; do :; done";
    let mut command = std::process::Command::new("/bin/bash");
    let mut child = command.args(["-c", script]).process_group(0).spawn().unwrap();
    while children(Pid::of_child(&child)).len() < 4 {
        std::thread::sleep(a_while);
    }
    let process = Process::open(Pid::of_child(&child)).unwrap();
    let work = |following: &Following| -> Result<Vec<Duration>, LiveError> {
        for pid in children(Pid::of_child(&child)) {
            following.join(&Process::open(pid)?)?;
        }
        while executed.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(a_while);
        }
        let moment = |_| process.while_paused(|_| Ok(())).map(|((), paused_for)| paused_for);
        (0..6).map(moment).collect()
    };
    let attached = attach(&process, &mut recorder, options(WaitFor::FirstProcess), work);
    // SAFETY: the group is our child's.
    unsafe { libc::kill(-Pid::of_child(&child).get(), libc::SIGKILL) };
    child.wait().unwrap();
    let longest = attached.unwrap().0.unwrap().into_iter().max().unwrap();
    assert!(longest < Duration::from_millis(300), "{longest:?}");
}

/// The children of a process that has one thread.
fn children(pid: Pid) -> Vec<Pid> {
    let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
