//! The shipped schemas are right, alone and together, and find what they say on small stories.

mod story;

use std::ops::RangeInclusive;

use fettle_requests::{Outcome, SCHEMAS, Source, State, Step, Wait, compile, shipped};
use story::Story;

#[test]
fn each_and_all_are_right() {
    let sources: Vec<Source> =
        SCHEMAS.iter().map(|(name, text)| Source::new(*name, *text)).collect();
    for source in &sources {
        let program = compile(std::slice::from_ref(source), &shipped);
        let program = program.unwrap_or_else(|report| panic!("{report}"));
        let warnings = program.warnings().to_string();
        // These have no seeds of their own.
        let parts = ["threads", "workers"].contains(&source.name.as_str());
        assert_eq!(warnings.is_empty(), !parts, "{warnings}");
    }
    let all = compile(&sources, &shipped).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(all.schemas().len(), SCHEMAS.len());
}

fn shipped_story(schema: &str, text: &str) -> Story {
    Story::notify(&shipped(schema).unwrap(), text)
}

/// Two calls that the thread 7 serves for the thread 5, one after the other. What 7 does in between, and what
/// wakes it by an interrupt, is none of them.
#[test]
fn a_call_goes_through_the_thread_that_serves_it() {
    let story = shipped_story(
        "hosted",
        "1 hosted_call 5 0 \"null\"
         2 wakeup 5 7 0 false
         3 switch_out 5 0 false
         4 switch_in 7 0
         9 wakeup 7 5 0 false
         10 switch_out 7 0 false
         11 switch_in 5 0
         12 hosted_end 5 0
         14 wakeup 5 7 0 true
         15 switch_in 7 1
         16 switch_out 7 1 false
         20 hosted_call 5 1 \"stat\"
         22 wakeup 5 7 0 false
         23 switch_out 5 0 false
         24 switch_in 7 0
         29 wakeup 7 5 0 false
         30 switch_out 7 0 false
         31 switch_in 5 0
         32 hosted_end 5 1",
    );
    let events = story.events();
    assert_eq!(events[0], (0..8).collect::<Vec<u64>>());
    assert_eq!(events[1], (11..19).collect::<Vec<u64>>());
}

/// A proxy asks a server of one thread twice at once: the second question lies in its socket until the
/// first is answered. The proxy waits for both answers, whatever becomes of the questions.
#[test]
fn what_lies_in_a_socket_is_queued() {
    let story = shipped_story(
        "sockets",
        "1 accept 1 1 10 \"p\" \"x\"
         1 accept 1 1 11 \"p\" \"y\"
         1 connect 1 1 12 \"a\" \"s\"
         1 connect 1 1 13 \"b\" \"s\"
         1 accept 9 9 20 \"s\" \"a\"
         1 accept 9 9 21 \"s\" \"b\"
         8 received 1 1 10 \"p\" \"x\" 5
         10 sent 1 1 12 \"a\" \"s\" 5
         11 received 1 1 11 \"p\" \"y\" 5
         12 sent 1 1 13 \"b\" \"s\" 5
         13 poll_begin 1 1
         14 switch_out 1 0 false
         22 received 9 9 20 \"s\" \"a\" 5
         30 sent 9 9 20 \"s\" \"a\" 5
         31 received 9 9 21 \"s\" \"b\" 5
         40 sent 9 9 21 \"s\" \"b\" 5
         41 poll_begin 9 9
         42 switch_in 1 0
         43 poll 1 1 2
         44 received 1 1 12 \"a\" \"s\" 5
         45 sent 1 1 10 \"p\" \"x\" 5
         46 received 1 1 13 \"b\" \"s\" 5
         47 sent 1 1 11 \"p\" \"y\" 5
         48 poll_begin 1 1",
    );
    let times = |n: usize, state: State| story.requests[n].times().get(state);
    let [first, second] = [0, 1].map(|n| times(n, State::Queued));
    // In the server's sockets, and then, as answers, in the proxy's.
    assert_eq!((first, second), ((22 - 10) + (44 - 30), (31 - 12) + (46 - 40)));
    assert_eq!([0, 1].map(|n| times(n, State::Waiting(Wait::Network))), [0, 0]);
    let path = story.requests[1].critical_path();
    let path: Vec<_> = path.iter().map(|step| (step.state, step.from_ns, step.to_ns)).collect();
    let (queued, running) = (State::Queued, State::Running);
    let expected = [
        (running, 11, 12),
        (queued, 12, 31),
        (running, 31, 40),
        (queued, 40, 46),
        (running, 46, 47),
    ];
    assert_eq!(path[..5], expected);
}

/// A client that is recorded, too, works for no request: each question is a request of its own, which is
/// back where it began when it is answered.
#[test]
fn a_client_asks_again_and_again() {
    let ask = |at: u64| {
        format!(
            "{} sent 1 1 12 \"a\" \"s\" 5
             {} receive_begin 1 1 12
             {} received 9 9 20 \"s\" \"a\" 5 3
             {} sent 9 9 20 \"s\" \"a\" 7
             {} received 1 1 12 \"a\" \"s\" 4 0
             {} receive_begin 1 1 12
             {} received 1 1 12 \"a\" \"s\" 3 0
             {} sleep_begin 1 1
             {} sleep 1 1\n",
            at,
            at + 1,
            at + 4,
            at + 20,
            at + 21,
            at + 22,
            at + 23,
            at + 30,
            at + 80
        )
    };
    let text = "1 connect 1 1 12 \"a\" \"s\"\n2 accept 9 9 20 \"s\" \"a\"\n".to_owned();
    let story = shipped_story("sockets", &(text + &ask(100) + &ask(200) + &ask(300)));
    let all = story.requests.iter().map(|r| (r.begin_ns, r.end_ns, r.response_ns()));
    let each = |at: u64| (at + 1, at + 23, 19);
    assert_eq!(all.collect::<Vec<_>>(), [100, 200, 300].map(each));
}

/// A server that answers wakes its client while it sends, and its call returns later: what it did until
/// then is what the client waited for.
#[test]
fn an_answer_wakes_before_its_call_returns() {
    let story = shipped_story(
        "sockets",
        "1 accept 1 1 10 \"p\" \"x\"
         2 connect 1 1 12 \"a\" \"s\"
         3 accept 9 9 20 \"s\" \"a\"
         10 received 1 1 10 \"p\" \"x\" 5 0
         20 sent 1 1 12 \"a\" \"s\" 5
         21 receive_begin 1 1 12
         22 switch_out 1 0 false
         30 received 9 9 20 \"s\" \"a\" 5 0
         90 wakeup 0 1 0 true
         93 sent 9 9 20 \"s\" \"a\" 5
         94 switch_in 1 0
         95 received 1 1 12 \"a\" \"s\" 5 0
         99 sent 1 1 10 \"p\" \"x\" 5
         100 poll_begin 1 1",
    );
    let request = &story.requests[0];
    let of = |step: &Step| (request.sections[step.section as usize].key, step.from_ns, step.to_ns);
    let path: Vec<_> = request.critical_path().iter().map(of).collect();
    assert!(path.contains(&(9, 30, 90)), "{path:?}");
}

