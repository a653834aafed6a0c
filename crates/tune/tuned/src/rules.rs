//! The rules: a TOML file.
//!
//! ```toml
//! [daemon]
//! metrics = "127.0.0.1:9817"
//! quiet_hours = ["09:00-11:30"]
//! cpu_share = 0.1
//!
//! [[rule]]
//! name = "postgres"
//! unit = "postgresql@*.service"
//! work_counter = "psql -Atc 'select sum(xact_commit) from pg_stat_database' postgres"
//! check = "pg_isready -q"
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use fettle_types::parse_time;
use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// With fewer rounds a comparison has no use, as `fettle tune` says.
const LEAST_ROUNDS: u16 = 5;

/// All that a file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// What holds for all rules.
    #[serde(default)]
    pub daemon: DaemonRules,
    /// The rules, of which the first that matches a process holds.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

/// What holds for all rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonRules {
    /// The address of the metrics; it must be of the loopback interface. None if it is not given.
    pub metrics: Option<fettle_metrics::LocalAddress>,
    /// Time between two looks for processes.
    #[serde(deserialize_with = "time")]
    pub look: Duration,
    /// No tuning begins in these hours, by the machine's clock.
    pub quiet_hours: Vec<Hours>,
    /// The share of one processor that tuning may take, over the last hour.
    #[serde(deserialize_with = "share")]
    pub cpu_share: f64,
}

impl Default for DaemonRules {
    fn default() -> Self {
        DaemonRules {
            metrics: None,
            look: Duration::from_secs(10),
            quiet_hours: Vec::new(),
            cpu_share: 0.2,
        }
    }
}

/// Which processes are meant, and how they are tuned.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The systemd unit, with `*` and `?`.
    #[serde(default)]
    pub unit: Option<Pattern>,
    /// The control group, with `*` and `?`.
    #[serde(default)]
    pub cgroup: Option<Pattern>,
    /// The program's path, with `*` and `?`.
    #[serde(default)]
    pub program: Option<Pattern>,
    /// The program's build id in hexadecimal digits, with `*` and `?`.
    #[serde(default)]
    pub build_id: Option<Pattern>,
    /// Libraries that are laid out, too.
    #[serde(default)]
    pub lib: Vec<String>,
    /// A command that prints a number which grows with the processes' work. `{pid}` is the process.
    #[serde(default)]
    pub work_counter: Option<String>,
    /// Count for so long.
    #[serde(default = "default_count", deserialize_with = "time")]
    pub count: Duration,
    /// Compare in so many rounds, unless the answer is clear earlier.
    #[serde(default)]
    pub rounds: Option<u16>,
    /// In so many at most, while a gain is likely and not certain.
    #[serde(default)]
    pub max_rounds: Option<u16>,
    /// How long each turn of a round is.
    #[serde(default, deserialize_with = "some_time")]
    pub turn: Option<Duration>,
    /// Tune by this profile instead of counting.
    #[serde(default)]
    pub profile: Option<std::path::PathBuf>,
    /// Tune processes only that have been seen for so long.
    #[serde(default = "default_after", deserialize_with = "time")]
    pub after: Duration,
    /// A command that succeeds as long as all is well. `{pid}` is the process.
    #[serde(default)]
    pub check: Option<String>,
    /// Time between two checks.
    #[serde(default = "default_check_every", deserialize_with = "time")]
    pub check_every: Duration,
    /// Checks that fail one after the other before tuning is reverted.
    #[serde(default = "default_check_failures")]
    pub check_failures: u32,
    /// Compare again after so long, and tune anew where the load has changed.
    #[serde(default = "default_recheck", deserialize_with = "time")]
    pub recheck: Duration,
    /// Tuning that paused threads for longer is reverted, and not tried again.
    #[serde(default, deserialize_with = "some_time")]
    pub longest_pause: Option<Duration>,
    /// The share of the process groups that is tuned first.
    #[serde(default = "default_canary", deserialize_with = "share")]
    pub canary: f64,
    /// How long these must have done well before the others are tuned.
    #[serde(default, deserialize_with = "time")]
    pub canary_for: Duration,
    /// How long to wait after tuning brought nothing or failed; each time twice as long, up to a day.
    #[serde(default = "default_retry", deserialize_with = "time")]
    pub retry: Duration,
}

fn default_count() -> Duration {
    Duration::from_secs(5)
}

fn default_after() -> Duration {
    Duration::from_secs(60)
}

fn default_check_every() -> Duration {
    Duration::from_secs(10)
}

fn default_check_failures() -> u32 {
    2
}

fn default_recheck() -> Duration {
    Duration::from_secs(3600)
}

fn default_canary() -> f64 {
    1.0
}

fn default_retry() -> Duration {
    Duration::from_secs(600)
}

/// A name with `*` and `?`.
#[derive(Clone, Debug)]
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Whether a name matches.
    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
        let text = String::deserialize(from)?;
        Ok(Pattern(Glob::new(&text).map_err(D::Error::custom)?.compile_matcher()))
    }
}

/// Hours of a day, in minutes since midnight; they may go over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    to: u16,
}

