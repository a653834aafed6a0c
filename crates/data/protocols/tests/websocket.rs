//! WebSocket, from HTTP/1 on.

mod talk;

use talk::{Said, client, reported, server};

fn asks(upgrade: &str) -> Said {
    let lines = format!("Host: a\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
    client(format!("GET /chat?token=1 HTTP/1.1\r\n{lines}"))
}

fn switches(upgrade: &str) -> Said {
    server(format!("HTTP/1.1 101 Go on\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n"))
}

/// A frame of a client, masked.
fn masked(first: u8, content: &[u8]) -> Vec<u8> {
    let mask = [7, 1, 200, 9];
    let hidden = content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [&[first, 0x80 | content.len() as u8][..], &mask, &hidden.collect::<Vec<u8>>()].concat()
}

#[test]
fn both_ends_send_messages_and_ask_for_signs_of_life() {
    let long = [&[0x82, 126, 1, 0][..], &[9; 256]].concat();
    let talk = [
        asks("WebSocket"),
        server([switches("websocket").1, b"\x81\x02hi".to_vec()].concat()),
        client([masked(0x01, b"in "), masked(0x89, b"?"), masked(0x80, b"two")].concat()),
        server([&b"\x8a\x01?"[..], b"\x8a\x00\x89\x00", &long].concat()),
        client([masked(0x8a, b""), masked(0x88, &[3, 0xf3])].concat()),
        server(b"\x88\x02\x03\xf3"),
    ];
    let expected = [
        "> http1 0 asks GET /chat?token=1",
        "< http1 0 ok 101",
        "< websocket 0 asks TEXT /chat",
        "< websocket 0 no answer",
        "> websocket 1 asks TEXT /chat",
        "> websocket 1 no answer",
        "> websocket 2 asks PING /chat",
        "< websocket 2 ok PONG",
        "< websocket 3 asks PING /chat",
        "< websocket 4 asks BINARY /chat",
        "< websocket 4 no answer",
        "> websocket 3 ok PONG",
        "> websocket 5 asks CLOSE /chat",
        "< websocket 5 failed 1011",
    ];
    assert_eq!(reported(&talk, 16), expected);
}

#[test]
fn other_protocols_and_no_frames_are_given_up() {
    let lines = reported(&[asks("h2c"), switches("h2c")], 16);
    assert_eq!(lines[1..], ["< http1 0 not seen", "given up: Upgraded"]);
    // The client has not asked for it.
    let lines = reported(&[client("GET / HTTP/1.1\r\n\r\n"), switches("websocket")], 16);
    assert_eq!(lines[1..], ["< http1 0 not seen", "given up: Upgraded"]);
    // A mask of a server, none of a client, a long control frame, a kind that there is not.
    let long = [&[0x89, 126, 1, 0][..], &[9; 256]].concat();
    for wrong in
        [server(masked(0x81, b"a")), client("\u{1}\u{1}a"), server(long), server("\u{3}\u{0}")]
    {
        let lines = reported(&[asks("websocket"), switches("websocket"), wrong.clone()], 16);
        assert_eq!(lines[2..], ["given up: Cut"], "{wrong:?}");
    }
    // Refused: HTTP goes on.
    let refused = server("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n");
    let again = [client("GET /b HTTP/1.1\r\n\r\n"), server("HTTP/1.1 204 None\r\n\r\n")];
    let lines = reported(&[&[asks("websocket"), refused][..], &again].concat(), 16);
    assert_eq!(lines[2..], ["> http1 1 asks GET /b", "< http1 1 ok 204"]);
}
