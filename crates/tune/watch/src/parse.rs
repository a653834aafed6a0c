//! Rules as text.
//!
//! ```text
//! rules     = { rule }
//! rule      = "rule" NAME "{" condition "->" action { "," action } [ budget ] "}"
//! condition = target "spins" [ "exactly" ] TIME "without" "progress"
//!           | target "waits" "in" "a" "cycle"
//!           | target "sleeps" TIME "while" "it" "holds" "bytes"
//!           | "scalar" TEXT target "still" "for" TIME
//!           | PERCENTILE "of" "histogram" TEXT target ">" VALUE windows
//!           | PERCENTILE "of" "requests" TEXT target ">" VALUE windows
//!           | "share" "of" "failed" "requests" TEXT target ">" PERCENT windows
//!           | "share" "of" TEXT "in" TEXT target ">" PERCENT windows
//! windows   = "over" TIME [ "for" NUMBER "windows" ] [ "until" ( VALUE | PERCENT ) ]
//! VALUE     = NUMBER | TIME
//! target    = ( "worker" | "process" ) "of" TEXT
//! action    = "log" | "keep" "evidence" | "restart" "kill" | "restart" "replace" | "restart" "thread" TEXT | "signal" NAME | "run" TEXT | "webhook" TEXT
//!           | "set" TEXT "to" NUMBER [ "for" TIME ] | "tune" [ "by" TEXT ] | "locate" [ "over" TIME ]
//! budget    = "at" "most" NUMBER "in" TIME
//! TIME      = NUMBER ( "us" | "ms" | "s" | "m" )
//! PERCENT   = NUMBER "%"                     PERCENTILE = "p" NUMBER, such as p99.9
//! ```
//!
//! `#` begins a comment. A sensor's target is written `of process of "app"`. A time is so many
//! nanoseconds, which is what histograms of times should count.

use std::time::Duration;

use fettle_requests::{Diagnostic, Report, Severity, Source, TextSpan};

use fettle_sensor::is_name;

use crate::rule::{Action, Budget, Condition, Measure, Rule, Target, Windows};
use crate::url::Url;

/// More rules than this in one file are a mistake.
const RULES_MAX: usize = 1000;

/// What `locate` records, if nothing is said, and at most.
const LOCATE_OVER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// The shortest window over requests.
const REQUESTS_OVER: Duration = Duration::from_millis(500);

/// Signals that a rule may send, by their names without `SIG`.
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("WINCH", 28),
];

/// The longest name of a rule.
const NAME_MAX: usize = 64;

