//! Real output of each program, from one and the same run of `golden/net.c`: a client and a server in
//! two threads, three questions, then a pipe from a child that exits with 3.

mod common;

use common::{golden, made, made_of};
use fettle_import::{Error, Format, Place, ctf};

#[test]
fn strace() {
    let made = made(&[golden("net.strace")]).unwrap();
    assert_eq!(made.imported.formats, [Format::Strace]);
    assert_eq!(made.imported.manifest.losses, []);
    // Both ends name the connection alike: `cpu, pid, tid, socket, local, remote, bytes`.
    let ends = |kind| -> Vec<(String, String, String)> {
        let rows = made.events(kind).into_iter();
        rows.map(|row| (row[4].clone(), row[5].clone(), row[6].clone())).collect()
    };
    let (sent, received) = (ends("sent"), ends("received"));
    assert_eq!((sent.len(), received.len()), (6, 6));
    for (local, remote, bytes) in &sent {
        let other_end = (remote.clone(), local.clone(), bytes.clone());
        assert!(received.contains(&other_end), "{other_end:?}");
    }
    assert!(sent.iter().any(|(local, ..)| local == "127.0.0.1:18998"));
    let exits = made.events("process_exit");
    assert_eq!(exits.iter().map(|row| row[3].as_str()).collect::<Vec<_>>(), ["3", "0"]);
    // A thread, which is of its parent's process, and a process.
    let forks = made.events("fork");
    assert_eq!(forks.len(), 2);
    assert!(forks[0][1] == forks[0][3] && forks[1][3] == forks[1][4], "{forks:?}");
    // The child's end of the pipe is its parent's.
    assert_eq!(made.events("pipe_write")[0][3], made.events("pipe_read")[0][3]);
    let rows = made.rows();
    assert_eq!((rows["accept"], rows["connect"], rows["socket_close"]), (1, 1, 3));
    let files = made.events("open");
    assert_eq!(files.iter().filter(|row| row[4] == "/etc/hostname" && row[6] == "file").count(), 3);
    assert!(made.events("syscall").iter().any(|row| row[3] == "setsockopt"));
}

/// With `-xx` each byte of texts, paths and names is hexadecimal; what becomes of it is the same.
#[test]
fn strace_in_hexadecimal() {
    let text = std::fs::read_to_string(golden("net.strace")).unwrap();
    let mut hidden = String::new();
    let (mut quoted, mut named) = (false, false);
    let mut input = text.chars().peekable();
    while let Some(c) = input.next() {
        let begins = c == '<' && input.peek().is_some_and(|next| "/p".contains(*next));
        match c {
            '"' => quoted = !quoted,
            '<' => named |= begins,
            '>' => named = false,
            // Escapes stay: they are of bytes that are not printable.
            '\\' => {
                hidden.extend([Some(c), input.next()].into_iter().flatten());
                continue;
            }
            _ if quoted || named => {
                hidden.push_str(&format!("\\x{:02x}", u32::from(c)));
                continue;
            }
            _ => {}
        }
        hidden.push(c);
    }
    assert!(hidden.contains("3<\\x2f") && hidden.contains("<\\x70\\x69\\x70\\x65"), "{hidden}");
    let (plain, hidden) =
        (made(&[golden("net.strace")]).unwrap(), made_of(hidden.as_bytes()).unwrap());
    assert_eq!(plain.rows(), hidden.rows());
    for kind in plain.rows().keys().filter(|kind| *kind != "syscall") {
        assert_eq!(plain.events(kind), hidden.events(kind), "{kind}");
    }
}

#[test]
fn what_is_only_looked_at_is_not_received() {
    let at = "5<TCP:[127.0.0.1:1->127.0.0.1:2]>";
    let text = format!(
        "10 1.000001 recvfrom({at}, \"ask\", 9, MSG_PEEK, NULL, NULL) = 3 <0.000010>\n\
         10 1.000102 recvmsg({at}, {{msg_name=NULL}}, MSG_PEEK|MSG_DONTWAIT) = 3 <0.000010>\n\
         10 1.000203 recvfrom({at},  <unfinished ...>\n\
         11 1.000204 getpid() = 10 <0.000001>\n\
         10 1.000205 <... recvfrom resumed>\"ask\", 9, MSG_PEEK, NULL, NULL) = 3 <0.000010>\n\
         10 1.000306 recvfrom({at}, \"MSG_PEEK\", 9, 0, NULL, NULL) = 8 <0.000010>\n"
    );
    let made = made_of(text.as_bytes()).unwrap();
    let bytes: Vec<String> = made.events("received").iter().map(|row| row[6].clone()).collect();
    assert_eq!(bytes, ["-11", "-11", "-11", "8"]);
}

