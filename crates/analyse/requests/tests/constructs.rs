//! Each construct of the language does what it says.

mod story;

use fettle_requests::{LinkKind, Options, Outcome, Peer, State, Wait};
use story::Story;

const DECLARED: &str = "
event a(x: u32)
event b(x: u32)
event c(x: u32)
event two(x: u32, y: u32)
event big(x: i64, y: u64)
event word(t: text)
event bytes(x: u32, y: u32, n: i64, at: u64)
actor worker(x: u32)
timeline thing(x: u32)
stream wire(y: u32)
";

fn notify(rules: &str, events: &str) -> Story {
    Story::notify(&format!("{DECLARED}{rules}"), events)
}

#[test]
fn start_basic_stop_and_a_key_used_again() {
    let story = notify(
        "on a { start thing(x) seed } on b { basic thing(x) } on c { stop thing(x) }",
        "1 b 1\n2 a 1\n3 b 1\n4 b 2\n5 c 1\n6 b 1\n7 c 1\n8 a 1\n9 a 1\n10 c 1",
    );
    assert_eq!(story.events(), [vec![1, 2, 4], vec![7], vec![8, 9]]);
    let counts = story.engine.schema_counts(0);
    assert_eq!((counts.unbound, counts.unmatched_stops, counts.restarted), (3, 1, 1));
    assert_eq!(counts.begun, 3);
}

#[test]
fn implicit_timelines_need_no_start() {
    let rules = "timeline soft(x: u32) implicit on a { basic soft(x) seed } on c { stop soft(x) }";
    assert_eq!(notify(rules, "1 a 1\n2 a 1\n3 c 1").events(), [[0, 1, 2]]);
}

#[test]
fn join_gives_and_takes_nothing() {
    // Two items of one worker: each is a request, and the worker works for both.
    let rules = "on a { start worker(x) } on two { start thing(y) join worker(x) seed }
                 on b { basic worker(x) } on c { stop thing(x) end }";
    let story = notify(rules, "1 a 1\n2 two 1 7\n3 two 1 8\n4 b 1\n5 c 7\n6 b 1\n7 c 8");
    assert_eq!(story.events(), [vec![1, 3, 4], vec![2, 3, 5, 6]]);
    assert_eq!(story.requests[0].shared_with, [1]);
    // Where nothing is open there is nothing to join, unless the timeline is implicit.
    let rules = "timeline soft(x: u32) implicit
                 on two { start thing(y) join worker(x) join soft(x) seed }
                 on b { basic worker(x) } on c { basic soft(x) }";
    assert_eq!(notify(rules, "1 two 1 7\n2 b 1\n3 c 1").events(), [[0, 2]]);
}

#[test]
fn a_field_may_name_a_class() {
    let rules = "on word { start thing(1) seed t }";
    let story = notify(rules, "1 word \"x\"\n2 word \"y\"\n3 word \"x\"");
    let labels: Vec<u32> = story.requests.iter().map(|request| request.label.unwrap()).collect();
    assert!(labels[0] == labels[2] && labels[0] != labels[1], "{labels:?}");
    assert_eq!(story.classes(), ["word"; 3]);
}

#[test]
fn start_after_looks_at_the_last_event() {
    let rules = "on a { start thing(x) after b, nothing seed } on b { basic thing(x) }";
    assert_eq!(
        notify(rules, "1 a 1\n2 a 1\n3 b 1\n4 b 1\n5 a 1").events(),
        [vec![0, 1, 2, 3], vec![4]]
    );
    // Without `nothing` it opens no section: there is only the seed's event.
    let rules = "on a { start thing(x) after b seed } on b { basic thing(x) }";
    assert_eq!(notify(rules, "1 a 1\n2 b 1").events(), [[0]]);
}

