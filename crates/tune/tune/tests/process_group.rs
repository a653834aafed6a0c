//! Processes that fork, tuned together: rewritten text in all of them, inherited over fork too, and gone from all.

mod common;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::Running;
use fettle_live::{Journal, Process, Undoing};
use fettle_tune::{
    Group, Options, ProcessGroup, Progress, Rewritten, Rounds, Stop, Target, TuneError, Wanted,
    Work, measure,
};
use fettle_types::Pid;

const PATIENCE: Duration = Duration::from_secs(30);

/// The worker that was forked first, and stays: the kernel lists children inherited over fork.
fn worker(forker: &Running) -> Pid {
    let list = format!("/proc/{0}/task/{0}/children", forker.pid());
    let list = std::fs::read_to_string(list).unwrap();
    list.split_whitespace().next().unwrap().parse().unwrap()
}

/// How many of the jumps a process has.
fn jumps(process: &Process, codes: &[Rewritten]) -> usize {
    let jumps = codes.iter().flat_map(|code| &code.jumps);
    let there = jumps.filter(|jump| process.read(jump.at, 5).is_ok_and(|now| now == jump.after));
    there.count()
}

/// Executable memory of no file: only Fettle makes it in this program.
fn leftovers(pid: Pid) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ours = |line: &&str| line.contains("r-xp") && line.split_whitespace().count() == 5;
    maps.lines().filter(ours).map(str::to_owned).collect()
}

#[test]
fn all_have_rewritten_text_and_lose_it() {
    let forker = Running::start("forker", "all", &[]);
    let logs = forker.logs();
    let (parent, worker) = (Process::open(forker.pid()), Process::open(worker(&forker)));
    let (parent, worker) = (parent.unwrap(), worker.unwrap());
    for seed in 1..=6 {
        // Now named by the parent, now by a worker.
        let leader = if seed % 2 == 0 { &parent } else { &worker };
        let target = Target::new(leader).unwrap();
        let mut process_group = ProcessGroup::of(leader, false);
        let wanted = Wanted::default();
        let ended = fettle_tune::lift(&target, &wanted, Stop(&AtomicBool::new(true)));
        assert!(matches!(ended, Err(TuneError::Interrupted { .. })));
        let (modules, _) =
            fettle_tune::lift(&target, &wanted, Stop(&AtomicBool::new(false))).unwrap();
        let codes =
            fettle_tune::shuffled((&target, &process_group), &modules, &wanted.selection, seed)
                .unwrap();
        let installed =
            fettle_tune::install_in_group(&logs, &target, &mut process_group, &codes).unwrap();
        assert!(installed.jumps > 3, "{installed:?}");
        for process in [&parent, &worker] {
            assert!(jumps(process, &codes) > 3);
        }
        // Long enough for some that have it inherited over fork to do all of their work.
        std::thread::sleep(Duration::from_millis(150));
        let mut undone = Vec::new();
        fettle_tune::undo_group(&logs, leader, Undoing::within(PATIENCE), &mut |pid, what| {
            undone.push((pid, what.kept.clone(), what.conflicts.clone()));
        })
        .unwrap();
        assert!(undone.iter().any(|(pid, ..)| *pid == parent.pid()), "{undone:?}");
        assert!(undone.iter().any(|(pid, ..)| *pid == worker.pid()), "{undone:?}");
        for process in [&parent, &worker] {
            assert_eq!(jumps(process, &codes), 0, "{undone:?}");
            assert_eq!(leftovers(process.pid()), Vec::<String>::new(), "{undone:?}");
            assert!(Journal::look(&logs, process.pid()).unwrap().is_none());
        }
    }
    forker.end();
}

#[test]
fn a_forked_child_has_no_log_until_it_needs_one() {
    let forker = Running::start("forker", "heir", &["-O1"]);
    let logs = forker.logs();
    let parent = Process::open(forker.pid()).unwrap();
    let target = Target::new(&parent).unwrap();
    // The parent alone: children that exist already are left unmodified.
    let mut process_group = ProcessGroup::of(&parent, true);
    let wanted = Wanted::default();
    let (modules, _) = fettle_tune::lift(&target, &wanted, Stop(&AtomicBool::new(false))).unwrap();
    let codes =
        fettle_tune::shuffled((&target, &process_group), &modules, &wanted.selection, 3).unwrap();
    fettle_tune::install_in_group(&logs, &target, &mut process_group, &codes).unwrap();
    let worker = Process::open(worker(&forker)).unwrap();
    assert_eq!(jumps(&worker, &codes), 0);
    let log = || Journal::look(&logs, parent.pid()).unwrap().unwrap();
    let forked_child = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(1));
        fettle_live::forked_children(&log())
            .unwrap()
            .into_iter()
            .find_map(|forked_child| Process::open(forked_child.pid).ok())
    });
    let forked_child = forked_child.take(20_000).flatten().next().expect("a child has it by birth");
    assert!(Journal::look(&logs, forked_child.pid()).unwrap().is_none());
    // It may end at any time, which is no error.
    if let Some(own) = fettle_tune::inherited_log(&logs, &forked_child).unwrap_or_default() {
        assert_eq!(own.pid(), forked_child.pid());
        let undone = fettle_live::undo(own, Undoing::within(PATIENCE));
        assert!(undone.is_ok() || !forked_child.is_same(), "{undone:?}");
    }
    fettle_tune::undo_group(&logs, &parent, Undoing::within(PATIENCE), &mut |_, _| ()).unwrap();
    assert_eq!(jumps(&parent, &codes), 0);
    assert_eq!(leftovers(parent.pid()), Vec::<String>::new());
    forker.end();
}

