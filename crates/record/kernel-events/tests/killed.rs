//! A recording that is killed leaves nothing in the kernel.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::capture;
use fettle_kernel_events::Options;
use fettle_types::Pid;

const VICTIM: &str = "FETTLE_TEST_VICTIM";

/// Run by the test below as another process: records until it is killed.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let Some(mut capture) = capture(Options { system: true, ..Options::default() }) else {
        println!("impossible");
        return;
    };
    capture.start().unwrap();
    println!("recording");
    loop {
        std::thread::park();
    }
}

#[test]
fn nothing_is_left_in_the_kernel() {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "victim", "--nocapture"]).env(VICTIM, "1");
    let mut victim = victim.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("recording") || line.contains("impossible"));
    let programs = programs(Pid::of_child(&victim));
    victim.kill().unwrap();
    victim.wait().unwrap();
    if said.is_none_or(|line| line.contains("impossible")) {
        eprintln!("skipped: nothing can be recorded here");
        return;
    }
    assert!(programs.len() > 10, "{programs:?}");
    // The kernel detaches them soon, not at once.
    let start = Instant::now();
    let left = || programs.iter().filter(|id| exists(**id)).count();
    while left() > 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), 0);
}

/// The kernel's numbers of programs that a process has descriptors of.
fn programs(pid: Pid) -> Vec<u32> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.path()).ok());
    let number = |text: String| {
        let line = text.lines().find(|line| line.starts_with("prog_id:"))?;
        line.trim_start_matches("prog_id:").trim().parse().ok()
    };
    texts.filter_map(number).collect()
}

/// Whether the kernel has a program of that number.
fn exists(id: u32) -> bool {
    const PROGRAM_BY_ID: i32 = 13;
    let mut attributes = [u64::from(id), 0];
    // SAFETY: the kernel reads as many bytes as it is given, which hold no addresses; what it gives is a
    // descriptor of ours, which is closed.
    unsafe {
        let at = attributes.as_mut_ptr();
        let fd = libc::syscall(libc::SYS_bpf, PROGRAM_BY_ID, at, size_of_val(&attributes));
        if fd >= 0 {
            libc::close(fd as i32);
        }
        fd >= 0
    }
}
