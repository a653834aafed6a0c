//! Messages about several processes of one program: a server with hundreds of workers has one line
//! for each reason, not for each worker.

use std::collections::BTreeMap;

use fettle_types::Pid;

/// How many processes are named.
const NAMED: usize = 3;

/// Processes with one reason.
pub struct Several {
    /// Their numbers.
    pids: Vec<Pid>,
    /// The reason, as it is of the first.
    pub why: String,
}

impl Several {
    /// Groups by reason, in the order in which they came. Reasons that differ only in numbers and
    /// addresses are the same.
    pub fn of(reported: &[(Pid, String)]) -> Vec<Several> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut all: Vec<Several> = Vec::new();
        for (pid, why) in reported {
            let place = *places.entry(without_numbers(why)).or_insert(all.len());
            match all.get_mut(place) {
                Some(several) => several.pids.push(*pid),
                None => all.push(Several { pids: vec![*pid], why: why.clone() }),
            }
        }
        all
    }

    /// Whether it is one process alone: its number.
    pub fn one(&self) -> Option<Pid> {
        (self.pids.len() == 1).then(|| self.pids[0])
    }

    /// The processes as the subject of a sentence, and the verb in its number.
    pub fn who<'v>(&self, (one, more): (&'v str, &'v str)) -> (String, &'v str) {
        let names: Vec<String> = self.pids.iter().take(NAMED).map(Pid::to_string).collect();
        match (&self.pids[..], self.pids.len().saturating_sub(NAMED)) {
            ([pid], _) => (format!("process {pid}"), one),
            (pids, 0) => (format!("{} processes ({})", pids.len(), names.join(", ")), more),
            (pids, others) => {
                let names = names.join(", ");
                (format!("{} processes ({names} and {others} others)", pids.len()), more)
            }
        }
    }
}

fn without_numbers(text: &str) -> String {
    let is_of_number = |c: char| c.is_ascii_hexdigit() || c == 'x';
    let mut words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let mut rest = String::new();
    for word in &mut words {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_number =
            bare.starts_with(|c: char| c.is_ascii_digit()) && bare.chars().all(is_of_number);
        rest.push_str(if is_number { &word[bare.len()..] } else { word });
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hundreds_with_one_reason_are_one() {
        let numbered = |number: i32| Pid::try_from(number).unwrap();
        let reason = |number: i32| {
            format!("the word at {:#x} in its heap may lead to 0x7f00", number * 4096)
        };
        let mut reported: Vec<(Pid, String)> =
            (1..=200).map(|pid| (numbered(pid), reason(pid))).collect();
        reported.insert(7, (numbered(1000), "it uses the gs segment itself".to_owned()));
        let all = Several::of(&reported);
        assert_eq!(all.len(), 2);
        let verbs = ("was", "were");
        let (who, verb) = all[0].who(verbs);
        assert_eq!(format!("{who} {verb}"), "200 processes (1, 2, 3 and 197 others) were");
        assert_eq!(
            (all[1].who(verbs).0, all[1].one()),
            ("process 1000".to_owned(), Some(numbered(1000)))
        );
        assert_eq!(all[0].why, reason(1));
    }
}