#[test]
fn seeds_do_not_nest_and_name_classes() {
    let story = notify(
        "on a { start thing(x) seed \"first\" } on b { basic thing(x) seed \"second\" }",
        "1 a 1\n2 b 1\n3 b 2",
    );
    // The last has no section: it is over with its only event.
    assert_eq!(story.events(), [vec![2], vec![0, 1]]);
    assert_eq!(story.classes(), ["second", "first"]);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
    assert_eq!(story.requests[1].outcome, Outcome::Unfinished);
}

#[test]
fn end_completes_and_empties_the_sections() {
    let story = notify(
        "on a { start thing(x) seed } on b { basic thing(x) } on c { basic thing(x) end }",
        "1 a 1\n2 b 1\n3 c 1\n4 b 1",
    );
    assert_eq!(story.events(), [[0, 1, 2]]);
    assert_eq!(story.requests[0].outcome, Outcome::Ended);
}

#[test]
fn a_request_floods_over_all_sections_of_its_events() {
    let story = notify(
        "on a { start worker(x) seed } on two { basic worker(x) start thing(y) } \
         on b { start worker(x) basic thing(x) } on c { basic worker(x) }",
        // worker 1 makes thing 5, worker 5 takes thing 5 and goes on.
        "1 c 5\n2 a 1\n3 two 1 5\n4 b 5\n5 c 5\n6 c 1\n7 c 9",
    );
    assert_eq!(story.events(), [[1, 2, 3, 4, 5]]);
    let request = &story.requests[0];
    let path: Vec<_> = request.path().iter().map(|visit| visit.key).collect();
    assert_eq!(path, [1, 5]);
    let link = request.links[0];
    assert_eq!(
        (link.kind, link.from, link.from_ns, link.to_ns),
        (LinkKind::Timeline, Peer::Section(0), 3, 4)
    );
    let program = story.engine.program();
    assert_eq!(program.describe(0, 0, 5, program.strings()), "worker(x=5)");
}

#[test]
fn notes_tell_and_do_not_spread() {
    let story = notify(
        "on a { start thing(x) seed } on two { note thing(x) start worker(y) seed } \
         on b { basic worker(x) }",
        "1 a 1\n2 two 1 7\n3 b 7",
    );
    assert_eq!(story.events(), [vec![0, 1], vec![1, 2]]);
    assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
}

#[test]
fn hand_offs_give_to_the_idle_and_only_free_the_busy() {
    let rules = "on a { start worker(x) seed } on two { handoff worker(x) -> worker(y) is runnable } \
        on b { basic worker(x) is running } on c { stop worker(x) }";
    let idle = notify(rules, "1 a 1\n2 two 1 2\n5 b 2\n6 c 1\n7 c 2");
    assert_eq!(idle.events(), [[0, 1, 2, 3, 4]]);
    assert_eq!(idle.requests[0].times().get(State::Runnable), 3);
    let busy = notify(rules, "1 a 1\n2 a 2\n3 two 1 2\n4 b 2\n5 c 1\n6 c 2");
    assert_eq!(busy.events(), [vec![0, 2, 4], vec![1, 3, 5]]);
    let nobody = notify(rules, "1 two 1 2\n2 b 2");
    assert!(nobody.events().is_empty());
    let start = rules.replace("-> worker", "-> start worker");
    let taken = notify(&start, "1 a 1\n2 a 2\n3 two 1 2\n4 b 2");
    assert_eq!(taken.events(), [vec![1], vec![0, 2, 3]]);
}

const WIRE: &str = "on a { start worker(x) seed } on c { stop worker(x) } \
    on bytes where at == 0 { basic worker(x) send wire(y) bytes n } \
    on bytes { start worker(x) receive wire(y) bytes n }";

