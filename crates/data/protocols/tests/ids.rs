//! Ids in messages: the same ones have the same hash, in whichever protocol they stand.

use fettle_protocols::{Connections, Ids, Message, Side, What};

const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The ids of what is asked and answered: who says what, which comes in pieces of `size`.
fn ids(talk: &[(Side, Vec<u8>)], size: usize) -> Vec<(bool, Ids)> {
    let mut connections = Connections::new();
    let mut found = Vec::new();
    let mut notify = |message: Message<'_>| match message.what {
        What::Ask { .. } => found.push((true, message.ids)),
        What::Answer { .. } => found.push((false, message.ids)),
        _ => {}
    };
    for (side, bytes) in talk {
        for piece in bytes.chunks(size) {
            let given_up = connections.transfer(1, *side, piece, piece.len() as u64, &mut notify);
            assert_eq!(given_up, None);
        }
    }
    found
}

/// The ids of the traces of what a client asks.
fn traces(said: Vec<u8>) -> Vec<u64> {
    let talk = [(Side::Received, said)];
    let whole = ids(&talk, usize::MAX);
    // The first bytes have to say which protocol it is.
    for size in [40, 64, 100, 1000] {
        assert_eq!(ids(&talk, size), whole, "{size}");
    }
    assert!(whole.iter().all(|(asks, ids)| *asks && ids.correlation == 0));
    whole.iter().map(|(_, ids)| ids.trace).collect()
}

fn http1(lines: &str) -> Vec<u8> {
    format!("GET /a/path/that/is/not/that/short HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

/// The id as HTTP/1 has it.
fn id() -> u64 {
    let ids = traces(http1(&format!("traceparent: {PARENT}\r\n")));
    assert!(matches!(ids[..], [id] if id != 0));
    ids[0]
}

#[test]
fn heads_have_ids() {
    assert_eq!(traces(http1("")), [0]);
    assert_eq!(traces(http1(&format!("X-B3-TraceId:{ID}\r\nX-Request-Id: a\r\n"))), [id()]);
    let several = [http1("X-Request-Id: a\r\n"), http1("x-request-id: b\r\n"), http1("")].concat();
    let several = traces(several);
    assert!(several[0] != several[1] && several[1] != 0 && several[2] == 0);
}

/// A frame of HTTP/2 with a head of names and values as they are.
fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for text in fields.iter().flat_map(|(name, value)| [("name", name), ("value", value)]) {
        if text.0 == "name" {
            block.push(0);
        }
        block.push(text.1.len() as u8);
        block.extend_from_slice(text.1.as_bytes());
    }
    let length = block.len() as u8;
    [&[0, 0, length, 1, 5, 0, 0, 0, 1][..], &block].concat()
}

#[test]
fn metadata_of_calls_has_ids() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let kind =
        [(":method", "POST"), (":path", "/shop.Shop/Buy"), ("content-type", "application/grpc")];
    let with = |more| [&preface[..], &head(&[&kind[..], &[more]].concat())].concat();
    let b3 = format!("{ID}-00f067aa0ba902b7");
    assert_eq!(traces(with(("traceparent", PARENT))), [id()]);
    assert_eq!(traces(with(("b3", &b3))), [id()]);
    assert_eq!(traces(with(("user-agent", PARENT))), [0]);
}

#[test]
fn statements_have_ids() {
    // An id behind what is reported of a statement.
    let long = "x".repeat(1000);
    let statement = format!("SELECT '{long}' /*route='a',traceparent='{PARENT}'*/");
    let postgres = |statement: &str| {
        let length = (statement.len() as u32 + 5).to_be_bytes();
        [b"Q", &length[..], statement.as_bytes(), b"\0"].concat()
    };
    let mysql = |statement: &str| {
        let length = (statement.len() as u32 + 1).to_le_bytes();
        [&length[..3], &[0, 3], statement.as_bytes()].concat()
    };
    for said in [postgres(&statement), mysql(&statement)] {
        let talk = [(Side::Received, said)];
        let of = |(_, ids): &(bool, Ids)| ids.trace;
        assert_eq!(ids(&talk, usize::MAX).iter().map(of).collect::<Vec<_>>(), [id()]);
    }
    for said in [postgres("SELECT 1"), mysql("SELECT 1")] {
        assert_eq!(ids(&[(Side::Received, said)], usize::MAX), [(true, Ids::default())]);
    }
}

/// What the server of NATS passes on has the ids of what it was given, on both sides and both ways.
#[test]
fn questions_of_nats_are_known_again() {
    let text = |side, text: &str| (side, text.replace('\n', "\r\n").into_bytes());
    let of_asker = ids(
        &[
            text(
                Side::Received,
                "PUB orders _INBOX.aaa.1 5\nhello\nPUB orders _INBOX.aaa.2 2\nhi\n",
            ),
            text(Side::Sent, "MSG _INBOX.aaa.2 1 2\nok\nMSG _INBOX.aaa.1 1 0\n\n"),
        ],
        30,
    );
    let head = format!("NATS/1.0\ntraceparent: {PARENT}\n\n");
    let length = head.len() + 3;
    let of_worker = ids(
        &[
            text(
                Side::Sent,
                &format!("HMSG orders 9 _INBOX.aaa.1 {length} {}\n{head}hello\n", length + 5),
            ),
            text(Side::Received, "PUB _INBOX.aaa.1 0\n\n"),
        ],
        40,
    );
    let [first, second, answer, last] = [0, 1, 2, 3].map(|n| of_asker[n].1);
    assert!(first.correlation != 0 && first.correlation != second.correlation);
    assert_eq!((answer, last), (second, first));
    assert_eq!(
        of_asker.iter().map(|(asks, _)| *asks).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    let with_trace = Ids { trace: id(), ..first };
    assert_eq!(of_worker, [(true, with_trace), (false, first)]);
}
