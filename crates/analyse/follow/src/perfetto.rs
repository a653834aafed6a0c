//! Requests for Perfetto: slices on tracks.
//!
//! Requests of a class lie on as few tracks as they can without overlapping; below each are tracks for
//! the stays of threads, with their waits as slices within. So the number of tracks is that of requests
//! at work at one time, however many there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fettle_trace::perfetto::{self, Edge, SEQUENCE, field};
use fettle_trace::proto::Message;
use serde_json::Value;

use crate::span::Span;

/// A track, and until when it is taken.
struct Lane {
    track: u64,
    until_ns: u64,
    below: Vec<Lane>,
}

/// Writes requests.
#[derive(Default)]
pub(crate) struct Perfetto {
    /// Lanes of each class.
    classes: BTreeMap<String, Vec<Lane>>,
    tracks: u64,
    out: Vec<u8>,
}

impl Perfetto {
    /// The packets of a request. The first span is its own, those without its number as parent, or of
    /// stays, are of threads, and what is left are waits in them.
    pub fn request(&mut self, spans: &[Span]) -> Vec<u8> {
        let Some((root, rest)) = spans.split_first() else { return Vec::new() };
        let mut lanes = self.classes.remove(&root.name).unwrap_or_default();
        let at = self.free(&mut lanes, root.from_ns, root.to_ns, &root.name, None);
        let track = lanes[at].track;
        self.slices(track, &[root]);
        let of_thread = |span: &&Span| span.tags.iter().all(|(name, _)| *name != "fettle.state");
        let mut stays: Vec<&Span> = rest.iter().filter(of_thread).collect();
        stays.sort_by_key(|stay| (stay.from_ns, Reverse(stay.to_ns)));
        for stay in stays {
            let below = &mut lanes[at].below;
            let lane = self.free(below, stay.from_ns, stay.to_ns, "threads", Some(track));
            let track = below[lane].track;
            let own = |span: &&Span| span.parent == Some(stay.number) && !of_thread(span);
            let mut slices = vec![stay];
            slices.extend(rest.iter().filter(own));
            self.slices(track, &slices);
        }
        self.classes.insert(root.name.clone(), lanes);
        std::mem::take(&mut self.out)
    }

    /// A lane that is free from then on, which it takes.
    fn free(
        &mut self,
        lanes: &mut Vec<Lane>,
        from_ns: u64,
        to_ns: u64,
        name: &str,
        parent: Option<u64>,
    ) -> usize {
        let free = lanes.iter().position(|lane| lane.until_ns <= from_ns);
        let place = free.unwrap_or_else(|| {
            self.tracks += 1;
            let track = perfetto::track(self.tracks, parent, name);
            let mut packet = Message::default();
            packet.number(field::PACKET_SEQUENCE, SEQUENCE).message(field::PACKET_TRACK, &track);
            self.send(&packet);
            lanes.push(Lane { track: self.tracks, until_ns: 0, below: Vec::new() });
            lanes.len() - 1
        });
        lanes[place].until_ns = to_ns.max(from_ns);
        place
    }

    /// Slices of one track: an outer one, and those within, which do not overlap. What reaches beyond
    /// the outer one, or into the next, is cut.
    fn slices(&mut self, track: u64, spans: &[&Span]) {
        let Some((outer, inner)) = spans.split_first() else { return };
        self.edge(track, outer.from_ns, Some(outer));
        let mut inner: Vec<&&Span> = inner.iter().collect();
        inner.sort_by_key(|span| (span.from_ns, span.to_ns));
        let mut done_ns = outer.from_ns;
        for span in inner {
            let from_ns = span.from_ns.max(done_ns);
            let to_ns = span.to_ns.min(outer.to_ns);
            if from_ns < to_ns {
                self.edge(track, from_ns, Some(span));
                self.edge(track, to_ns, None);
                done_ns = to_ns;
            }
        }
        self.edge(track, outer.to_ns.max(outer.from_ns), None);
    }

    /// A slice's beginning, or its end.
    fn edge(&mut self, track: u64, time_ns: u64, begins: Option<&Span>) {
        let mut event =
            perfetto::event(track, if begins.is_some() { Edge::Begin } else { Edge::End });
        if let Some(span) = begins {
            event.bytes(field::EVENT_NAME_TEXT, span.name.as_bytes());
            for (name, value) in &span.tags {
                event.message(field::EVENT_ANNOTATION, &annotation(name, value));
            }
        }
        let mut packet = Message::default();
        perfetto::at(&mut packet, time_ns, &event);
        self.send(&packet);
    }

