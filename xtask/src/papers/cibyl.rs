//! The same thesis, chapter 7: Cibyl, MIPS executables as Java bytecode.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};
use crate::jar::projects::CROSS;
use crate::{proc, repo};

pub const PAPER: Paper = Paper {
    name: "cibyl",
    page: "cibyl",
    title: "Cibyl: MIPS executables on a JVM (2008)",
    tables: |sources| vec![sizes(sources), java(sources), native(sources), types(sources)],
    missing: &[
        (
            "Table 7.3, ADPCM and PEGWIT",
            "Mediabench is not free; SQLite, Lua, bzip2 and zlib stand for it",
        ),
        (
            "Figure 8.3",
            "FreeMap needs its maps and Sun's emulator, which are not at hand; and today's optimisations cannot be switched off one by one",
        ),
    ],
};

/// Table 7.1: sizes of classes.
fn sizes(sources: &Sources) -> Result<Table> {
    // Of the program alone, of Java's, and of MIPS, all in bytes.
    let programs = [
        ("life", "Life", [7882.0, 1853.0, 5204.0]),
        ("astar", "Astar", [13205.0, 21897.0, 6836.0]),
    ];
    let mut rows = Vec::new();
    for (name, class, [program, java, mips]) in programs {
        let folder = sources.place.join(format!("cibyl-{name}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let benches = repo::root().join("benches/jar");
        let source = benches.join(format!("{name}.c"));
        let (jar, object) = (folder.join("program.jar"), folder.join("program.o"));
        let mut fettle = Command::new(&sources.fettle);
        proc::output_of(fettle.arg("jar").arg(&source).arg("-o").arg(&jar))?;
        proc::output_of(Command::new("jar").arg("xf").arg(&jar).current_dir(&folder))?;
        let mut javac = Command::new("javac");
        javac.args(["-nowarn", "-d"]).arg(folder.join("java"));
        proc::output_of(javac.arg(benches.join(format!("{class}.java"))))?;
        let mut gcc = Command::new(CROSS.name);
        gcc.args(CROSS.options).arg("-c").arg(&source).arg("-o").arg(&object);
        proc::output_of(&mut gcc)?;
        let own = folder.join(format!("fettle/program/{name}_c.class"));
        let own = std::fs::metadata(&own).context("the program's class")?.len() as f64;
        let runtime = bytes_of(&folder.join("io"))?;
        let library = bytes_of(&folder.join("fettle"))? - own;
        let row = |what: &str, paper: Option<f64>, ours: f64| Row {
            what: format!("{class}: {what}"),
            paper,
            ours: Some(Value::of(ours)),
            peer: None,
        };
        rows.extend([
            row("program", Some(program), own),
            row("C library and tables", None, library),
            row("runtime", Some(5394.0), runtime),
            row("in Java", Some(java), bytes_of(&folder.join("java"))?),
            row("MIPS code", Some(mips), code_of(&object)?),
        ]);
    }
    Ok(Table {
        name: "Table 7.1",
        about: "Sizes of classes and of MIPS code, in bytes",
        note: "The programs do the same and are not the paper's. Its C library is its own and part of the program, ours is \
               glibc with what it may reach, and the image of its data; its system calls (3806 and 3619 bytes) are part of \
               our runtime, which has all of Linux's.",
        less_is_better: true,
        command: "cargo xtask papers cibyl".to_owned(),
        rows,
    })
}

/// The bytes of all files below a folder.
fn bytes_of(folder: &Path) -> Result<f64> {
    let mut sum = 0.0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += if data.is_dir() { bytes_of(&entry.path())? } else { data.len() as f64 };
    }
    Ok(sum)
}

/// The bytes of code in an object file.
fn code_of(object: &Path) -> Result<f64> {
    let said = proc::output_of(Command::new("mipsel-linux-gnu-size").arg("-A").arg(object))?;
    let code = said.lines().filter(|line| line.starts_with(".text"));
    let sizes = code.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<f64>().ok());
    Ok(sizes.sum())
}

