//! MQTT, as brokers and clients could speak it.

mod talk;

use talk::{client, ids, reported, reported_whole, server};

const CONNECT_4: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a";
const CONNECT_5: &[u8] = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";

/// Some brokers read a packet's head byte by byte.
#[test]
fn heads_may_be_read_byte_by_byte() {
    let (head, rest) = CONNECT_4.split_at(2);
    let talk = [client(&head[..1]), client(&head[1..]), client(rest), server(b"\x20\x02\0\0")];
    assert_eq!(reported_whole(&talk), ["> mqtt 0 asks CONNECT a", "< mqtt 0 ok OK"]);
    // Of a connection that is old.
    let publish = b"\x32\x0a\0\x04shop\0\x07hi";
    let talk = [
        client(&publish[..1]),
        client(&publish[1..2]),
        client(&publish[2..]),
        server(b"\x40\x02\0\x07"),
    ];
    assert_eq!(reported_whole(&talk), ["> mqtt 0 asks PUBLISH shop", "< mqtt 0 ok OK"]);
}

#[test]
fn both_ends_number_what_they_publish() {
    let talk = [
        client(CONNECT_4),
        server(b"\x20\x02\0\0"),
        client(b"\x34\x08\0\x01a\0\x07abc"),
        server(b"\x34\x08\0\x01b\0\x07abc"),
        // Taken; sent again; released; done.
        server(b"\x50\x02\0\x07"),
        client(b"\x50\x02\0\x07"),
        client(b"\x3c\x08\0\x01a\0\x07abc"),
        client(b"\x62\x02\0\x07"),
        server(b"\x62\x02\0\x07"),
        client(b"\x70\x02\0\x07"),
        server(b"\x70\x02\0\x07"),
    ];
    let expected = [
        "> mqtt 0 asks CONNECT a",
        "< mqtt 0 ok OK",
        "> mqtt 1 asks PUBLISH a",
        "< mqtt 2 asks PUBLISH b",
        "> mqtt 2 ok OK",
        "< mqtt 1 ok OK",
    ];
    assert_eq!(reported(&talk, CONNECT_4.len()), expected);
}

#[test]
fn reason_codes_say_how_it_went() {
    let talk = [
        client(CONNECT_5),
        server(b"\x20\x03\0\x87\0"),
        // No matching subscribers is no failure; not authorised is; a wrong topic ends it early.
        client(b"\x32\x06\0\x01a\0\x01\0\x32\x06\0\x01b\0\x02\0\x34\x06\0\x01c\0\x03\0"),
        server(b"\x40\x03\0\x01\x10\x40\x04\0\x02\x87\0\x50\x03\0\x03\x90"),
        client(b"\x82\x0b\0\x04\0\0\x01a\x01\0\x01b\x01"),
        server(b"\x90\x05\0\x04\0\x01\x80"),
        client(b"\xa2\x06\0\x05\0\0\x01a"),
        server(b"\xb0\x04\0\x05\0\0"),
        client(b"\xc0\0"),
        server(b"\xd0\0"),
    ];
    let expected = [
        "> mqtt 0 asks CONNECT a",
        "< mqtt 0 failed 0x87",
        "> mqtt 1 asks PUBLISH a",
        "> mqtt 2 asks PUBLISH b",
        "> mqtt 3 asks PUBLISH c",
        "< mqtt 1 ok 0x10",
        "< mqtt 2 failed 0x87",
        "< mqtt 3 failed 0x90",
        "> mqtt 4 asks SUBSCRIBE a",
        "< mqtt 4 failed 0x80",
        "> mqtt 5 asks UNSUBSCRIBE a",
        "< mqtt 5 ok OK",
        "> mqtt 6 asks PINGREQ",
        "< mqtt 6 ok OK",
    ];
    assert_eq!(reported(&talk, CONNECT_5.len()), expected);
    let refused = [client(CONNECT_4), server(b"\x20\x02\0\x05")];
    assert_eq!(reported(&refused, CONNECT_4.len())[1], "< mqtt 0 failed 0x05");
}

/// What answers a question has its correlation data; numbers stand for topics.
#[test]
fn properties_are_read() {
    let asks = b"\x30\x11\0\x01q\x0c\x09\0\x02\x31\x37\x08\0\x01r\x23\0\x01?";
    let again = b"\x30\x0d\0\0\x09\x09\0\x02\x31\x37\x23\0\x01!!";
    let talk = [
        client(CONNECT_5),
        client(&asks[..]),
        client(&again[..]),
        server(b"\x30\x09\0\x01r\x05\x09\0\x02\x31\x37"),
    ];
    let lines = reported(&talk, CONNECT_5.len());
    let of = |n: usize| &lines[n];
    assert_eq!(
        [of(1), of(3), of(5)],
        ["> mqtt 1 asks PUBLISH q", "> mqtt 2 asks PUBLISH q", "< mqtt 3 asks PUBLISH r"]
    );
    let ids = ids(&talk);
    assert!(
        ids[1].correlation != 0 && ids[1] == ids[3] && ids[1] == ids[5] && ids[0].correlation == 0
    );
}

#[test]
fn what_is_no_packet_is_given_up() {
    for wrong in [
        &b"\x00\x00"[..],
        b"\x30\xff\xff\xff\xff\xff",
        b"\x36\x05\0\x01a\0\x01",
        b"\x32\x03\0\x01a",
        b"\x80\x02\0\x01",
    ] {
        let lines =
            reported(&[client(CONNECT_4), server(b"\x20\x02\0\0"), client(wrong)], CONNECT_4.len());
        assert_eq!(lines[2..], ["given up: Cut"], "{wrong:?}");
    }
    // Other protocols that begin with such a byte.
    for other in
        [&b"30 seconds"[..], b"\x10\x0d\0\x04HTTP\x04\x02\0\x3c\0\x01a", b"\x30\x07\0\x03a b\0\0"]
    {
        assert!(reported(&[client(other)], 1).is_empty());
    }
}
