//! What two observations of one entry say.

use std::time::Duration;

use regex::bytes::Regex;
use serde::Serialize;

use super::observe::Observation;
use super::options::Options;
use super::place::{Contents, Thing};
use super::spec::Entry;
use crate::fettle::RecordSummary;
use crate::proc::Ending;

/// The judgement on one entry.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing that can be seen from outside differs.
    Same,
    /// The tool refused as it should.
    Refusal(String),
    /// Something differs.
    Differs(Vec<String>),
    /// The tool refused what it should run.
    Refused(String),
    /// The recorded side did not end in time.
    Slow(String),
    /// A failure that the list gives a reason for.
    Known(String),
    /// The plain side differs from itself.
    Unstable(Vec<String>),
    /// The entry could not be set up or does not do what the list says, even plain.
    Broken(String),
    /// Not run, for this reason.
    Skipped(String),
}

impl Verdict {
    /// Whether there is nothing to do about it.
    pub fn passed(&self) -> bool {
        matches!(
            self,
            Verdict::Same | Verdict::Refusal(_) | Verdict::Known(_) | Verdict::Skipped(_)
        )
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Refusal(_) => "refusal",
            Verdict::Differs(_) => "DIFFERS",
            Verdict::Refused(_) => "REFUSED",
            Verdict::Slow(_) => "SLOW",
            Verdict::Known(_) => "known",
            Verdict::Unstable(_) => "UNSTABLE",
            Verdict::Broken(_) => "BROKEN",
            Verdict::Skipped(_) => "skipped",
        }
    }

    /// What there is to say beyond the word.
    pub fn detail(&self) -> String {
        match self {
            Verdict::Same => String::new(),
            Verdict::Refusal(text)
            | Verdict::Refused(text)
            | Verdict::Slow(text)
            | Verdict::Known(text)
            | Verdict::Broken(text)
            | Verdict::Skipped(text) => text.clone(),
            Verdict::Differs(list) | Verdict::Unstable(list) => list.join("; "),
        }
    }
}

/// What became of one entry.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The judgement.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The tool's own account.
    pub summary: Option<RecordSummary>,
    /// Seconds of the plain run.
    pub plain_seconds: f64,
    /// Seconds of the recorded run.
    pub recorded_seconds: f64,
}

impl Finding {
    /// A finding about an entry that did not run.
    pub fn new(entry: &Entry, verdict: Verdict) -> Finding {
        Finding {
            name: entry.name.clone(),
            kind: entry.kind().to_string(),
            verdict,
            summary: None,
            plain_seconds: 0.0,
            recorded_seconds: 0.0,
        }
    }

    /// A finding about an entry that ran on both sides.
    pub fn measured(
        entry: &Entry,
        verdict: Verdict,
        plain: &Observation,
        recorded: &Observation,
    ) -> Finding {
        let seconds = |wall: Duration| wall.as_secs_f64();
        Finding {
            summary: recorded.summary.clone(),
            plain_seconds: seconds(plain.wall),
            recorded_seconds: seconds(recorded.wall),
            ..Finding::new(entry, verdict)
        }
    }

    /// The line printed when it is done.
    pub fn line(&self) -> String {
        let coverage = match &self.summary {
            Some(s) => format!(
                "lifted {}/{} ({:.1} %), {} calls",
                s.functions_lifted,
                s.functions_seen,
                percent(s.functions_lifted, s.functions_seen),
                s.calls
            ),
            None => String::new(),
        };
        let times = match self.recorded_seconds > 0.0 {
            true => format!("{:.2} s, recorded {:.2} s", self.plain_seconds, self.recorded_seconds),
            false => String::new(),
        };
        let line = format!(
            "{:<9} {:<22} {:<26} {} {}",
            self.verdict.word(),
            self.name,
            times,
            coverage,
            self.verdict.detail()
        );
        line.trim_end().to_string()
    }
}

/// A share in percent; of nothing, all.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Why the plain run is not what the list says it is.
pub fn unsound(entry: &Entry, plain: &Observation) -> Option<String> {
    let expected = entry.ending();
    let client_failed =
        entry.client.is_some() && !plain.client.ends_with(b"[client: exit status 0]");
    if plain.ending == expected && !client_failed {
        return None;
    }
    let said = if client_failed { &plain.client } else { &plain.stderr };
    let said = String::from_utf8_lossy(said);
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    Some(format!("plain run: {} ({})", plain.ending, last.join(" | ")))
}

/// Compares the plain with the recorded run.
pub fn judge(
    entry: &Entry,
    plain: &Observation,
    recorded: &Observation,
    options: &Options,
) -> Verdict {
    let verdict = judge_strictly(entry, plain, recorded, options);
    match (&entry.known, verdict.passed()) {
        (Some(reason), false) => Verdict::Known(format!("{reason} [{}]", verdict.detail())),
        (Some(_), true) => Verdict::Differs(vec!["listed as known to fail, but passes".into()]),
        (None, _) => verdict,
    }
}

