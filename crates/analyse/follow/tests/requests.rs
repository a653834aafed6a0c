//! From a trace to its requests, against what is known of them.

mod shop;

use fettle_follow::{Cell, Session, choose, diff};
use fettle_requests::{Source, shipped};
use fettle_trace::{EventField, EventWriter, FieldType, Finish, Manifest, Trace, TraceWriter};

#[test]
fn every_request_of_a_shop_is_found_with_its_path_and_its_time() {
    for clients in [1, 16, 64] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("shop.fettle");
        let truths = shop::write(&folder, clients, 500);
        let trace = Trace::open(&folder).unwrap();
        let choice = choose(&trace).unwrap();
        let session = Session::open(&trace, &choice.sources, &shipped).unwrap();
        let rows = session.list().unwrap();
        assert_eq!(rows.len(), truths.len(), "{clients} clients");
        for (row, truth) in rows.iter().zip(&truths) {
            assert_eq!(row.path, ["nginx", "python3", "redis-server"]);
            assert_eq!((row.begin_ns, row.shared_with), (truth.begin_ns, 0));
            assert!(row.end_ns >= truth.end_ns, "{row:?} {truth:?}");
            assert!(!truth.slow || row.times_ns.disk >= 20_000_000, "{row:?}");
            assert!(truth.slow || row.times_ns.disk == 0, "{row:?}");
        }
        // Replies leave the recorded machine. Only the last question on a connection is open still.
        let open = rows.iter().filter(|row| row.outcome != "drained").count();
        assert!(open as u64 <= clients, "{open}");
    }
}

#[test]
fn the_summary_agrees_with_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 8, 400);
    let trace = Trace::open(&folder).unwrap();
    let session = Session::open(&trace, &choose(&trace).unwrap().sources, &shipped).unwrap();
    let rows = session.list().unwrap();
    let summary = session.summary(7).unwrap();
    assert!(summary.problems.is_empty(), "{:?}", summary.problems);
    let schema = &summary.schemas[0];
    assert_eq!(schema.requests, 400);
    let mut took: Vec<u64> = rows.iter().map(|row| row.response_ns).collect();
    took.sort_unstable_by(|a, b| b.cmp(a));
    let slowest: Vec<u64> = schema.slowest.iter().map(|slow| slow.request.response_ns).collect();
    assert_eq!(slowest, took[..7]);
    assert_eq!((schema.response_ns.max, schema.response_ns.min), (took[0], took[399]));
    assert!(rows.iter().all(|row| row.answered_ns == Some(row.begin_ns + row.response_ns)));
    let of_classes: u64 = schema.classes.iter().map(|class| class.requests).sum();
    assert_eq!(of_classes, 400);
    for slow in &schema.slowest {
        // Steps follow one another.
        assert!(slow.critical.windows(2).all(|steps| steps[0].to_ns == steps[1].from_ns));
        assert!(!slow.critical.is_empty());
    }
}

#[test]
fn one_request_has_all_of_its_events_with_their_fields() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 4, 50);
    let trace = Trace::open(&folder).unwrap();
    let session = Session::open(&trace, &choose(&trace).unwrap().sources, &shipped).unwrap();
    let row = session.list().unwrap().remove(20);
    let detail = session.request(0, row.id).unwrap().unwrap();
    assert_eq!(detail.request, row);
    assert_eq!(detail.events.len() as u64, row.events);
    assert!(detail.events.is_sorted_by_key(|event| event.time_ns));
    let transfers = detail.events.iter().filter(|event| event.name == "sent");
    let bytes: Vec<&str> = transfers
        .map(|event| event.fields.iter().find(|(name, _)| name == "bytes").unwrap().1.as_str())
        .collect();
    assert_eq!(bytes, ["200"; 5]);
    let first = &detail.events[0];
    assert_eq!(first.name, "received");
    assert!(first.fields.contains(&("local".into(), "10.0.0.1:80".into())), "{first:?}");
    assert!(session.request(0, 99_999).unwrap().is_none());
}

#[test]
fn events_that_do_not_fit_a_schema_are_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 2, 10);
    let trace = Trace::open(&folder).unwrap();
    let schema = "event received(tid: u32, flavour: u32)
                  event sent(tid: u8)
                  timeline thread(tid: u32)
                  on received { start thread(tid) seed }
                  on sent { stop thread(tid) }";
    let sources = [Source::new("mine", schema)];
    let session = Session::open(&trace, &sources, &shipped).unwrap();
    let summary = session.summary(1).unwrap();
    assert_eq!(summary.schemas[0].requests, 0);
    let problems = summary.problems.join("\n");
    assert!(problems.contains("`received` is left out") && problems.contains("`flavour`"));
    assert!(problems.contains("`tid` is u32 in the trace and u8 in the schema"), "{problems}");
}

