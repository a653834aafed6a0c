//! Goroutines of a real Go program are reported: which one writes, which made it, and which wakes which.

mod common;

use std::process::{Command, Stdio};

use common::{Recorded, alone, observed, scratch};
use fettle_kernel_events::Event;

/// Workers that write what they are given, each for the goroutine that hands it over.
const PROGRAM: &str = r#"
package main

import (
	"os"
	"time"
)

func main() {
	time.Sleep(700 * time.Millisecond)
	work := make(chan string)
	done := make(chan bool)
	go func() {
		for text := range work {
			os.Stdout.WriteString(text)
			done <- true
		}
	}()
	for n := 0; n < 50; n++ {
		time.Sleep(time.Millisecond)
		work <- "x\n"
		<-done
	}
}
"#;

/// What the program does, or `None` where there is no Go, or no kernel that reports it.
fn recorded() -> Option<Recorded> {
    let folder = scratch();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("main.go"), PROGRAM).unwrap();
    let program = folder.join("program");
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&program).arg(folder.join("main.go"));
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "");
    if !build.output().is_ok_and(|built| built.status.success()) {
        eprintln!("skipped: there is no Go");
        return None;
    }
    let recorded = observed(|| Some(Command::new(&program).stdout(Stdio::null()).spawn().unwrap()));
    std::fs::remove_dir_all(&folder).unwrap();
    recorded
}

#[test]
fn who_writes_was_made_and_woken_by_main() {
    let _alone = alone();
    let Some(recorded) = recorded() else { return };
    // The first goroutine is number 1.
    let is_worker = |task: i64| {
        let of = recorded.of(Event::Task);
        of.filter(|reported| reported.number("task") == task)
            .all(|reported| reported.number("parent") == 1)
    };
    let wakes: Vec<(i64, i64)> = recorded
        .of(Event::TaskWake)
        .filter(|reported| reported.number("gives") == 1)
        .map(|reported| (reported.number("task"), reported.number("target")))
        .collect();
    let given = wakes.iter().filter(|(task, target)| *task == 1 && is_worker(*target)).count();
    let back = wakes.iter().filter(|(task, target)| is_worker(*task) && *target == 1).count();
    assert!(given >= 40 && back >= 40, "{given} {back} of {wakes:?}");
    let made = recorded.of(Event::Task).filter(|reported| reported.number("parent") == 1).count();
    assert!(made > 0, "none writes");
}