/// No sender is recorded: for how long a question lay in the socket is known all the same.
#[test]
fn what_has_come_from_outside_was_queued() {
    let story = shipped_story(
        "sockets",
        "1 accept 9 9 20 \"s\" \"x\"
         100 received 9 9 20 \"s\" \"x\" 5 40
         110 sent 9 9 20 \"s\" \"x\" 5
         111 poll_begin 9 9
         200 received 9 9 20 \"s\" \"x\" 5 0
         205 sent 9 9 20 \"s\" \"x\" 5
         206 poll_begin 9 9
         207 received 9 9 20 \"s\" \"x\" 5 500
         208 sent 9 9 20 \"s\" \"x\" 5
         209 socket_close 9 9 20 \"s\" \"x\"",
    );
    let [first, second, third] = story.requests.as_slice() else { panic!("{:?}", story.requests) };
    assert_eq!((first.begin_ns, first.response_ns()), (60, 50));
    assert_eq!(first.times().get(State::Queued), 40);
    let path = first.critical_path();
    let path: Vec<_> = path.iter().map(|step| (step.state, step.from_ns, step.to_ns)).collect();
    assert_eq!(path[..2], [(State::Queued, 60, 100), (State::Running, 100, 110)]);
    assert_eq!((second.begin_ns, second.times().get(State::Queued)), (200, 0));
    // Longer than there was time: from when on there is any.
    assert_eq!((third.begin_ns, third.times().get(State::Queued)), (0, 207));
}

/// A backend of PostgreSQL wants workers for a parallel query: it signals the postmaster, which forks
/// them, and which they wake when they are done. What it forks later for a new client is of no request.
#[test]
fn workers_of_a_parallel_query_work_for_it() {
    let story = shipped_story(
        "postgres",
        "10 received 1 1 7 \"l\" \"r\" 5
         11 ask 1 1 7 \"l\" \"r\" false \"postgres\" 1 \"SELECT\" \"SELECT\"
         12 signal 1 9 10
         12 wakeup 1 9 0 false
         13 switch_in 9 0
         14 fork 9 9 20 20
         15 fork 9 9 21 21
         16 poll_begin 9 9
         17 poll_begin 1 1
         18 switch_out 1 0 false
         20 switch_in 20 0
         30 page_fault 20 20 4096
         31 page_fault_done 20 20 4096
         40 wakeup 20 1 0 false
         41 thread_exit 20 20
         50 switch_in 9 0
         51 fork 9 9 30 30
         52 page_fault 30 30 4096
         60 switch_in 1 0
         62 sent 1 1 7 \"l\" \"r\" 9
         63 answer 1 1 7 \"l\" \"r\" true \"postgres\" 1 true \"OK\"",
    );
    let [request] = story.requests.as_slice() else { panic!("{:?}", story.events()) };
    let events = story.events().remove(0);
    assert!(events.contains(&11) && !events.contains(&16) && !events.contains(&17), "{events:?}");
    let actors = request.sections.iter().filter(|section| section.actor);
    let actors: Vec<u128> = actors.map(|section| section.key).collect();
    assert_eq!(actors, [1, 9, 20, 21, 1], "the backend begins anew where it answers");
    // The postmaster is done with it when it waits for whatever comes next.
    let waits = State::Waiting(Wait::Network);
    assert_eq!(request.times().get(waits), 40 - 18);
    let path = request.critical_path();
    let worker = path.iter().filter(|step| request.sections[step.section as usize].key == 20);
    let ran = worker.filter(|step| step.state == State::Running);
    assert_eq!(ran.map(|step| step.to_ns - step.from_ns).sum::<u64>(), 40 - 20, "{path:?}");
}

/// The postmaster is not woken where it is awake, and forks for all that have signalled by then: whose
/// workers these are is not known, so they work for both.
#[test]
fn workers_that_several_have_asked_for_are_shared() {
    let ask = |time: u64, pid: u64, socket: u64| {
        format!(
            "{time} received {pid} {pid} {socket} \"l\" \"r\" 5
             {time} ask {pid} {pid} {socket} \"l\" \"r\" false \"postgres\" 1 \"SELECT\" \"SELECT\"
             {time} signal {pid} 9 10\n"
        )
    };
    let fork = |time: u64, pid: u64| format!("{time} fork 9 9 {pid} {pid}\n");
    let text = ask(10, 1, 7)
        + &fork(11, 20)
        + &ask(12, 2, 8)
        + &fork(13, 21)
        + "14 poll_begin 9 9\n"
        + &ask(15, 3, 9)
        + &fork(16, 22);
    let story = shipped_story("postgres", &text);
    let mut actors = Vec::new();
    for request in &story.requests {
        let of = request.sections.iter().filter(|section| section.actor);
        actors.push((request.id, of.map(|section| section.key).collect::<Vec<u128>>()));
    }
    actors.sort();
    assert_eq!(actors, [(0, vec![1, 20, 21]), (1, vec![2, 21]), (2, vec![3, 22])]);
}

/// An event loop waits for time, and for a thread of its own, between a question and its answer: neither
/// is the network. The way goes through the thread.
#[test]
fn an_event_loop_waits_for_time_and_for_threads() {
    let text = "1 accept 1 1 10 \"l\" \"r\"
             10 received 1 1 10 \"l\" \"r\" 5
             12 poll_begin 1 1
             13 switch_out 1 0 false
             50 switch_in 1 0
             52 poll 1 1 0
             53 sent 1 1 10 \"l\" \"r\" 5
             60 poll_begin 1 1
             61 switch_out 1 0 false
             70 switch_in 1 0
             71 poll 1 1 1
             72 received 1 1 10 \"l\" \"r\" 5
             73 wakeup 1 2 0 false
             74 poll_begin 1 1
             75 switch_out 1 0 false
             76 switch_in 2 0
             77 futex_wait 1 2 99 0
             90 wakeup 2 1 0 false
             91 write 1 2 9 8 1 \"anonymous\"
             92 futex_wait_begin 1 2 99
             93 switch_out 2 0 false
             94 switch_in 1 0
             95 poll 1 1 1
             96 read 1 1 9 8 1 \"anonymous\"
             98 sent 1 1 10 \"l\" \"r\" 5
             99 poll_begin 1 1";
    let story = shipped_story("sockets", text);
    let times: Vec<_> = story.requests.iter().map(fettle_requests::Request::times).collect();
    let [timer, thread] = times.as_slice() else { panic!("{:?}", story.events()) };
    let waits = [Wait::Network, Wait::Sleeping, Wait::Lock].map(State::Waiting);
    assert_eq!(waits.map(|state| timer.get(state)), [0, 53 - 12, 0]);
    assert_eq!(waits.map(|state| thread.get(state)), [0, 98 - 96, 0]);
    let path = story.requests[1].critical_path();
    let worker =
        |step: &&fettle_requests::Step| story.requests[1].sections[step.section as usize].key == 2;
    let of_thread = path.iter().filter(worker).map(|step| step.to_ns - step.from_ns);
    assert_eq!(of_thread.sum::<u64>(), 90 - 73, "{path:?}");
}

