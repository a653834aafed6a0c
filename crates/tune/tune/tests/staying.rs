//! A program that stays in one function for as long as it lives: that is counted, and has rewritten text and
//! its own again.

mod common;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::Running;
use fettle_live::{Journal, Process, Ranges, ReturnTable, Undoing};
use fettle_tune::count::{self, Wait};
use fettle_tune::{
    Group, Options, ProcessGroup, Rewritten, Rounds, Stop, Target, Wanted, Work, measure,
};

const PATIENCE: Duration = Duration::from_secs(30);
static NEVER: AtomicBool = AtomicBool::new(false);

/// In how many of so many looks the thread stood in, or would come back to, rewritten text.
fn samples_in(process: &Process, codes: &[Rewritten], pc_samples: usize) -> usize {
    let text = codes.iter().map(|code| (code.text.at.0, code.text.at.0 + code.text.len));
    let text = Ranges::new(text.collect());
    let look = || {
        std::thread::sleep(Duration::from_millis(3));
        let inside =
            process.while_paused(|paused| paused.on_stacks(&text, &ReturnTable::default()));
        !inside.unwrap().0.is_empty()
    };
    (0..pc_samples).filter(|_| look()).count()
}

/// `leads` says whether entries of the original's table lead to rewritten text.
fn stays(name: &str, flags: &[&str], leads: bool) {
    let staying = Running::start("staying", name, flags);
    let (process, logs) = (Process::open(staying.pid()).unwrap(), staying.logs());
    let (target, wanted) = (Target::new(&process).unwrap(), Wanted::default());
    let (modules, _) = fettle_tune::lift(&target, &wanted, Stop(&NEVER)).unwrap();
    let mut process_group = ProcessGroup::of(&process, false);

    let wait = || Stop(&NEVER).wait(process.pid(), Duration::from_millis(300));
    let wait = Wait { early: None, counting: &wait, reverting: PATIENCE };
    let from = (&target, &process_group);
    let counted =
        count::count_while(from, &logs, &modules, &wanted.selection, Stop(&NEVER), wait).unwrap();
    let counts = &counted.profile.modules[0];
    let main = modules[0].lifted.functions.iter().find(|f| f.name.as_deref() == Some("main"));
    let main = counts.get(&main.unwrap().entry).expect("the loop has counts");
    assert!(main.blocks.values().filter(|count| **count > 1000).count() >= 6, "{main:?}");
    assert!(counted.profile.stuck.is_empty(), "{:?}", counted.profile.stuck);

    for seed in 1..=4 {
        let codes =
            fettle_tune::shuffled((&target, &process_group), &modules, &wanted.selection, seed)
                .unwrap();
        assert_eq!(codes[0].own_tables, [leads]);
        let installed =
            fettle_tune::install_in_group(&logs, &target, &mut process_group, &codes).unwrap();
        assert!(samples_in(&process, &codes, 20) >= 19);
        // Original text is what runs when it is its turn.
        let code = (&codes[..], &installed.others);
        let plan = measure::Plan {
            work: Work::Calls,
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(50),
        };
        let measured =
            measure::measure_installed(&mut process_group, code, &plan, Stop(&NEVER)).unwrap();
        // Each switch is one pause.
        assert!(measured.stops.len() >= 10, "{measured:?}");
        assert!(samples_in(&process, &codes, 20) >= 19);
        // As another Fettle would, which knows the log alone.
        let journal = Journal::open(&logs, process.pid()).unwrap().unwrap();
        let undone = fettle_live::undo(journal, Undoing::within(PATIENCE)).unwrap();
        assert!(undone.kept.is_none() && undone.conflicts.is_empty(), "{undone:?}");
    }
    staying.end();
}

#[test]
fn a_loop_that_is_never_left_is_counted_and_has_rewritten_text() {
    stays("staying", &[], true);
}

#[test]
fn so_does_one_at_a_fixed_address() {
    stays("staying-fixed", &["-no-pie", "-fno-pie"], true);
}

#[test]
fn a_table_that_others_may_read_stays_as_it_is() {
    stays("staying-handed", &["-DHANDED"], false);
}

#[test]
fn where_threads_are_is_reported() {
    let staying = Running::start("staying", "staying-seen", &[]);
    let (process, logs) = (Process::open(staying.pid()).unwrap(), staying.logs());
    let options = Options {
        wanted: Wanted::default(),
        time: Duration::from_millis(300),
        group: Group::default(),
        measure: measure::Plan {
            work: Work::Calls,
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(50),
        },
        keep: true,
        dry_run: false,
        alone: false,
        profile: None,
        save: None,
        samples: false,
        threshold: 0.0,
        passes: 1,
        watch: None,
    };
    let outcome = fettle_tune::tune(&process, &logs, &options, Stop(&NEVER), |_| ()).unwrap();
    let seen = outcome.seen.unwrap();
    assert!(outcome.kept && seen.new > 0 && seen.share(seen.old) < 0.1, "{seen:?}");
    // Its loop is entered in no other way.
    assert!(outcome.installed.unwrap().osr_entries > 0);
    let journal = Journal::open(&logs, process.pid()).unwrap().unwrap();
    fettle_live::undo(journal, Undoing::within(PATIENCE)).unwrap();
    staying.end();
}

#[test]
fn turns_that_are_too_short_for_work_are_taken_again() {
    let staying = Running::start("staying", "staying-turns", &[]);
    let (process, logs) = (Process::open(staying.pid()).unwrap(), staying.logs());
    let (target, wanted) = (Target::new(&process).unwrap(), Wanted::default());
    let (modules, _) = fettle_tune::lift(&target, &wanted, Stop(&NEVER)).unwrap();
    let mut process_group = ProcessGroup::of(&process, false);
    let codes =
        fettle_tune::shuffled((&target, &process_group), &modules, &wanted.selection, 2).unwrap();
    let installed =
        fettle_tune::install_in_group(&logs, &target, &mut process_group, &codes).unwrap();
    // Grows by a hundred in a second.
    let work = Work::Command("tr -d . < /proc/uptime".to_owned());
    let plan = measure::Plan {
        work,
        rounds: Rounds { enough: 5, most: 5 },
        turn: Duration::from_millis(40),
    };
    let code = (&codes[..], &installed.others);
    let measured =
        measure::measure_installed(&mut process_group, code, &plan, Stop(&NEVER)).unwrap();
    assert_eq!(measured.ratios.len(), 5, "{measured:?}");
    let journal = Journal::open(&logs, process.pid()).unwrap().unwrap();
    fettle_live::undo(journal, Undoing::within(PATIENCE)).unwrap();
    staying.end();
}