#[test]
fn byte_ranges_split_what_shares_a_stream() {
    // Workers 1 and 2 send 10 and 20 bytes; worker 3 reads the first, 4 the second in two parts.
    let story = notify(
        WIRE,
        "1 a 1\n2 a 2\n3 bytes 1 7 10 0\n4 bytes 2 7 20 0\n5 c 1\n6 c 2\n\
         7 bytes 3 7 10 1\n8 bytes 4 7 5 1\n9 c 4\n10 bytes 4 7 15 1\n11 c 4\n12 c 3",
    );
    assert_eq!(story.events(), [vec![1, 3, 5, 7, 8, 9, 10], vec![0, 2, 4, 6, 11]]);
    assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
    assert!(story.requests.iter().all(|request| request.outcome == Outcome::Drained));
    assert_eq!(story.engine.open(), (0, 0, 0));
}

#[test]
fn what_cannot_be_split_is_shown_as_shared() {
    let story = notify(
        WIRE,
        "1 a 1\n2 a 2\n3 bytes 1 7 10 0\n4 bytes 2 7 20 0\n5 c 1\n6 c 2\n7 bytes 3 7 30 1\n9 c 3",
    );
    assert_eq!(story.events(), [vec![1, 3, 5, 6, 7], vec![0, 2, 4, 6, 7]]);
    let [second, first] = &story.requests[..] else { panic!() };
    assert_eq!((&first.shared_with, &second.shared_with), (&vec![1], &vec![0]));
    assert!(first.events.last().unwrap().shared && !first.events[0].shared);
    assert_eq!((first.shared_ns(), first.cpu_ns()), (2, 6));
}

#[test]
fn bytes_of_errors_and_strangers_are_counted() {
    let story = notify(WIRE, "1 a 1\n2 bytes 1 7 -11 0\n3 bytes 2 7 5 1\n4 c 1\n5 c 2");
    assert_eq!(story.events(), [[0, 1, 3]]);
    assert_eq!(story.engine.schema_counts(0).bytes_unsent, 5);
    assert_eq!(story.engine.open(), (0, 0, 0));
}

#[test]
fn offsets_say_which_bytes() {
    let rules = "on a { start worker(x) seed } on c { stop worker(x) } \
        on bytes where y == 7 { basic worker(x) send wire(7) bytes n at at } \
        on bytes { start worker(x) receive wire(7) bytes n at at }";
    // 100..110 is sent twice, by two; it stays the first one's.
    let story = notify(
        rules,
        "1 a 1\n2 a 2\n3 bytes 1 7 10 100\n4 bytes 2 7 20 100\n5 c 1\n6 c 2\n\
         7 bytes 3 0 10 110\n8 bytes 4 0 10 120\n9 c 3\n10 c 4",
    );
    // The read at 110 left out what was before: request 1 is over with that.
    assert_eq!(story.events(), [vec![0, 2, 4], vec![1, 3, 5, 6, 8]]);
    assert_eq!(story.engine.schema_counts(0).bytes_dropped, 10);
}

#[test]
fn a_stream_that_is_closed_holds_nothing() {
    let story = notify(
        &format!("{WIRE} on b {{ stop wire(x) }}"),
        "1 a 1\n2 bytes 1 7 10 0\n3 c 1\n4 b 7\n5 bytes 2 7 10 1",
    );
    assert_eq!(story.events(), [[0, 1, 2]]);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
    assert_eq!(story.engine.schema_counts(0).bytes_unread, 10);
}

#[test]
fn a_stream_may_be_closed_under_conditions() {
    // Of the two wires that are closed, the one with a reader keeps what was sent.
    let story = notify(
        &format!(
            "{WIRE} on big {{ mark thing(y) }}
            on b {{ stop wire(x) unless thing(x) }}"
        ),
        "1 big 0 7\n2 a 1\n3 bytes 1 7 10 0\n4 bytes 1 8 10 0\n5 c 1\n6 b 7\n7 b 8\n\
         8 bytes 2 7 10 1\n9 bytes 3 8 10 1\n10 c 2",
    );
    assert_eq!(story.events(), [[1, 2, 3, 4, 7, 9]]);
    assert_eq!(story.engine.schema_counts(0).bytes_unread, 10);
}

