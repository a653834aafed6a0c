//! Conversations, as tests write them: what is reported of them, whole, in two pieces at every place, and cut.
#![allow(dead_code, reason = "not all tests need all of it")]

use fettle_protocols::{Connections, Ids, Message, Side, What};

/// What the client says, or the server, of whose side the conversation is seen.
pub type Said = (Side, Vec<u8>);

pub fn client(bytes: impl Into<Vec<u8>>) -> Said {
    (Side::Received, bytes.into())
}

pub fn server(bytes: impl Into<Vec<u8>>) -> Said {
    (Side::Sent, bytes.into())
}

/// A transfer: which way, as many bytes as are known, and how many there were.
type Transfer<'a> = (Side, &'a [u8], usize);

fn heard(transfers: &[Transfer<'_>]) -> (Vec<String>, Vec<Ids>) {
    let mut connections = Connections::new();
    let (mut lines, mut ids) = (Vec::new(), Vec::new());
    for (side, known, bytes) in transfers {
        let from = if *side == Side::Received { '>' } else { '<' };
        let mut notify = |message: Message<'_>| {
            let Message { protocol, exchange, what, .. } = message;
            ids.push(message.ids);
            let said = match what {
                What::Ask { command, text } => format!("asks {command} {text}"),
                What::Answer { ok: true, status } => format!("ok {status}"),
                What::Answer { ok: false, status } => format!("failed {status}"),
                What::Unanswered => "no answer".to_owned(),
                What::Unseen { .. } => "not seen".to_owned(),
            };
            lines.push(format!("{from} {protocol} {exchange} {said}").trim_end().to_owned());
        };
        let given_up = connections.transfer(1, *side, known, *bytes as u64, &mut notify);
        lines.extend(given_up.map(|reason| format!("given up: {reason:?}")));
    }
    (lines, ids)
}

fn whole(talk: &[Said]) -> Vec<Transfer<'_>> {
    talk.iter().map(|(side, bytes)| (*side, &bytes[..], bytes.len())).collect()
}

/// What is reported: whole, and in two pieces at every place, of the first at least `least` bytes.
pub fn reported(talk: &[Said], least: usize) -> Vec<String> {
    let (lines, _) = heard(&whole(talk));
    for n in 0..talk.len() {
        let (side, bytes) = &talk[n];
        for at in if n == 0 { least } else { 1 }..bytes.len() {
            let (first, second) = bytes.split_at(at);
            let mut transfers = whole(talk);
            transfers.splice(n..=n, [(*side, first, at), (*side, second, second.len())]);
            assert_eq!(heard(&transfers).0, lines, "transfer {n} split at {at}");
        }
    }
    let all = lines.len();
    for n in 0..talk.len() {
        for known in 0..talk[n].1.len() {
            let mut transfers = whole(talk);
            transfers[n].1 = &transfers[n].1[..known];
            let (cut, _) = heard(&transfers);
            let asks = cut.iter().filter(|line| line.contains(" asks ")).count();
            let given_up = cut.iter().filter(|line| line.starts_with("given up")).count();
            // Each question is over at most once.
            assert!(
                cut.len() - given_up <= 2 * asks
                    && given_up <= 1
                    && cut.len() <= all + given_up + asks
            );
        }
    }
    lines
}

/// What is reported of these transfers as they are.
pub fn reported_whole(talk: &[Said]) -> Vec<String> {
    heard(&whole(talk)).0
}

/// The ids of what is reported.
pub fn ids(talk: &[Said]) -> Vec<Ids> {
    heard(&whole(talk)).1
}