#[test]
fn all_count_and_are_compared() {
    let forker = Running::start("forker", "count", &["-no-pie"]);
    let logs = forker.logs();
    let worker = Process::open(worker(&forker)).unwrap();
    let parent = Process::open(forker.pid()).unwrap();
    let options = Options {
        wanted: Wanted::default(),
        time: Duration::from_millis(500),
        group: Group::default(),
        measure: measure::Plan {
            work: Work::Calls,
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(100),
        },
        keep: false,
        dry_run: false,
        alone: false,
        profile: None,
        save: None,
        samples: false,
        threshold: 0.0,
        passes: 1,
        watch: None,
    };
    let never = AtomicBool::new(false);
    let outcome = fettle_tune::tune(&worker, &logs, &options, Stop(&never), |_| ()).unwrap();
    assert!(outcome.profile.processes >= 3 && outcome.processes >= 3, "{outcome:?}");
    assert!(outcome.profile.events > 10_000 && outcome.profile.stuck.is_empty());
    assert_eq!(outcome.measured.as_ref().unwrap().ratios.len(), 5);
    if outcome.kept {
        fettle_tune::undo_group(&logs, &worker, Undoing::within(PATIENCE), &mut |_, _| ()).unwrap();
    }
    for process in [&parent, &worker] {
        assert_eq!(leftovers(process.pid()), Vec::<String>::new());
        assert!(Journal::look(&logs, process.pid()).unwrap().is_none());
    }
    forker.end();
}

/// What a process's work would be if its rewritten text were twice as fast as its original text: CPU
/// time, counted twice while jumps of the undo log are in place.
const TWICE_AS_FAST: &str = r#"
import os, sys
pid, log, state = sys.argv[1:]
new = False
# The command is tried before anything is changed.
lines = open(log).readlines() if os.path.exists(log) else []
with open(f"/proc/{pid}/mem", "rb") as memory:
    for _, at, _, after, _ in (line.split() for line in lines if line.startswith("jump ")):
        memory.seek(int(at, 16))
        new = new or memory.read(len(after) // 2).hex() == after
now = int(open(f"/proc/{pid}/schedstat").read().split()[0])
try:
    last, work = map(int, open(state).read().split())
except FileNotFoundError:
    last, work = now, 0
work += (now - last) * (2 if new else 1)
open(state, "w").write(f"{now} {work}")
print(work // 1000)
"#;

#[test]
fn the_fastest_of_several_ways_stays() {
    let forker = Running::start("forker", "passes", &[]);
    let logs = forker.logs();
    let worker = Process::open(worker(&forker)).unwrap();
    let script = forker.folder.join("work.py");
    std::fs::write(&script, TWICE_AS_FAST).unwrap();
    let log = logs.join(format!("{}.undo", worker.pid()));
    let state = forker.folder.join("work");
    let paths = [&log, &state].map(|path| path.display().to_string()).join(" ");
    let work = format!("python3 {} {} {paths}", script.display(), worker.pid());
    let options = Options {
        wanted: Wanted::default(),
        time: Duration::from_millis(300),
        group: Group::default(),
        measure: measure::Plan {
            work: Work::Command(work),
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(100),
        },
        keep: false,
        dry_run: false,
        alone: true,
        profile: None,
        save: None,
        samples: false,
        threshold: 0.0,
        passes: 2,
        watch: None,
    };
    let (never, mut ratios, mut steps) = (AtomicBool::new(false), Vec::new(), Vec::new());
    let outcome =
        fettle_tune::tune(&worker, &logs, &options, Stop(&never), |progress| match progress {
            Progress::Tuned(outcome) => ratios.push(outcome.measured.as_ref().unwrap().ratio),
            Progress::Step(step) => steps.push(step),
        });
    let outcome = outcome.unwrap();
    // Each pass counts and compares; those that were not faster were reverted.
    assert_eq!(steps.iter().filter(|step| *step == "measuring").count(), 2, "{steps:?}");
    let slower = steps.iter().filter(|step| step.starts_with("pass ")).count();
    assert_eq!(ratios.len() + slower, 2, "{steps:?}");
    assert!(ratios.is_sorted_by(|one, next| one > next), "{ratios:?}");
    assert_eq!(ratios.last(), outcome.measured.as_ref().map(|measured| &measured.ratio));
    assert!(outcome.kept && Journal::look(&logs, worker.pid()).unwrap().is_some());
    fettle_tune::undo_group(&logs, &worker, Undoing::within(PATIENCE), &mut |_, _| ()).unwrap();
    assert_eq!(leftovers(worker.pid()), Vec::<String>::new());
    forker.end();
}
