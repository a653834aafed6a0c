//! What OpenTelemetry's console exporters print, among the program's own lines: one object for each span.
//!
//! Python's and Go's is JSON on several lines or on one, each with names of its own; Node.js's is what its
//! `console.dir` prints ([`inspect`]). An object begins with a line that begins with `{`, and ends with one
//! that is `}`.

use std::path::Path;

use serde_json::Value as Json;

use super::{
    About, LeftOut, Moments, Span, Spans, Torn, at, inspect, members, micros, number, said, text,
    whole,
};
use crate::error::Result;

/// Reads a file.
pub fn open(path: &Path) -> Result<Moments> {
    Ok(read(path)?.moments())
}

/// The spans of a file.
pub fn read(path: &Path) -> Result<Spans> {
    Ok(spans(&String::from_utf8_lossy(&whole(path)?)))
}

/// Whether a text that is no other format's has spans of a console.
pub fn is_in(text: &str) -> bool {
    let lines = || text.lines().map(str::trim_start);
    lines().any(|line| line.starts_with('{'))
        && lines().any(|line| {
            line.starts_with("\"trace_id\": \"0x")
                || line.starts_with("traceId: '")
                || line.contains("\"SpanContext\":")
        })
}

/// The spans of a text.
pub fn spans(text: &str) -> Spans {
    let mut spans = Vec::new();
    let mut left_out = LeftOut::default();
    let (mut foreign, mut torn) = (0, Torn::No);
    // Where the object begins that is being read, and how many lines it has so far.
    let mut open: Option<(usize, u64)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begins = at;
        at += line.len();
        let line = line.trim_end();
        // A further object: the one before has no end.
        if line.starts_with('{') {
            foreign += open.map_or(0, |(_, lines)| lines);
            open = Some((begins, 0));
        }
        let Some((from, lines)) = &mut open else {
            foreign += u64::from(!line.is_empty());
            continue;
        };
        *lines += 1;
        let alone = *lines == 1 && line.len() > 1 && line.ends_with('}');
        if line != "}" && !alone {
            continue;
        }
        let (object, lines) = (text.get(*from..at).unwrap_or_default(), *lines);
        open = None;
        match serde_json::from_str(object).ok().or_else(|| inspect::object(object)) {
            Some(value) => match one(&value, &mut left_out) {
                Some(span) => spans.extend(span),
                None => foreign += lines,
            },
            None => foreign += lines,
        }
    }
    if open.is_some() {
        torn = Torn::Cut;
    }
    let losses = vec![
        ("spans without a beginning or an end", left_out.timeless),
        ("lines that are of no span", foreign),
        (Torn::CUT, torn.count()),
    ];
    Spans { spans, losses }
}

/// A span, or nothing if its times are no times; `None` if it is no span.
fn one(value: &Json, left_out: &mut LeftOut) -> Option<Option<Span>> {
    let (mut span, times, kind, attributes, resource) =
        if at(value, "/context/trace_id").is_string() {
            of_python(value)
        } else if value["SpanContext"].is_object() {
            of_go(value)
        } else if value["traceId"].is_string() && value["id"].is_string() {
            of_node(value)
        } else {
            return None;
        };
    let (Some(from_ns), Some(to_ns)) = times else {
        left_out.timeless += 1;
        return Some(None);
    };
    let attribute = |wanted: &str| attributes.get(wanted).map(text);
    let about = |wanted: &str| resource.get(wanted).map(text);
    let own =
        |names: [&str; 2]| names.iter().find_map(|name| attribute(name).or_else(|| about(name)));
    span.from_ns = from_ns;
    span.to_ns = to_ns;
    span.service = about("service.name").unwrap_or_default();
    span.pid = own(["process.pid", "pid"]).and_then(|pid| pid.parse().ok()).unwrap_or(0);
    span.tid = attribute("thread.id").and_then(|tid| tid.parse().ok()).unwrap_or(0);
    span.attributes = members(&attributes);
    span.about = About {
        instance: said::instance(&about),
        peers: said::peers(&attribute),
        port: said::port(&kind, &attribute),
        kind,
    };
    Some(Some(span))
}

/// What each language prints alike: a span with its ids and names, when it began and ended, its kind, its
/// attributes and its resource's.
type Printed = (Span, (Option<u64>, Option<u64>), String, Json, Json);

fn of_python(value: &Json) -> Printed {
    let id = |value: &Json| text(value).trim_start_matches("0x").to_owned();
    let context = &value["context"];
    let span = Span {
        trace: id(&context["trace_id"]),
        span: id(&context["span_id"]),
        parent: id(&value["parent_id"]),
        name: text(&value["name"]),
        status: status(at(value, "/status/status_code")),
        ..Span::default()
    };
    let time = |key: &str| time_ns(value[key].as_str()?);
    let kind = text(&value["kind"]).trim_start_matches("SpanKind.").to_lowercase();
    let resource = &value["resource"];
    // Older versions print its attributes themselves.
    let resource =
        if resource["attributes"].is_object() { &resource["attributes"] } else { resource };
    (
        span,
        (time("start_time"), time("end_time")),
        kind,
        value["attributes"].clone(),
        resource.clone(),
    )
}