impl Hours {
    /// Whether a minute of the day is within them.
    pub fn contain(self, minute: u16) -> bool {
        match self.from <= self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

impl<'de> Deserialize<'de> for Hours {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hours, D::Error> {
        let text = String::deserialize(from)?;
        let minutes = |text: &str| -> Option<u16> {
            let (hours, minutes) = text.split_once(':')?;
            let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
            (hours * 60 + minutes <= 24 * 60 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let hours = || {
            let (from, to) = text.split_once('-')?;
            Some(Hours { from: minutes(from)?, to: minutes(to)? })
        };
        hours().ok_or_else(|| {
            D::Error::custom(format!("`{text}` are no hours; they are written as \"22:00-06:30\""))
        })
    }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = || D::Error::custom(format!("`{text}` is no time; 250ms, 10s, 5m, 2h, 1d are"));
    let has_unit = text.ends_with(char::is_alphabetic);
    parse_time(&text).ok().filter(|_| has_unit).ok_or_else(wrong)
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(from)?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(D::Error::custom(format!("{share} is no share: above 0, at most 1"))),
    }
}

impl Rules {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As text with line and column, when it cannot be read, others could change it, or it says what is
    /// not understood.
    pub fn read(path: &Path) -> Result<Rules, String> {
        let failed =
            |error: io::Error| format!("cannot read the rules in {}: {error}", path.display());
        let mut file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        // It says which commands are run.
        if ![0, fettle_live::user()].contains(&meta.uid()) || meta.mode() & 0o022 != 0 {
            return Err(format!(
                "{}: other users may change it, and it says which commands are run: it must belong to \
                 you or root, and be writable for its owner alone (chmod go-w)",
                path.display()
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        Rules::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads text.
    ///
    /// # Errors
    ///
    /// As text, with line and column where there is one.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let rules: Rules = toml::from_str(text).map_err(|error| error.to_string())?;
        if rules.rules.is_empty() {
            return Err("it has no [[rule]]: nothing would ever be tuned".to_owned());
        }
        for (at, rule) in rules.rules.iter().enumerate() {
            let name = &rule.name;
            if rules.rules[..at].iter().any(|other| other.name == *name) {
                return Err(format!("two rules are called `{name}`"));
            }
            let any = [&rule.unit, &rule.cgroup, &rule.program, &rule.build_id];
            if any.iter().all(|pattern| pattern.is_none()) {
                return Err(format!(
                    "rule `{name}` names no process: it needs unit, cgroup, program or build_id"
                ));
            }
            let rounds = [("rounds", rule.rounds), ("max_rounds", rule.max_rounds)];
            let too_few = rounds.iter().find(|(_, n)| n.is_some_and(|n| n < LEAST_ROUNDS));
            if let Some((key, _)) = too_few {
                return Err(format!(
                    "rule `{name}`: {key} is at least {LEAST_ROUNDS}: fewer would show nothing"
                ));
            }
            if rule.check_failures == 0 {
                return Err(format!("rule `{name}`: check_failures is at least 1"));
            }
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_needs_a_name_and_a_pattern() {
        let rules = Rules::parse(
            "[daemon]\nquiet_hours = [\"22:30-06:00\"]\n[[rule]]\nname = \"a\"\nprogram = \"/usr/*/a\"\n\
             recheck = \"1.5h\"\nlongest_pause = \"20ms\"",
        );
        let rules = rules.unwrap();
        let rule = &rules.rules[0];
        assert_eq!(rule.recheck, Duration::from_secs(5400));
        assert_eq!(rule.longest_pause, Some(Duration::from_millis(20)));
        assert!(rule.program.as_ref().unwrap().is_match("/usr/bin/a"));
        let quiet = rules.daemon.quiet_hours[0];
        assert!(quiet.contain(23 * 60) && quiet.contain(0) && !quiet.contain(6 * 60));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = |text: &str| Rules::parse(text).unwrap_err();
        let rule = "[[rule]]\nname = \"a\"\nunit = \"a.service\"\n";
        assert!(wrong("").contains("no [[rule]]"));
        assert!(wrong("[[rule]]\nname = \"a\"\n").contains("names no process"));
        assert!(wrong(&format!("{rule}{rule}")).contains("two rules"));
        let said = wrong(&format!("{rule}recheck = \"soon\"\n"));
        assert!(said.contains("line 4") && said.contains("no time"), "{said}");
        let said = wrong(&format!("{rule}chekc = \"true\"\n"));
        assert!(said.contains("line 4") && said.contains("chekc"), "{said}");
        let said = wrong(&format!("{rule}rounds = 4\n"));
        assert!(said.contains("rounds is at least 5"), "{said}");
        let said = wrong(&format!("{rule}canary = 2.0\n"));
        assert!(said.contains("no share"), "{said}");
        let said = wrong(&format!("[daemon]\nquiet_hours = [\"9-11\"]\n{rule}"));
        assert!(said.contains("no hours"), "{said}");
        let said = wrong(&format!("[daemon]\nmetrics = \"0.0.0.0:80\"\n{rule}"));
        assert!(said.contains("this machine alone"), "{said}");
    }
}