/// Reads rules from a text that goes by `name`.
///
/// # Errors
///
/// All that is wrong with it, each with its line and column.
pub fn parse(name: &str, text: &str) -> Result<Vec<Rule>, Report> {
    let report = Report { files: vec![Source::new(name, text)], diagnostics: Vec::new() };
    let mut parser = Parser { tokens: Vec::new(), at: 0, report };
    parser.tokens = parser.tokenize(text);
    let mut rules: Vec<Rule> = Vec::new();
    while parser.peek().is_some() {
        let begin = parser.span();
        match parser.rule() {
            Some(rule) if rules.iter().any(|other| other.name == rule.name) => {
                let what = format!("there is another rule `{}`", rule.name);
                parser.complain(begin, what, Some("rules go by their names in the journal"));
            }
            Some(rule) => rules.push(rule),
            None => parser.skip_to_rule(),
        }
        if rules.len() > RULES_MAX {
            parser.complain(begin, format!("there are more than {RULES_MAX} rules"), None);
            break;
        }
    }
    if rules.is_empty() && !parser.report.has_errors() {
        let help = "rule stuck { worker of \"nginx\" spins 3ms without progress -> log }";
        parser.complain(TextSpan::default(), "there is no rule".to_owned(), Some(help));
    }
    if parser.report.has_errors() { Err(parser.report) } else { Ok(rules) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Word(String),
    Text(String),
    Number(i64),
    Time(Duration),
    /// In millionths.
    Percent(u32),
    Sign(&'static str),
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    span: TextSpan,
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    report: Report,
}

impl Parser {
    fn complain(&mut self, span: TextSpan, message: String, help: Option<&str>) {
        // More of them are of no help.
        if self.report.diagnostics.len() < 20 {
            self.report.diagnostics.push(Diagnostic {
                severity: Severity::Error,
                file: 0,
                span,
                message,
                help: help.map(str::to_owned),
            });
        }
    }

    fn tokenize(&mut self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            let (start, rest) = (at, &text[at..]);
            let kind = if first.is_whitespace() {
                at += first.len_utf8();
                continue;
            } else if first == '#' {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            } else if first.is_ascii_alphabetic() {
                at += word_length(rest);
                Some(Kind::Word(text[start..at].to_owned()))
            } else if first.is_ascii_digit()
                || first == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit())
            {
                at += 1;
                at += text[at..]
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '%'))
                    .unwrap_or(text.len() - at);
                let found = number_or_time(&text[start..at]);
                if found.is_none() {
                    let what = format!(
                        "`{}` is neither a number, a time nor a percentage",
                        &text[start..at]
                    );
                    self.complain(TextSpan { start, end: at }, what, Some("3ms, 1.5s, 200us, 1m"));
                }
                found
            } else if first == '"' {
                let inner = &rest[1..];
                match inner.find(['"', '\n']).filter(|end| inner[*end..].starts_with('"')) {
                    Some(end) => {
                        at += end + 2;
                        Some(Kind::Text(inner[..end].to_owned()))
                    }
                    None => {
                        at += rest.find('\n').unwrap_or(rest.len());
                        let what = "this text has no closing quote on its line".to_owned();
                        self.complain(TextSpan { start, end: at }, what, None);
                        None
                    }
                }
            } else if let Some(sign) =
                ["->", "{", "}", ",", ">"].into_iter().find(|s| rest.starts_with(s))
            {
                at += sign.len();
                Some(Kind::Sign(sign))
            } else {
                at += first.len_utf8();
                let shown: String = first.escape_debug().collect();
                let what = format!("`{shown}` has no meaning in rules");
                self.complain(TextSpan { start, end: at }, what, None);
                None
            };
            let span = TextSpan { start, end: at };
            tokens.extend(kind.map(|kind| Token { kind, span }));
        }
        tokens
    }

    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn span(&self) -> TextSpan {
        let end = self.tokens.last().map_or(0, |token| token.span.end);
        self.tokens.get(self.at).map_or(TextSpan { start: end, end }, |token| token.span)
    }

    fn next_is(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Word(found)) if found == word)
    }

    fn accept(&mut self, word: &str) -> bool {
        let is = self.next_is(word);
        self.at += usize::from(is);
        is
    }

    /// Takes these words, or says which is missing.
    fn words(&mut self, words: &[&str]) -> Option<()> {
        for word in words {
            if !self.accept(word) {
                self.expected(&format!("`{word}`"), &[word]);
                return None;
            }
        }
        Some(())
    }

    fn sign(&mut self, sign: &'static str) -> Option<()> {
        if self.peek() == Some(&Kind::Sign(sign)) {
            self.at += 1;
            return Some(());
        }
        self.expected(&format!("`{sign}`"), &[]);
        None
    }

    fn text(&mut self, what: &str) -> Option<String> {
        if let Some(Kind::Text(text)) = self.peek() {
            let text = text.clone();
            self.at += 1;
            return Some(text);
        }
        self.expected(what, &[]);
        None
    }

    fn time(&mut self) -> Option<Duration> {
        if let Some(Kind::Time(time)) = self.peek() {
            let time = *time;
            self.at += 1;
            return Some(time);
        }
        self.expected("a time such as 3ms", &[]);
        None
    }

    fn expected(&mut self, what: &str, words: &[&str]) {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Text(text)) => format!("{text:?}"),
            Some(Kind::Number(number)) => format!("`{number}`"),
            Some(Kind::Time(time)) => format!("`{time:?}`"),
            Some(Kind::Percent(share)) => format!("`{} %`", f64::from(*share) / 1e4),
            Some(Kind::Sign(sign)) => format!("`{sign}`"),
        };
        let near = match self.peek() {
            Some(Kind::Word(word)) => {
                let close = |other: &&&str| strsim::damerau_levenshtein(other, word) <= 2;
                words.iter().find(close).map(|near| format!("did you mean `{near}`?"))
            }
            _ => None,
        };
        let span = self.span();
        self.complain(span, format!("{what} is expected here, not {found}"), near.as_deref());
    }

    fn skip_to_rule(&mut self) {
        self.at += 1;
        while self.peek().is_some() && !self.next_is("rule") {
            self.at += 1;
        }
    }

    fn rule(&mut self) -> Option<Rule> {
        self.words(&["rule"])?;
        let Some(Kind::Word(name)) = self.peek().cloned() else {
            self.expected("the rule's name", &[]);
            return None;
        };
        if name.len() > NAME_MAX {
            let help = "folders with evidence are named after it";
            let what = format!("a rule's name has {NAME_MAX} bytes at most");
            self.complain(self.span(), what, Some(help));
            return None;
        }
        self.at += 1;
        self.sign("{")?;
        let (target, condition) = self.condition()?;
        self.sign("->")?;
        let of_workers = matches!(target, Target::Workers(_));
        let mut actions = Vec::new();
        loop {
            let span = self.span();
            let action = self.action()?;
            if of_workers && action == Action::RestartReplace {
                let help = "a worker's parent starts another: `restart kill`";
                self.complain(span, "workers have no spares".into(), Some(help));
                return None;
            }
            actions.push(action);
            if self.peek() != Some(&Kind::Sign(",")) {
                break;
            }
            self.at += 1;
        }
        let budget = if self.next_is("at") { self.budget()? } else { Budget::default() };
        self.sign("}")?;
        Some(Rule { name, target, condition, actions, budget })
    }

    fn target(&mut self) -> Option<Target> {
        let workers = self.next_is("worker");
        if !workers && !self.next_is("process") {
            self.expected("`worker` or `process`", &["worker", "process"]);
            return None;
        }
        self.at += 1;
        self.words(&["of"])?;
        let span = self.span();
        let program = self.text("the program's name in quotes")?;
        if program.is_empty() || program.contains(['/', '*', '\0']) {
            let help = "it is the last part of the path that `readlink /proc/PID/exe` prints";
            self.complain(span, "no program goes by that name".into(), Some(help));
            return None;
        }
        Some(if workers { Target::Workers(program) } else { Target::Processes(program) })
    }

    fn condition(&mut self) -> Option<(Target, Condition)> {
        if self.accept("scalar") {
            let sensor = self.name("sensor")?;
            self.words(&["of"])?;
            let target = self.target()?;
            self.words(&["still", "for"])?;
            return Some((target, Condition::ScalarStill { sensor, least: self.time()? }));
        }
        if let Some(found) = self.above() {
            return found;
        }
        let target = self.target()?;
        let condition = if self.accept("spins") {
            let exactly = self.accept("exactly");
            let least = self.time()?;
            self.words(&["without", "progress"])?;
            Condition::Spins { least, exactly }
        } else if self.accept("waits") {
            self.words(&["in", "a", "cycle"])?;
            Condition::WaitsInCycle
        } else if self.accept("sleeps") {
            let least = self.time()?;
            self.words(&["while", "it", "holds", "bytes"])?;
            Condition::SleepsOnBytes { least }
        } else {
            self.expected("`spins`, `waits` or `sleeps`", &["spins", "waits", "sleeps"]);
            return None;
        };
        Some((target, condition))
    }

    /// A condition over windows, if one begins here.
    fn above(&mut self) -> Option<Option<(Target, Condition)>> {
        match self.peek() {
            Some(Kind::Word(word)) if word == "share" => Some(self.share_above()),
            Some(Kind::Word(word)) => percentile(word).map(|share| self.quantile_above(share)),
            _ => None,
        }
    }

    fn quantile_above(&mut self, share: u32) -> Option<(Target, Condition)> {
        self.at += 1;
        self.words(&["of"])?;
        if self.accept("requests") {
            return self
                .requests_above(|pattern| Measure::Requests { pattern, share }, Parser::value);
        }
        if !self.accept("histogram") {
            self.expected("`histogram` or `requests`", &["histogram", "requests"]);
            return None;
        }
        let histogram = self.name("histogram")?;
        let target = self.sensor_target()?;
        let measure = Measure::Quantile { histogram, share };
        let windows = self.windows(measure, Parser::value)?;
        Some((target, Condition::Above(windows)))
    }

    fn share_above(&mut self) -> Option<(Target, Condition)> {
        self.words(&["share", "of"])?;
        if self.accept("failed") {
            self.words(&["requests"])?;
            return self.requests_above(|pattern| Measure::Failures { pattern }, Parser::percent);
        }
        let part = self.name("scalar")?;
        self.words(&["in"])?;
        let whole = self.name("scalar")?;
        let target = self.sensor_target()?;
        let windows = self.windows(Measure::Share { part, whole }, Parser::percent)?;
        Some((target, Condition::Above(windows)))
    }

    fn requests_above(
        &mut self,
        measure: impl FnOnce(String) -> Measure,
        value: fn(&mut Parser) -> Option<u64>,
    ) -> Option<(Target, Condition)> {
        let what = "the requests in quotes, such as \"GET /cart*\", or \"*\" for all,";
        let pattern = self.text(what)?;
        let target = self.sensor_target()?;
        let span = self.span();
        let windows = self.windows(measure(pattern), value)?;
        if windows.over < REQUESTS_OVER {
            let what = format!("windows over requests take {REQUESTS_OVER:?} at least");
            self.complain(span, what, Some("requests are known some tenths of a second late"));
            return None;
        }
        Some((target, Condition::Above(windows)))
    }

    fn sensor_target(&mut self) -> Option<Target> {
        self.words(&["of"])?;
        self.target()
    }

    fn windows(
        &mut self,
        measure: Measure,
        value: fn(&mut Parser) -> Option<u64>,
    ) -> Option<Windows> {
        self.sign(">")?;
        let limit = value(self)?;
        self.words(&["over"])?;
        let over = self.time()?;
        let mut windows = 1;
        if self.accept("for") {
            let span = self.span();
            let number = self.number("a number of windows")?;
            let Some(number) = u32::try_from(number).ok().filter(|number| *number > 0) else {
                self.complain(span, format!("there are no {number} windows"), None);
                return None;
            };
            windows = number;
            if !self.accept("window") {
                self.words(&["windows"])?;
            }
        }
        let span = self.span();
        let until = if self.accept("until") { value(self)? } else { limit };
        if until > limit {
            let what = "what it falls below is more than what it has to be above".to_owned();
            self.complain(span, what, None);
            return None;
        }
        Some(Windows { measure, limit, until, over, windows })
    }

    /// A number, or a time in nanoseconds.
    fn value(&mut self) -> Option<u64> {
        let value = match self.peek() {
            Some(Kind::Number(number)) => u64::try_from(*number).ok(),
            Some(Kind::Time(time)) => u64::try_from(time.as_nanos()).ok(),
            _ => None,
        };
        if value.is_none() {
            self.expected("a number of what the histogram counts, or a time such as 20ms,", &[]);
        }
        self.at += usize::from(value.is_some());
        value
    }

    fn percent(&mut self) -> Option<u64> {
        if let Some(Kind::Percent(share)) = self.peek() {
            let share = u64::from(*share);
            self.at += 1;
            return Some(share);
        }
        self.expected("a percentage such as 2%", &[]);
        None
    }

    fn action(&mut self) -> Option<Action> {
        let known = ["log", "keep", "restart", "signal", "run", "set", "webhook", "tune", "locate"];
        if self.accept("log") {
            return Some(Action::Log);
        }
        if self.accept("keep") {
            return self.words(&["evidence"]).map(|()| Action::KeepEvidence);
        }
        if self.accept("restart") {
            return self.restart();
        }
        if self.accept("run") {
            return self.command("a shell command in quotes").map(Action::Run);
        }
        if self.accept("set") {
            return self.set();
        }
        if self.accept("tune") {
            return self.tune();
        }
        if self.accept("locate") {
            return self.locate();
        }
        if self.accept("webhook") {
            return self.url().map(Action::Webhook);
        }
        if self.accept("signal") {
            let signal = match self.peek() {
                Some(Kind::Word(word)) => {
                    let bare = word.trim_start_matches("SIG");
                    SIGNALS.iter().find(|(name, _)| *name == bare)
                }
                _ => None,
            };
            let Some((name, number)) = signal else {
                let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
                self.expected(&format!("a signal ({})", names.join(", ")), &names);
                return None;
            };
            self.at += 1;
            return Some(Action::Signal { name: (*name).to_owned(), number: *number });
        }
        self.expected(
            "`log`, `keep evidence`, `restart kill`, `restart replace`, `restart thread TEXT`, `signal NAME`, `run TEXT`, `set TEXT to NUMBER`, \
             `tune`, `locate` or `webhook TEXT`",
            &known,
        );
        None
    }

    fn restart(&mut self) -> Option<Action> {
        if self.accept("kill") {
            return Some(Action::RestartKill);
        }
        if self.accept("replace") {
            return Some(Action::RestartReplace);
        }
        if self.accept("thread") {
            return self.name("thread").map(Action::RestartThread);
        }
        self.expected("`kill`, `replace`, or `thread TEXT`", &["kill", "replace", "thread"]);
        None
    }

    fn tune(&mut self) -> Option<Action> {
        let what = "a command in quotes that prints a number which grows with the work";
        let work = if self.accept("by") { Some(self.command(what)?) } else { None };
        Some(Action::Tune { work })
    }

    fn locate(&mut self) -> Option<Action> {
        if !self.accept("over") {
            return Some(Action::Locate { over: LOCATE_OVER.0 });
        }
        let span = self.span();
        let over = self.time()?;
        if over > LOCATE_OVER.1 {
            let what = format!("`locate` records for {:?} at most", LOCATE_OVER.1);
            let help = "all messages of that time are kept in a file";
            self.complain(span, what, Some(help));
            return None;
        }
        Some(Action::Locate { over })
    }

    fn set(&mut self) -> Option<Action> {
        let knob = self.name("knob")?;
        self.words(&["to"])?;
        let value = self.number("a whole number, such as 2,")?;
        let hold = if self.accept("for") { Some(self.time()?) } else { None };
        Some(Action::Set { knob, value, hold })
    }

    /// A command, which says something.
    fn command(&mut self, what: &str) -> Option<String> {
        let span = self.span();
        let command = self.text(what)?;
        if command.trim().is_empty() {
            self.complain(span, "this is no command".into(), None);
            return None;
        }
        Some(command)
    }

    /// A sensor's name, of what is called so.
    fn name(&mut self, of: &str) -> Option<String> {
        let span = self.span();
        let name = self.text(&format!("the {of}'s name in quotes"))?;
        if !is_name(name.as_bytes()) {
            let what =
                format!("{name:?} is no {of}'s name: these are 1 to 63 of A-Z a-z 0-9 . - _");
            self.complain(span, what, None);
            return None;
        }
        Some(name)
    }

    fn number(&mut self, what: &str) -> Option<i64> {
        if let Some(Kind::Number(number)) = self.peek() {
            let number = *number;
            self.at += 1;
            return Some(number);
        }
        self.expected(what, &[]);
        None
    }

    fn url(&mut self) -> Option<Url> {
        let span = self.span();
        let text = self.text("a URL in quotes, such as \"http://127.0.0.1:9000/hook\",")?;
        match text.parse::<Url>() {
            Ok(url) => Some(url),
            Err(error) => {
                self.complain(span, error.to_string(), error.help());
                None
            }
        }
    }

    fn budget(&mut self) -> Option<Budget> {
        self.words(&["at", "most"])?;
        let span = self.span();
        let times = self.number("a number of times")?;
        let Ok(times) = u32::try_from(times) else {
            self.complain(span, format!("a rule cannot act {times} times"), None);
            return None;
        };
        self.words(&["in"])?;
        Some(Budget { times, within: self.time()? })
    }
}