#[test]
fn filters_derived_fields_and_the_first_rule_that_matches() {
    let story = notify(
        "on big where x in (1, -2) and not y == 3 { let k = y + 1  start thing(k) seed \"in\" } \
         on big where x < 0 or y > 0xffff_ffff { seed \"odd\" } \
         on big where x == 7 { let big = x << 40  start thing(big) seed \"unfit\" } \
         on word where t == \"yes\" { start thing(1) seed \"yes\" } \
         on word { start thing(2) }",
        "1 big 1 5\n2 big -2 3\n3 big 9 4294967296\n4 big 9 1\n5 word \"no\"\n6 word \"yes\"\n7 big 7 0",
    );
    assert_eq!(story.classes(), ["odd", "odd", "unfit", "in", "yes"]);
    let keys = story.requests.iter().filter_map(|r| r.sections.first()).map(|s| s.key);
    assert_eq!(keys.collect::<Vec<_>>(), [6, 1]);
    assert_eq!(story.engine.schema_counts(0).unfit, 1);
}

#[test]
fn states_are_added_up_and_waits_are_what_was_expected() {
    let rules = "on a { start worker(x) seed } on b { basic worker(x) expects disk } \
        on two where y == 0 { basic worker(x) is blocked } \
        on two where y == 1 { basic worker(x) is running } \
        on two { basic worker(x) is running expects sleeping } on c { stop worker(x) }";
    let events =
        "0 a 1\n10 b 1\n15 two 1 0\n40 two 1 1\n41 two 1 2\n50 two 1 0\n90 two 1 1\n100 c 1";
    let times = notify(rules, events).requests[0].times();
    assert_eq!(times.get(State::Waiting(Wait::Disk)), 25);
    assert_eq!(times.get(State::Waiting(Wait::Sleeping)), 40);
    assert_eq!((times.get(State::Running), times.total()), (35, 100));
    // Without switches the wait is from where it was expected to where it was over.
    let options = Options { switches: false, ..Options::default() };
    let text = format!("{DECLARED}{rules}");
    let story = Story::with(&text, "0 a 1\n10 b 1\n41 two 1 2\n100 c 1", options);
    assert_eq!(story.requests[0].times().get(State::Waiting(Wait::Disk)), 31);
}

#[test]
fn what_was_waited_for_may_turn_out_in_the_end() {
    let rules = "on a { start worker(x) seed } on b { basic worker(x) expects lock } \
        on two where y == 0 { basic worker(x) is blocked } \
        on two where y == 1 { basic worker(x) is running } \
        on two where y == 2 { basic worker(x) was sleeping is running expects disk } \
        on two { basic worker(x) is running expects sleeping } on c { stop worker(x) }";
    // One wait ends by itself; the next does not; the last call does not wait at all.
    let events = "0 a 1\n10 b 1\n15 two 1 0\n40 two 1 1\n41 two 1 2\n\
        50 b 1\n51 two 1 0\n60 two 1 1\n61 two 1 3\n62 two 1 2\n100 c 1";
    let times = |story: &Story| {
        let times = story.requests[0].times();
        [Wait::Lock, Wait::Sleeping, Wait::Disk].map(|wait| times.get(State::Waiting(wait)))
    };
    assert_eq!(times(&notify(rules, events)), [9, 25, 0]);
    // Without switches the wait is from where it was expected to where it was over.
    let options = Options { switches: false, ..Options::default() };
    let text = format!("{DECLARED}{rules}");
    let story = Story::with(&text, "0 a 1\n10 b 1\n41 two 1 2\n42 c 1", options);
    assert_eq!(times(&story), [0, 31, 0]);
}

