//! AMQP 0-9-1, as brokers and clients could speak it.

mod talk;

use talk::{Said, client, ids, reported, server};

const PREFACE: &[u8] = b"AMQP\0\0\x09\x01";

fn frame(kind: u8, channel: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&[kind, 0, channel][..], &length, body, &[0xce]].concat()
}

fn method(channel: u8, class: u8, number: u8, more: &[u8]) -> Vec<u8> {
    frame(1, channel, &[&[0, class, 0, number][..], more].concat())
}

/// A message: how it comes, its properties behind their flags, and three bytes.
fn message(method: Vec<u8>, flags: u16, properties: &[u8]) -> Vec<u8> {
    let head =
        [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3][..], &flags.to_be_bytes(), properties].concat();
    [method, frame(2, 1, &head), frame(3, 1, b"abc")].concat()
}

fn publish(key: &str) -> Vec<u8> {
    let key = [&[0, 0, 1, b'x', key.len() as u8][..], key.as_bytes(), &[0]].concat();
    message(method(1, 60, 40, &key), 0, b"")
}

fn deliver(tag: &str, number: u8) -> Vec<u8> {
    let tag =
        [&[tag.len() as u8][..], tag.as_bytes(), &[0, 0, 0, 0, 0, 0, 0, number, 0, 0, 1, b'q']]
            .concat();
    message(method(1, 60, 60, &tag), 0, b"")
}

/// A number of a message, and whether all up to it are meant.
fn number(number: u8, all: bool) -> [u8; 9] {
    [0, 0, 0, 0, 0, 0, 0, number, u8::from(all)]
}

fn talk(more: &[Said]) -> Vec<Said> {
    [&[client(PREFACE)][..], more].concat()
}

#[test]
fn what_is_published_is_confirmed_by_number() {
    let talk = talk(&[
        client(method(1, 85, 10, &[0])),
        server(method(1, 85, 11, b"")),
        client([publish("a"), publish("b"), publish("c"), publish("d")].concat()),
        server(method(1, 60, 80, &number(2, true))),
        server(
            [method(1, 60, 120, &number(4, false)), method(1, 60, 80, &number(3, false))].concat(),
        ),
    ]);
    let lines = reported(&talk, PREFACE.len());
    let answers: Vec<&str> = lines[6..].iter().map(String::as_str).collect();
    let expected =
        ["< amqp 1 ok ack", "< amqp 2 ok ack", "< amqp 4 failed nack", "< amqp 3 ok ack"];
    assert_eq!((answers, &lines[2][..]), (expected.to_vec(), "> amqp 1 asks basic.publish x/a"));
}

#[test]
fn what_is_delivered_is_acknowledged_by_those_who_said_so() {
    let consume = |tag: &[u8], bits: u8| {
        method(
            1,
            60,
            20,
            &[&[0, 0, 1, b'q', tag.len() as u8][..], tag, &[bits, 0, 0, 0, 0]].concat(),
        )
    };
    let talk = talk(&[
        client([consume(b"quiet", 2), consume(b"", 0)].concat()),
        server([method(1, 60, 21, b"\x05quiet"), method(1, 60, 21, b"\x04ours")].concat()),
        server(
            [deliver("quiet", 1), deliver("ours", 2), deliver("ours", 3), deliver("ours", 4)]
                .concat(),
        ),
        client(
            [method(1, 60, 90, &number(3, true)), method(1, 60, 80, &number(2, false))].concat(),
        ),
        client(method(1, 20, 40, b"\0\xc8\x03bye\0\0\0\0")),
        server(method(1, 20, 41, b"")),
    ]);
    let expected = [
        "> amqp 0 asks basic.consume q",
        "> amqp 1 asks basic.consume q",
        "< amqp 0 ok OK",
        "< amqp 1 ok OK",
        "< amqp 2 asks basic.deliver q",
        "< amqp 2 no answer",
        "< amqp 3 asks basic.deliver q",
        "< amqp 4 asks basic.deliver q",
        "< amqp 5 asks basic.deliver q",
        "> amqp 4 failed reject",
        "> amqp 3 ok ack",
        "> amqp 5 failed 200 bye",
        "> amqp 6 asks channel.close 200 bye",
        "< amqp 6 ok OK",
    ];
    assert_eq!(reported(&talk, PREFACE.len()), expected);
}

#[test]
fn methods_are_answered_in_order_or_not_at_all() {
    let declare = |bits| method(1, 50, 10, &[0, 0, 1, b'q', bits, 0, 0, 0, 0]);
    let talk = talk(&[
        client([declare(0), declare(16), declare(0)].concat()),
        server([method(1, 50, 11, b"\x01q\0\0\0\0\0\0\0\0"), frame(8, 0, b"")].concat()),
        server(method(1, 50, 11, b"\x01q\0\0\0\0\0\0\0\0")),
        server(method(0, 10, 50, b"\x01\x40\x06FORCED\0\0\0\0")),
        client(method(0, 10, 51, b"")),
    ]);
    let expected = [
        "> amqp 0 asks queue.declare q",
        "> amqp 1 asks queue.declare q",
        "> amqp 1 no answer",
        "> amqp 2 asks queue.declare q",
        "< amqp 0 ok OK",
        "< amqp 2 ok OK",
        "< amqp 3 asks connection.close 320 FORCED",
        "> amqp 3 ok OK",
    ];
    assert_eq!(reported(&talk, PREFACE.len()), expected);
}

/// A question, what the broker passes on, and the answer's message have the same id.
#[test]
fn correlation_ids_and_headers_are_read() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut table = b"\x01nI\0\0\0\x07\x01tF\0\0\0\0\x01bt\x01\x0btraceparentS\0\0\0\x37".to_vec();
    table.extend_from_slice(parent.as_bytes());
    let length = (table.len() as u32).to_be_bytes();
    // content-type, headers, delivery-mode, correlation-id, reply-to.
    let properties = [&b"\x01t"[..], &length, &table, b"\x02\x0217\x01r"].concat();
    let flags = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 10 | 1 << 9;
    let asks = message(method(1, 60, 40, b"\0\0\0\x01q\0"), flags, &properties);
    let answer =
        message(method(1, 60, 60, b"\x01c\0\0\0\0\0\0\0\x01\0\0\x01r"), 1 << 10, b"\x0217");
    let ids = ids(&talk(&[client(asks), server(answer)]));
    assert!(ids[0].trace != 0 && ids[0].correlation != 0);
    assert!(ids[2].trace == 0 && ids[2].correlation == ids[0].correlation);
}

#[test]
fn connections_may_be_old_and_broken() {
    let old = [
        server(deliver("c", 1)),
        client(method(1, 60, 80, &number(1, false))),
        server(deliver("c", 2)),
    ];
    let expected =
        ["< amqp 0 asks basic.deliver q", "< amqp 0 no answer", "< amqp 1 asks basic.deliver q"];
    assert_eq!(reported(&old, old[0].1.len()), expected);
    for wrong in [
        &b"\x05\0\0\0\0\0\0\xce"[..],
        b"\x01\0\0\0\0\0\x04\0\x0a\0\x28!",
        b"AMQQ\0\0\x09\x01",
        b"\x01\0\0\xff\0\0\0",
    ] {
        let lines = reported(&talk(&[client(wrong)]), PREFACE.len());
        assert_eq!(lines, ["given up: Cut"], "{wrong:?}");
    }
}
