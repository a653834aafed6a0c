//! What real clients and servers said to each other (`capture.py` makes the files), read by read and
//! in any other pieces, whole and cut.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use fettle_protocols::{Connections, Message, NO_REPLY, Side, What};

/// A read: the connection, which way, the bytes. The server's side is looked at.
type Read = (u64, Side, Vec<u8>);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured")
}

fn reads(name: &str) -> Vec<Read> {
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let mut connection = 0;
    let mut reads = Vec::new();
    for line in text.lines() {
        if line == "=" {
            connection += 1;
            continue;
        }
        let (sign, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes = (0..hex.len()).step_by(2).map(byte).collect();
        reads.push((connection, if sign == ">" { Side::Received } else { Side::Sent }, bytes));
    }
    reads
}

fn line(connection: u64, message: Message<'_>) -> String {
    let Message { protocol, exchange, what, .. } = message;
    match what {
        What::Ask { command, text } => {
            let line = format!("{connection} {protocol} {exchange} asks {command}: {text}");
            line.trim_end().to_owned()
        }
        What::Answer { ok, status } => {
            let how = if ok { "ok" } else { "failed" };
            let line = format!("{connection} {protocol} {exchange} answered {how}: {status}");
            line.trim_end().to_owned()
        }
        What::Unanswered => format!("{connection} {protocol} {exchange} is not answered"),
        What::Unseen { .. } => format!("{connection} {protocol} {exchange} is not seen"),
    }
}

/// What is reported of reads of which only the first bytes are known.
fn reported(reads: &[Read], known: usize) -> (Vec<String>, Connections) {
    let mut connections = Connections::new();
    let mut lines = Vec::new();
    for (connection, side, bytes) in reads {
        let known = &bytes[..bytes.len().min(known)];
        let mut notify = |message: Message<'_>| lines.push(line(*connection, message));
        let given_up =
            connections.transfer(*connection, *side, known, bytes.len() as u64, &mut notify);
        lines.extend(given_up.map(|reason| format!("{connection} given up: {reason:?}")));
    }
    (lines, connections)
}

/// The same bytes in other pieces.
fn in_pieces(reads: &[Read], size: usize) -> Vec<Read> {
    let pieces = |(connection, side, bytes): &Read| -> Vec<Read> {
        bytes.chunks(size).map(|piece| (*connection, *side, piece.to_vec())).collect()
    };
    reads.iter().flat_map(pieces).collect()
}

const NAMES: [&str; 13] = [
    "amqp",
    "fastcgi",
    "grpc",
    "http1",
    "http2",
    "kafka",
    "memcached",
    "mqtt",
    "mysql",
    "nats",
    "postgres",
    "redis",
    "websocket",
];

/// `FETTLE_BLESS=1 cargo test` writes what is reported; look at the difference.
#[test]
fn real_conversations() {
    for name in NAMES {
        let (lines, connections) = reported(&reads(name), usize::MAX);
        let mut text = lines.join("\n");
        write!(text, "\n{:?}\n", connections.counts()).unwrap();
        let path = folder().join(format!("{name}.told"));
        if std::env::var_os("FETTLE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{name}");
    }
}

#[test]
fn pieces_do_not_matter() {
    for name in NAMES {
        let reads = reads(name);
        let (whole, _) = reported(&reads, usize::MAX);
        // A decoder that comes to a connection has to see a request's first bytes in one piece.
        for size in [64, 100, 1000] {
            assert_eq!(reported(&in_pieces(&reads, size), usize::MAX).0, whole, "{name}, {size}");
        }
    }
}

/// With fewer bytes, fewer messages are reported, and no others: exchanges keep their requests.
#[test]
fn what_is_cut_is_left_out() {
    for name in NAMES {
        let reads = reads(name);
        let (whole, _) = reported(&reads, usize::MAX);
        for known in [1, 8, 30, 64, 100, 256, 1024] {
            let (lines, connections) = reported(&reads, known);
            let mut rest = whole.iter();
            for line in lines.iter().filter(|line| line.contains("answered ok")) {
                if line.ends_with(NO_REPLY) {
                    continue;
                }
                // The status is the same, the exchange's number may be of an earlier start.
                let status = line.split_once("answered").unwrap().1;
                assert!(rest.any(|other| other.ends_with(status)), "{name}, {known}: {line}");
            }
            let counts = connections.counts();
            assert!(counts.answers <= counts.asks, "{name}, {known}: {counts:?}");
            all_are_over(&lines);
        }
        assert_eq!(reported(&reads, 1 << 14).0, whole, "{name}");
    }
}

/// Nothing stays open of a connection that is given up.
fn all_are_over(lines: &[String]) {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for line in lines {
        let mut words = line.split(' ');
        let [connection, protocol, exchange, what] =
            std::array::from_fn(|_| words.next().unwrap_or_default());
        if protocol == "given" {
            assert!(open.iter().all(|(other, _)| *other != connection), "{open:?} before {line}");
        } else if what == "asks" {
            open.push((connection, exchange));
        } else {
            open.retain(|one| *one != (connection, exchange));
        }
    }
}

#[test]
fn connections_without_a_protocol_are_given_up() {
    let mut connections = Connections::new();
    let mut send = |bytes: &[u8]| {
        connections.transfer(1, Side::Sent, bytes, bytes.len() as u64, &mut |_| panic!("a message"))
    };
    let given_up: Vec<_> = (0..100).filter_map(|_| send(b"\x01\x02SSH?")).collect();
    assert_eq!(given_up, [fettle_protocols::Reason::Unknown]);
    let hello = [0x16, 3, 1, 2, 0, 1];
    let tls = connections.transfer(2, Side::Sent, &hello, 517, &mut |_| panic!("a message"));
    assert_eq!(tls, Some(fettle_protocols::Reason::Tls));
}

/// What is reported of a talk: what the client says, and what the server does.
fn talk(lines: &[(bool, &str)]) -> Vec<String> {
    let reads: Vec<Read> = lines
        .iter()
        .map(|(asks, text)| {
            let side = if *asks { Side::Received } else { Side::Sent };
            (1, side, text.replace('\n', "\r\n").into_bytes())
        })
        .collect();
    reported(&reads, usize::MAX).0.iter().map(|line| line[2..].to_owned()).collect()
}

/// Redis answers no longer, not the next, and again.
#[test]
fn a_client_may_want_no_replies() {
    let lines = talk(&[
        (true, "*3\n$6\nCLIENT\n$5\nREPLY\n$3\nOFF\n*2\n$4\nINCR\n$1\na\n"),
        (true, "CLIENT REPLY ON\n"),
        (false, "+OK\n"),
        (true, "*3\n$6\nCLIENT\n$5\nREPLY\n$4\nSKIP\n*2\n$4\nINCR\n$1\nb\n*2\n$3\nGET\n$1\nb\n"),
        (false, "$1\n7\n"),
        (true, "CLIENT REPLY OFF\nRESET\n"),
        (false, "+RESET\n"),
    ]);
    let expected = [
        "redis 0 asks CLIENT: CLIENT REPLY",
        "redis 0 is not answered",
        "redis 1 asks INCR: INCR a",
        "redis 1 is not answered",
        "redis 2 asks CLIENT: CLIENT REPLY",
        "redis 2 answered ok: OK",
        "redis 3 asks CLIENT: CLIENT REPLY",
        "redis 3 is not answered",
        "redis 4 asks INCR: INCR b",
        "redis 4 is not answered",
        "redis 5 asks GET: GET b",
        "redis 5 answered ok:",
        "redis 6 asks CLIENT: CLIENT REPLY",
        "redis 6 is not answered",
        "redis 7 asks RESET: RESET",
        "redis 7 answered ok: RESET",
    ];
    assert_eq!(lines, expected);
}

/// memcached's quiet meta commands: what comes next shows that they were left unanswered, and tokens and
/// keys say which of several was answered.
#[test]
fn quiet_meta_commands_are_over_when_later_ones_are_answered() {
    let lines = talk(&[
        (true, "mg a v q k\nmg b v q k\nms c 1 q O7\nx\nmn\n"),
        (false, "VA 1 kb\ny\nNS O7\nMN\n"),
        // Without anything repeated the only one that it can be, and one that has to be answered.
        (true, "md d q\nmn\n"),
        (false, "NF\nMN\n"),
        (true, "mg e v q\nmg f v\n"),
        (false, "EN\n"),
    ]);
    let answered: Vec<&String> = lines.iter().filter(|line| !line.contains(" asks ")).collect();
    let expected = [
        "memcached 0 answered ok: no reply",
        "memcached 1 answered ok: VA",
        "memcached 2 answered ok: NS",
        "memcached 3 answered ok: MN",
        "memcached 4 answered ok: NF",
        "memcached 5 answered ok: MN",
        "memcached 6 answered ok: no reply",
        "memcached 7 answered ok: EN",
    ];
    assert_eq!(answered, expected);
    // Which of two is not known.
    let lines = talk(&[(true, "mg a v q\nmg b v q\nmn\n"), (false, "VA 1\ny\nMN\n")]);
    assert_eq!(lines.last().unwrap(), "given up: Quiet");
}

/// A read that is not seen at all: what waited is forgotten, and the next request counts anew.
#[test]
fn after_missing_bytes_nothing_is_paired_wrongly() {
    let mut connections = Connections::new();
    let mut lines = Vec::new();
    let mut say = |side, bytes: &[u8], all: u64| {
        let mut notify = |message: Message<'_>| lines.push(line(1, message));
        connections.transfer(1, side, bytes, all, &mut notify)
    };
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    let length = get.len() as u64;
    assert_eq!(say(Side::Received, get, length), None);
    // Two values, of which the second's length is not known.
    assert_eq!(say(Side::Sent, b"*2\r\n$1\r\nx\r\n", 100), None);
    assert_eq!(say(Side::Sent, b"+rest\r\n", 7), None);
    assert_eq!(say(Side::Received, get, length), None);
    assert_eq!(say(Side::Sent, b"$1\r\ny\r\n", 7), None);
    let expected = [
        "1 redis 0 asks GET: GET a",
        "1 redis 0 is not seen",
        "1 redis 1 asks GET: GET a",
        "1 redis 1 answered ok:",
    ];
    assert_eq!(lines, expected);
    assert_eq!((connections.counts().out_of_step, connections.counts().unanswered), (1, 1));
}

/// The packets of a read, as MariaDB reads them: heads by calls of their own.
fn packet_by_packet(read: &Read) -> Vec<Read> {
    let (connection, side, bytes) = read;
    let (mut rest, mut reads) = (bytes.as_slice(), Vec::new());
    while let [a, b, c, ..] = rest {
        let (packet, behind) = rest.split_at(4 + u32::from_le_bytes([*a, *b, *c, 0]) as usize);
        let (head, body) = packet.split_at(4);
        reads.push((*connection, *side, head.to_vec()));
        reads.push((*connection, *side, body.to_vec()));
        rest = behind;
    }
    reads.retain(|(.., bytes)| !bytes.is_empty());
    reads
}

/// MariaDB's server reads heads alone, and a recording may begin when clients have long logged in: the
/// same is reported, but for the login.
#[test]
fn an_old_connection_of_mysql_is_known_by_its_commands() {
    let without_number = |line: &String| {
        let mut words = line.splitn(4, ' ');
        let [connection, protocol, _, rest] = std::array::from_fn(|_| words.next().unwrap());
        format!("{connection} {protocol} {rest}")
    };
    // Others have nothing but a login.
    let all: Vec<Read> =
        reads("mysql").into_iter().filter(|read| [1, 2, 5, 6, 7, 8].contains(&read.0)).collect();
    let (whole, _) = reported(&all, usize::MAX);
    let whole: Vec<String> = whole.iter().map(without_number).collect();
    let by_heads: Vec<Read> = all.iter().flat_map(packet_by_packet).collect();
    let (lines, _) = reported(&by_heads, usize::MAX);
    assert_eq!(lines.iter().map(without_number).collect::<Vec<_>>(), whole);
    let is_login = |n: usize| {
        (0..3).any(|before| n == before || (n >= before && all[n - before].0 != all[n].0))
    };
    let old: Vec<Read> = (0..all.len()).filter(|n| !is_login(*n)).map(|n| all[n].clone()).collect();
    let mut late = whole.clone();
    // What is said is the same, but for logins and what answers them.
    let logins: Vec<usize> = (0..late.len()).filter(|n| late[*n].contains("asks LOGIN")).collect();
    for login in logins.into_iter().rev() {
        late.drain(login..login + 2);
    }
    assert!(late.len() + 12 == whole.len(), "{} of {}", late.len(), whole.len());
    for reads in [old.clone(), old.iter().flat_map(packet_by_packet).collect()] {
        let (lines, connections) = reported(&reads, usize::MAX);
        assert_eq!(lines.iter().map(without_number).collect::<Vec<_>>(), late);
        assert_eq!(connections.counts().out_of_step, 0);
    }
}

/// A packet of MySQL's.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// What no client or server at hand says: packets that go on in the next, files of many packets, progress,
/// attributes of queries, and the end of a connection without a question.
#[test]
fn rare_packets_of_mysql() {
    const LONG: usize = 0xff_ffff;
    let ok = |number| packet(number, &[0, 0, 0, 2, 0, 0, 0]);
    let query = |text: &str| packet(0, &[b"\x03", text.as_bytes()].concat());
    let long = format!("SELECT '{}'", "x".repeat(LONG - 10));
    let (first, rest) = long.split_at(LONG - 1);
    let column = packet(2, b"\x03def\0\0\0\x01x\0\x0c!\0\x40\0\0\0\xfd\0\0\0\0\0");
    let end = |number| packet(number, &[0xfe, 0, 0, 2, 0]);
    let mut rows = packet(4, &vec![b'y'; LONG]);
    // What goes on begins as an error would.
    rows.extend(packet(5, b"\xff\x10\0no"));
    let mut file: Vec<u8> =
        (0..600_u32).flat_map(|n| packet((n + 2) as u8, b"\x03SELECT")).collect();
    file.extend(packet(90, b""));
    let said: Vec<(bool, Vec<u8>)> = vec![
        (true, [query(first), packet(1, rest.as_bytes())].concat()),
        (false, [packet(1, &[1]), column, end(3), rows, end(6)].concat()),
        (true, query("\0\x01SELECT 2")),
        (false, ok(1)),
        (true, query("\x01\x01\0\x01\x08\0\x01nvalueSELECT 3")),
        (false, ok(1)),
        (true, query("LOAD DATA LOCAL INFILE 'x' INTO TABLE y")),
        (false, packet(1, b"\xfbx")),
        (true, file),
        (false, ok(91)),
        (true, query("ALTER TABLE y FORCE")),
        (false, packet(1, b"\xff\xff\xff\x01\x01\x02\x10\x27\x00\x05stage")),
        (
            false,
            [packet(1, b"\xff\x10\x27\x23HY000no"), packet(0, b"\xff\x86\x07\x2308S01killed")]
                .concat(),
        ),
    ];
    let reads: Vec<Read> = said
        .into_iter()
        .map(|(asks, bytes)| (1, if asks { Side::Received } else { Side::Sent }, bytes))
        .collect();
    let (lines, _) = reported(&reads, usize::MAX);
    let cut = format!("1 mysql 0 asks SELECT: SELECT '{}…", "x".repeat(248));
    let expected = [
        cut.as_str(),
        "1 mysql 0 answered ok: 1 rows",
        "1 mysql 1 asks SELECT: SELECT 2",
        "1 mysql 1 answered ok: OK",
        "1 mysql 2 asks QUERY:",
        "1 mysql 2 answered ok: OK",
        "1 mysql 3 asks LOAD: LOAD DATA LOCAL INFILE 'x' INTO TABLE y",
        "1 mysql 3 answered ok: OK",
        "1 mysql 4 asks ALTER: ALTER TABLE y FORCE",
        "1 mysql 4 answered failed: 10000 no",
    ];
    assert_eq!(lines, expected);
    // What begins in bytes that are missing is not made up.
    assert_eq!(reported(&reads[..1], 300).0, [cut.as_str(), "1 mysql 0 is not seen"]);
}

/// Either end of NATS may ask. Where bytes are missing, what waits at either end is not seen; a server's
/// first line may be cut, for it waits for the client then.
#[test]
fn both_ends_of_nats_ask() {
    let mut connections = Connections::new();
    let mut lines = Vec::new();
    let mut say = |side, bytes: &[u8], missing: u64| {
        let mut notify = |message: Message<'_>| {
            if let What::Unseen { asked } = message.what {
                lines.push(format!("{} was asked by {asked:?}", message.exchange));
            } else {
                lines.push(line(1, message));
            }
        };
        connections.transfer(1, side, bytes, bytes.len() as u64 + missing, &mut notify)
    };
    // The client's end is looked at.
    let mut says = |bytes: &str| say(Side::Sent, bytes.replace('\n', "\r\n").as_bytes(), 0);
    assert_eq!(says("CONNECT {}\nSUB work 7\nPING\npub orders _INBOX.a 2\nhi\n"), None);
    assert_eq!(says("PUB orders _INBOX.b 0\n\n"), None);
    assert_eq!(says("PUB $JS.API.CONSUMER.MSG.NEXT.s.d _INBOX.d 1\n1\n"), None);
    let mut hears =
        |bytes: &str, missing| say(Side::Received, bytes.replace('\n', "\r\n").as_bytes(), missing);
    assert_eq!(hears("+OK\nPONG\nMSG work 7 _INBOX.c 5\n", 7), None);
    // It goes to two subscriptions.
    assert_eq!(hears("MSG work 8 _INBOX.c 5\nhello\n-ERR 'no'\n", 0), None);
    let headers = "NATS/1.0 404 No Messages\n\n";
    let bytes = headers.replace('\n', "\r\n").len();
    assert_eq!(hears(&format!("HMSG _INBOX.a 1 {bytes} {bytes}\n{headers}\n"), 0), None);
    assert_eq!(hears("MSG _INBOX.a 1 4\nlate\n", 0), None);
    assert_eq!(hears("MSG x 7 9", 40), Some(fettle_protocols::Reason::Cut));
    let expected = [
        "1 nats 0 asks PUB: orders",
        "1 nats 1 asks PUB: orders",
        "1 nats 2 asks PUB: $JS.API.CONSUMER.MSG.NEXT.s.d",
        "1 nats 2 is not answered",
        "1 nats 3 asks MSG: work",
        "1 nats 4 asks MSG: work",
        "1 nats 4 is not answered",
        "1 nats 0 answered failed: 404 No Messages",
        "1 was asked by Sent",
        "3 was asked by Received",
    ];
    assert_eq!(lines, expected);

    let mut quiet = |_: Message<'_>| panic!("a message");
    let greeting = b"INFO {\"tls_required\":true,";
    assert_eq!(connections.transfer(2, Side::Received, greeting, 400, &mut quiet), None);
    let hello = [0x16, 3, 1, 2, 0, 1];
    let tls = connections.transfer(2, Side::Sent, &hello, 517, &mut quiet);
    assert_eq!(tls, Some(fettle_protocols::Reason::Tls));
}

/// Questions that never get an answer take no more memory than so much.
#[test]
fn places_for_answers_are_not_without_end() {
    let mut connections = Connections::new();
    let mut over = 0;
    for n in 0..20_000 {
        let text = format!("PUB a _INBOX.{n} 0\r\n\r\n");
        let mut notify =
            |message: Message<'_>| over += i32::from(!matches!(message.what, What::Ask { .. }));
        let bytes = text.len() as u64;
        if let Some(reason) =
            connections.transfer(1, Side::Sent, text.as_bytes(), bytes, &mut notify)
        {
            assert_eq!((reason, n, over), (fettle_protocols::Reason::Quiet, 1 << 14, 1 << 14));
            return;
        }
    }
    panic!("none was given up");
}
