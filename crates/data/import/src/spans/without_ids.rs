//! Traces from spans whose ids are dropped, whether they have some or not.

use std::path::PathBuf;

use fettle_reconstruct::{Reconstruction, Side};
use fettle_trace::Strings;

use super::{Found, Moments, Span, Spans, console, jaeger, otlp, zipkin};
use crate::detect::{Format, detect};
use crate::error::{Error, Result};

/// Reads files of spans, and gives them traces of which their ids know nothing.
pub fn open(inputs: &[PathBuf], format: Option<Format>) -> Result<(Moments, Vec<Format>)> {
    let (mut all, formats) = read(inputs, format)?;
    let made = reconstruct(&mut all.spans);
    let notes = notes(&all.spans, &made);
    let mut moments = all.moments();
    moments.remarks.notes.extend(notes);
    Ok((moments, formats))
}

/// The spans of files, and the format of each.
///
/// # Errors
///
/// If one cannot be read, or has no spans.
pub fn read(inputs: &[PathBuf], format: Option<Format>) -> Result<(Spans, Vec<Format>)> {
    let (mut all, mut formats) = (Spans::default(), Vec::new());
    for input in inputs {
        let format = format.map_or_else(|| detect(input), Ok)?;
        let read = match format {
            Format::Otlp => otlp::read(input)?,
            Format::Jaeger => jaeger::read(input)?,
            Format::Zipkin => zipkin::read(input)?,
            Format::Console => console::read(input)?,
            _ => return Err(Error::NoSpans { path: input.clone() }),
        };
        all.spans.extend(read.spans);
        all.losses.extend(read.losses);
        formats.push(format);
    }
    Ok((all, formats))
}

/// Replaces the ids of spans by what their times and names say.
pub fn reconstruct(spans: &mut [Span]) -> Reconstruction {
    let made = fettle_reconstruct::reconstruct(&plain(spans));
    // The first span of each one's trace. Parents come without circles.
    let mut roots: Vec<Option<usize>> = vec![None; spans.len()];
    for start in 0..spans.len() {
        let (mut way, mut at) = (Vec::new(), start);
        let root = loop {
            if let Some(root) = roots.get(at).copied().flatten() {
                break root;
            }
            way.push(at);
            match made.links.get(at).and_then(|link| link.parent) {
                Some(parent) => at = parent as usize,
                None => break at,
            }
        };
        for passed in way {
            if let Some(known) = roots.get_mut(passed) {
                *known = Some(root);
            }
        }
    }
    let id = |number: usize| format!("{:016x}", number as u64 + 1);
    for (number, (span, link)) in spans.iter_mut().zip(&made.links).enumerate() {
        let root = roots.get(number).copied().flatten().unwrap_or(number);
        span.trace = format!("{:032x}", root as u128 + 1);
        span.span = id(number);
        span.parent = link.parent.map(|parent| id(parent as usize)).unwrap_or_default();
        span.found = Some(Found::of(link));
    }
    made
}

/// Spans as the reconstruction takes them: names are numbers, and ids are not there.
pub fn plain(spans: &[Span]) -> Vec<fettle_reconstruct::Span> {
    let mut names = Strings::default();
    let mut services = Strings::default();
    let mut processes = Strings::default();
    // Services that report something come first: peers are looked for among them.
    let reporting =
        spans.iter().map(|span| services.code(&span.service).saturating_add(1)).max().unwrap_or(0);
    let kinds = spans.iter().any(|span| matches!(span.about.kind.as_str(), "server" | "client"));
    spans
        .iter()
        .map(|span| {
            let side = match span.about.kind.as_str() {
                "server" | "consumer" => Side::Callee,
                "client" | "producer" => Side::Caller,
                // Where no span says what it is, each is of a call.
                "" if !kinds => Side::Callee,
                _ => Side::Inside,
            };
            let service = services.code(&span.service);
            fettle_reconstruct::Span {
                begin_ns: span.from_ns,
                end_ns: span.to_ns.max(span.from_ns),
                side,
                process: processes
                    .code(&format!("{}\0{}\0{}", span.service, span.about.instance, span.pid)),
                service,
                peer: peer(span, side, &mut services, reporting),
                name: names.code(&alike(&span.name)),
                thread: (span.tid != 0).then_some(span.tid.into()),
                connection: span.about.port.map(u64::from),
            }
        })
        .collect()
}

/// The service on the other side: one that reports spans, or, of a side that asked, whatever it is called.
fn peer(span: &Span, side: Side, services: &mut Strings, reporting: u32) -> Option<u32> {
    let known = |text: &str| services.find(text).filter(|number| *number < reporting);
    let found = span.about.peers.iter().find_map(|name| {
        short(name).into_iter().find_map(|name| known(&name).filter(|_| name != span.service))
    });
    let named = || span.about.peers.first().map(|name| services.code(name));
    match side {
        Side::Caller => found.or_else(named),
        Side::Callee => found,
        Side::Inside => None,
    }
}

/// What a name of a peer may mean: itself; a host's first part; what a proxy's cluster, or an RPC service, ends
/// with.
fn short(name: &str) -> [String; 4] {
    let cluster = name.rsplit('|').next().unwrap_or(name);
    let host = cluster.split(['.', ':', '/']).next().unwrap_or(cluster);
    let last = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    [name.to_owned(), cluster.to_owned(), host.to_owned(), last]
}

/// A name without what differs from call to call: numbers, and long runs of hexadecimal digits.
fn alike(name: &str) -> String {
    let part = |part: &str| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        let hexadecimal = part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let number = digits > 0 && (digits == part.len() || part.len() >= 8 && hexadecimal);
        if number { "#".to_owned() } else { part.to_owned() }
    };
    let query = name.split('?').next().unwrap_or(name);
    query.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// What has to be said of a reconstruction.
fn notes(spans: &[Span], made: &Reconstruction) -> Vec<String> {
    let links = made.links.iter();
    let chosen = links.clone().filter(|link| link.candidates > 1).count();
    let only = links.filter(|link| link.candidates == 1).count();
    let mut notes = vec![format!(
        "ids were dropped: of {} spans, {only} had one possible cause, {chosen} several",
        spans.len()
    )];
    if made.alone > 0 {
        notes.push(format!("{} spans have no possible cause: each begins a trace", made.alone));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_numbers_are_alike() {
        assert_eq!(alike("GET /things/17/parts?x=1"), "GET /things/#/parts");
        assert_eq!(alike("/order/3f2504e0-4f89-11d3-9a0c-0305e82c3301"), "/order/#");
        assert_eq!(alike("geo.Geo/Nearby"), "geo.Geo/Nearby");
        assert_eq!(short("outbound|9080||reviews.default.svc")[2], "reviews");
        assert_eq!(short("hipster.Cart")[3], "cart");
    }
}