fn of_go(value: &Json) -> Printed {
    // A span without a parent has one of zeros.
    let id = |at: &Json| Some(text(at)).filter(|id| id.bytes().any(|byte| byte != b'0'));
    let context = &value["SpanContext"];
    let span = Span {
        trace: id(&context["TraceID"]).unwrap_or_default(),
        span: id(&context["SpanID"]).unwrap_or_default(),
        parent: id(at(value, "/Parent/SpanID")).unwrap_or_default(),
        name: text(&value["Name"]),
        status: status(at(value, "/Status/Code")),
        ..Span::default()
    };
    let time = |key: &str| time_ns(value[key].as_str()?);
    let kind =
        kind(&value["SpanKind"], &["", "internal", "server", "client", "producer", "consumer"]);
    let pairs = |list: &Json| {
        let list = list.as_array().into_iter().flatten();
        let pairs = list.map(|one| (text(&one["Key"]), at(one, "/Value/Value").clone()));
        Json::Object(pairs.collect())
    };
    let times = (time("StartTime"), time("EndTime"));
    (span, times, kind, pairs(&value["Attributes"]), pairs(&value["Resource"]))
}

fn of_node(value: &Json) -> Printed {
    let parents = [&value["parentId"], at(value, "/parentSpanContext/spanId")];
    let span = Span {
        trace: text(&value["traceId"]),
        span: text(&value["id"]),
        parent: parents.into_iter().map(text).find(|id| !id.is_empty()).unwrap_or_default(),
        name: text(&value["name"]),
        status: match number(at(value, "/status/code")) {
            Some(1) => "ok",
            Some(2) => "error",
            _ => "",
        },
        ..Span::default()
    };
    let from_ns = micros(&value["timestamp"]);
    let took_ns = micros(&value["duration"]);
    let to_ns = from_ns.zip(took_ns).and_then(|(from, took)| from.checked_add(took));
    let kind = kind(&value["kind"], &["internal", "server", "client", "producer", "consumer"]);
    let resource = at(value, "/resource/attributes").clone();
    (span, (from_ns, to_ns), kind, value["attributes"].clone(), resource)
}

/// A kind that is a number among names.
fn kind(value: &Json, names: &[&str]) -> String {
    let number = number(value).and_then(|number| usize::try_from(number).ok());
    number.and_then(|number| names.get(number)).copied().unwrap_or_default().to_owned()
}

fn status(code: &Json) -> &'static str {
    match text(code).to_uppercase().as_str() {
        "OK" => "ok",
        "ERROR" => "error",
        _ => "",
    }
}

/// Nanoseconds since 1970 of a time such as `2026-03-02T08:00:01.800962Z`, or with `+02:00`.
fn time_ns(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', ' '])?;
    let zone = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone)?;
    let three = |text: &str, mark| -> Option<(i64, i64, String)> {
        let mut parts = text.splitn(3, mark);
        let number = parts.next()?.parse().ok()?;
        Some((number, parts.next()?.parse().ok()?, parts.next()?.to_owned()))
    };
    let (year, month, day) = three(date, '-')?;
    let day: i64 = day.parse().ok()?;
    let (hour, minute, second) = three(clock, ':')?;
    let (second, fraction) = second.split_once('.').unwrap_or((&second, ""));
    let second: i64 = second.parse().ok()?;
    let fits = (1970..2550).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let fits =
        fits && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !fits || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut nanoseconds = 0;
    for place in 0..9 {
        let digit = fraction.as_bytes().get(place).map_or(0, |byte| u64::from(byte - b'0'));
        nanoseconds = nanoseconds * 10 + digit;
    }
    // Days since 1970 by years that begin in March, so that the day that some years add is their last.
    let (years, months) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day
        - 1
        - 719_468;
    let ahead = match zone {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let seconds = days * 86_400 + hour * 3600 + (minute - ahead.clamp(-1440, 1440)) * 60 + second;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // What `date +%s -d TIME` says.
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-03-02T08:00:01Z", 1_772_438_401),
            ("2024-02-29T23:59:59+02:00", 1_709_243_999),
            ("2100-03-01T00:00:00-05:30", 4_107_562_200),
        ] {
            assert_eq!(time_ns(text), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(time_ns("1970-01-01T00:00:00.000962Z"), Some(962_000));
        assert_eq!(time_ns("1970-01-01T00:00:00.1234567891Z"), Some(123_456_789));
        for none in [
            "",
            "2026-03-02",
            "2026-13-02T08:00:01Z",
            "2026-03-02T08:00:01",
            "1970-01-01T00:00:00+09:00",
        ] {
            assert_eq!(time_ns(none), None, "{none}");
        }
    }

    #[test]
    fn what_the_program_prints_in_between_is_counted() {
        let span = "{\n \"name\": \"x\",\n \"context\": {\n \"trace_id\": \"0x1\", \"span_id\": \"0x2\"\n },\n \
                    \"start_time\": \"2026-03-02T08:00:01Z\",\n \"end_time\": \"2026-03-02T08:00:02Z\"\n}\n";
        let text =
            format!("listening on {{80}}\n{{\n broken\n{span}{{\"own\": 1}}\n{span}{{\n \"name\"");
        let read = spans(&text);
        assert_eq!(read.spans.len(), 2);
        assert_eq!((read.spans[0].trace.as_str(), read.spans[0].span.as_str()), ("1", "2"));
        assert_eq!(read.losses[1].1, 4);
        assert_eq!(read.losses[2].1, 1);
    }
}
