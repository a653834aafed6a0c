//! B. Döbel, *Request tracking in DROPS*, 2006: chapter 5.

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::paper::Paper;
use super::sources::{Sources, ratio};
use super::table::{Row, Table, Value};

pub const PAPER: Paper = Paper {
    name: "requests",
    title: "Request tracking in DROPS (2006)",
    tables: |sources| {
        vec![observing(sources), systems(sources), calls(sources), sizes(sources), making(sources)]
    },
    missing: &[
        (
            "Figures 5.1 and 5.2",
            "sizes of messages of a load: the traced stubs write them, no load is chosen yet",
        ),
        (
            "Figures 5.5 and 5.7",
            "caches and TLBs: this needs a counter of the processor, or a model that is not built yet",
        ),
        (
            "Table 5.4",
            "the most frequent calls of a load: `fettle record --kernel` has them, no load is chosen yet",
        ),
        ("Tables 5.6 and 5.7", "the same as figures 5.5 and 5.7"),
        (
            "Figure 5.8",
            "the distribution of a call's time: `fettle compare --why` has its quantiles only",
        ),
        (
            "Semaphores, communication graph",
            "`fettle requests` has the analyses; the paper's servers do not exist any more",
        ),
    ],
};

/// Table 5.1: getpid, fork, vfork, execve with a kprobe, over those without.
fn observing(sources: &Sources) -> Result<Table> {
    let report = sources.observing()?;
    let paper = [
        ("null", "getpid", 3.776),
        ("fork", "fork", 1.014),
        ("vfork", "vfork", 1.035),
        ("exec", "execve", 1.028),
    ];
    let rows = paper.map(|(operation, what, paper)| Row {
        what: what.to_owned(),
        paper: Some(paper),
        ours: ratio(report, operation, "fettle count"),
        peer: ratio(report, operation, "strace -c").map(|v| ("strace -c".to_owned(), v)),
    });
    Ok(Table {
        name: "Table 5.1",
        about: "The time of a call that is observed, over the same call that is not",
        note: "The paper's kprobe is in the kernel; ours is a counting probe in the program's function that calls.",
        less_is_better: true,
        command: format!("fettle {}", sources.observing_command().join(" ")),
        rows: rows.into(),
    })
}

/// Table 5.3: Unixbench on L4Linux, over native Linux.
fn systems(sources: &Sources) -> Result<Table> {
    let paper = [
        ("integer", "arithmetic, integer", 163_164.0 / 163_470.0),
        ("double", "arithmetic, double", 310_705.0 / 311_366.0),
        ("null", "system call", 358_526.0 / 43_161.0),
        ("pipe-512", "pipe", 218_889.0 / 70_857.0),
        ("switch", "context switch by pipe", 68_960.0 / 31_275.0),
        ("fork", "process creation", 4_426.0 / 845.0),
        ("exec", "exec", 956.0 / 401.0),
        ("read-1k", "read of 1 KiB", 238_209.0 / 115_824.0),
        ("read-256", "read of 256 bytes", 89_721.0 / 31_378.0),
        ("write-1k", "write of 1 KiB", 171_200.0 / 86_086.0),
        ("write-256", "write of 256 bytes", 52_666.0 / 25_104.0),
        ("copy-1k", "copy of 1 KiB", 97_745.0 / 49_591.0),
        ("copy-256", "copy of 256 bytes", 33_556.0 / 13_837.0),
        ("shell-1", "shell script", 1_775.0 / 829.0),
        ("shell-8", "8 shell scripts", 258.0 / 120.0),
        ("shell-16", "16 shell scripts", 129.0 / 60.0),
    ];
    hosted(
        sources,
        &paper,
        ("Table 5.3", "The time of an operation on a hosted Linux, over a native one"),
    )
}

/// Table 5.5: average times of system calls on L4Linux, over native Linux.
fn calls(sources: &Sources) -> Result<Table> {
    let paper = [
        ("read-4k", "read", 3_871_975.0 / 2_776_963.0),
        ("write-4k", "write", 463_279.0 / 372_634.0),
        ("open", "open and close", 26_163.0 / 31_177.0),
        ("mmap", "mmap and munmap", 24_624.0 / 17_172.0),
        ("lseek", "lseek", 998.0 / 994.0),
        ("stat", "stat", 4_193.0 / 13_604.0),
        ("fstat", "fstat", 10_104.0 / 1_522.0),
        ("sigaction", "sigaction", 1_550.0 / 1_137.0),
        ("sigprocmask", "sigprocmask", 1_491.0 / 754.0),
        ("brk", "brk", 2_266.0 / 1_750.0),
    ];
    hosted(
        sources,
        &paper,
        ("Table 5.5", "The time of a system call on a hosted Linux, over a native one"),
    )
}

