//! What is measured once, and read by several tables.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value as Json;

use super::loads;
use super::table::Value;
use crate::bench::kernel_tune::{self, root};
use crate::bench::{self, machine};
use crate::repo;

/// A measurement, or why there is none.
type Measured = OnceCell<std::result::Result<Json, String>>;

/// What is measured once.
pub struct Sources {
    /// The command.
    pub fettle: PathBuf,
    /// Few rounds.
    pub quick: bool,
    /// What benchmarks have left is not measured again.
    pub reuse: bool,
    /// Its folder for what it measures.
    pub place: PathBuf,
    observing: Measured,
    systems: Measured,
    messages: Measured,
    message_sizes: Measured,
    misses: Measured,
    why: Measured,
    probes: Measured,
    packaged: Measured,
    jars: Measured,
    tuned: Measured,
    kernel_root: OnceCell<std::result::Result<root::Measured, String>>,
}

impl Sources {
    /// Nothing is measured yet.
    pub fn new(fettle: PathBuf, quick: bool, reuse: bool) -> Result<Sources> {
        Ok(Sources {
            fettle,
            quick,
            reuse,
            place: repo::target_folder("papers")?,
            observing: OnceCell::new(),
            systems: OnceCell::new(),
            messages: OnceCell::new(),
            message_sizes: OnceCell::new(),
            misses: OnceCell::new(),
            why: OnceCell::new(),
            probes: OnceCell::new(),
            packaged: OnceCell::new(),
            jars: OnceCell::new(),
            tuned: OnceCell::new(),
            kernel_root: OnceCell::new(),
        })
    }

    /// Rounds for a figure, or for a first look.
    fn rounds(&self) -> usize {
        if self.quick { 6 } else { 20 }
    }

    /// What observing calls costs.
    pub fn observing(&self) -> Result<&Json> {
        self.once(&self.observing, "observing", || {
            bench::probes::measure(&bench::probes::Options::of(self.rounds(), &self.fettle))
        })
    }