/// An event loop has a program of CGI for each of two requests, and hands on what these write into
/// pipes: the second is done first. A pipe that any process writes to ends no work.
#[test]
fn children_work_for_who_has_them_made() {
    let text = "1 accept 1 1 10 \"l\" \"a\"
         2 accept 1 1 11 \"l\" \"b\"
         10 received 1 1 10 \"l\" \"a\" 5
         11 pipe_made 1 1 70 5 6
         12 fork 1 1 2 2
         13 received 1 1 11 \"l\" \"b\" 5
         14 pipe_made 1 1 71 7 8
         15 fork 1 1 3 3
         16 poll_begin 1 1
         17 switch_in 3 0
         18 exec 3 3 \"cgi\"
         19 pipe_write 3 3 71 9
         20 wakeup 3 1 0 false
         21 thread_exit 3 3 \"cgi\"
         22 poll 1 1 1
         23 pipe_read 1 1 71 9
         24 sent 1 1 11 \"l\" \"b\" 9
         25 poll_begin 1 1
         30 switch_in 2 0
         31 open 2 2 3 \"file\"
         39 pipe_write 2 2 70 9
         40 thread_exit 2 2 \"cgi\"
         50 poll 1 1 1
         51 pipe_read 1 1 70 9
         52 pipe_write 9 9 72 1
         53 pipe_read 1 1 72 1
         54 sent 1 1 10 \"l\" \"a\" 9
         55 poll_begin 1 1";
    let second = vec![5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17];
    let first = vec![2, 3, 4, 18, 20, 21, 23, 25, 26, 27];
    for schema in ["sockets", "http1"] {
        let story = shipped_story(schema, text);
        let mut events = story.events();
        events.sort();
        assert_eq!(events, [first.clone(), second.clone()], "{schema}");
        assert!(story.requests.iter().all(|request| request.shared_with.is_empty()), "{schema}");
    }
}

/// A process that has answered in part and has a child do the rest has not answered all: what the child
/// waits for is its own, whatever wakes it. The parent waits for the child's end when all is answered.
#[test]
fn a_child_goes_on_with_an_answer() {
    let story = shipped_story(
        "sockets",
        "1 accept 1 1 10 \"l\" \"a\"
         2 accept 1 2 11 \"l\" \"b\"
         10 received 1 1 10 \"l\" \"a\" 5
         11 sent 1 1 10 \"l\" \"a\" 5
         12 fork 1 1 5 5
         13 child_begin 1 1
         14 switch_out 1 0 false
         20 received 1 2 11 \"l\" \"b\" 5
         21 wakeup 2 5 0 false
         22 switch_in 5 0
         23 open 5 5 3 \"file\"
         24 sent 5 5 10 \"l\" \"a\" 9
         25 thread_exit 5 5 \"cgi\"
         26 wakeup 5 1 0 false
         27 switch_in 1 0
         28 child 1 1 5
         29 accept_begin 1 1 3
         30 sent 1 2 11 \"l\" \"b\" 5
         31 accept_begin 1 2 3",
    );
    let mut events = story.events();
    events.sort();
    assert_eq!(events, [vec![2, 3, 4, 5, 6, 9, 11, 12], vec![7, 8, 17, 18]]);
}

/// A connection stays open long after what it was for; one that is closed in place of an answer does
/// not.
#[test]
fn the_end_of_a_connection_is_nobodys_who_was_answered() {
    let at = |time: u64, event: &str, socket: u64| {
        format!("{time} {event} 1 1 {socket} \"l{socket}\" \"r\"")
    };
    let text = [
        at(1, "accept", 7),
        at(2, "received", 7) + " 40",
        at(3, "sent", 7) + " 10",
        "4 poll_begin 1 1".to_owned(),
        at(5, "accept", 8),
        at(6, "received", 8) + " 40",
        "7 poll_begin 1 1".to_owned(),
        at(900, "socket_close", 7),
        at(901, "socket_close", 8),
    ]
    .join("\n");
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [vec![1, 2, 3], vec![5, 6, 8]]);
}

/// A worker that waits for its old connection to end is woken by the thread that closes it, and does
/// nothing for the request that this works for now.
#[test]
fn who_is_woken_by_the_end_of_a_connection_is_nobodys() {
    let story = shipped_story(
        "sockets",
        "1 accept 1 1 10 \"p\" \"x\"
         2 receive_begin 2 2 30
         10 received 1 1 10 \"p\" \"x\" 5 0
         11 wakeup 1 2 0 false
         12 socket_close 1 1 31 \"o\" \"w\"
         13 received 2 2 30 \"w\" \"o\" 0 0
         14 write 2 2 2 6 9 \"device\"
         15 sent 1 1 10 \"p\" \"x\" 5
         16 poll_begin 1 1",
    );
    assert_eq!(story.events(), [vec![2, 3, 7, 8]]);
    let threads = story.requests[0].sections.iter().filter(|section| section.actor);
    assert!(threads.map(|section| section.key).all(|tid| tid == 1));
}

/// A thread of a pool has done its part for one request that is not answered yet, and waits where it was
/// woken for that: a thread that wakes it there has other work for it.
#[test]
fn who_waits_where_it_was_woken_for_work_waits_for_work() {
    let text = |operation: u32| {
        format!(
            "1 accept 1 1 10 \"p\" \"x\"
             2 accept 1 3 11 \"p\" \"y\"
             3 futex_wait_begin 1 2 96 {operation}
             10 received 1 1 10 \"p\" \"x\" 5 0
             11 wakeup 1 2 0 false
             12 futex_wait 1 2 96 0
             13 write 1 2 5 8 7 \"file\"
             14 futex_wait_begin 1 2 100 {operation}
             20 received 1 3 11 \"p\" \"y\" 5 0
             21 wakeup 3 2 0 false
             22 futex_wait 1 2 100 0
             23 write 1 2 5 8 7 \"file\"
             30 sent 1 1 10 \"p\" \"x\" 5
             31 sent 1 3 11 \"p\" \"y\" 5
             32 poll_begin 1 1
             33 poll_begin 1 3"
        )
    };
    // Requests of which its second write is.
    let second = |operation| {
        let story = shipped_story("sockets", &text(operation));
        let events = story.events();
        (0..events.len()).filter(|request| events[*request].contains(&11)).collect::<Vec<_>>()
    };
    assert_eq!(second(9), [1]);
    // A mutex is waited for in the midst of work.
    assert_eq!(second(0), [0]);
}