/// The length of the word that a text begins with.
fn word_length(text: &str) -> usize {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut length = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
    // `p99.9` is a word, too.
    if percentile(&text[..length]).is_some() && text[length..].starts_with('.') {
        let rest = &text[length + 1..];
        length += 1 + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    }
    // An arrow may stand right behind a word.
    let is_before_arrow = text[..length].ends_with('-') && text[length..].starts_with('>');
    length - usize::from(is_before_arrow)
}

/// Of how many of a million `p99.9` speaks.
fn percentile(word: &str) -> Option<u32> {
    let digits = word.strip_prefix('p')?;
    millionths(digits).filter(|share| (1..1_000_000).contains(share))
}

/// So many hundredths, as millionths.
fn millionths(digits: &str) -> Option<u32> {
    digits.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
    let hundredths: f64 = digits.parse().ok()?;
    (0.0..=100.0).contains(&hundredths).then(|| (hundredths * 1e4).round() as u32)
}

fn number_or_time(text: &str) -> Option<Kind> {
    if let Some(digits) = text.strip_suffix('%') {
        return millionths(digits).map(Kind::Percent);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" => return digits.parse().ok().map(Kind::Number),
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    let seconds = digits.parse::<f64>().ok()? * scale;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (!time.is_zero()).then_some(Kind::Time(time))
}

#[cfg(test)]
mod tests;