#[test]
fn a_binding_says_what_its_timeline_waited_for() {
    let rules = "on a { start worker(x) start thing(x) seed } on b { stop worker(x) } \
        on two where y == 0 { start worker(x) basic thing(x) expects queued } \
        on two { start worker(x) basic thing(x) expects network } on c { stop worker(x) stop thing(x) }";
    let story = notify(rules, "0 a 1\n10 b 1\n15 two 1 0\n18 b 1\n20 two 1 1\n27 c 1");
    let times = story.requests[0].times();
    // No actor had it; the one that took it in the end had it until then.
    assert_eq!((times.get(State::Queued), times.get(State::Waiting(Wait::Network))), (5, 2));
    assert_eq!(times.total(), 27);
}

#[test]
fn the_critical_path_goes_through_who_was_waited_for() {
    let rules = "on a { start worker(x) seed } on c { stop worker(x) } \
        on b where x > 100 { let w = x - 100  basic worker(w) is sleeping } \
        on b { basic worker(x) is running } \
        on two { handoff worker(x) -> worker(y) is runnable }";
    // 1 gives to 2 and sleeps; 2 works and wakes 1.
    let story =
        notify(rules, "0 a 1\n10 two 1 2\n12 b 101\n15 b 2\n40 two 2 1\n44 b 1\n50 c 2\n60 c 1");
    let path = story.requests[0].critical_path();
    let path: Vec<_> =
        path.iter().map(|step| (step.section, step.state, step.from_ns, step.to_ns)).collect();
    use State::{Runnable, Running};
    assert_eq!(
        path,
        [
            (0, Running, 0, 10),
            (1, Runnable, 10, 15),
            (1, Running, 15, 40),
            (0, Runnable, 40, 44),
            (0, Running, 44, 60)
        ]
    );
}

#[test]
fn quiet_requests_are_given_up_by_the_events_clock() {
    let text = format!("{DECLARED} on a {{ start thing(x) seed }} on b {{ basic thing(x) }}");
    let options = Options { quiet_ns: Some(100), ..Options::default() };
    let story =
        Story::with(&text, "0 a 1\n90 b 1\n150 b 1\n160 a 2\n249 b 1\n255 c 9\n300 b 2", options);
    assert_eq!(story.events(), [vec![3], vec![0, 1, 2, 4]]);
    assert_eq!(story.requests[0].outcome, Outcome::Quiet);
    assert_eq!(story.requests[1].outcome, Outcome::Unfinished);
    assert_eq!(story.engine.schema_counts(0).quiet, 1);
}

#[test]
fn memory_has_limits_and_what_is_beyond_is_counted() {
    let text = format!("{DECLARED} on a {{ start thing(x) seed }} on b {{ basic thing(x) }}");
    let many: String = (0..100).map(|n| format!("{n} a {n}\n")).collect();
    let sections = Options { sections_max: 10, ..Options::default() };
    let story = Story::with(&text, &many, sections);
    assert_eq!((story.engine.schema_counts(0).evicted, story.engine.open().0), (90, 10));
    assert_eq!(story.requests.len(), 100);
    let requests = Options { requests_max: 10, ..Options::default() };
    let story = Story::with(&text, &many, requests);
    assert_eq!((story.engine.schema_counts(0).refused, story.requests.len()), (90, 10));
    let events = Options { events_max: 3, ..Options::default() };
    let story = Story::with(&text, "1 a 1\n2 b 1\n3 b 1\n4 b 1", events);
    assert_eq!(story.events(), [[0, 1, 2]]);
    assert_eq!(story.requests[0].outcome, Outcome::TooLong);
}

#[test]
fn time_that_goes_back_is_counted_and_hurts_nobody() {
    let text = format!("{DECLARED} on a {{ start worker(x) seed }} on c {{ stop worker(x) }}");
    let options = Options { jump_ns: 1000, ..Options::default() };
    let story = Story::with(&text, "5000 a 1\n4990 a 2\n5010 c 1\n10 a 3\n20 c 3\n30 c 2", options);
    assert_eq!(story.events(), [vec![0, 2], vec![3, 4], vec![1, 5]]);
    let walls: Vec<u64> = story.requests.iter().map(fettle_requests::Request::wall_ns).collect();
    assert_eq!(walls, [10, 10, 30]);
    let counts = story.engine.counts();
    assert_eq!((counts.out_of_order, counts.clock_jumps, counts.events), (1, 1, 6));
}

