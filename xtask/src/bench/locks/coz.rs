//! What Coz predicts of the same edits, as another tool's word beside ours. It makes one line of a program virtually
//! faster, by delaying all other threads.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::proc;

/// The line of `benches/locks/sections.c` that is a section.
const SECTION: &str = "WORK(inside)";

/// The program with Coz's progress points, and the line that is to be faster.
pub struct Coz {
    program: PathBuf,
    line: String,
    folder: PathBuf,
}

impl Coz {
    /// Builds the program; `None` if Coz is not here.
    pub fn new(source: &Path, folder: &Path) -> Result<Option<Coz>> {
        if !proc::on_path("coz") {
            println!("coz is not here (apt-get install coz-profiler)");
            return Ok(None);
        }
        let program = folder.join("sections-coz");
        let mut gcc = Command::new("gcc");
        // Coz reads lines of older DWARF only.
        gcc.args(["-O2", "-gdwarf-3", "-DCOZ", "-pthread"]).arg(source).arg("-o").arg(&program);
        proc::step(gcc.arg("-ldl"))?;
        let text = std::fs::read_to_string(source)?;
        let line = text.lines().position(|line| line.contains(SECTION));
        let line = line.with_context(|| format!("{}: no {SECTION}", source.display()))? + 1;
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{name}:{line}");
        Ok(Some(Coz { program, line, folder: folder.into() }))
    }

    /// The share of time that it says the program saves if its sections are so many percent faster.
    pub fn predict(&self, percent: u32, arguments: &[String]) -> Result<f64> {
        let (as_it_is, faster) = (self.rate(0, arguments)?, self.rate(percent, arguments)?);
        Ok(1.0 - as_it_is / faster)
    }

    /// Progress in a nanosecond of virtual time.
    fn rate(&self, percent: u32, arguments: &[String]) -> Result<f64> {
        let profile = self.folder.join("profile.coz");
        let _ = std::fs::remove_file(&profile);
        let mut coz = Command::new("coz");
        coz.args(["run", "--fixed-line", &self.line, "--fixed-speedup", &percent.to_string()]);
        coz.arg("--output").arg(&profile).arg("---").arg(&self.program).args(arguments);
        proc::output_of(&mut coz)?;
        rate(&std::fs::read_to_string(&profile)?)
    }
}

/// Progress over time of all experiments in a profile.
fn rate(profile: &str) -> Result<f64> {
    let sum = |line: &str, key: &str| -> f64 {
        let of = |text: &str| {
            let words = text.split('\t').find_map(|word| word.strip_prefix(key));
            words.and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
        };
        profile.lines().filter(|text| text.starts_with(line)).map(of).sum()
    };
    let (time, progress) = (sum("experiment\t", "duration="), sum("throughput-point\t", "delta="));
    ensure!(time > 0.0 && progress > 0.0, "Coz has made no experiment");
    Ok(progress / time)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_experiments_count() {
        let profile = "startup\ttime=1\n\
            experiment\tselected=a.c:3\tspeedup=0.50\tduration=100\tselected-samples=2\n\
            throughput-point\tname=a.c:5\tdelta=30\n\
            experiment\tselected=a.c:3\tspeedup=0.50\tduration=300\tselected-samples=2\n\
            throughput-point\tname=a.c:5\tdelta=70\nruntime\ttime=5\n";
        assert_eq!(super::rate(profile).unwrap(), 0.25);
        assert!(super::rate("startup\ttime=1\n").is_err());
    }
}