/// Lines of a log that are never answered: they hold no request once it is answered, and are
/// distinguished by whose bytes they are before that.
#[test]
fn messages_that_nobody_answers_hold_no_request() {
    let text = |first_line: u64| {
        let at = |time: u64, tid: u64, event: &str, ends: &str, bytes: u64| {
            format!("{time} {event} {tid} {tid} {ends} {bytes}\n")
        };
        let clients = ["10 \"o\" \"i\"", "11 \"p\" \"j\""];
        let (writer, logger) = ("20 \"w\" \"l\"", "21 \"l\" \"w\"");
        let request = |begin: u64, client: &str| {
            at(begin, 1, "received", client, 40)
                + &at(begin + 1, 1, "sent", writer, 10)
                + &at(begin + 2, 2, "received", logger, 10)
        };
        let answer = |time: u64, client: &str| at(time, 1, "sent", client, 5);
        let mut text = request(first_line, clients[0]);
        text += "50 poll_begin 2 2\n51 poll_begin 1 1\n";
        if first_line < 40 {
            text += &answer(52, clients[0]);
        }
        text += &request(60, clients[1]);
        text += "63 poll_begin 2 2\n64 poll_begin 1 1\n";
        if first_line >= 40 {
            text += &answer(65, clients[0]);
        }
        text += &answer(66, clients[1]);
        text += "67 poll_begin 1 1\n";
        text + &at(900, 2, "sent", logger, 1)
            + "901 poll_begin 2 2\n"
            + "902 socket_close 2 2 21 \"l\" \"w\"\n903 socket_close 1 1 10 \"o\" \"i\"\n"
            + "904 socket_close 1 1 11 \"p\" \"j\"\n"
    };
    for first_line in [10, 40] {
        let story = shipped_story("sockets", &text(first_line));
        let mut ends: Vec<_> = story.requests.iter().map(|r| (r.begin_ns, r.end_ns)).collect();
        ends.sort_unstable();
        let [(_, first), (_, second)] = ends[..] else { panic!("{ends:?}") };
        assert!(first <= 67 && second == 67, "{ends:?}");
        assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
        assert!(story.requests.iter().all(|request| request.outcome == Outcome::Drained));
    }
}

/// A thread that looks for more, and finds nothing, goes on with what it has.
#[test]
fn who_only_looks_goes_on() {
    let at = |time: u64, event: &str| format!("{time} {event} 1 1 7 \"l\" \"r\" 5\n");
    let text = at(1, "accept") + &at(10, "received") + "30 poll_look 1 1 0\n";
    let text = text + "35 page_fault 1 1 9\n36 page_fault_done 1 1 9\n" + &at(50, "sent");
    // Once it has answered, it does something else.
    let text = text + "60 poll_look 1 1 0\n70 page_fault 1 1 9\n80 poll_begin 1 1\n";
    for schema in ["sockets", "http1"] {
        let story = shipped_story(schema, &text);
        assert_eq!(story.events(), [[1, 2, 3, 4, 5, 6]], "{schema}");
        assert_eq!(story.requests[0].cpu_ns(), 50, "{schema}");
    }
    let asked =
        at(10, "received") + "11 ask 1 1 7 \"l\" \"r\" false \"PROTOCOL\" 1 \"GET\" \"GET\"\n";
    let text = asked
        + "30 poll_look 1 1 0\n35 page_fault 1 1 9\n36 page_fault_done 1 1 9\n"
        + &at(50, "sent")
        + "51 answer 1 1 7 \"l\" \"r\" true \"PROTOCOL\" 1 true \"0\"\n60 page_fault 1 1 9\n";
    for protocol in [
        "amqp",
        "fastcgi",
        "kafka",
        "mqtt",
        "websocket",
        "redis",
        "memcached",
        "mysql",
        "nats",
        "postgres",
        "http2",
        "grpc",
    ] {
        let text = text.replace("PROTOCOL", protocol);
        let story = shipped_story(protocol, &text);
        assert_eq!(story.events(), [[1, 2, 3, 4, 5, 6]], "{protocol}");
    }
}

/// Sockets with a time-out are polled one by one before each call (CPython's, libpq's). A loop that polls
/// without waiting turns to others' work.
#[test]
fn a_poll_that_does_not_wait_ends_nothing() {
    let at = |time: u64, event: &str, socket: u64| {
        format!("{time} {event} 1 1 {socket} \"l{socket}\" \"r\" 5\n")
    };
    let text = at(1, "accept", 7)
        + &at(2, "connect", 8)
        + &at(10, "received", 7)
        + "11 poll 1 1 1\n"
        + &at(12, "sent", 8)
        + "13 poll 1 1 1\n"
        + &at(14, "received", 8)
        + "15 poll_look 1 1 1\n"
        + &at(16, "sent", 7)
        + "17 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [[2, 3, 4, 5, 6, 7, 8, 9]]);
    assert_eq!(story.requests[0].cpu_ns(), 7);
    let text = at(1, "accept", 7)
        + &at(2, "connect", 8)
        + &at(10, "received", 7)
        + &at(11, "sent", 8)
        + "12 poll 1 1 3\n"
        + &at(13, "accept", 9)
        + "14 read 1 1 4 8 1 \"anonymous\"\n"
        + &at(15, "received", 9)
        + &at(16, "sent", 9)
        + "17 poll 1 1 1\n"
        + &at(18, "received", 8)
        + &at(19, "sent", 7)
        + "20 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [vec![2, 3, 4, 10, 11, 12], vec![7, 8, 9]]);
}

/// A server that asks two others at once: the first answer is not what its request asked for.
#[test]
fn several_are_asked_at_once() {
    let at = |time: u64, tid: u64, event: &str, ends: &str| {
        format!("{time} {event} {tid} {tid} {ends} 5\n")
    };
    let outer = "7 \"o\" \"i\"";
    let (clients, servers) =
        (["8 \"c\" \"s\"", "9 \"d\" \"t\""], ["18 \"s\" \"c\"", "19 \"t\" \"d\""]);
    let text = at(10, 1, "received", outer)
        + &at(11, 1, "sent", clients[0])
        + &at(12, 1, "sent", clients[1])
        + "13 poll_begin 1 1\n"
        + &at(14, 2, "received", servers[0])
        + &at(15, 3, "received", servers[1])
        + "16 poll_begin 3 3\n"
        + &at(20, 2, "sent", servers[0])
        + &at(21, 3, "sent", servers[1])
        + "22 poll_begin 3 3\n23 poll_begin 2 2\n"
        + &at(30, 1, "received", clients[0])
        + &at(31, 1, "received", clients[1])
        + &at(32, 1, "sent", outer)
        + "33 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [(0..15).collect::<Vec<u64>>()]);
    assert_eq!(story.requests[0].answered_ns, Some(32));
}

/// A loop that waits a little, and lets another thread work, before it answers: the path goes back to
/// the thread that was at work last, not to when the question came.
#[test]
fn the_path_goes_back_to_who_was_at_work_last() {
    let at = |time: u64, event: &str| format!("{time} {event} 1 1 7 \"l\" \"r\" 5\n");
    let path = |text: &str| -> Vec<(State, u64, u64)> {
        let story = shipped_story("sockets", text);
        let path = story.requests[0].critical_path();
        path.iter().map(|step| (step.state, step.from_ns, step.to_ns)).collect()
    };
    let asked = at(1, "accept") + &at(10, "received");
    let answered = at(45, "sent") + "50 poll_begin 1 1\n";
    let (running, network) = (State::Running, State::Waiting(Wait::Network));
    let alone = asked.clone() + "30 poll_begin 1 1\n40 poll 1 1 1\n" + &answered;
    assert_eq!(path(&alone), [(running, 10, 30), (network, 30, 45), (running, 45, 50)]);
    let helped = asked
        + "12 wakeup 1 2 0 false\n12 switch_in 2 0\n13 poll_begin 1 1\n"
        + "38 write 1 2 9 8 1 \"anonymous\"\n40 poll 1 1 1\n"
        + &answered;
    let expected = [(running, 10, 12), (running, 12, 38), (network, 38, 45), (running, 45, 50)];
    assert_eq!(path(&helped), expected);
}

