//! FastCGI, as web servers and those whom they ask could speak it, though few do.

mod talk;

use talk::{client, ids, reported, server};

fn record(kind: u8, request: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16).to_be_bytes();
    let padding = (8 - content.len() % 8) as u8 % 8;
    let head = [1, kind, 0, request, length[0], length[1], padding, 0];
    [&head[..], content, &vec![0; padding.into()]].concat()
}

fn begin(request: u8) -> Vec<u8> {
    record(1, request, &[0, 1, 1, 0, 0, 0, 0, 0])
}

fn end(request: u8, exit: u8, refused: u8) -> Vec<u8> {
    record(3, request, &[0, 0, 0, exit, refused, 0, 0, 0])
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let length = |text: &str| match text.len() {
        short @ 0..=127 => vec![short as u8],
        long => (long as u32 | 1 << 31).to_be_bytes().to_vec(),
    };
    let pair = |(name, value): &(&str, &str)| {
        [length(name), length(value), name.as_bytes().to_vec(), value.as_bytes().to_vec()].concat()
    };
    pairs.iter().flat_map(pair).collect()
}

/// Requests by their numbers, answered in another order; parameters in two records; statuses of all kinds.
#[test]
fn several_requests_at_once() {
    let long = "/x".repeat(100);
    let first =
        pairs(&[("REQUEST_METHOD", "GET"), ("QUERY_STRING", "secret=1"), ("SCRIPT_NAME", &long)]);
    let second = pairs(&[
        ("REQUEST_URI", "/shop?secret=2"),
        ("SCRIPT_NAME", "/index.php"),
        ("REQUEST_METHOD", "PUT"),
    ]);
    let (a, b) = first.split_at(20);
    let asks = [
        begin(1),
        record(4, 1, a),
        record(4, 1, b),
        record(4, 1, b""),
        record(5, 1, b""),
        begin(2),
        record(4, 2, &second),
        record(4, 2, b""),
        record(5, 2, b"a body"),
        record(5, 2, b""),
    ];
    let answers = [
        record(6, 2, b"Content-Type: a\r\nStatus: 503 Later\r\n\r\nStatus: 200"),
        record(7, 1, b"a warning"),
        record(6, 2, b""),
        end(2, 0, 0),
        record(6, 1, b"\r\nStatus: 404"),
        end(1, 255, 0),
    ];
    let talk = [
        client(asks.concat()),
        server(answers.concat()),
        client([begin(3), record(4, 3, b"")].concat()),
        server(end(3, 0, 2)),
    ];
    let expected = [
        format!("> fastcgi 0 asks GET {long}"),
        "> fastcgi 1 asks PUT /shop".into(),
        "< fastcgi 1 failed 503".into(),
        "< fastcgi 0 failed 200 exit 255".into(),
        "> fastcgi 2 asks REQUEST".into(),
        "< fastcgi 2 failed OVERLOADED".into(),
    ];
    assert_eq!(reported(&talk, 16), expected);
}

#[test]
fn headers_of_requests_have_ids() {
    let asked = |name, value| {
        let parameters = record(4, 1, &pairs(&[("REQUEST_METHOD", "GET"), (name, value)]));
        ids(&[client([begin(1), parameters, record(4, 1, b"")].concat())])[0].trace
    };
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let id = asked("HTTP_TRACEPARENT", parent);
    assert_ne!(id, 0);
    assert_eq!(asked("HTTP_X_B3_TRACEID", "4bf92f3577b34da6a3ce929d0e0e4736"), id);
    assert_eq!(asked("TRACEPARENT", parent), 0);
}

#[test]
fn what_is_no_record_is_lost() {
    let asks =
        [begin(1), record(4, 1, &pairs(&[("REQUEST_METHOD", "GET")])), record(4, 1, b"")].concat();
    for wrong in [
        server(b"2 is no version"),
        server(record(5, 1, b"what only clients say")),
        server(record(3, 1, b"short")),
        client([begin(2), record(4, 9, b"")].concat()),
        client(record(6, 1, b"what only servers say")),
    ] {
        let lines = reported(&[client(asks.clone()), wrong], 16);
        assert_eq!(lines[0], "> fastcgi 0 asks GET");
        assert!(lines[1].ends_with("fastcgi 0 not seen"), "{lines:?}");
    }
    // A length beyond all bytes; more than is kept of parameters.
    let endless = [&record(4, 1, b"")[..4], &[0xff, 0xff, 0, 0]].concat();
    assert!(reported(&[client([begin(1), endless].concat())], 16).is_empty());
    let much = record(4, 1, &[7; 60_000]);
    let lines = ids(&[client([begin(1), much.clone(), much].concat())]);
    assert!(lines.is_empty());
}