/// Times that are relative to the line before, or without a day.
#[test]
fn times_of_strace_that_do_not_say_when_are_refused() {
    let refused = |text: &str| made_of(text.as_bytes()).err().expect("an error").to_string();
    let first = "execve(\"/bin/true\", [\"true\"], 0x7ffc /* 9 vars */) = 0\n";
    for line in [format!("10      0.000000 {first}"), format!("     0.000000 {first}")] {
        let error = refused(&line);
        assert!(error.contains("line 1: ") && error.contains("use -ttt"), "{error}");
    }
    // Without its beginning.
    let error =
        refused("10 0.000019 getpid() = 10\n10 0.5 getpid() = 10\n10 0.000018 close(1) = 0\n");
    assert!(error.contains("line 3: ") && error.contains("use -ttt"), "{error}");
    for line in [format!("12:34:56.000019 {first}"), format!("10 12:34:56 {first}")] {
        let error = refused(&line);
        assert!(error.contains("use -ttt") && !error.contains('\n'), "{error}");
    }
    // A clock that was set back is no such thing.
    let set_back = "10 1700000000.500000 getpid() = 10\n10 1700000000.400000 getpid() = 10\n";
    assert!(made_of(set_back.as_bytes()).is_ok());
}

/// An hour back, in the middle: nothing is at the trace's beginning for it, calls last as long as they do.
#[test]
fn when_the_clock_of_strace_is_set_back_time_goes_on() {
    let mut text = String::new();
    for (at, fd) in [("1700003600.1", 3), ("1700003600.3", 4), ("1700000000.4", 5)] {
        text += &format!(
            "10 {at}00000 openat(AT_FDCWD, \"/{fd}\", O_RDONLY) = {fd}</{fd}> <0.020000>\n"
        );
        text += &format!("10 {at}50000 close({fd}</{fd}>) = 0 <0.000010>\n");
    }
    let made = made_of(text.as_bytes()).unwrap();
    assert!(made.imported.manifest.losses.is_empty(), "{:?}", made.imported.manifest.losses);
    let notes = &made.imported.manifest.notes;
    assert!(notes.iter().any(|note| note.contains("the clock was set back")), "{notes:?}");
    let mut times = Vec::new();
    let (mut stream, _) =
        made.trace.events(&mut |kind| (kind.name == "close").then(Vec::new)).unwrap();
    while let Some(run) = stream.next(u64::MAX, &mut |_| 0).unwrap() {
        times.extend(run.times_ns().iter().map(|ns| ns / 1_000_000));
    }
    // The third file is opened when the second is closed, by the clock.
    assert_eq!(times, [50, 250, 300]);
}

/// What ftrace, perf and trace-cmd recorded of a run.
fn of_the_kernel(name: &str, format: Format) -> common::Made {
    let made = made(&[golden(name)]).unwrap();
    assert_eq!(made.imported.formats, [format]);
    let rows = made.rows();
    for kind in ["switch_in", "switch_out", "received", "sent", "accept", "fork", "thread_exit"] {
        assert!(rows.contains_key(kind), "{name}: no {kind} in {rows:?}");
    }
    assert_eq!((rows["sent"], rows["accept"]), (6, 1), "{name}");
    // A thread that works for the process is of the process.
    let sent = made.events("sent");
    let mut processes: Vec<&str> = sent.iter().map(|row| row[1].as_str()).collect();
    processes.dedup();
    assert_eq!(processes.len(), 1, "{name}: {sent:?}");
    made
}

#[test]
fn ftrace() {
    let made = of_the_kernel("net.ftrace", Format::Events);
    assert_eq!(made.events("received").iter().filter(|row| row[6] == "3").count(), 3);
}

#[test]
fn perf() {
    let made = of_the_kernel("net.perf", Format::Events);
    let samples = made.events("sample");
    assert!(samples.iter().any(|row| row[8].contains(';')), "{samples:?}");
}

#[test]
fn trace_cmd() {
    let made = of_the_kernel("net.dat", Format::TraceDat);
    // Nearly all of a processor's last pages is there.
    assert!(made.imported.manifest.events.rows() > 200);
}

