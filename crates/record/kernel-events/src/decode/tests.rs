//! Records as the kernel's programs write them, and the events they become.

use super::*;
use crate::raw::{KIND, NUMBER, TID, word};
use fettle_abi::FieldType;

#[derive(Default)]
struct Lines {
    texts: Vec<String>,
    lines: Vec<String>,
}

impl Sink for Lines {
    type Error = ();

    fn text(&mut self, text: &str) -> u32 {
        self.texts.push(text.to_owned());
        self.texts.len() as u32 - 1
    }

    fn event(&mut self, event: Event, time: u64, cpu: u32, values: &[u64]) -> Result<(), ()> {
        let fields = event.fields();
        assert_eq!(fields.len(), values.len(), "{}", event.name());
        let shown = fields.iter().zip(values).map(|((name, ty), value)| match *ty {
            FieldType::Text => format!("{name}={:?}", self.texts[*value as usize]),
            FieldType::I32 | FieldType::I64 => format!("{name}={}", *value as i64),
            _ => format!("{name}={value}"),
        });
        let shown: Vec<String> = shown.collect();
        self.lines.push(format!("{time} {cpu} {} {}", event.name(), shown.join(" ")));
        Ok(())
    }
}

fn record(kind: Kind, flags: u16, number: i32, words: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; kind.size() as usize];
    let mut put = |at: i16, value: &[u8]| {
        bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
    };
    put(0, &7_u64.to_le_bytes());
    put(TID, &11_u32.to_le_bytes());
    put(TID + 4, &10_u32.to_le_bytes());
    put(KIND, &(kind as u16).to_le_bytes());
    put(KIND + 2, &flags.to_le_bytes());
    put(NUMBER, &number.to_le_bytes());
    for (n, value) in words.iter().enumerate() {
        put(word(n as i16), &value.to_le_bytes());
    }
    bytes
}

fn reported(records: &[Vec<u8>]) -> Vec<String> {
    let (mut decoder, mut lines) = (Decoder::new(), Lines::default());
    for record in records {
        decoder.record(2, record, &mut lines).unwrap();
    }
    assert_eq!(decoder.unreadable, 0);
    lines.lines
}

#[test]
fn sockets() {
    let ports = 8080 << 32 | u64::from(40000_u16.swap_bytes()) << 48 | 1 << 16 | 2;
    let loopback = u64::from(u32::from_le_bytes([127, 0, 0, 1]));
    let v4 = [99, 17, ports, loopback | loopback << 32];
    let mapped = u64::from_le_bytes([0, 0, 0xff, 0xff, 127, 0, 0, 1].map(|b: u8| b));
    let mapped = [0, (mapped & !0xffff_ffff) | 0xffff_0000];
    let v6 = [99, (-11_i64) as u64, ports, mapped[0], mapped[1], 0, 1 << 56];
    assert_eq!(
        reported(&[
            record(Kind::SocketV4, socket::SENT, 5, &v4),
            record(Kind::SocketV6, socket::RECEIVED, 5, &v6),
            record(Kind::SocketOther, socket::CLOSE, -1, &[98, 0, 16]),
        ]),
        [
            "7 2 sent pid=10 tid=11 socket=99 local=\"127.0.0.1:8080\" \
             remote=\"127.0.0.1:40000\" bytes=17",
            "7 2 received pid=10 tid=11 socket=99 local=\"127.0.0.1:8080\" \
             remote=\"[::1]:40000\" bytes=-11 lay_ns=0",
            "7 2 socket_close pid=10 tid=11 socket=98 local=\"socket:98\" remote=\"\"",
        ]
    );
}

/// What goes over a socket of memcached's, with its bytes.
fn says(flags: u16, text: &str) -> [Vec<u8>; 2] {
    let length = text.len() as u64;
    let mut payload = record(Kind::Payload, flags, text.len() as i32, &[98, length]);
    payload.extend_from_slice(text.as_bytes());
    [payload, record(Kind::SocketOther, flags, 5, &[98, length, 1 << 16])]
}

/// Messages and what is around them: names, with the end that answers and how.
fn messages(records: &[Vec<u8>]) -> Vec<String> {
    let short = |line: &String| {
        let name = line.split(' ').nth(2).unwrap();
        let mut shown = name.to_owned();
        for field in [" sent=", " exchange=", " status="] {
            let value = line.split_once(field).map(|(_, rest)| rest.split(['"', ' ']));
            let value = value.and_then(|mut parts| parts.find(|part| !part.is_empty()));
            shown += &value.map(|value| format!(" {value}")).unwrap_or_default();
        }
        shown
    };
    reported(records).iter().map(short).collect()
}

#[test]
fn what_is_asked_is_over_when_nothing_more_is_known() {
    let get = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    // The asking end is out of step: the answer would have come from the other end.
    let records = [says(socket::RECEIVED, get), says(socket::RECEIVED, "?\r\n")].concat();
    let over = ["received", "ask 0 0", "received", "answer 1 0 not"];
    assert_eq!(messages(&records), over);
}

