//! Kafka, in versions that Debian's clients do not speak, and as no one does.

mod talk;

use talk::{client, reported, server};

fn behind_length(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// A request of a client called "app".
fn asks(key: u8, version: u8, number: u8, body: &[u8]) -> Vec<u8> {
    behind_length(&[&[0, key, 0, version, 0, 0, 0, number, 0, 3][..], b"app", body].concat())
}

fn answers(number: u8, body: &[u8]) -> Vec<u8> {
    behind_length(&[&[0, 0, 0, number][..], body].concat())
}

#[test]
fn requests_say_what_they_are_about_whatever_their_version() {
    let offsets = [&b"\xff\xff\xff\xff\0\0\0\x01"[..], b"\0\x06orders"].concat();
    let fetch = [&[0xff; 4][..], &[0; 8], &[0; 4], &[0], &[0; 8], b"\x02\x07orders"].concat();
    let older = [&[0xff; 4][..], &[0; 8], b"\0\0\0\x01\0\x06orders"].concat();
    let talk = [
        client(
            [
                asks(18, 3, 1, b"\0\x04app\x021\0"),
                asks(0, 9, 2, b"\0\0\0\x01\0\0\x75\x30\x02\x07orders\x02"),
                asks(0, 2, 3, b"\0\0\0\0\x75\x30\0\0\0\x01\0\x04news"),
                asks(1, 12, 4, &[&[0][..], &fetch].concat()),
                asks(1, 0, 5, &older),
                asks(2, 1, 6, &offsets),
                asks(3, 9, 7, b"\0\x02\x07orders\0\x01\0"),
                asks(3, 12, 8, b"\0\x02\x07topicid"),
                asks(12, 4, 9, b"\0\x08workers\0"),
                asks(68, 0, 10, b"\0"),
            ]
            .concat(),
        ),
        server(
            [
                answers(1, b"\0\0\0\0"),
                answers(2, b"\0\x02\x07orders\x02\0\0\0\0\0\x06"),
                answers(9, b"\0\0\0\0\0\0\x1b\0"),
                answers(10, b"\0\0"),
                answers(99, b"of before"),
                answers(4, &[0; 40]),
            ]
            .concat(),
        ),
    ];
    let expected = [
        "> kafka 0 asks ApiVersions",
        "> kafka 1 asks Produce orders",
        "> kafka 2 asks Produce news",
        "> kafka 2 no answer",
        "> kafka 3 asks Fetch orders",
        "> kafka 4 asks Fetch orders",
        "> kafka 5 asks ListOffsets orders",
        "> kafka 6 asks Metadata orders",
        "> kafka 7 asks Metadata",
        "> kafka 8 asks Heartbeat workers",
        "> kafka 9 asks Api68",
        "< kafka 0 ok OK",
        "< kafka 1 failed error 6",
        "< kafka 8 failed error 27",
        "< kafka 9 ok",
        "< kafka 3 ok",
    ];
    let begins = 4 + 10 + 3;
    assert_eq!(reported(&talk, begins), expected);
}

/// Some read what stands before requests alone.
#[test]
fn heads_may_be_read_alone() {
    let request = asks(3, 1, 1, b"\0\0\0\0");
    for at in [4, 12] {
        let (head, rest) = request.split_at(at);
        let talk = [client(head), client(rest), server(answers(1, b""))];
        let lines = talk::reported_whole(&talk);
        assert_eq!(lines, ["> kafka 0 asks Metadata", "< kafka 0 ok"], "{at}");
    }
}

#[test]
fn what_is_no_request_is_none() {
    let nameless = behind_length(&[0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff]);
    // A start of PostgreSQL's, whose version has the number of a request for metadata.
    let start = behind_length(b"\0\x03\0\0user\0anna\0database\0shop\0\0");
    let start = [&(start.len() as u32).to_be_bytes()[..], &start[4..]].concat();
    for other in [
        asks(200, 0, 1, b""),
        asks(0, 99, 1, b""),
        nameless,
        start,
        asks(18, 0, 1, b"")[..15].to_vec(),
    ] {
        let lines = talk::reported_whole(&[client(other.clone())]);
        assert!(!lines.iter().any(|line| line.contains("kafka")), "{other:?}: {lines:?}");
    }
    let wrong = [client(asks(3, 1, 1, b"\0\0\0\0")), server(b"\xff\xff\xff\xff")];
    assert_eq!(reported(&wrong, 17)[1..], ["< kafka 0 not seen"]);
    // Bytes are missing, and nothing is asked twice at once: it goes on with the next request.
    let huge = server([&[0, 0xff, 0, 0][..], &[0, 0, 0, 1]].concat());
    assert_eq!(reported(&[client(asks(3, 1, 1, b"\0\0\0\0")), huge], 17).len(), 1);
}