fn hosted(
    sources: &Sources,
    paper: &[(&str, &str, f64)],
    (name, about): (&'static str, &'static str),
) -> Result<Table> {
    let hosts = sources.hosts();
    let (main, other) = (hosts.get(1).copied(), hosts.get(2).copied());
    let main =
        main.context("no other system starts here: fettle compare --check says what is missing")?;
    let report = sources.systems()?;
    let rows = paper.iter().map(|(operation, what, paper)| Row {
        what: (*what).to_owned(),
        paper: Some(*paper),
        ours: ratio(report, operation, main),
        peer: other.and_then(|host| Some((host.to_owned(), ratio(report, operation, host)?))),
    });
    Ok(Table {
        name,
        about,
        note: "The paper compares L4Linux with Linux; here it is User-Mode Linux where it is installed, and beside it gVisor.",
        less_is_better: false,
        command: format!("fettle {}", sources.systems_command().join(" ")),
        rows: rows.collect(),
    })
}

/// Figure 5.4: 2 MB by size of the messages, over the best size.
fn sizes(sources: &Sources) -> Result<Table> {
    let report = sources.messages()?;
    let sizes: Vec<u64> =
        report["sizes"].as_array().into_iter().flatten().filter_map(Json::as_u64).collect();
    let way = |name: &str| -> Option<Vec<f64>> {
        let moved = &report["systems"][0]["moved"];
        let two = moved.as_array()?.iter().find(|pair| pair[0] == "two")?;
        let way = two[1].as_array()?.iter().find(|way| way["name"] == name)?;
        Some(way["ns"].as_array()?.iter().map(|ns| ns.as_f64().unwrap_or(f64::NAN)).collect())
    };
    let (ring, pipe) = (way("shm-ring"), way("pipe"));
    let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let rows = sizes.iter().enumerate().map(|(at, size)| {
        let of = |times: &Option<Vec<f64>>| {
            let times = times.as_ref()?;
            Some(Value::of(times.get(at)? / best(times))).filter(|v| v.value.is_finite())
        };
        Row {
            what: format!("messages of {size} bytes"),
            paper: None,
            ours: of(&ring),
            peer: of(&pipe).map(|v| ("pipe".to_owned(), v)),
        }
    });
    Ok(Table {
        name: "Figure 5.4",
        about: "The time to move 2 MiB between two processors in messages of one size, over the best size",
        note: "The paper has it as a curve with its best part between 16 and 64 KiB; here is a ring in shared memory, and a pipe.",
        less_is_better: false,
        command: format!("fettle {}", sources.messages_command().join(" ")),
        rows: rows.collect(),
    })
}

/// Table 5.8: task management and task caching.
fn making(sources: &Sources) -> Result<Table> {
    let report = sources.messages()?;
    let made = report["systems"][0]["made"].as_array().context("no processes were made")?;
    let of = |name: &str| -> Option<f64> {
        let way = made.iter().find(|way| way["name"] == name)?;
        way["ns"].as_array()?.last()?.as_f64()
    };
    let fork = of("fork").context("fork was not measured")?;
    let rows = [
        ("zygote", "a process from a cache", Some(858_967.0 / 998_971.0)),
        ("vfork", "vfork and exec", Some(56_185.0 / 56_556.0)),
        ("clone3", "clone3 and exec", None),
    ];
    let rows = rows.map(|(name, what, paper)| Row {
        what: what.to_owned(),
        paper,
        ours: of(name).map(|ns| Value::of(ns / fork)),
        peer: None,
    });
    Ok(Table {
        name: "Table 5.8",
        about: "The time to make a process another way, over fork, in a process that has touched much memory",
        note: "The paper caches tasks in L4Linux; today's counterpart is a zygote.",
        less_is_better: true,
        command: format!("fettle {}", sources.messages_command().join(" ")),
        rows: rows.into(),
    })
}