#[test]
fn what_gets_no_answer_is_over_when_its_reader_goes_on() {
    let set = "set a 0 0 1 noreply\r\nx\r\n";
    let nothing = record(Kind::SocketOther, socket::RECEIVED, 5, &[98, -11_i64 as u64, 1 << 16]);
    let poll = record(Kind::Wait, wait::POLL | wait::BEGIN, 0, &[0, 0]);
    let records = [
        &says(socket::RECEIVED, set)[..],
        &[record(Kind::Wait, wait::FUTEX | wait::BEGIN, 0, &[1, 0]), nothing],
        &says(socket::RECEIVED, set),
        &[poll.clone(), poll],
        &says(socket::RECEIVED, &format!("{set}get a\r\n")),
        &says(socket::SENT, "END\r\n"),
    ];
    assert_eq!(
        messages(&records.concat()),
        [
            "received",
            "ask 0 0",
            "futex_wait_begin",
            "answer 1 0 no",
            "received",
            "received",
            "ask 0 1",
            "answer 1 1 no",
            "poll_begin",
            "received",
            "ask 0 2",
            "ask 0 3",
            "answer 1 2 no",
            "sent",
            "answer 1 3 0",
        ]
    );
}

/// The end that asks knows at once that nothing will come.
#[test]
fn what_gets_no_answer_is_over_for_its_sender_when_it_is_sent() {
    let lines = messages(&says(socket::SENT, "delete a noreply\r\n"));
    assert_eq!(lines, ["sent", "ask 1 0", "answer 0 0 no"]);
}

#[test]
fn descriptors_decide_what_a_call_is() {
    let pipe = io::WRITE | 0x1000;
    assert_eq!(
        reported(&[
            record(Kind::Io, 0x8000 | io::BEGIN, 3, &[5, 0]),
            record(Kind::Io, 0x8000, 3, &[5, 4096]),
            record(Kind::Io, pipe, 1, &[6, 10]),
            record(Kind::Io, 0xc000 | io::BEGIN, 4, &[7, 0]),
            record(Kind::Close, 0, 3, &[5, 0x81a4]),
        ]),
        [
            "7 2 read_begin pid=10 tid=11 fd=3 inode=5 of=\"file\"",
            "7 2 read pid=10 tid=11 fd=3 bytes=4096 inode=5 of=\"file\"",
            "7 2 pipe_write pid=10 tid=11 pipe=6 bytes=10",
            "7 2 receive_begin pid=10 tid=11 socket=7",
            "7 2 close pid=10 tid=11 fd=3 inode=5 of=\"file\"",
        ]
    );
}

#[test]
fn a_poll_that_found_nothing_and_has_not_waited_only_looked() {
    let poll = |result| record(Kind::Wait, wait::POLL, 0, &[1, result]);
    let lines = reported(&[
        poll(0),
        record(Kind::Wait, wait::POLL | wait::BEGIN, 0, &[0, 0]),
        poll(0),
        poll(1),
        record(Kind::Wait, wait::POLL, 0, &[0, 1]),
    ]);
    let names: Vec<&str> = lines.iter().filter_map(|l| l.split(' ').nth(2)).collect();
    assert_eq!(names, ["poll_look", "poll_begin", "poll", "poll", "poll_look"]);
}

#[test]
fn a_fault_is_over_when_its_thread_does_something() {
    let lines = reported(&[
        record(Kind::Fault, 0, 0, &[4096]),
        record(Kind::Switch, 2, 0, &[11, 0]),
        record(Kind::Switch, 4, 0, &[0, 11]),
        record(Kind::Switch, 2 | 8, 0, &[11, 0]),
        record(Kind::Fault, 0, 0, &[8192]),
        record(Kind::Wait, wait::POLL | wait::BEGIN, 0, &[0, 0]),
    ]);
    let names: Vec<&str> = lines.iter().filter_map(|l| l.split(' ').nth(2)).collect();
    assert_eq!(
        names,
        [
            "page_fault",
            "switch_out",
            "switch_in",
            "page_fault_done",
            "switch_out",
            "page_fault",
            "page_fault_done",
            "poll_begin",
        ]
    );
}

#[test]
fn ends_of_processes() {
    let lines = reported(&[
        record(Kind::Exit, 0, 0, &[0, u64::from_le_bytes(*b"worker\0\0")]),
        record(Kind::Exit, 1, 0, &[3 << 8]),
        record(Kind::Exit, 1, 0, &[9]),
    ]);
    assert_eq!(lines.len(), 5);
    assert!(lines[0].ends_with("name=\"worker\""), "{lines:?}");
    assert!(lines[2].ends_with("status=3"), "{lines:?}");
    assert!(lines[4].ends_with("status=-9"), "{lines:?}");
}

/// Whatever a record holds, there is no panic.
#[test]
fn any_record_is_told_or_counted() {
    let (mut decoder, mut lines) = (Decoder::new(), Lines::default());
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        let mut bytes = vec![0; 300];
        for byte in &mut bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 56) as u8;
        }
        bytes[KIND as usize] = (seed >> 33) as u8 % 28;
        bytes[KIND as usize + 1] = 0;
        decoder.record(0, &bytes, &mut lines).unwrap();
    }
    assert!(decoder.unreadable > 0);
    assert!(lines.lines.len() > 10_000);
}