#[test]
fn lttng() {
    let made = made(&[golden("ctf")]).unwrap();
    assert_eq!(made.imported.formats, [Format::Ctf]);
    assert_eq!(made.rows(), [("shop_named".into(), 40), ("shop_order".into(), 40)].into());
    // `cpu, pid, tid, id, price, kind`
    for (n, row) in made.events("shop_order").into_iter().enumerate() {
        assert_eq!(row[3..], [n.to_string(), (n * 1000).to_string(), (n % 7).to_string()]);
    }
    let named = made.events("shop_named");
    assert_eq!(named[4][3..], ["4".to_owned(), "beta".to_owned(), "2".to_owned()]);
    assert_eq!(made.trace.threads().unwrap()[0].name, "ust");
    // It has wall-clock time.
    assert!(made.imported.manifest.start_time.starts_with("20"));
}

/// The events of a trace, file by file.
fn reported(folder: &std::path::Path) -> Vec<String> {
    let trace = std::rc::Rc::new(ctf::Trace::open(folder).unwrap());
    let mut reported = Vec::new();
    for file in trace.files() {
        let mut stream = trace.stream(file).unwrap();
        while let Some(event) = stream.next().unwrap() {
            let mut line = format!("{} {} {}", event.time_ns, event.cpu, event.plan.name);
            for (n, column) in event.plan.columns.iter().enumerate() {
                let mut scratch = String::new();
                line += &format!(" {}={}", column.name, ctf::show(&event, column, n, &mut scratch));
            }
            reported.push(line);
        }
    }
    reported
}

/// Both versions of the format have the same packets: `ctf2.metadata` says in CTF 2's language, as its
/// document has it, what LTTng's metadata said of them.
#[test]
fn lttng_by_metadata_of_ctf_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden("ctf2.metadata"), folder.path().join("metadata")).unwrap();
    for name in ["channel0_0", "channel0_1"] {
        std::fs::copy(golden("ctf").join(name), folder.path().join(name)).unwrap();
    }
    let events = reported(folder.path());
    assert_eq!(events.len(), 80);
    assert!(events.iter().any(|event| event.ends_with(" name=beta weight=2")), "{events:?}");
    assert_eq!(events, reported(&golden("ctf")));

    let made = made(&[folder.path().to_owned()]).unwrap();
    assert_eq!(made.imported.formats, [Format::Ctf]);
    assert_eq!(made.imported.manifest.losses, []);
    assert_eq!(made.rows(), [("shop_named".into(), 40), ("shop_order".into(), 40)].into());
    assert_eq!(made.events("shop_named")[4][3..], ["4", "beta", "2"].map(str::to_owned));
    assert_eq!(made.trace.threads().unwrap()[0].name, "ust");
}