const PEERS: &str = "
event got(tid: u32, local: u32, remote: u32, n: i64)
event put(tid: u32, local: u32, remote: u32, n: i64)
event idle(tid: u32)
actor thread(tid: u32)
stream bytes(from: u32, to: u32)
on got {
  start thread(tid)
  receive bytes(remote, local) bytes n answers bytes(local, remote)
  seed
}
on put { basic thread(tid)  send bytes(local, remote) bytes n }
on idle { stop thread(tid) }
";

/// 9 is a client and 5 a server that are not recorded; 1 and 2 are recorded.
#[test]
fn strangers_answer_what_they_were_sent_and_otherwise_ask() {
    let story = Story::notify(
        PEERS,
        "0 got 7 1 9 10
         1 put 7 1 5 20
         2 idle 7
         3 got 7 1 5 30
         4 got 7 1 5 30
         5 put 7 1 9 40
         6 idle 7
         7 got 7 1 9 10
         8 put 7 1 9 40
         9 idle 7",
    );
    // The first is held by what its server might still answer, until the end.
    assert_eq!(story.events(), [vec![7, 8, 9], vec![0, 1, 2, 3, 4, 5, 6]]);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
    // When the connection is used again, the answered request is let go.
    let story = Story::notify(
        PEERS,
        "0 got 7 1 9 10
         1 put 7 1 5 20
         2 idle 7
         3 got 7 1 5 30
         4 put 7 1 9 40
         5 idle 7
         6 got 7 1 9 10
         7 put 7 1 5 20
         8 idle 7
         9 got 7 1 5 30
         10 put 7 1 9 40
         11 idle 7",
    );
    assert_eq!(story.events(), [vec![0, 1, 2, 3, 4, 5], vec![6, 7, 8, 9, 10, 11]]);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
}

#[test]
fn who_is_seen_to_send_is_no_stranger() {
    let story = Story::notify(
        PEERS,
        "0 got 7 1 2 10
         1 put 7 1 2 40
         2 idle 7
         3 put 8 2 1 10
         4 got 7 1 2 10
         5 put 7 1 2 40
         6 got 8 2 1 40
         7 idle 7
         8 idle 8",
    );
    // What was sent before the recording came from no known actor; what is sent in it is followed.
    assert_eq!(story.events(), [vec![0, 1, 2], vec![4, 5, 6, 7, 8]]);
}

#[test]
fn marks_are_facts_that_statements_ask_for() {
    let schema = "
event met(s: u32)
event gone(s: u32)
event work(tid: u32, s: u32)
event rest(tid: u32, s: u32)
actor thread(tid: u32)
timeline friend(s: u32)
on met { mark friend(s) }
on gone { unmark friend(s) }
on work { start thread(tid) after nothing  seed }
on rest { basic thread(tid) unless friend(s)  stop thread(tid) if friend(s) }
";
    let story = Story::notify(
        schema,
        "0 met 3
         1 work 7 3
         2 rest 7 4
         3 rest 7 3
         4 gone 3
         5 work 7 3
         6 rest 7 3
         7 rest 7 3",
    );
    assert_eq!(story.events(), [vec![1, 2, 3], vec![5, 6, 7]]);
    assert_eq!(story.requests[1].outcome, Outcome::Unfinished);
}