    /// The systems that start here, the native one first.
    pub fn hosts(&self) -> Vec<&'static str> {
        let starts = |host: &str| {
            let check = ["compare", "--check", "--on", "native", "--on", host];
            Command::new(&self.fettle).args(check).output().is_ok_and(|out| out.status.success())
        };
        let hosts = ["uml", "gvisor:ptrace", "gvisor:systrap"];
        ["native"].into_iter().chain(hosts.into_iter().filter(|host| starts(host))).collect()
    }

    /// Calls on several systems.
    pub fn systems(&self) -> Result<&Json> {
        self.once(&self.systems, "systems", || self.fettle(&self.systems_command()))
    }

    /// Its arguments.
    pub fn systems_command(&self) -> Vec<String> {
        let on: String = self.hosts().iter().map(|host| format!(" --on {host}")).collect();
        words(&format!("compare{on} --hold --rounds {} --json", self.rounds()))
    }

    /// Messages between processes, and making processes.
    pub fn messages(&self) -> Result<&Json> {
        self.once(&self.messages, "messages", || self.fettle(&self.messages_command()))
    }

    /// Its arguments.
    pub fn messages_command(&self) -> Vec<String> {
        words(&format!("bench ipc --rounds {} --json", if self.quick { 1 } else { 5 }))
    }

    /// How large messages of a load are.
    pub fn message_sizes(&self) -> Result<&Json> {
        self.once(&self.message_sizes, "message-sizes", || {
            loads::messages(&self.fettle, &self.place)
        })
    }

    /// What calls miss in modelled caches and TLBs.
    pub fn misses(&self) -> Result<&Json> {
        self.once(&self.misses, "misses", || {
            bench::misses::measure(&bench::misses::Options::usual())
        })
    }

    /// Where the time of a read goes, and how it is distributed.
    pub fn why(&self) -> Result<&Json> {
        self.once(&self.why, "why", || self.fettle(&self.why_command()))
    }

    /// Its arguments.
    pub fn why_command(&self) -> Vec<String> {
        let main = self.hosts().get(1).copied().unwrap_or("native");
        words(&format!("compare --on {main} --why read-4k --rounds {} --json", self.rounds()))
    }

    /// What probes cost programs.
    pub fn probes(&self) -> Result<&Json> {
        let json = self.place.join("probe.json");
        let options = bench::probe::Options {
            rounds: Some(self.rounds()),
            json: Some(json.clone()),
            ..bench::probe::Options::quick(&self.fettle)
        };
        self.kept(&self.probes, &json, || bench::probe::run(&options).map(drop))
    }

    /// What probes cost programs of Debian.
    pub fn packaged(&self) -> Result<&Json> {
        let fettle = Some(self.fettle.clone());
        let options = bench::packaged::Options { rounds: self.rounds(), fettle };
        let json = repo::target().join("bench/packaged/packaged.json");
        self.kept(&self.packaged, &json, || bench::packaged::measure(&options).map(drop))
    }

    /// Programs as jars.
    pub fn jars(&self) -> Result<&Json> {
        let options = bench::jar::Options::some("", self.rounds(), &self.fettle);
        let json = repo::target().join("bench/jar/jar.json");
        self.kept(&self.jars, &json, || bench::jar::run(&options).map(drop))
    }

    /// A group of the kernel's functions, laid out in a guest.
    pub fn kernel_root(&self) -> Result<&root::Measured> {
        let measure = || {
            let options = kernel_tune::Options::of(Some(self.fettle.clone()));
            root::measure(&options).map_err(|error| format!("{error:#}"))
        };
        self.kernel_root.get_or_init(measure).as_ref().map_err(|why| anyhow!("{why}"))
    }

    /// Running programs with their code laid out anew.
    pub fn tuned(&self) -> Result<&Json> {
        let options = bench::tune::Options::some(&self.fettle, self.quick);
        let json = repo::target().join("bench/tune/tune.json");
        self.kept(&self.tuned, &json, || bench::tune::run(&options).map(drop))
    }

    /// What is measured, which is kept in a file of that name; with `--reuse` what is there from before.
    fn once<'a>(
        &self,
        cell: &'a Measured,
        name: &str,
        measure: impl FnOnce() -> Result<Json>,
    ) -> Result<&'a Json> {
        // A first look is nothing that a page may be made of later.
        let quick = if self.quick { "-quick" } else { "" };
        let file = self.place.join(format!("{name}{quick}.json"));
        self.kept(cell, &file, || Ok(std::fs::write(&file, measure()?.to_string())?))
    }

    /// What a benchmark leaves in a file; with `--reuse` what it has left there before.
    fn kept<'a>(
        &self,
        cell: &'a Measured,
        file: &Path,
        measure: impl FnOnce() -> Result<()>,
    ) -> Result<&'a Json> {
        let found = || {
            if !self.reuse || !file.exists() {
                measure()?;
            }
            read(file)
        };
        cell.get_or_init(|| found().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|why| anyhow!("{why}"))
    }

    fn fettle(&self, arguments: &[String]) -> Result<Json> {
        let output = Command::new(&self.fettle).args(arguments).output()?;
        // 1: with something left out, which the result lists.
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "fettle {}: {}\n{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).with_context(|| arguments.join(" "))
    }

    /// The machine.
    pub fn machine(&self) -> Json {
        machine::describe()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn read(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// Of the same: the ratio of an operation on a system to another one, round by round.
pub fn ratio_to(report: &Json, operation: &str, system: &str, base: &str) -> Option<Value> {
    let systems = report["systems"].as_array()?;
    let rows = report["loads"][0]["rows"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == operation)?;
    let rounds = |name: &str| -> Option<Vec<f64>> {
        let at = systems.iter().position(|s| s["name"] == name)?;
        let rounds = row["cells"][at]["rounds_ns"].as_array()?;
        Some(rounds.iter().filter_map(Json::as_f64).collect())
    };
    let ratios = fettle_stats::ratios(&rounds(system)?, &rounds(base)?);
    let found = fettle_stats::median_interval(&ratios);
    Some(Value { value: found.value, interval: Some((found.low, found.high)) })
}

/// Of `fettle compare` and `bench probes`: the ratio of an operation on a system to the first.
pub fn ratio(report: &Json, operation: &str, system: &str) -> Option<Value> {
    let systems = report["systems"].as_array()?;
    let at = systems.iter().position(|s| s["name"] == system)?;
    let rows = report["loads"][0]["rows"].as_array()?;
    let cell = &rows.iter().find(|row| row["name"] == operation)?["cells"][at];
    let ratio = &cell["ratio"];
    let interval = ratio["low"].as_f64().zip(ratio["high"].as_f64());
    Some(Value { value: ratio["value"].as_f64()?, interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_found() {
        let report = serde_json::json!({
            "systems": [{ "name": "native" }, { "name": "uml" }],
            "loads": [{ "rows": [{ "name": "null", "cells": [
                { "ratio": null }, { "ratio": { "value": 9.0, "low": 8.0, "high": 10.0 } }] }] }],
        });
        let found = ratio(&report, "null", "uml").unwrap();
        assert_eq!((found.value, found.interval), (9.0, Some((8.0, 10.0))));
        assert!(ratio(&report, "null", "native").is_none());
        assert!(ratio(&report, "fork", "uml").is_none());
        let rounds = |ns: f64| vec![ns; 8];
        let report = serde_json::json!({
            "systems": [{ "name": "native" }, { "name": "a" }, { "name": "b" }],
            "loads": [{ "rows": [{ "name": "null", "cells": [
                null, { "rounds_ns": rounds(2.0) }, { "rounds_ns": rounds(6.0) }] }] }],
        });
        assert_eq!(ratio_to(&report, "null", "b", "a").unwrap().value, 3.0);
        assert!(ratio_to(&report, "null", "b", "native").is_none());
    }
}
