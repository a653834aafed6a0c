//! Reads what a guest and its plugin have written of measurements.

use std::str::FromStr;

use anyhow::{Context, Result, ensure};

/// A vCPU's instructions during a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// In user mode.
    pub user: u64,
    /// In a kernel, Linux's or ours.
    pub kernel: u64,
    /// Of `kernel`: in loops that wait.
    pub waiting: u64,
    /// Entries to a kernel.
    pub entries: u64,
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// Which kind of processors: `linux`, `lent`, `isolated`.
    pub system: String,
    /// How many of them, or which one.
    pub processors: u32,
    /// The program's name for it.
    pub what: String,
    /// How many operations it had.
    pub count: u64,
    /// Virtual time, in instructions.
    pub ticks: u64,
    /// How often processors were not in step.
    pub slips: u64,
    /// The vCPU on which it ended.
    pub by: usize,
    /// By vCPU.
    pub vcpus: Vec<Counts>,
}

impl Measurement {
    /// Instructions of all vCPUs that did not wait.
    pub fn work(&self) -> u64 {
        self.vcpus.iter().map(|one| one.user + one.kernel - one.waiting).sum()
    }
}

fn field<T: FromStr>(line: &str, name: &str) -> Result<T> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == name);
    let text = words.next().with_context(|| format!("no {name} in {line:?}"))?;
    text.parse().ok().with_context(|| format!("{name} is no number in {line:?}"))
}

/// The plugin's records.
fn records(counts: &str) -> Result<Vec<Measurement>> {
    let mut records: Vec<Measurement> = Vec::new();
    for line in counts.lines() {
        if line.starts_with("ticks") {
            records.push(Measurement {
                system: String::new(),
                processors: 0,
                what: String::new(),
                count: 0,
                ticks: field(line, "ticks")?,
                slips: field(line, "slips")?,
                by: field(line, "by")?,
                vcpus: Vec::new(),
            });
        } else {
            let record = records.last_mut().context("the plugin's file begins in the middle")?;
            record.vcpus.push(Counts {
                user: field(line, "user")?,
                kernel: field(line, "kernel")?,
                waiting: field(line, "waiting")?,
                entries: field(line, "entries")?,
            });
        }
    }
    Ok(records)
}

/// Names the plugin's records as the guest's console does, in the same order.
pub fn read(shown: &str, counts: &str) -> Result<Vec<Measurement>> {
    let mut records = records(counts)?.into_iter();
    let mut measured = Vec::new();
    let (mut system, mut processors) = (String::new(), 0);
    for line in shown.lines() {
        if let Some(label) = line.strip_prefix("label: ") {
            let (kind, number) = label.split_once(' ').context("a label has a number")?;
            system = kind.to_string();
            processors = number.trim().parse().context("a label has a number")?;
        } else if let Some(name) = line.strip_prefix("measured ") {
            let (what, count) = name.split_once(' ').context("a measurement has a count")?;
            let record = records.next().context("the guest measured more than the plugin")?;
            measured.push(Measurement {
                system: system.clone(),
                processors,
                what: what.to_string(),
                count: count.trim().parse().context("a measurement has a count")?,
                ..record
            });
        }
    }
    ensure!(records.next().is_none(), "the plugin measured more than the guest:\n{shown}");
    Ok(measured)
}

/// Prints what each vCPU did.
pub fn show(measured: &[Measurement]) {
    for one in measured {
        println!("{} {} {}: {} ticks", one.what, one.system, one.processors, one.ticks);
        for (vcpu, counts) in one.vcpus.iter().enumerate() {
            println!(
                "  vCPU {vcpu}: user {:>11}  kernel {:>11}  of it waiting {:>11}  entries {:>7}",
                counts.user, counts.kernel, counts.waiting, counts.entries
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_get_their_names_in_order() {
        let counts = "ticks 100 slips 0 by 1\nvcpu 0 user 5 kernel 7 waiting 3 entries 1\n\
                      vcpu 1 user 50 kernel 0 waiting 0 entries 0\nticks 9 slips 2 by 0\n";
        let shown = "label: linux 1\nmeasured touch 10\nnoise\nlabel: lent 2\nmeasured radix 2\n";
        let measured = read(shown, counts).unwrap();
        assert_eq!(measured.len(), 2);
        assert_eq!(measured[0].what, "touch");
        assert_eq!((measured[0].ticks, measured[0].work()), (100, 59));
        assert_eq!((measured[1].system.as_str(), measured[1].processors), ("lent", 2));
        assert_eq!(measured[1].slips, 2);
    }

    #[test]
    fn a_record_without_a_name_is_an_error() {
        assert!(read("", "ticks 100 slips 0 by 1\n").is_err());
        assert!(read("label: linux 1\nmeasured touch 10\n", "").is_err());
    }
}