#[test]
fn what_is_lent_is_had_by_both_and_the_event_is_nobodys() {
    let rules = "
timeline safe(y: u32)
on a { start thing(x) seed }
on two { lend thing(x) -> safe(y) unless worker(x) }
on b { basic safe(x)  start worker(x) }
on c { stop thing(x)  stop safe(x) }
on big where x > 0 { lend worker(x) -> worker(x)  start worker(x) }
";
    // The second has what the first lends, and no longer what it had before; the third lends nothing.
    let story = notify(
        rules,
        "1 a 1\n2 a 2\n3 two 1 7\n4 two 2 7\n5 b 7\n6 two 3 7\n7 b 7\n8 two 7 9\n9 big 7 0\n10 c 2\n11 c 1",
    );
    assert_eq!(story.events(), [vec![1, 4, 9], vec![0, 10]]);
    assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
}

#[test]
fn what_is_dropped_ends_without_the_event() {
    let rules = "
timeline done(x: u32)
on a { start thing(x) seed }
on b { basic thing(x)  mark done(x) }
on c { drop thing(x) if done(x)  stop thing(x)  unmark done(x) }
";
    // The first was done when it was dropped, the second was not; a key that is used again is new.
    let story = notify(rules, "1 a 1\n2 a 2\n3 b 1\n4 c 1\n5 c 2\n6 a 1\n7 c 1\n8 c 1");
    assert_eq!(story.events(), [vec![0, 2], vec![1, 4], vec![5, 6]]);
    assert!(story.requests.iter().all(|request| request.outcome == Outcome::Drained));
}

/// Of what several share, those leave that have what they asked for; it ends with the last of them.
#[test]
fn what_is_settled_is_dropped_one_by_one() {
    let rules = "
timeline shared(x: u32) implicit
on a { start thing(x)  join shared(7)  seed }
on b { stop thing(x)  settle }
on c { drop settled shared(7)  basic shared(7) }
";
    let story = notify(rules, "1 a 1\n2 a 2\n3 c 1\n4 b 1\n5 c 1\n6 a 3\n7 b 3\n8 b 2\n9 c 1");
    let mut events = story.events();
    events.sort();
    assert_eq!(events, [vec![0, 2, 3], vec![1, 2, 4, 7], vec![5, 6]]);
    assert!(story.requests.iter().all(|request| request.outcome == Outcome::Drained));
}

/// Threads whose requests have what they asked for work for others when they are woken for them, and what
/// they waited for until then was not for the first.
#[test]
fn who_is_handed_work_goes_over_if_its_own_is_settled() {
    let schema = "
event ask(tid: u32)
event tell(tid: u32)
event wake(tid: u32, target: u32)
event wait(tid: u32)
event done(tid: u32)
event after(tid: u32)
event rest(tid: u32)
actor thread(tid: u32)
on ask { start thread(tid) is running  seed }
on tell { basic thread(tid)  settle }
on after { basic thread(tid)  unsettle }
on wake { handoff thread(tid) -> thread(target) is runnable }
on wait { basic thread(tid) is lock }
on done { stop thread(tid) }
on rest { drop thread(tid) if settled thread(tid)  basic thread(tid) unless settled thread(tid) }
";
    // Thread 2 helps 1, waits, and is woken by 3 when 1 has its answer; while it has not, it stays.
    let handed = |reported: &str| {
        let text = format!(
            "0 ask 1\n1 wake 1 2\n2 wait 2\n3 {reported} 1\n4 ask 3\n5 wake 3 2\n9 wait 2\n10 done 2\n\
             11 done 3\n12 done 1"
        );
        Story::notify(schema, &text)
    };
    let (over, stays) = (handed("tell"), handed("after"));
    assert_eq!(over.events(), [vec![4, 5, 6, 7, 8], vec![0, 1, 2, 3, 9]]);
    assert_eq!(stays.events(), [vec![4, 5, 8], vec![0, 1, 2, 3, 6, 7, 9]]);
    let waited = |story: &Story| story.requests[1].times().get(State::Waiting(Wait::Lock));
    assert_eq!((waited(&over), waited(&stays)), (0, 4));

    // Woken by an actor that works for no request; section ended, answered and not; answered no longer.
    let story = Story::notify(
        schema,
        "0 ask 1\n1 tell 1\n2 wait 1\n7 wake 9 1\n8 wait 1\n10 ask 2\n11 tell 2\n12 wait 2\n20 rest 2\n\
         30 ask 3\n31 rest 3\n32 tell 3\n33 after 3\n34 rest 3\n35 done 3",
    );
    assert_eq!(story.events(), [vec![0, 1, 2], vec![5, 6, 7], vec![9, 10, 11, 12, 13, 14]]);
    let idle = story.requests.iter().map(|r| r.times().get(State::Waiting(Wait::Lock)));
    assert_eq!(idle.sum::<u64>(), 0);
}