/// Table 7.2: the same program in Java.
fn java(sources: &Sources) -> Result<Table> {
    let report = sources.jars()?;
    let rows = [("life", "Game of Life", 0.87), ("astar", "A*", 1.39)];
    let rows = rows.map(|(name, what, paper)| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: warm(report, name, "plain"),
        peer: None,
    });
    Ok(Table {
        name: "Table 7.2",
        about: "Time of a translated program on a JVM, over the same program written in Java",
        note: "The paper's JVM is Sun's JDK 1.5; here both are warm.",
        less_is_better: true,
        command: "cargo xtask bench jar".to_owned(),
        rows: rows.into(),
    })
}

/// Table 7.3: native programs.
fn native(sources: &Sources) -> Result<Table> {
    let report = sources.jars()?;
    let programs = report["programs"].as_array().context("no program was measured")?;
    let rows = programs.iter().filter_map(|program| {
        let name = program["name"].as_str()?;
        Some(Row {
            what: name.to_owned(),
            // PEGWIT without operations on files.
            paper: Some(5.64),
            ours: warm(report, name, "native"),
            peer: qemu(report, name).map(|v| ("QEMU".to_owned(), v)),
        })
    });
    Ok(Table {
        name: "Table 7.3",
        about: "Time of a translated program on a JVM, over the native program",
        note: "The paper's value is that of PEGWIT without operations on files, its best; the peer is QEMU's user mode.",
        less_is_better: true,
        command: "cargo xtask bench jar".to_owned(),
        rows: rows.collect(),
    })
}

/// Figure 8.4: A* with costs of four types.
fn types(sources: &Sources) -> Result<Table> {
    let report = sources.jars()?;
    let types = [
        ("astar", "int"),
        ("astar_short", "short"),
        ("astar_float", "float"),
        ("astar_double", "double"),
    ];
    let rows = types.map(|(name, what)| Row {
        what: format!("A*, {what}"),
        paper: None,
        ours: warm(report, name, "plain"),
        peer: None,
    });
    Ok(Table {
        name: "Figure 8.4",
        about: "Time of a translated A* on a JVM, over the same program written in Java, by the type of its costs",
        note: "The paper draws this figure and gives no numbers: on Sun's JVM the integers are on par with Java, and the others far behind, \
               since it had no floating point and read halves by calls.",
        less_is_better: true,
        command: "cargo xtask bench jar --filter astar".to_owned(),
        rows: rows.into(),
    })
}

fn seconds(report: &Json, program: &str, begin: &str) -> Option<Vec<f64>> {
    let programs = report["programs"].as_array()?;
    let times = programs.iter().find(|p| p["name"] == program)?["cpu_s"].as_object()?;
    let (_, times) = times.iter().find(|(variant, _)| variant.starts_with(begin))?;
    Some(times.as_array()?.iter().filter_map(Json::as_f64).collect())
}

/// The second half of the rounds, when the JVM has compiled what it will, over a baseline.
fn warm(report: &Json, program: &str, baseline: &str) -> Option<Value> {
    let (jar, base) = (seconds(report, program, "jar")?, seconds(report, program, baseline)?);
    let half = |times: &[f64]| fettle_stats::median(&times[times.len() / 2..]);
    Some(Value::of(half(&jar) / half(&base))).filter(|v| v.value.is_finite())
}

fn qemu(report: &Json, program: &str) -> Option<Value> {
    let (qemu, base) = (seconds(report, program, "qemu")?, seconds(report, program, "native")?);
    Some(Value::of(fettle_stats::median(&qemu) / fettle_stats::median(&base)))
        .filter(|v| v.value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_rounds_are_compared() {
        let report = serde_json::json!({ "programs": [{ "name": "a", "cpu_s": {
            "native": [1.0, 1.0], "jar, java": [9.0, 2.0], "qemu": [3.0, 3.0] } }] });
        assert_eq!(warm(&report, "a", "native"), Some(Value::of(2.0)));
        assert_eq!(qemu(&report, "a"), Some(Value::of(3.0)));
        assert_eq!(warm(&report, "a", "plain"), None);
    }
}
