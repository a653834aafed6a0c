//! What samples of threads show of a real program, compared with what counters show.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fettle_live::Process;
use fettle_place::Counts;
use fettle_record::perf::PcSamples;
use fettle_tune::count::{self, Profile};
use fettle_tune::module::Module;
use fettle_tune::{Group, Options, ProcessGroup, Rounds, Stop, Target, Wanted, Work, measure};
use fettle_types::Pid;

const TIME: Duration = Duration::from_secs(2);
static NEVER: AtomicBool = AtomicBool::new(false);

/// A shell that computes until it is killed.
struct Shell(Child);

impl Shell {
    fn start() -> Shell {
        let work = "while :; do a=($((a + 7)) x y); b=${a[1]}${a[0]}; [[ $b == *9* ]] && a=1; done";
        let mut bash = Command::new("bash");
        Shell(bash.args(["-c", work]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options() -> Options {
    Options {
        wanted: Wanted::default(),
        time: TIME,
        group: Group::default(),
        measure: measure::Plan {
            work: Work::Calls,
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(50),
        },
        keep: false,
        dry_run: true,
        alone: true,
        samples: true,
        profile: None,
        save: None,
        threshold: 0.0,
        passes: 1,
        watch: None,
    }
}

/// The share of all instructions that ran by one profile in blocks that ran by another one.
fn share_that_ran(module: &Module, profile: &Profile, by: &Profile) -> f64 {
    let (mut all, mut ran) = (0, 0);
    for function in &module.lifted.functions {
        let Some(counts) = profile.modules[0].get(&function.entry) else { continue };
        let by = by.modules[0].get(&function.entry);
        for block in &function.blocks {
            let count = counts.blocks.get(&block.start).copied().unwrap_or(0);
            let insns = count * u64::from(block.insns.end - block.insns.start);
            all += insns;
            let has_run = |by: &Counts| by.blocks.get(&block.start).is_some_and(|count| *count > 0);
            ran += if by.is_some_and(has_run) { insns } else { 0 };
        }
    }
    ran as f64 / all as f64
}

#[test]
fn looks_show_what_runs_as_counters_do() {
    let shell = Shell::start();
    let process = Process::open(Pid::of_child(&shell.0)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let logs: &Path = folder.path();
    let looked = fettle_tune::tune(&process, logs, &options(), Stop(&NEVER), |_| ());
    if PcSamples::affordable().is_none() {
        let why = looked.unwrap_err().to_string();
        assert!(why.contains("kernel.perf_event_paranoid"), "{why}");
        return;
    }
    let looked = looked.unwrap();
    let (seen, here) = looked.profile.pc_samples.unwrap();
    assert!(here > 100 && here <= seen, "{here} of {seen}");
    assert!(looked.profile.stops.is_empty(), "nothing is changed for looks");
    // What is estimated is never said to be exact.
    let (_, decided) = &looked.decided[0];
    assert!(decided.exactness.exact == 0 && decided.exactness.edges > 100);

    let (target, wanted) = (Target::new(&process).unwrap(), Wanted::default());
    let (modules, _) = fettle_tune::lift(&target, &wanted, Stop(&NEVER)).unwrap();
    let process_group = ProcessGroup::of(&process, true);
    let from = (&target, &process_group);
    let counted =
        count::count(from, logs, &modules, &wanted.selection, TIME, Stop(&NEVER)).unwrap();
    let share = share_that_ran(&modules[0], &looked.profile, &counted);
    assert!(share > 0.9, "only {share} of what looks tell of has run");
}