#[test]
fn spans() {
    let otlp = br#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
        "scopeSpans":[{"spans":[
        {"traceId":"t","spanId":"2","parentSpanId":"1","name":"query","startTimeUnixNano":"1700000000000000200","endTimeUnixNano":"1700000000000000300","status":{"code":2}},
        {"traceId":"t","spanId":"1","name":"GET","startTimeUnixNano":"1700000000000000100","endTimeUnixNano":"1700000000000000400","attributes":[{"key":"thread.id","value":{"intValue":"7"}}]},
        {"traceId":"t","spanId":"3"}]}]}]}"#;
    let made = made_of(otlp).unwrap();
    assert_eq!(made.imported.formats, [Format::Otlp]);
    let begun = made.events("span_begin");
    assert_eq!(begun[0][3..8], ["t", "1", "", "shop", "GET"].map(str::to_owned));
    // The process has no number, so it gets one.
    assert_eq!((&*begun[0][1], &*begun[0][2], &*begun[1][2], &*begun[1][5]), ("1", "7", "1", "1"));
    assert_eq!(made.events("span_end")[0][5..], ["error", "shop", "100"].map(str::to_owned));
    assert_eq!(made.imported.manifest.losses[0].count, 1);

    let jaeger = br#"{"data":[{"traceID":"t","spans":[{"traceID":"t","spanID":"1","operationName":"GET","references":[],"startTime":1700000000000000,"duration":5,"tags":[{"key":"error","value":true}],"processID":"p1"}],"processes":{"p1":{"serviceName":"shop","tags":[{"key":"pid","value":9}]}}}]}"#;
    let made = made_of(jaeger).unwrap();
    assert_eq!(made.imported.formats, [Format::Jaeger]);
    assert_eq!(
        made.events("span_end")[0][1..],
        ["9", "9", "t", "1", "error", "shop", "5000"].map(str::to_owned)
    );

    let chrome = br#"{"traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"main"}},
        {"ph":"X","name":"outer","pid":1,"tid":2,"ts":10,"dur":5.5},{"ph":"X","name":"inner","pid":1,"tid":2,"ts":10,"dur":2},
        {"ph":"X","name":"none","pid":1,"tid":2,"ts":12,"dur":0},{"ph":"i","name":"mark","pid":1,"tid":2,"ts":11},
        {"ph":"E","pid":1,"tid":3,"ts":11},{"ph":"X","name":"cut"#;
    let made = made_of(chrome).unwrap();
    let calls = made.events("call");
    let shown: Vec<String> = calls.iter().map(|row| format!("{}{}", row[3], row[4])).collect();
    assert_eq!(shown, ["outer0", "inner1", "none1"]);
    assert_eq!((made.rows()["call_end"], made.rows()["instant"]), (3, 1));
    let losses = &made.imported.manifest.losses;
    assert_eq!(losses.iter().map(|loss| loss.count).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn spans_of_zipkin() {
    let spans = r#"{"traceId":"t","id":"1","kind":"SERVER","name":"get /cart","timestamp":1770000000000000,"duration":31000,"localEndpoint":{"serviceName":"web"}},
        {"traceId":"t","parentId":"1","id":"2","kind":"CLIENT","name":"select","timestamp":1770000000004000,"duration":9000,"localEndpoint":{"serviceName":"web"},"tags":{"error":"no row"}},
        {"traceId":"t","id":"3","timestamp":1770000000004000}"#;
    let made = made_of(format!("[{spans}]").as_bytes()).unwrap();
    assert_eq!(made.imported.formats, [Format::Zipkin]);
    let begun = made.events("span_begin");
    assert_eq!(begun[1][3..9], ["t", "2", "1", "web", "select", "error=no row"].map(str::to_owned));
    assert_eq!(made.events("span_end")[0][5..], ["error", "web", "9000000"].map(str::to_owned));
    let losses = &made.imported.manifest.losses;
    assert_eq!((losses.len(), losses[0].count), (1, 1));
    // A list without its bracket was cut off: Zipkin's end with one.
    let made = made_of(format!("[{spans}").as_bytes()).unwrap();
    assert!(made.imported.manifest.losses[1].reason.contains("cut off"));
}

#[test]
fn spans_of_consoles() {
    let begun = |name: &str| {
        let made = made(&[golden(name)]).unwrap();
        assert_eq!(made.imported.formats, [Format::Console], "{name}");
        // Where the server began to listen, if it says so.
        let lost: Vec<u64> = made.imported.manifest.losses.iter().map(|loss| loss.count).collect();
        let ends = made.events("span_end");
        assert_eq!((ends[0][5].as_str(), ends[1][5].as_str()), ("error", ""), "{name}");
        (made.events("span_begin"), lost)
    };
    for (name, attributes, lost) in [
        ("console.python", "http.method=GET, n=3", &[1][..]),
        ("console.node", "http.method=GET, list=[\"a\",\"b\"], many=[0,", &[1]),
        ("console.go", "http.method=GET, l=[\"a\"], n=3", &[]),
    ] {
        let (spans, losses) = begun(name);
        assert_eq!(losses, lost, "{name}");
        let [outer, inner] = &spans[..] else { panic!("{name}: {spans:?}") };
        assert_eq!((&outer[3], &outer[4], outer[5].as_str()), (&inner[3], &inner[5], ""), "{name}");
        assert_eq!((outer[6].as_str(), outer[7].as_str()), ("shop", "GET /cart"), "{name}");
        assert!(outer[8].starts_with(attributes), "{name}: {}", outer[8]);
        assert!(inner[7].starts_with("query"), "{name}");
    }
}

/// Chrome's own lists may lack their end, as those of a program that was killed do.
#[test]
fn a_list_of_chrome_needs_no_bracket() {
    let event = |name: &str, ts: u64| {
        format!("{{\"name\":\"{name}\",\"ph\":\"X\",\"ts\":{ts},\"dur\":2,\"pid\":1,\"tid\":1}}")
    };
    let both = [event("f", 1), event("g", 5)].join(",\n");
    for rest in ["", ",\n", ",{}]", "]"] {
        let made = made_of(format!("[\n{both}{rest}").as_bytes()).unwrap();
        assert_eq!((made.rows()["call"], &*made.imported.manifest.losses), (2, &[][..]), "{rest}");
    }
    let made = made_of(format!("[\n{both},{{\"name\"").as_bytes()).unwrap();
    assert_eq!((made.rows()["call"], made.imported.manifest.losses[0].count), (2, 1));
}

#[test]
fn calls_that_began_before_strace_s_file_are_no_foreign_lines() {
    let text = "7 1770331448.000000 <... futex resumed>) = 0 <0.5>\n\
                7 1770331448.010000 close(3) = 0 <0.000010>\n\
                7 1770331448.020000 <... read resumed>\"\", 8) = 0 <0.1>\n\
                8 1770331448.030000 <... clone resumed>) = 0 <0.1>\n";
    let made = made_of(text.as_bytes()).unwrap();
    let losses = &made.imported.manifest.losses;
    assert_eq!((losses.len(), losses[0].count), (1, 1), "{losses:?}");
    assert!(losses[0].reason.contains("beginnings are not in the file"), "{losses:?}");
    let notes = &made.imported.manifest.notes;
    assert!(notes.iter().any(|note| note.ends_with("are not in the trace: 2")), "{notes:?}");
}

#[test]
fn what_is_cut_off_is_kept_as_far_as_it_goes() {
    let whole = std::fs::read(golden("net.strace")).unwrap();
    let made = made_of(&whole[..whole.len() / 2]).unwrap();
    assert!(made.imported.manifest.events.rows() > 20);
    let reasons: Vec<&str> =
        made.imported.manifest.losses.iter().map(|loss| loss.reason.as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("cut off")), "{reasons:?}");
    // A file of CTF: the packet is longer than what is left of it.
    let folder = tempfile::tempdir().unwrap();
    let name = ["channel0_0", "channel0_1"]
        .into_iter()
        .max_by_key(|name| used(&std::fs::read(golden("ctf").join(name)).unwrap()))
        .unwrap();
    std::fs::copy(golden("ctf/metadata"), folder.path().join("metadata")).unwrap();
    let stream = std::fs::read(golden("ctf").join(name)).unwrap();
    std::fs::write(folder.path().join(name), &stream[..used(&stream) / 2]).unwrap();
    let made = common::made(&[folder.path().to_owned()]).unwrap();
    let rows = made.imported.manifest.events.rows();
    assert!((20..80).contains(&rows), "{rows}");
    assert_eq!(made.imported.manifest.losses[0].count, 1);
}

#[test]
fn spans_whose_times_do_not_fit_are_counted() {
    let chrome = |ts: &str| {
        format!("{{\"name\":\"f\",\"ph\":\"X\",\"ts\":{ts},\"dur\":2,\"pid\":1,\"tid\":1}}")
    };
    let events = |events: &[String]| format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let some = made_of(events(&[chrome("1e300"), chrome("5")]).as_bytes()).unwrap();
    let losses = &some.imported.manifest.losses;
    assert_eq!((losses.len(), losses[0].count), (1, 1));
    assert!(losses[0].reason.contains("times do not fit"), "{losses:?}");

    let otlp = "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"f\",\
        \"startTimeUnixNano\":99999999999999999999999,\"endTimeUnixNano\":5}]}]}]}";
    let jaeger = "{\"data\":[{\"traceID\":\"1\",\"spans\":[{\"spanID\":\"1\",\"operationName\":\"f\",\
        \"startTime\":18446744073709551615,\"duration\":1}]}]}";
    for none in [&*events(&[chrome("1e300")]), otlp, jaeger] {
        let error = made_of(none.as_bytes()).err().expect("an error").to_string();
        assert!(error.contains("has no events") && error.contains(": 1 "), "{error}");
        assert!(error.contains("times do not fit"), "{error}");
    }
}

/// Bytes before the zeros at the end.
fn used(bytes: &[u8]) -> usize {
    bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

#[test]
fn what_is_wrong_is_reported_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["metadata", "channel0_0", "channel0_1"] {
        std::fs::copy(golden("ctf").join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("channel0_0");
    let mut stream = std::fs::read(&path).unwrap();
    stream[0] ^= 1;
    std::fs::write(&path, stream).unwrap();
    let error = made(&[folder.path().to_owned()]).err().expect("an error");
    assert!(matches!(&error, Error::Malformed { place: Place::Byte(0), .. }), "{error}");
    for text in ["", "hello\n", "{\"a\":1}", "PERFILE2xxxx"] {
        let error = made_of(text.as_bytes()).err().expect("an error");
        assert!(matches!(error, Error::Unknown { .. }), "{text}: {error}");
    }
}
