//! What probes cost programs as their packages have them: seven programs, with probes in each function, or in those that
//! most of the time goes to, as the LOPI paper chooses them.
//!
//! `fettle instrument` writes probes into a copy of the file, so that nothing but the program runs: instructions,
//! references to memory, misses and mispredicted branches are callgrind's, by a model of caches; time is the kernel's
//! account, in turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use super::{callgrind, machine, measure};
use crate::proc::{self, Ending};
use crate::{apt, fettle, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Rounds of four turns
    #[arg(long, default_value_t = 20)]
    pub rounds: usize,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// The share of the time that the chosen functions make up, as in the paper.
const MOST: f64 = 0.8;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A program with work that takes a second at most.
struct Subject {
    name: &'static str,
    packages: &'static [&'static str],
    /// The file that gets probes, which is the program or a library of it.
    file: fn() -> Result<PathBuf>,
    program: fn() -> Result<PathBuf>,
    arguments: fn(&Path) -> Result<Vec<String>>,
}

/// A file of the system, by whatever link.
fn real(path: &str) -> Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| path.to_owned())
}

fn compiler() -> Result<PathBuf> {
    let found = proc::output_of(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    real(found.trim())
}

/// Text that can be made smaller a little, and sorted.
fn text(place: &Path) -> Result<String> {
    let path = place.join("text");
    if !path.exists() {
        let line = |n: u32| format!("{} {}\n", n.wrapping_mul(2_654_435_761), n % 97);
        std::fs::write(&path, (0..120_000).map(line).collect::<String>())?;
    }
    Ok(path.display().to_string())
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

const SUBJECTS: [Subject; 7] = [
    Subject {
        name: "gzip",
        packages: &["gzip"],
        file: || real("/usr/bin/gzip"),
        program: || real("/usr/bin/gzip"),
        arguments: |place| Ok(vec!["-c".into(), text(place)?]),
    },
    Subject {
        name: "gcc",
        packages: &["gcc"],
        file: compiler,
        program: compiler,
        arguments: |place| {
            let source = place.join("work.i");
            let function = |n: u32| {
                format!(
                    "int f{n}(int *a, int k) {{ int s = {n}; for (int i = 0; i < k; i++) \
                     s += a[i] > {n} ? a[i] * s : a[i] - s; return s; }}\n"
                )
            };
            std::fs::write(&source, (0..150).map(function).collect::<String>())?;
            let source = source.display().to_string();
            Ok([words(&["-quiet", "-O2"]), vec![source], words(&["-o", "-"])].concat())
        },
    },
    Subject {
        name: "bzip2",
        packages: &["bzip2"],
        file: || real("/lib/x86_64-linux-gnu/libbz2.so.1.0"),
        program: || real("/usr/bin/bzip2"),
        arguments: |place| Ok(vec!["-c".into(), text(place)?]),
    },
    Subject {
        name: "xz",
        packages: &["xz-utils"],
        file: || real("/lib/x86_64-linux-gnu/liblzma.so.5"),
        program: || real("/usr/bin/xz"),
        arguments: |place| Ok(vec!["-1".into(), "-c".into(), text(place)?]),
    },
    Subject {
        name: "gawk",
        packages: &["gawk"],
        file: || real("/usr/bin/gawk"),
        program: || real("/usr/bin/gawk"),
        arguments: |place| {
            let count =
                "{ n[$2] += $1; if ($1 ~ /77/) k++ } END { for (i in n) s += n[i]; print s, k }";
            Ok(vec![count.into(), text(place)?])
        },
    },
    Subject {
        name: "bash",
        packages: &["bash"],
        file: || real("/usr/bin/bash"),
        program: || real("/usr/bin/bash"),
        arguments: |_| {
            let script = "s=0; a=(); for ((i = 0; i < 20000; i++)); do a[i % 50]=$i; s=$((s + ${#a[@]} * i)); \
                          case $i in *7) t=${t#x}x$i;; esac; t=${t: -20}; done; echo $s $t";
            Ok(words(&["-c", script]))
        },
    },
    Subject {
        name: "python3",
        packages: &["python3"],
        file: || real("/usr/bin/python3"),
        program: || real("/usr/bin/python3"),
        arguments: |_| {
            let script = "d = {}\nfor i in range(60000):\n    d[i % 997] = d.get(i % 997, 0) + len(str(i))\n\
                          print(sum(d.values()), sorted(d)[:3])";
            Ok(words(&["-S", "-c", script]))
        },
    },
];

/// A copy of the program's file, or the file itself.
struct Variant {
    name: &'static str,
    file: Option<PathBuf>,
}

/// Measures, prints, and keeps what was measured.
pub fn run(options: &Options) -> Result<bool> {
    let report = measure(options)?;
    println!(
        "{:10} {:24} {:>8} {:>13} {:>13}",
        "program", "probes", "functions", "CPU time", "instructions"
    );
    for program in report["programs"].as_array().into_iter().flatten() {
        for variant in program["variants"].as_array().into_iter().flatten().skip(1) {
            let name = |of: &Json| of["name"].as_str().unwrap_or_default().to_owned();
            println!(
                "{:10} {:24} {:>8} {:>13.2} {:>13.2}",
                name(program),
                name(variant),
                variant["functions"],
                variant["time"].as_f64().unwrap_or(f64::NAN),
                variant["instructions"].as_f64().unwrap_or(f64::NAN)
            );
        }
    }
    Ok(true)
}

/// Measures all; kept in `target/bench/packaged/packaged.json`, too.
pub fn measure(options: &Options) -> Result<Json> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let place = repo::target_folder("bench/packaged")?;
    let mut programs = Vec::new();
    for subject in &SUBJECTS {
        eprintln!("measuring {}", subject.name);
        apt::ensure(&words(subject.packages))?;
        let measured = one(subject, &binary, &place, options.rounds);
        programs.push(measured.with_context(|| format!("{} could not be measured", subject.name))?);
    }
    let report = json!({ "version": 1, "machine": machine::describe(), "programs": programs });
    std::fs::write(place.join("packaged.json"), format!("{report}\n"))?;
    Ok(report)
}

fn one(subject: &Subject, binary: &Path, place: &Path, rounds: usize) -> Result<Json> {
    let own = place.join(subject.name);
    let _ = std::fs::remove_dir_all(&own);
    std::fs::create_dir_all(&own)?;
    let (file, program) = ((subject.file)()?, (subject.program)()?);
    let arguments = (subject.arguments)(place)?;
    let command = |variant: &Variant, trace: &str| {
        let mut command = match &variant.file {
            Some(new) if file == program => Command::new(new),
            _ => Command::new(&program),
        };
        command.args(&arguments).env("LC_ALL", "C").env("PYTHONHASHSEED", "0");
        if let Some(folder) = variant.file.as_deref().and_then(Path::parent) {
            let folder_of_trace = own.join(trace);
            let _ = std::fs::remove_dir_all(&folder_of_trace);
            command.env("LD_LIBRARY_PATH", folder).env("FETTLE_RECORD", folder_of_trace);
        }
        command
    };
    let all = instrument(binary, &file, &own.join("all"), &[])?;
    let all = Variant { name: "each function", file: Some(all) };
    proc::step(command(&all, "profile.fettle").stdout(Stdio::null()))?;
    let chosen = hottest(binary, &own.join("profile.fettle"))?;
    let some = instrument(binary, &file, &own.join("some"), &chosen)?;
    let some = Variant { name: "80 % of the time", file: Some(some) };
    let variants = [Variant { name: "none", file: None }, some, all];
    let options = ["--cache-sim=yes", "--branch-sim=yes"];
    let counted = variants.iter().map(|variant| {
        let command = command(variant, "counted.fettle");
        callgrind::count(&command, &options, Stdio::null(), &own.join("callgrind"))
    });
    let counted = counted.collect::<Result<Vec<_>>>()?;
    ensure!(
        counted.iter().all(|other| other.stdout == counted[0].stdout),
        "{} says something else with probes",
        subject.name
    );
    let run = |at: usize| -> Result<f64> {
        let (outcome, cpu) = measure::timed(command(&variants[at], "timed.fettle"), &own, LIMIT)?;
        ensure!(outcome.ending == Ending::Exit(0), "{}: {}", subject.name, outcome.ending);
        Ok(cpu)
    };
    let seconds = in_turns(variants.len(), rounds, &run)?;
    let functions = [json!(0), json!(chosen.len()), Json::Null];
    let variants = variants.iter().zip(functions).enumerate().map(|(at, (variant, functions))| {
        let ratio = |events: &[&str]| {
            let base = counted[0].sum(events);
            (base > 0).then(|| counted[at].sum(events) as f64 / base as f64)
        };
        let time = fettle_stats::median_interval(&fettle_stats::ratios(&seconds[at], &seconds[0]));
        json!({
            "name": variant.name, "functions": functions, "seconds": seconds[at],
            "time": time.value, "time_interval": [time.low, time.high],
            "instructions": ratio(&["Ir"]), "branches": ratio(&["Bc", "Bi"]), "mispredicted": ratio(&["Bcm", "Bim"]),
            "data_references": ratio(&["Dr", "Dw"]), "data_misses": ratio(&["D1mr", "D1mw"]),
            "code_misses": ratio(&["I1mr"]), "last_misses": ratio(&["ILmr", "DLmr", "DLmw"]),
        })
    });
    Ok(json!({ "name": subject.name, "variants": variants.collect::<Vec<_>>() }))
}

/// What each of so many variants takes, round by round: there and back, so that what drifts disturbs all alike.
fn in_turns(
    variants: usize,
    rounds: usize,
    run: &dyn Fn(usize) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    let mut all = vec![Vec::new(); variants];
    for _ in 0..rounds {
        let mut round = vec![0.0; variants];
        for at in (0..variants).chain((0..variants).rev()) {
            round[at] += run(at)?;
        }
        all.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    Ok(all)
}

/// A copy of the file with probes in its functions, or in these.
fn instrument(binary: &Path, file: &Path, folder: &Path, only: &[String]) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    // A library is found by the name that programs ask for.
    let new = folder.join(file.file_name().context("a file's name")?);
    let mut instrument = Command::new(binary);
    instrument.args(["instrument", "--mode", "time"]).arg(file).arg("-o").arg(&new);
    only.iter().for_each(|name| {
        instrument.args(["--only", name]);
    });
    proc::output_of(&mut instrument)?;
    link_names(file, &new)?;
    Ok(new)
}

/// Gives `new` the names beside it that lead to `file`: the loader looks for one of them.
pub fn link_names(file: &Path, new: &Path) -> Result<()> {
    let folder = file.parent().context("a folder")?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let here = new.with_file_name(entry.file_name());
        let leads_there = std::fs::canonicalize(entry.path()).is_ok_and(|path| path == file);
        if leads_there && !here.exists() {
            std::os::unix::fs::symlink(new, here)?;
        }
    }
    Ok(())
}

/// The functions that most of the time goes to, hottest first.
fn hottest(binary: &Path, trace: &Path) -> Result<Vec<String>> {
    let report = proc::output_of(Command::new(binary).args(["report", "--json"]).arg(trace))?;
    let report: Json = serde_json::from_str(&report)?;
    let functions = report["functions"].as_array().context("no function was recorded")?;
    let time = |function: &Json| {
        let name = function["name"].as_str()?;
        // What has no name is called by its address.
        let address = name.strip_prefix("sub_").map(|hex| format!("0x{hex}"));
        Some((
            address.unwrap_or_else(|| name.to_owned()),
            function["self_corrected_ns"].as_f64()?.max(0.0),
        ))
    };
    let mut functions: Vec<_> = functions.iter().filter_map(time).collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most = functions.iter().map(|(_, ns)| ns).sum::<f64>() * MOST;
    let mut sum = 0.0;
    let chosen = functions.into_iter().take_while(|(_, ns)| {
        let wanted = sum < most;
        sum += ns;
        wanted
    });
    let chosen: Vec<String> = chosen.map(|(name, _)| name).collect();
    ensure!(!chosen.is_empty(), "no function took time");
    Ok(chosen)
}