/// A pool of processes behind pipes: a thread for each connection, one that passes items on, one that
/// takes results, and a process that works. None keeps what it has passed on.
#[test]
fn a_pool_of_processes_behind_pipes() {
    let at = |time: u64, tid: u64, event: &str, ends: u64, bytes: u64| {
        format!("{time} {event} 1 {tid} {ends} \"l{ends}\" \"r\" {bytes}\n")
    };
    let (asker, feeder, taker, worker) = (1, 2, 3, 5);
    // The pipes' numbers are 70 for items and 71 for results.
    let mut text = format!(
        "1 futex_wait_begin 1 {feeder} 90\n2 pipe_read_begin 1 {taker} 71\n3 pipe_read_begin 5 {worker} 70\n"
    );
    for (begin, asker, socket) in [(100, asker, 10), (200, 11, 11), (300, asker, 10)] {
        let t = |after: u64| begin + after;
        text += &at(t(0), asker, "received", socket, 5);
        text += &format!("{} wakeup {asker} {feeder} 0 false\n", t(1));
        text += &format!("{} futex_wait_begin 1 {asker} 91\n", t(2));
        text += &format!("{} pipe_write 1 {feeder} 70 4\n", t(3));
        // The next item of its queue may be anybody's.
        text += &format!("{} page_fault 1 {feeder} 8\n", t(4));
        text += &format!("{} pipe_read 5 {worker} 70 4\n", t(5));
        text += &format!("{} page_fault 5 {worker} 8\n", t(50));
        text += &format!("{} pipe_write 5 {worker} 71 400\n", t(51));
        text += &format!("{} pipe_read_begin 5 {worker} 70\n", t(52));
        text += &format!("{} page_fault 5 {worker} 8\n", t(53));
        text += &format!("{} pipe_read 1 {taker} 71 400\n", t(54));
        text += &format!("{} wakeup {taker} {asker} 0 false\n", t(55));
        text += &format!("{} pipe_read_begin 1 {taker} 71\n", t(56));
        text += &format!("{} futex_wait 1 {asker} 91 0\n", t(57));
        text += &at(t(58), asker, "sent", socket, 5);
        text += &format!("{} poll_begin 1 {asker}\n", t(59));
    }
    // What is written for no request before it is read takes nothing from the writer before.
    let (second, third) = ("203 pipe_write 1 2 70 4\n", "204 page_fault 1 2 8\n");
    assert!(text.contains(third));
    text = text.replace(second, &format!("{second}203 pipe_write 1 99 70 4\n"));
    text = text.replace("205 pipe_read 5 5 70 4", "205 pipe_read 5 5 70 8");
    let story = shipped_story("sockets", &text);
    let requests = story.requests.iter().map(|r| (r.begin_ns, r.end_ns, r.events.len()));
    assert_eq!(requests.collect::<Vec<_>>(), [(100, 159, 14), (200, 259, 14), (300, 359, 14)]);
    assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
}

/// What is written to a pipe whose reader is not recorded, a log's, holds no request; and a reader of
/// what was written for no request goes on with its own.
#[test]
fn pipes_of_others_are_left_unmodified() {
    let at = |time: u64, event: &str| format!("{time} {event} 1 1 7 \"l\" \"r\" 5\n");
    let text = at(1, "accept")
        + &at(10, "received")
        + "11 pipe_write 1 1 70 4\n12 pipe_read_begin 1 1 71\n20 pipe_read 1 1 71 9\n"
        + &at(30, "sent")
        + "31 poll_begin 1 1\n40 socket_close 1 1 7 \"l\" \"r\"\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [[1, 2, 3, 4, 5, 6]]);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
}

/// A proxy, and a server behind it whose answers are not the request's; then the proxy's log.
#[test]
fn a_request_is_answered_where_it_was_asked() {
    let at = |time: u64, tid: u64, event: &str, ends: &str| {
        format!("{time} {event} {tid} {tid} {ends} 5\n")
    };
    let (outer, client, server) = ("7 \"o\" \"i\"", "8 \"c\" \"s\"", "9 \"s\" \"c\"");
    let text = at(10, 1, "received", outer)
        + &at(11, 1, "sent", client)
        + &at(12, 2, "received", server)
        + &at(20, 2, "sent", server)
        + "21 poll_begin 2 2\n"
        + &at(22, 1, "received", client)
        + &at(30, 1, "sent", outer)
        + "31 write 1 1 5 9 1 \"file\"\n40 write 1 1 5 9 1 \"file\"\n41 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    let [request] = story.requests.as_slice() else { panic!("{:?}", story.events()) };
    assert_eq!((request.answered_ns, request.response_ns(), request.wall_ns()), (Some(30), 20, 31));
    // One that is not answered takes until its last event.
    let story = shipped_story("sockets", &at(10, 1, "received", outer));
    assert_eq!((story.requests[0].answered_ns, story.requests[0].response_ns()), (None, 0));
}

/// A subscriber has its answer; what is sent to it later is the work of the publisher. A long answer,
/// though, goes on whenever the socket has room, in the midst of others' work.
#[test]
fn news_are_the_work_of_who_publishes() {
    let at = |time: u64, event: &str, socket: u64| {
        format!("{time} {event} 1 1 {socket} \"l{socket}\" \"r\" 5\n")
    };
    let subscribed =
        |begin: u64, socket: u64| at(begin, "received", socket) + &at(begin + 1, "sent", socket);
    let text = subscribed(10, 7)
        + "12 poll_begin 1 1\n"
        + &subscribed(20, 8)
        + "22 poll_begin 1 1\n"
        + &at(500, "received", 9)
        + &at(501, "sent", 7)
        + &at(502, "sent", 8)
        + &at(503, "sent", 9)
        + "504 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8, 9, 10]]);
    let text = subscribed(10, 7)
        + "12 poll_begin 1 1\n13 poll 1 1 1\n"
        + &at(14, "sent", 7)
        + "15 poll_begin 1 1\n16 poll 1 1 2\n"
        + &at(500, "received", 9)
        + &at(501, "sent", 7)
        + "502 poll_begin 1 1\n"
        + &at(503, "sent", 9)
        + "504 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [vec![0, 1, 2, 4, 5, 8, 9], vec![7, 10, 11]]);
}