/// Wake-ups are shown by processes: a thread is known from its creation on, whatever it does. An
/// interrupt is not the work of the thread that it interrupts.
#[test]
fn who_wakes_whom_has_names() {
    use FieldType::{Bool, Text, U32};
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("wakes.fettle");
    let writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(&folder).unwrap();
    let mut kind = |name: &str, fields: &[(&str, FieldType)]| {
        let fields: Vec<_> = fields.iter().map(|(name, ty)| EventField::new(*name, *ty)).collect();
        events.kind(name, &fields).unwrap()
    };
    let who = ("pid", U32);
    let exec = kind("exec", &[who, ("tid", U32), ("path", Text)]);
    let fork = kind("fork", &[who, ("tid", U32), ("child_pid", U32), ("child_tid", U32)]);
    let wakeup = kind("wakeup", &[("tid", U32), ("target", U32), ("interrupt", Bool)]);
    let path = u64::from(events.text("/usr/bin/pool"));
    events.push(exec, 10, 0, &[7, 7, path]).unwrap();
    events.push(fork, 20, 0, &[7, 7, 7, 8]).unwrap();
    for (at_ns, values) in [(30, [7, 8, 0]), (40, [8, 7, 0]), (50, [99, 8, 1])] {
        events.push(wakeup, at_ns, 0, &values).unwrap();
    }
    let finish = Finish { events: events.finish(Vec::new()).unwrap(), ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    let trace = Trace::open(&folder).unwrap();
    let session = Session::open(&trace, &[Source::new("none", "")], &shipped).unwrap();
    let found = session.analyse("communication").unwrap().unwrap().found;
    let rows: Vec<_> = found.tables[0].rows.iter().map(|row| (&row[0], &row[2])).collect();
    let row = |n, text: &str| (Cell::Number(n), Cell::Text(text.into()));
    let expected = [row(2, "pool/7 → pool/7"), row(1, "an interrupt → pool/7")];
    assert_eq!(rows, expected.iter().map(|(n, text)| (n, text)).collect::<Vec<_>>());
}

/// A trace of messages: what is asked in it by which protocols, and whether that was sent.
fn asked(folder: &std::path::Path, asks: &[(&str, bool)]) -> Trace {
    use FieldType::{Bool, I64, Text, U32, U64};
    let writer = TraceWriter::create(folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let ends = [("pid", U32), ("tid", U32), ("socket", U64), ("local", Text), ("remote", Text)];
    let fields = |more: &[(&str, FieldType)]| -> Vec<_> {
        let all = ends.iter().chain(more);
        all.map(|(name, ty)| EventField::new(*name, *ty)).collect()
    };
    let bytes = fields(&[("bytes", I64)]);
    let kinds = ["received", "sent"].map(|name| events.kind(name, &bytes).unwrap());
    let said = [("sent", Bool), ("protocol", Text), ("exchange", U64), ("command", Text)];
    let ask = events.kind("ask", &fields(&[&said[..], &[("detail", Text)]].concat())).unwrap();
    let uring = [("fd", FieldType::I32), ("result", I64)];
    let uring = [("pid", U32), ("tid", U32)].iter().chain(&uring);
    let uring: Vec<_> = uring.map(|(name, ty)| EventField::new(*name, *ty)).collect();
    let uring = events.kind("io_uring", &uring).unwrap();
    let [here, there] = ["here:1", "there:2"].map(|name| u64::from(events.text(name)));
    for (at_ns, (protocol, sent)) in (1..).zip(asks) {
        for kind in kinds {
            events.push(kind, at_ns, 0, &[7, 7, 1, here, there, 9]).unwrap();
        }
        let protocol = u64::from(events.text(protocol));
        let values = [7, 7, 1, here, there, u64::from(*sent), protocol, at_ns, here, here];
        events.push(ask, at_ns, 0, &values).unwrap();
        events.push(uring, at_ns, 0, &[7, 7, 5, 1]).unwrap();
    }
    let finish = Finish { events: events.finish(Vec::new()).unwrap(), ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    Trace::open(folder).unwrap()
}

/// Where one connection carries many questions at once, a schema that follows bytes takes them for one.
#[test]
fn what_servers_are_asked_chooses_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let (asked_grpc, other): (&[_], &[_]) = (
        &[("grpc", false), ("grpc", false), ("redis", true)],
        &[("grpc", false), ("redis", false)],
    );
    let chosen = |name: &str, asks| {
        let choice = choose(&asked(&dir.path().join(name), asks)).unwrap();
        (choice.sources[0].name.clone(), choice.reason)
    };
    assert_eq!(chosen("grpc.fettle", asked_grpc).0, "grpc");
    assert_eq!(chosen("http2.fettle", &[("http2", false)]).0, "http2");
    let (name, reason) = chosen("other.fettle", other);
    assert_eq!(name, "sockets");
    assert!(reason.contains("`messages` tells what servers are asked"), "{reason}");
}

/// What goes through `io_uring` is not seen, which is said where it is missed.
#[test]
fn calls_of_io_uring_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let trace = asked(&dir.path().join("uring.fettle"), &[("redis", false), ("redis", false)]);
    let sources = choose(&trace).unwrap().sources;
    let summary = Session::open(&trace, &sources, &shipped).unwrap().summary(1).unwrap();
    let reported = summary.counts.iter().find(|count| count.name == "io_uring");
    assert_eq!(reported.map(|count| count.count), Some(2));
}

/// With a side that has no requests there is nothing to compare, which is said.
#[test]
fn a_side_without_requests_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let traces = ["before", "after"].map(|name| asked(&dir.path().join(name), &[("redis", false)]));
    let sources = [Source::new("calls", shipped("calls").unwrap())];
    let [before, after] = &traces;
    let open = |trace| Session::open(trace, &sources, &shipped).unwrap();
    let diff = diff(&open(before), &open(after)).unwrap();
    let says = |side: &str| format!("{side}: no request is in it by the schema calls");
    assert_eq!(diff.problems, [says("before"), says("after")]);
}