#[test]
fn all_conditions_of_a_statement_have_to_hold() {
    let rules = "
timeline wet(x: u32)
timeline cold(x: u32)
on a { mark wet(x) if wet(x) unless cold(x)  mark cold(x) }
on b { mark wet(x) unless wet(x) if cold(x) }
on c { start thing(x) after nothing  seed }
on two { stop thing(x) if wet(y) if cold(y)  basic thing(x) unless wet(y) unless cold(y) }
";
    // 1 and 4 are neither, 2 is cold, 3 is both.
    let marks = "1 a 2\n2 a 3\n3 b 3\n4 b 4\n5 c 7\n";
    let story =
        notify(rules, &format!("{marks}6 two 7 1\n7 two 7 2\n8 two 7 4\n9 two 7 3\n10 two 7 1"));
    assert_eq!(story.events(), [[4, 5, 7, 8]]);
}

#[test]
fn a_choice_is_carried_by_the_event_s_requests() {
    use fettle_requests::Certainty;
    let rules = "on a { start worker(x) seed } on c { stop worker(x) }
                 on two { basic worker(x) choice y among y >> 8 }
                 on bytes { basic worker(x) send wire(y) bytes n choice at among 3 }
                 on b { start worker(x) receive wire(9) bytes 4 }";
    let story = notify(rules, "1 a 1\n2 two 1 0\n3 c 1\n4 a 1\n5 two 1 256\n6 c 1");
    let of = |story: &Story| -> Vec<Certainty> {
        story.requests.iter().map(|request| request.certainty).collect()
    };
    assert_eq!(of(&story), [Certainty::Seen, Certainty::OnlyCandidate]);
    let story = notify(rules, "1 a 1\n2 bytes 1 9 4 700\n3 two 1 1023\n4 b 2\n5 c 1\n6 c 2");
    let chosen = |likely| Certainty::Chosen { candidates: 3, likely };
    assert_eq!(of(&story), [chosen(700)]);
    let all: Vec<_> = story.requests[0].choices.iter().map(|c| (c.at_ns, c.certainty)).collect();
    assert_eq!(all, [(2, chosen(700)), (3, chosen(1000))]);
    let links: Vec<_> = story.requests[0].links.iter().map(|link| link.certainty).collect();
    assert_eq!(links, [chosen(700)]);
}

#[test]
fn a_request_that_swallows_many_others_is_cut() {
    // What `big` does is the first request's, though a hundred others begin meanwhile.
    let rules = "on a { start thing(x) seed } on b { join thing(x) basic thing(0) }
                 on c { stop thing(x) }";
    let mut events = String::from("0 a 0\n");
    for n in 1..200 {
        events.push_str(&format!("{n} a {n}\n{n} b 0\n{n} b 0\n{n} c {n}\n"));
    }
    let options = |swallow_min| Options { swallow_min, ..Options::default() };
    let story = Story::with(&format!("{DECLARED}{rules}"), &events, options(100));
    let cut: Vec<_> =
        story.requests.iter().filter(|r| r.outcome == Outcome::Swallowed).map(|r| r.id).collect();
    assert_eq!((cut, story.engine.schema_counts(0).swallowed), (vec![0], 1));
    let story = Story::with(&format!("{DECLARED}{rules}"), &events, options(1000));
    assert!(story.requests.iter().all(|request| request.outcome != Outcome::Swallowed));
}