/// Threads of a server that wait for the next connection, in a queue or by `accept`, once they have
/// answered. One that waits for a lock between two pieces of its answer goes on with it.
#[test]
fn who_waits_behind_its_answer_waits_for_other_work() {
    let at = |time: u64, tid: u64, event: &str, socket: u64, bytes: u64| {
        format!("{time} {event} 1 {tid} {socket} \"l{socket}\" \"r\" {bytes}\n")
    };
    for schema in ["sockets", "http1"] {
        let text = at(1, 1, "accept", 7, 6)
            + &at(2, 1, "received", 7, 40)
            + &at(3, 1, "sent", 7, 10)
            + "4 futex_wait_begin 1 1 99\n5 switch_out 1 0 false\n500 wakeup 9 1 0 false\n"
            + "501 switch_in 1 0\n502 futex_wait 1 1 99 0\n"
            + &at(503, 1, "accept", 8, 6)
            + &at(504, 1, "received", 8, 40)
            + &at(505, 1, "sent", 8, 10)
            + "506 accept_begin 1 1 3\n507 switch_out 1 0 false\n900 switch_in 1 0\n"
            + &at(901, 1, "accept", 9, 6)
            + &at(902, 1, "received", 9, 40)
            + &at(903, 1, "sent", 9, 10)
            + "904 futex_wait_begin 1 1 99\n920 futex_wait 1 1 99 0\n"
            + &at(930, 1, "sent", 9, 10)
            + "931 poll_begin 1 1\n";
        let story = shipped_story(schema, &text);
        let spans: Vec<_> = story.requests.iter().map(|r| (r.begin_ns, r.end_ns)).collect();
        let last = if schema == "sockets" { 931 } else { 930 };
        assert_eq!(spans, [(2, 4), (504, 506), (902, last)], "{schema}");
        let waited = |r: &fettle_requests::Request| r.times().get(State::Waiting(Wait::Network));
        assert!(story.requests.iter().all(|r| waited(r) == 0), "{schema}");
    }
}

/// An event loop's helpers: each is woken for its work, notifies the loop when it is done with it, and
/// takes whatever comes next. A loop that has a message for another goes on with what it does.
#[test]
fn helpers_of_an_event_loop_are_done_when_they_say_so() {
    let at = |time: u64, event: &str, socket: u64, bytes: u64| {
        format!("{time} {event} 1 1 {socket} \"l{socket}\" \"r\" {bytes}\n")
    };
    let text = at(1, "received", 7, 40)
        + "2 wakeup 1 2 0 false\n3 switch_in 2 0\n4 write 1 2 17 8 1 \"anonymous\"\n"
        // The next item of its queue is another request's.
        + "5 open 1 2 9 \"/f\" 5 \"file\"\n6 futex_wait_begin 1 2 99\n"
        + "7 write 1 1 18 8 1 \"anonymous\"\n"
        + &at(8, "sent", 6, 10)
        + &at(9, "sent", 7, 10)
        + "10 poll_begin 1 1\n";
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [[0, 1, 2, 3, 6, 7, 8, 9]]);
}

/// A server that closes the connection behind its answer, before the client has read all of it.
#[test]
fn what_was_sent_before_the_connection_was_closed_is_read_for_its_request() {
    let at = |time: u64, tid: u64, event: &str, ends: &str, more: &str| {
        format!("{time} {event} 1 {tid} {ends} {more}\n")
    };
    let (outer, client, server) = ("7 \"o\" \"i\"", "8 \"c\" \"s\"", "9 \"s\" \"c\"");
    let text = [
        at(1, 1, "received", outer, "40"),
        at(2, 1, "connect", client, "5 0"),
        at(3, 1, "sent", client, "10"),
        at(4, 2, "accept", server, "6"),
        at(5, 2, "received", server, "10"),
        at(6, 2, "sent", server, "300"),
        at(7, 2, "socket_close", server, ""),
        at(7, 2, "poll_begin", "", ""),
        at(8, 1, "received", client, "100"),
        at(9, 1, "received", client, "200"),
        at(10, 1, "sent", outer, "300"),
        at(11, 1, "socket_close", client, ""),
        // Another connection between the same ends is another stream.
        at(12, 1, "received", outer, "40"),
        at(13, 1, "connect", client, "5 0"),
        at(14, 1, "sent", client, "10"),
        at(15, 2, "accept", server, "6"),
        at(16, 2, "received", server, "10"),
        at(17, 2, "sent", server, "300"),
        at(18, 1, "socket_close", client, ""),
        at(19, 2, "socket_close", server, ""),
    ]
    .concat();
    let story = shipped_story("sockets", &text);
    assert_eq!(story.events(), [vec![0, 1, 2, 4, 5, 7, 8, 9, 10], vec![12, 13, 14, 16, 17, 18]]);
    assert_eq!(story.engine.schema_counts(0).bytes_unread, 300);
    let (_, _, in_flight) = story.engine.open();
    assert_eq!(in_flight, 0);
}

/// Two clients of one thread: a pipeline of two commands, and one command that is read before the
/// first client has its answers.
#[test]
fn commands_of_a_pipeline_share_their_time() {
    let at =
        |time: u64, event: &str, socket: u64| format!("{time} {event} 1 1 {socket} \"l\" \"r\"");
    let ask = |time, socket, n| {
        at(time, "ask", socket) + &format!(" false \"redis\" {n} \"GET\" \"GET-a\"\n")
    };
    let answer = |time, socket, n| {
        at(time, "answer", socket) + &format!(" true \"redis\" {n} true \"OK\"\n")
    };
    let (first, second) = (at(10, "received", 7) + " 40\n", at(20, "received", 8) + " 20\n");
    let (sent, sent_too) = (at(30, "sent", 7) + " 10\n", at(40, "sent", 8) + " 5\n");
    let text = first
        + &ask(11, 7, 0)
        + &ask(12, 7, 1)
        + &second
        + &ask(21, 8, 0)
        + &sent
        + &answer(31, 7, 0)
        + &answer(32, 7, 1)
        + &sent_too
        + &answer(41, 8, 0)
        + "50 poll_begin 1 1\n";
    for schema in ["redis", "messages"] {
        let story = shipped_story(schema, &text);
        assert_eq!(story.events(), [vec![1, 5, 6], vec![2, 5, 7], vec![4, 8, 9]], "{schema}");
        let shared: Vec<usize> = story.requests.iter().map(|r| r.shared_with.len()).collect();
        assert_eq!(shared, [1, 1, 0]);
    }
    for schema in ["postgres", "fastcgi"] {
        assert!(shipped_story(schema, &text).requests.is_empty(), "{schema}");
    }
    assert!(shipped_story("asked", &text).requests.is_empty());
}

/// Streams of one connection, answered in another order than they were asked in.
#[test]
fn streams_are_answered_in_any_order() {
    let text = "10 received 1 1 7 \"l\" \"r\" 90
         11 ask 1 1 7 \"l\" \"r\" false \"grpc\" 1 \"/a/B\" \"/a/B\"
         12 ask 1 1 7 \"l\" \"r\" false \"grpc\" 3 \"/a/C\" \"/a/C\"
         20 sent 1 2 7 \"l\" \"r\" 9
         21 answer 1 2 7 \"l\" \"r\" true \"grpc\" 3 true \"0\"
         30 sent 1 3 7 \"l\" \"r\" 9
         31 answer 1 3 7 \"l\" \"r\" true \"grpc\" 1 true \"0\"";
    let story = shipped_story("grpc", text);
    assert_eq!(story.events(), [vec![2, 4], vec![1, 6]]);
    assert!(story.requests.iter().all(|request| request.outcome == Outcome::Ended));
    let asked = text.replace(" false \"grpc\"", " true \"grpc\"");
    let asked = asked.replace("answer 1 2 7 \"l\" \"r\" true", "answer 1 2 7 \"l\" \"r\" false");
    let story = shipped_story("asked", &asked);
    assert_eq!(story.events()[0], [2, 4]);
    assert_eq!(story.requests[0].times().get(State::Waiting(Wait::Network)), 9);
}