    fn send(&mut self, packet: &Message) {
        self.out.extend_from_slice(&perfetto::in_file(packet).0);
    }
}

fn annotation(name: &str, value: &Value) -> Message {
    let mut annotation = Message::default();
    annotation.bytes(field::ANNOTATION_NAME, name.as_bytes());
    match value {
        Value::Bool(yes) => annotation.number(field::ANNOTATION_BOOL, u64::from(*yes)),
        Value::String(text) => annotation.bytes(field::ANNOTATION_TEXT, text.as_bytes()),
        value => match value.as_u64() {
            Some(number) => annotation.number(field::ANNOTATION_UINT, number),
            None => annotation.bytes(field::ANNOTATION_TEXT, value.to_string().as_bytes()),
        },
    };
    annotation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(number: u64, parent: Option<u64>, name: &str, ns: (u64, u64), waits: bool) -> Span {
        let tags = match waits {
            true => vec![("fettle.state", Value::from("lock"))],
            false => vec![],
        };
        let (from_ns, to_ns) = ns;
        Span { number, parent, service: "s".into(), name: name.into(), from_ns, to_ns, tags }
    }

    /// Reads fields of a message: number, and value or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u32, u64, &[u8])> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return value;
                }
            }
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            let mut inner: &[u8] = &[];
            if key & 7 == 2 {
                (inner, bytes) = bytes.split_at(value as usize);
            }
            found.push(((key >> 3) as u32, value, inner));
        }
        found
    }

    /// Tracks as `track<parent:name`, slices as `track@time+name` and `track@time-`.
    fn reported(bytes: &[u8]) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut reported = Vec::new();
        for (_, _, packet) in fields(bytes) {
            let packet = fields(packet);
            let get = |of: &[(u32, u64, &[u8])], wanted: u32| -> Option<(u64, Vec<u8>)> {
                let found = of.iter().find(|(number, ..)| *number == wanted);
                found.map(|(_, value, bytes)| (*value, bytes.to_vec()))
            };
            if let Some((_, track)) = get(&packet, field::PACKET_TRACK) {
                let track = fields(&track);
                let parent = get(&track, field::TRACK_PARENT).map_or(0, |(parent, _)| parent);
                let name = text(&get(&track, field::TRACK_NAME).unwrap().1);
                reported
                    .push(format!("{}<{parent}:{name}", get(&track, field::TRACK_UUID).unwrap().0));
            }
            if let Some((_, event)) = get(&packet, field::PACKET_TRACK_EVENT) {
                let event = fields(&event);
                let time = get(&packet, field::PACKET_TIMESTAMP).unwrap().0;
                let track = get(&event, field::EVENT_TRACK).unwrap().0;
                reported.push(match get(&event, field::EVENT_NAME_TEXT) {
                    Some((_, name)) => format!("{track}@{time}+{}", text(&name)),
                    None => format!("{track}@{time}-"),
                });
            }
        }
        reported
    }

    #[test]
    fn requests_share_tracks_where_they_do_not_overlap() {
        let mut perfetto = Perfetto::default();
        let one = [
            span(1, None, "GET", (10, 50), false),
            span(2, Some(1), "a/1", (10, 40), false),
            span(3, Some(2), "lock", (20, 45), true),
            span(4, Some(2), "b/2", (30, 50), false),
        ];
        let wanted = [
            "1<0:GET",
            "1@10+GET",
            "1@50-",
            "2<1:threads",
            "2@10+a/1",
            "2@20+lock",
            "2@40-",
            "2@40-",
            "3<1:threads",
            "3@30+b/2",
            "3@50-",
        ];
        assert_eq!(reported(&perfetto.request(&one)), wanted);
        let later = [span(1, None, "GET", (50, 60), false)];
        assert_eq!(reported(&perfetto.request(&later)), ["1@50+GET", "1@60-"]);
        let beside = [span(1, None, "GET", (55, 70), false)];
        assert_eq!(reported(&perfetto.request(&beside)), ["4<0:GET", "4@55+GET", "4@70-"]);
    }
}