/// The sender to a socket that is not connected is not known, which is said. The kernel's own sockets
/// are of no process.
#[test]
fn messages_of_nobody_known_are_counted() {
    use FieldType::{I64, Text, U32, U64};
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("datagrams.fettle");
    let writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(&folder).unwrap();
    let fields = [
        ("pid", U32),
        ("tid", U32),
        ("socket", U64),
        ("local", Text),
        ("remote", Text),
        ("bytes", I64),
    ];
    let fields = fields.map(|(name, ty)| EventField::new(name, ty));
    let received = events.kind("received", &fields).unwrap();
    let names = ["0.0.0.0:53", "", "socket:9", "127.0.0.1:53", "127.0.0.1:4000"];
    let [server, nobody, netlink, one, other] = names.map(|name| u64::from(events.text(name)));
    let none = -11i64 as u64;
    let ends =
        [(server, nobody, 30), (server, nobody, none), (netlink, nobody, 30), (one, other, 30)];
    for (at_ns, (local, remote, bytes)) in (1..).zip(ends) {
        events.push(received, at_ns, 0, &[7, 7, at_ns, local, remote, bytes]).unwrap();
    }
    let finish = Finish { events: events.finish(Vec::new()).unwrap(), ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    let trace = Trace::open(&folder).unwrap();
    let sources = [Source::new("mine", "use sockets")];
    let summary = Session::open(&trace, &sources, &shipped).unwrap().summary(1).unwrap();
    let reported: Vec<_> = summary.counts.iter().map(|count| (count.name, count.count)).collect();
    assert_eq!(reported, [("unconnected", 1)]);
}

/// Connections whose messages were not recorded, and answers that were not found, are reported where a
/// schema follows messages: once, though both ends of a connection report it.
#[test]
fn messages_that_were_not_reported_are_counted_where_a_schema_follows_them() {
    use FieldType::{Bool, Text, U32, U64};
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cut.fettle");
    let writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(&folder).unwrap();
    let ends = [("pid", U32), ("tid", U32), ("socket", U64), ("local", Text), ("remote", Text)];
    let with = |more: &[(&str, FieldType)]| {
        let fields = ends.iter().chain(more);
        fields.map(|(name, ty)| EventField::new(*name, *ty)).collect::<Vec<_>>()
    };
    let undecoded = events.kind("undecoded", &with(&[("reason", Text)])).unwrap();
    let answer = [("sent", Bool), ("protocol", Text), ("exchange", U64), ("ok", Bool)];
    let answer =
        events.kind("answer", &with(&[&answer[..], &[("status", Text)]].concat())).unwrap();
    let names = ["server:80", "a:1", "b:2", "of which bytes are missing that matter"];
    let [server, a, b, cut] = names.map(|name| u64::from(events.text(name)));
    let names = ["that is encrypted", "not seen", "200", "http2"];
    let [tls, unseen, good, http2] = names.map(|name| u64::from(events.text(name)));
    let given_up = [(server, a, cut), (a, server, cut), (server, b, cut), (b, server, tls)];
    for (at_ns, (local, remote, reason)) in (1..).zip(given_up) {
        events.push(undecoded, at_ns, 0, &[7, 7, at_ns, local, remote, reason]).unwrap();
    }
    for (at_ns, status) in (11..).zip([unseen, good, unseen]) {
        events.push(answer, at_ns, 0, &[7, 7, 1, server, a, 1, http2, at_ns, 0, status]).unwrap();
    }
    let finish = Finish { events: events.finish(Vec::new()).unwrap(), ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    let trace = Trace::open(&folder).unwrap();
    let reported = |schema: &str| {
        let sources = [Source::new("mine", format!("use {schema}"))];
        let summary = Session::open(&trace, &sources, &shipped).unwrap().summary(1).unwrap();
        summary.counts.iter().map(|count| (count.name, count.count)).collect::<Vec<_>>()
    };
    let expected = [("unseen", 2), ("undecoded_cut", 2), ("undecoded_tls", 1)];
    assert_eq!(reported("http2"), expected);
    assert_eq!(reported("sockets"), []);
}

/// A queue whose items lie there while no worker has them, and a worker that takes each for a while.
const QUEUE: &str = r#"
event push(item: u64)
event take(tid: u32, item: u64)
event finish(tid: u32, item: u64)
timeline item(item: u64)
actor thread(tid: u32)
on push { start item(item) seed "item" }
on take { basic item(item) start thread(tid) is running }
on finish { basic item(item) stop thread(tid) end }
"#;

/// Items that lie in the queue for so long each, and are worked on for 10 ns then.
fn queue(folder: &std::path::Path, lies_ns: &[u64]) -> Trace {
    use FieldType::{U32, U64};
    let writer = TraceWriter::create(folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let item = EventField::new("item", U64);
    let push = events.kind("push", std::slice::from_ref(&item)).unwrap();
    let who = [EventField::new("tid", U32), item];
    let [take, done] = ["take", "finish"].map(|name| events.kind(name, &who).unwrap());
    let mut at_ns = 1000;
    for (n, lies_ns) in (1..).zip(lies_ns) {
        events.push(push, at_ns, 0, &[n]).unwrap();
        events.push(take, at_ns + lies_ns, 0, &[7, n]).unwrap();
        events.push(done, at_ns + lies_ns + 10, 0, &[7, n]).unwrap();
        at_ns += lies_ns + 1000;
    }
    let finish = Finish { events: events.finish(Vec::new()).unwrap(), ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    Trace::open(folder).unwrap()
}

#[test]
fn time_in_which_nobody_works_is_reported_and_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let before = queue(&dir.path().join("before.fettle"), &[90, 90]);
    let after = queue(&dir.path().join("after.fettle"), &[190, 390]);
    let sources = [Source::new("queue", QUEUE)];
    let session = |trace| Session::open(trace, &sources, &shipped).unwrap();
    let (before, after) = (session(&before), session(&after));
    let diff = diff(&before, &after).unwrap();
    for group in diff.groups.iter().filter(|group| !group.title.starts_with("classes")) {
        let rows = group.rows.iter();
        let rows: Vec<_> =
            rows.map(|r| (r.name.as_str(), r.before.mean_ns, r.after.mean_ns)).collect();
        assert_eq!(rows[0], ("nobody that is recorded", 90.0, 290.0), "{}", group.title);
        let sums = rows.iter().fold((0.0, 0.0), |(a, b), row| (a + row.1, b + row.2));
        assert_eq!(sums, (100.0, 300.0), "{}", group.title);
    }
    assert_eq!(diff.groups.len(), 4, "{:?}", diff.groups);
}

#[test]
fn the_slow_may_be_those_whom_nobody_works_for() {
    let dir = tempfile::tempdir().unwrap();
    let lies_ns: Vec<u64> = (0..30).map(|n| if n == 3 { 5090 } else { 90 }).collect();
    let trace = queue(&dir.path().join("queue.fettle"), &lies_ns);
    let session = Session::open(&trace, &[Source::new("queue", QUEUE)], &shipped).unwrap();
    let found = session.analyse("outliers").unwrap().unwrap().found;
    let row = &found.tables[0].rows[1];
    let expected = [Cell::Number(5090), Cell::Number(90), Cell::Share(1.0)];
    assert_eq!(row[..3], expected, "{:?}", found.tables[0].rows);
    assert_eq!(row[3], Cell::Text("nobody that is recorded".into()));
}