/// A call that is never answered is over with its connection.
#[test]
fn a_connection_ends_what_was_asked_on_it() {
    for protocol in [
        "amqp",
        "fastcgi",
        "kafka",
        "mqtt",
        "websocket",
        "grpc",
        "http2",
        "redis",
        "memcached",
        "mysql",
        "nats",
        "postgres",
    ] {
        let text = format!(
            "10 received 1 1 7 \"l\" \"r\" 90
             11 ask 1 1 7 \"l\" \"r\" false \"{protocol}\" 1 \"B\" \"B\"
             20 received 1 1 8 \"l\" \"q\" 90
             30 socket_close 1 1 7 \"l\" \"r\"
             40 sent 1 1 8 \"l\" \"q\" 9"
        );
        let asked = text.replace("false", "true");
        for (schema, text) in [(protocol, &text), ("messages", &text), ("asked", &asked)] {
            let story = shipped_story(schema, text);
            let ends: Vec<_> = story.requests.iter().map(|r| (r.outcome, r.end_ns)).collect();
            assert_eq!(ends, [(Outcome::Ended, 30)], "{schema}");
        }
    }
}

/// A trace is over with its last span, though its first may end before.
#[test]
fn spans_of_a_trace_are_a_request() {
    let story = shipped_story(
        "spans",
        "1 span_begin \"t\" \"a\" \"\" \"s\" \"GET\"
         2 span_begin \"u\" \"a\" \"\" \"s\" \"PUT\"
         3 span_begin \"t\" \"b\" \"a\" \"s\" \"query\"
         4 span_end \"t\" \"b\" \"s\"
         5 span_begin \"t\" \"c\" \"a\" \"s\" \"log\"
         6 span_end \"t\" \"a\" \"s\"
         7 span_end \"u\" \"a\" \"s\"
         9 span_end \"t\" \"c\" \"s\"",
    );
    assert_eq!(story.events(), [vec![1, 6], vec![0, 2, 3, 4, 5, 7]]);
    assert!(story.requests.iter().all(|request| request.outcome == Outcome::Drained));
}

#[test]
fn files_are_followed_from_open_to_close() {
    let story = shipped_story(
        "files",
        "10 open 1 1 3 \"a\"
         11 open 1 2 -1 \"no\"
         20 read_begin 1 1 3
         50 read 1 1 3 100
         60 close 1 1 3
         70 read 1 1 3 1
         80 open 1 1 3 \"b\"
         90 close 1 9 3",
    );
    assert_eq!(story.events(), [vec![0, 2, 3, 4], vec![6, 7]]);
    let times = story.requests[0].times();
    assert_eq!(times.get(State::Waiting(Wait::Disk)), 30);
    assert_eq!(times.get(State::Waiting(Wait::Sleeping)), 20);
}

/// An event loop with two clients and a connection to an application server that both requests use,
/// one after the other.
#[test]
fn an_event_loop_with_upstream_connections() {
    let story = shipped_story(
        "http1",
        "1 connect 1 1 50 \"l\" \"r\"
         2 accept 1 1 10 \"l\" \"a\"
         3 accept 1 1 11 \"l\" \"b\"
         10 received 1 1 10 \"l\" \"a\" 5
         11 sent 1 1 50 \"l\" \"r\" 5
         12 poll_begin 1 1
         13 switch_out 1 0 false
         20 wakeup 0 1 0
         22 switch_in 1 0
         23 poll 1 1 1
         24 received 1 1 50 \"l\" \"r\" 9
         25 sent 1 1 10 \"l\" \"a\" 9
         26 received 1 1 11 \"l\" \"b\" 5
         27 sent 1 1 50 \"l\" \"r\" 5
         28 poll_begin 1 1
         30 poll 1 1 1
         31 received 1 1 50 \"l\" \"r\" 9
         32 sent 1 1 11 \"l\" \"b\" 9
         33 received 1 1 10 \"l\" \"a\" 5
         34 sent 1 1 10 \"l\" \"a\" 1
         35 poll_begin 1 1
         40 socket_close 1 1 10 \"l\" \"a\"
         41 socket_close 1 1 11 \"l\" \"b\"",
    );
    // The third is complete first: its client closes first.
    let expected = [vec![3, 4, 5, 10, 11], vec![18, 19, 20, 21], vec![12, 13, 14, 16, 17, 22]];
    assert_eq!(story.events(), expected);
    // While the loop polled, the first request waited for its upstream server.
    let steps = story.requests[0].critical_path();
    let steps: Vec<_> = steps.iter().map(|step| (step.state, step.from_ns, step.to_ns)).collect();
    let network = State::Waiting(Wait::Network);
    assert_eq!(steps, [(State::Running, 10, 12), (network, 12, 24), (State::Running, 24, 25)]);
    assert!(story.requests.iter().all(|request| request.shared_with.is_empty()));
}

#[test]
fn a_pool_takes_items_from_a_queue() {
    let story = shipped_story(
        "queues",
        "1 queue_push 1 1 7 100
         2 queue_push 1 1 7 101
         3 queue_pop 1 2 7 100
         4 queue_pop 1 3 7 101
         5 switch_out 2 0 true
         6 queue_push 1 3 7 102
         7 switch_in 2 0
         8 queue_pop_begin 1 2 7
         9 queue_pop 1 2 7 102
         10 queue_pop_begin 1 2 7
         11 queue_pop_begin 1 3 7",
    );
    assert_eq!(story.events(), [vec![0, 2, 4, 6, 7], vec![1, 3, 5, 8, 9, 10]]);
    assert_eq!(story.requests[0].times().get(State::Runnable), 2);
    assert_eq!(story.requests[0].outcome, Outcome::Drained);
}

/// The events of a step of a task that does what stands between.
fn step(task: u64, between: &str) -> String {
    format!(
        "arguments 1 1 \"_PyDict_SetItem_KnownHash\" 500 501 {task}
         {between}
         result 1 1 \"_PyDict_GetItem_KnownHash\" 500 0 0 0 0 0 {task}
         arguments 1 1 \"_PyDict_DelItem_KnownHash\" 500\n"
    )
}