fn judge_strictly(
    entry: &Entry,
    plain: &Observation,
    recorded: &Observation,
    options: &Options,
) -> Verdict {
    let said = String::from_utf8_lossy(&recorded.stderr).trim().to_string();
    let refused = recorded.ending == Ending::Exit(2)
        && plain.ending != Ending::Exit(2)
        && recorded.summary.is_none()
        && !options.plain_only;
    if recorded.ending == Ending::TimedOut {
        return Verdict::Slow(format!("over {} s", entry.seconds));
    }
    let mut differences = differences(entry, plain, recorded);
    if refused && !differences.is_empty() {
        return Verdict::Refused(said);
    }
    if !options.plain_only && !options.behaviour_only {
        match &recorded.summary {
            None => differences.push("no summary".into()),
            Some(s) if s.functions_seen != s.functions_lifted + s.functions_skipped => {
                differences.push("summary: functions seen are not lifted plus skipped".into());
            }
            Some(s) if s.functions_skipped != s.reasons.values().sum::<u64>() => {
                differences.push("summary: not every skipped function has one reason".into());
            }
            Some(_) => {}
        }
    }
    if differences.is_empty() { Verdict::Same } else { Verdict::Differs(differences) }
}

/// Judges what the tool did with something that it is expected to refuse.
pub fn judge_refusal(entry: &Entry, recorded: &Observation) -> Verdict {
    let said = String::from_utf8_lossy(&recorded.stderr).trim().to_string();
    let wrong = |what: String| Verdict::Differs(vec![what]);
    // What cannot be executed has the status that a shell gives it.
    if !matches!(recorded.ending, Ending::Exit(2 | 126 | 127)) {
        return wrong(format!("refusal expected, not {} ({})", recorded.ending, clip(&said)));
    }
    if !recorded.stdout.is_empty() || said.lines().count() != 1 {
        return wrong(format!("refusal is not one clear line: {}", clip(&said)));
    }
    match entry.refusal.iter().find(|word| !said.contains(word.as_str())) {
        Some(word) => wrong(format!("refusal without {word:?}: {said}")),
        None => Verdict::Refusal(said),
    }
}

/// Everything that the entry compares and that differs.
pub fn differences(entry: &Entry, plain: &Observation, other: &Observation) -> Vec<String> {
    let replace: Vec<(Regex, &str)> = entry
        .replace
        .iter()
        .filter_map(|(pattern, to)| Some((Regex::new(pattern).ok()?, to.as_str())))
        .collect();
    let clean = |bytes: &[u8]| {
        replace.iter().fold(bytes.to_vec(), |bytes, (pattern, to)| {
            pattern.replace_all(&bytes, to.as_bytes()).into_owned()
        })
    };
    let mut found = Vec::new();
    for part in &entry.compare {
        match part.as_str() {
            "status" if plain.ending != other.ending => {
                found.push(format!("{} instead of {}", other.ending, plain.ending));
            }
            "stdout" => {
                found.extend(bytes_differ(part, &clean(&plain.stdout), &clean(&other.stdout)));
            }
            "stderr" => {
                found.extend(bytes_differ(part, &clean(&plain.stderr), &clean(&other.stderr)));
            }
            "client" => {
                found.extend(bytes_differ(part, &clean(&plain.client), &clean(&other.client)));
            }
            "files" => found.extend(files_differ(&plain.files, &other.files, &clean)),
            _ => {}
        }
    }
    found
}

fn bytes_differ(what: &str, a: &[u8], b: &[u8]) -> Option<String> {
    if a == b {
        return None;
    }
    let at = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let around = |bytes: &[u8]| {
        let start =
            bytes[..at.min(bytes.len())].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let line = bytes[start..].split(|b| *b == b'\n').next().unwrap_or_default();
        clip(&String::from_utf8_lossy(line))
    };
    Some(format!(
        "{what} at byte {at} of {} (now {}): {:?} instead of {:?}",
        a.len(),
        b.len(),
        around(b),
        around(a)
    ))
}

fn files_differ(a: &Contents, b: &Contents, clean: &dyn Fn(&[u8]) -> Vec<u8>) -> Option<String> {
    let same = |x: &Thing, y: &Thing| match (x, y) {
        (Thing::File(mode_x, x), Thing::File(mode_y, y)) => {
            mode_x == mode_y && (x == y || clean(x) == clean(y))
        }
        _ => x == y,
    };
    let lost = a.keys().filter(|name| !b.contains_key(*name)).map(|name| format!("no {name}"));
    let new = b.keys().filter(|name| !a.contains_key(*name)).map(|name| format!("extra {name}"));
    let changed = a
        .iter()
        .filter(|(name, thing)| b.get(*name).is_some_and(|other| !same(thing, other)))
        .map(|(name, _)| format!("other {name}"));
    let all: Vec<String> = lost.chain(new).chain(changed).collect();
    match all.len() {
        0 => None,
        n if n > 4 => Some(format!("{n} files: {}, …", all[..4].join(", "))),
        _ => Some(format!("files: {}", all.join(", "))),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