/// Two tasks with a client each; what one event loop has read they take a turn later. One asks a
/// server and has another task ask it again; the other answers at once, and then asks for more.
#[test]
fn tasks_take_what_their_event_loop_has_read() {
    let made = |task| format!("arguments 1 1 \"_Py_HashPointer\" {task}\n");
    let bytes = |buffer, size| format!("arguments 1 1 \"PyByteArray_Resize\" {buffer} {size}\n");
    let read = |socket, buffer| {
        format!("received 1 1 {socket} \"l{socket}\" \"r\" 5\n") + &bytes(buffer, 5)
    };
    let sent = |socket| format!("sent 1 1 {socket} \"l{socket}\" \"r\" 5\n");
    let text =
        "connect 1 1 50 \"l50\" \"r\"\naccept 1 1 10 \"l10\" \"r\"\naccept 1 1 11 \"l11\" \"r\"\n"
        .to_string()
        + &made(70)
        + &made(71)
        + &step(70, "")
        + &step(71, "")
        + "poll 1 1 2\n"
        + &read(10, 90)
        + &read(11, 91)
        + "poll_look 1 1 0\n"
        // Each goes on with what is its; a buffer of a task's own is of no other request.
        + &step(70, &(bytes(90, 0) + &bytes(99, 5) + &sent(50)))
        + &step(71, &(bytes(91, 0) + &sent(11)))
        + "poll 1 1 1\n"
        + &read(50, 92)
        // A task that has answered works for no request, unless it does more for the one that it has
        // answered.
        + &step(71, "")
        + &step(71, &(sent(50) + &sent(11)))
        + &step(70, &(bytes(92, 0) + &made(72)))
        + &step(72, &sent(50))
        + &step(70, &sent(10))
        + "poll_begin 1 1\n";
    let times = (1..).zip(text.lines().filter(|line| !line.trim().is_empty()));
    let text: Vec<String> = times.map(|(time, line)| format!("{time} {}", line.trim())).collect();
    let story = shipped_story("asyncio", &text.join("\n"));
    let asks = [12..=13, 18..=22, 29..=30, 39..=51];
    let answers = [14..=16, 24..=27, 35..=38];
    let lines = |ranges: &[RangeInclusive<u64>]| ranges.iter().cloned().flatten().collect();
    let expected: [Vec<u64>; 2] = [lines(&asks), lines(&answers)];
    assert_eq!(story.events(), expected);
}

#[test]
fn pipes_split_by_bytes() {
    let story = shipped_story(
        "pipes",
        "1 pipe_write 1 1 5 10
         2 pipe_write 1 1 5 20
         3 pipe_read 2 2 5 10
         4 pipe_write 2 2 6 1
         5 pipe_read_begin 2 2 5
         6 pipe_read 3 3 6 1
         7 pipe_read 2 2 5 20
         8 thread_exit 3 3
         9 thread_exit 2 2",
    );
    assert_eq!(story.events(), [vec![0, 2, 3, 4, 5, 7], vec![1, 6, 8]]);
}

#[test]
fn a_lock_held_is_a_request_and_waiters_are_noted() {
    let story = shipped_story(
        "locks",
        "1 lock_acquired 1 1 9
         2 lock_wait 1 2 9
         5 lock_released 1 1 9
         6 lock_acquired 1 2 9
         7 lock_released 1 2 9",
    );
    assert_eq!(story.events(), [vec![0, 1, 2], vec![3, 4]]);
    assert_eq!(story.requests[0].wall_ns(), 4);
}

#[test]
fn programs_blocks_and_calls() {
    let programs = shipped_story(
        "processes",
        "1 exec 5 5 \"sh\"
         2 fork 5 5 6 6
         3 exec 6 6 \"ls\"
         4 fork 6 6 6 7
         5 thread_exit 6 7
         6 process_exit 6 6 0
         7 process_exit 5 5 0",
    );
    assert_eq!(programs.events(), [vec![2, 3, 4, 5], vec![0, 1, 6]]);
    let blocks = shipped_story(
        "block",
        "1 block_issue 1 8 100 512 true
         2 block_issue 1 8 200 512 false
         5 block_complete 8 200
         9 block_complete 8 100",
    );
    assert_eq!(blocks.events(), [vec![1, 2], vec![0, 3]]);
    assert_eq!(blocks.classes(), ["read", "write"]);
    let calls = shipped_story(
        "calls",
        "1 call 1 1 \"f\" 0
         2 call 1 1 \"f\" 1
         3 call_end 1 1 \"f\" 1
         4 call_end 1 1 \"f\" 0
         5 call 1 1 \"g\" 0",
    );
    assert_eq!(calls.events(), [vec![0, 1, 2, 3], vec![4]]);
}

/// A woken thread without work goes on with the waker's; one with work keeps its own.
#[test]
fn wake_ups_hand_work_to_idle_threads_only() {
    let story = shipped_story(
        "futex",
        "1 call 1 1 \"handle_request\" 0
         2 wakeup 1 2 0
         4 switch_in 2 0
         5 call 1 3 \"handle_request\" 0
         6 futex_wait_begin 1 3 99
         7 switch_out 3 0 false
         8 wakeup 2 3 0
         9 switch_in 3 0
         10 futex_wait 1 3 99 0
         11 call_end 1 2 \"run_task\" 0
         12 call_end 1 1 \"handle_request\" 0
         13 call_end 1 3 \"handle_request\" 0",
    );
    assert_eq!(story.events(), [vec![0, 1, 2, 6, 9, 10], vec![3, 4, 5, 7, 8, 11]]);
    let waiter = &story.requests[1];
    assert_eq!(waiter.times().get(State::Waiting(Wait::Lock)), 1);
    // The thread that was waited for worked on something else, and is named.
    let outside = waiter.critical_path().into_iter().find_map(|step| step.waited_for);
    let fettle_requests::Peer::Outsider { request, .. } = outside.unwrap() else { panic!() };
    assert_eq!(request, Some(story.requests[0].id));
}

/// A data base that speaks first is asked to quit, which it answers by closing the connection. Its
/// greeting to the next one, by the same thread, is no work for the request that asked for that.
#[test]
fn who_closes_what_it_never_answered_is_done_with_it() {
    let story = shipped_story(
        "sockets",
        "1 accept 1 1 10 \"p\" \"x\"
         2 received 1 1 10 \"p\" \"x\" 5
         3 connect 1 1 12 \"a\" \"s\"
         4 accept 9 9 20 \"s\" \"a\"
         5 sent 9 9 20 \"s\" \"a\" 5
         6 received 1 1 12 \"a\" \"s\" 5
         7 sent 1 1 12 \"a\" \"s\" 4
         8 received 9 9 20 \"s\" \"a\" 4
         9 sent 1 1 10 \"p\" \"x\" 5
         10 socket_close 1 1 12 \"a\" \"s\"
         11 socket_close 9 9 20 \"s\" \"a\"
         12 accept 2 2 11 \"p\" \"y\"
         13 received 2 2 11 \"p\" \"y\" 5
         14 connect 2 2 13 \"b\" \"s\"
         15 accept 9 9 21 \"s\" \"b\"
         16 sent 9 9 21 \"s\" \"b\" 5
         17 received 2 2 13 \"b\" \"s\" 5
         18 sent 2 2 11 \"p\" \"y\" 5",
    );
    let of = |n: usize| {
        let found = story.requests.iter().find(|request| request.id == n as u64).unwrap();
        let times: Vec<u64> = found.events.iter().map(|event| event.time_ns).collect();
        (times, found.shared_with.clone())
    };
    let (first, shared) = of(0);
    assert!(first.contains(&8) && first.iter().all(|ns| *ns <= 11), "{first:?}");
    assert!(shared.is_empty(), "{shared:?}");
    assert!(of(1).0.contains(&17) && of(1).1.is_empty(), "{:?}", of(1));
}
