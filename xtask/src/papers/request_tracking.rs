//! B. Döbel, *Request tracking in DROPS*, 2006: chapter 5.

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

use super::loads;
use super::paper::Paper;
use super::sources::{Sources, ratio, ratio_to};
use super::table::{Row, Table, Value};
use crate::bench::{misses, probes};

pub const PAPER: Paper = Paper {
    name: "requests",
    page: "request-tracking",
    title: "Request tracking in DROPS (2006)",
    tables: |sources| {
        vec![
            observing(sources),
            means(sources),
            in_guest(sources),
            systems(sources),
            calls(sources),
            distribution(sources),
            missed(sources, "Table 5.6", "read", &TABLE_5_6),
            missed(sources, "Table 5.7", "getppid", &TABLE_5_7),
            sizes(sources),
            in_caches(sources),
            by_ways(sources),
            making(sources),
            frequent(sources),
            lengths(
                sources,
                "Figure 5.1",
                "with",
                &[(30, [None; 2]), (90, [Some(0.85), Some(0.10)]), (1024, [None; 2])],
            ),
            lengths(
                sources,
                "Figure 5.2",
                "without",
                &[(30, [Some(0.98), None]), (90, [None; 2]), (1024, [None; 2])],
            ),
            semaphores(sources),
        ]
    },
    missing: &[
        (
            "Table 5.2",
            "a hosted kernel with kprobes: User-Mode Linux has none, and gVisor is no Linux",
        ),
        (
            "Communication graph",
            "the paper draws one of its servers, which do not exist any more, and has no number in it",
        ),
    ],
};

/// Table 5.1: what was called, and the paper's time with a kprobe over that without.
const OBSERVED: [(&str, &str, f64); 4] = [
    ("null", "getpid", 3.776),
    ("fork", "fork", 1.014),
    ("vfork", "vfork", 1.035),
    ("exec", "execve", 1.028),
];

/// Table 5.1: getpid, fork, vfork, execve that are observed, over those that are not. The best peer is shown.
fn observing(sources: &Sources) -> Result<Table> {
    const PEERS: [&str; 5] =
        ["calls counted", "uprobe counted", "ftrace uprobe", "ftrace calls", "strace -c"];
    let report = &sources.observing()?["here"];
    let rows = OBSERVED.map(|(operation, what, paper)| {
        let peers = PEERS.iter().filter_map(|name| Some((*name, ratio(report, operation, name)?)));
        let lttng = ratio_to(report, operation, probes::LTTNG, probes::DYNAMIC);
        let peers = peers.chain(lttng.map(|ratio| (probes::LTTNG, ratio)));
        let best = peers.min_by(|a, b| a.1.value.total_cmp(&b.1.value));
        Row {
            what: what.to_owned(),
            paper: Some(paper),
            ours: ratio(report, operation, "fettle count"),
            peer: best.map(|(name, ratio)| (name.to_owned(), ratio)),
        }
    });
    Ok(Table {
        name: "Table 5.1",
        about: "The time of a call that is observed, over the same call that is not",
        note: "The paper's kprobe is in the kernel; ours is a counting probe in the program's function that calls. The peer is the best \
               of a count of system calls, uprobes, ftrace's tracepoint, LTTng's and `strace`.",
        less_is_better: true,
        command: "cargo xtask bench probes".to_owned(),
        rows: rows.into(),
    })
}

/// The same by each means.
fn means(sources: &Sources) -> Result<Table> {
    let report = &sources.observing()?["here"];
    let all = [
        "fettle count",
        "fettle time",
        "fettle events",
        "calls counted",
        "kernel events",
        "uprobe counted",
        "ftrace uprobe",
        "ftrace calls",
        "ftrace function",
        "ftrace kprobe",
        "strace -c",
        "strace",
        probes::LTTNG,
    ];
    let rows = all.iter().flat_map(|means| {
        OBSERVED.map(|(operation, what, paper)| Row {
            what: format!("{what}, {means}"),
            paper: Some(paper).filter(|_| means.ends_with("kprobe")),
            ours: match *means {
                probes::LTTNG => ratio_to(report, operation, means, probes::DYNAMIC),
                means => ratio(report, operation, means),
            },
            peer: None,
        })
    });
    Ok(Table {
        name: "Table 5.1, by means",
        about: "The same by each means",
        note: "LTTng's program is compiled with a tracepoint, and compared with the same program without. What is not measured, this \
               machine's kernel lacks or refuses; the next table has it of a guest's.",
        less_is_better: true,
        command: "cargo xtask bench probes".to_owned(),
        rows: rows.collect(),
    })
}

/// The same in a guest.
fn in_guest(sources: &Sources) -> Result<Table> {
    let report = &sources.observing()?["guest"];
    if let Some(why) = report["why"].as_str() {
        bail!("table 5.1 in a guest: {why}");
    }
    let all =
        ["ftrace kprobe", "ftrace function", "ftrace calls", "ftrace uprobe", "calls counted"];
    let rows = all.iter().flat_map(|means| {
        OBSERVED.map(|(operation, what, paper)| Row {
            what: format!("{what}, {means}"),
            paper: Some(paper).filter(|_| means.ends_with("kprobe")),
            ours: ratio(report, operation, means),
            peer: None,
        })
    });
    Ok(Table {
        name: "Table 5.1, in a guest",
        about: "Instructions of a call that is observed, over those of the same call that is not, in Debian's kernel",
        note: "QEMU translates the guest, and its time is its instructions: a trap costs no more than what the kernel executes for it. \
               The kprobe is where the paper's is, at the kernel's function that serves the call.",
        less_is_better: true,
        command: "cargo xtask bench probes".to_owned(),
        rows: rows.collect(),
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

/// Figure 5.8: the distribution of a read's time, as shares of calls that take so many times the median.
fn distribution(sources: &Sources) -> Result<Table> {
    let call = &sources.why()?["calls"][0];
    let quantiles =
        ["shortest", "a tenth at most", "nine tenths at most", "99 % at most", "longest"];
    let on = |system: &Json| {
        let quantile = |at: usize| system["quantiles_ns"][at].as_f64();
        let median = quantile(2);
        let places = [0, 1, 3, 4, 5];
        let name = system["system"].as_str().unwrap_or_default().to_owned();
        let row = move |(what, at): (&str, usize)| Row {
            what: format!("{name}, {what}"),
            paper: None,
            ours: quantile(at).zip(median).map(|(time, median)| Value::of(time / median)),
            peer: None,
        };
        quantiles.into_iter().zip(places).map(row).collect::<Vec<_>>()
    };
    let systems =
        [&call["native"]].into_iter().chain(call["systems"].as_array().into_iter().flatten());
    Ok(Table {
        name: "Figure 5.8",
        about: "The distribution of the time of a read of 4 KiB, over its median",
        note: "The paper draws it, for reads of files on a disk: many short and few long calls, and a peak between. Here files are in \
               memory; `fettle compare --why read-4k --distribution` prints how many calls took how long.",
        less_is_better: false,
        command: format!("fettle {}", sources.why_command().join(" ")),
        rows: systems.flat_map(on).collect(),
    })
}

/// What is missed, natively and on L4Linux, for a call.
type Missed = [(&'static str, &'static str, [f64; 2]); 4];

const TABLE_5_6: Missed = [
    ("l1i", "instruction cache", [10_441.0, 12_598.0]),
    ("l1d", "data cache", [7_677.0, 8_337.0]),
    ("itlb", "ITLB", [88.0, 973.0]),
    ("dtlb", "DTLB", [676.0, 1_715.0]),
];
/// The paper's numbers are of 100,000 calls.
const TABLE_5_7: Missed = [
    ("l1i", "instruction cache", [0.00544, 17.033_32]),
    ("l1d", "data cache", [0.00286, 4.023_98]),
    ("itlb", "ITLB", [0.00035, 5.016_79]),
    ("dtlb", "DTLB", [0.00141, 10.525_2]),
];

/// Tables 5.6 and 5.7: what a call misses in caches and TLBs.
fn missed(sources: &Sources, name: &'static str, call: &str, paper: &Missed) -> Result<Table> {
    let calls = sources.misses()?["calls"].as_array().context("nothing was measured")?;
    let of = |system: &str, field: &str| {
        let row = calls.iter().find(|row| row["call"] == call && row["system"] == system)?;
        row[field].as_f64().map(Value::of)
    };
    let rows = paper.iter().flat_map(|(field, what, numbers)| {
        misses::SYSTEMS.into_iter().zip(numbers).map(move |(system, paper)| Row {
            what: format!("{what}, {system}"),
            paper: Some(*paper),
            ours: of(system, field),
            peer: None,
        })
    });
    Ok(Table {
        name,
        about: "Misses of a system call, on a native and on a hosted Linux",
        note: "By a model of 32 KiB caches and of TLBs with 64 entries that a switch of address spaces empties, of all that a guest with \
               one processor executes. Hosted is User-Mode Linux on it; the paper's reads came from a disk, here from memory.",
        less_is_better: false,
        command: "cargo xtask bench misses".to_owned(),
        rows: rows.collect(),
    })
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
    let sizes = sizes_of(report);
    let (ring, pipe) = (moved(report, "shm-ring"), moved(report, "pipe"));
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

/// Figure 5.5: what messages of a size miss.
fn in_caches(sources: &Sources) -> Result<Table> {
    let calls = sources.misses()?["calls"].as_array().context("nothing was measured")?;
    let rows = misses::SIZES.iter().flat_map(|size| {
        let row = calls.iter().find(|row| row["size"] == *size);
        let fields = [("l1d", "data cache"), ("l2", "second level"), ("dtlb", "DTLB")];
        fields.map(|(field, what)| Row {
            what: format!("{} KiB, {what}", size >> 10),
            paper: None,
            ours: row.and_then(|row| row[field].as_f64()).map(Value::of),
            peer: None,
        })
    });
    Ok(Table {
        name: "Figure 5.5",
        about: "Misses of 2 MiB that are copied from a process to another in messages of one size",
        note: "By the model of table 5.6, with a second level of 512 KiB. The receiver copies out of the sender's memory \
               (`process_vm_readv`) into one buffer, as indirect strings are. The paper draws it: misses of the cache rise as \
               messages come near its size, those of TLBs fall.",
        less_is_better: false,
        command: "cargo xtask bench misses".to_owned(),
        rows: rows.collect(),
    })
}

/// Figures 5.6 and 5.7: other ways to move them.
fn by_ways(sources: &Sources) -> Result<Table> {
    let report = sources.messages()?;
    let ways = ["zero-copy", "shm-slot", "shm-ring"];
    let base = moved(report, "vm_readv").context("process_vm_readv was not measured")?;
    let rows = sizes_of(report).into_iter().enumerate().flat_map(|(at, size)| {
        let base = base.get(at).copied();
        ways.map(|name| Row {
            what: format!("messages of {size} bytes, {name}"),
            paper: None,
            ours: moved(report, name)
                .and_then(|times| Some(times.get(at)? / base?))
                .filter(|ratio| ratio.is_finite())
                .map(Value::of),
            peer: None,
        })
    });
    Ok(Table {
        name: "Figures 5.6 and 5.7",
        about: "The time to move 2 MiB between two processors, over that of copies out of the sender's memory",
        note: "The paper has DSI with one packet and with more against indirect strings: a slot of one message and a ring of more, in \
               shared memory, against `process_vm_readv`; and DSI without copies.",
        less_is_better: false,
        command: format!("fettle {}", sources.messages_command().join(" ")),
        rows: rows.collect(),
    })
}

/// Sizes of messages, in bytes.
fn sizes_of(report: &Json) -> Vec<u64> {
    report["sizes"].as_array().into_iter().flatten().filter_map(Json::as_u64).collect()
}

/// Nanoseconds by each size, between two processors.
fn moved(report: &Json, name: &str) -> Option<Vec<f64>> {
    let moved = &report["systems"][0]["moved"];
    let two = moved.as_array()?.iter().find(|pair| pair[0] == "two")?;
    let way = two[1].as_array()?.iter().find(|way| way["name"] == name)?;
    Some(way["ns"].as_array()?.iter().map(|ns| ns.as_f64().unwrap_or(f64::NAN)).collect())
}

/// Table 5.8: task management and task caching.
fn making(sources: &Sources) -> Result<Table> {
    let report = sources.messages()?;
    let made = report["systems"][0]["made"].as_array().context("no processes were made")?;
    let of = |name: &str| -> Option<f64> {
        let way = made.iter().find(|way| way["name"] == name)?;
        way["ns"].as_array()?.last()?.as_f64()
    };
    let rows = [
        ("zygote", "fork", "a process from a cache", Some(858_967.0 / 998_971.0)),
        ("vfork-exec", "fork-exec", "vfork and exec", Some(56_185.0 / 56_556.0)),
        ("clone3-exec", "fork-exec", "clone3 and exec", None),
    ];
    let rows = rows.map(|(name, base, what, paper)| Row {
        what: what.to_owned(),
        paper,
        ours: of(name).zip(of(base)).map(|(ns, base)| Value::of(ns / base)),
        peer: None,
    });
    Ok(Table {
        name: "Table 5.8",
        about: "The time to make a process another way, over fork (and exec), in a process that has touched much memory",
        note: "The paper caches tasks in L4Linux; today's counterpart is a zygote.",
        less_is_better: true,
        command: format!("fettle {}", sources.messages_command().join(" ")),
        rows: rows.into(),
    })
}

/// Table 5.4: what is called most in Unixbench and in a build of the kernel, by the names of today.
const TABLE_5_4: [&str; 15] = [
    "read",
    "write",
    "openat",
    "close",
    "mmap",
    "brk",
    "munmap",
    "lseek",
    "newfstatat",
    "fstat",
    "rt_sigaction",
    "rt_sigprocmask",
    "getpid",
    "clone",
    "stat",
];

/// Table 5.4: the 15 calls that are made most.
fn frequent(sources: &Sources) -> Result<Table> {
    let calls = loads::build(&sources.fettle)?;
    let all: f64 = calls.iter().map(|(_, count)| count).sum();
    let row = |(name, count): &(String, f64)| Row {
        what: match TABLE_5_4.contains(&name.as_str()) {
            true => format!("{name}, of the paper's 15"),
            false => name.clone(),
        },
        paper: None,
        ours: Some(Value::of(count / all)),
        peer: None,
    };
    Ok(Table {
        name: "Table 5.4",
        about: "The system calls that a build makes most, as shares of all",
        note: "The paper has a list of 15 without numbers, of Unixbench and a build of the kernel; here GCC compiles Lua. \
               `open` is `openat` today, `stat64` is `newfstatat`.",
        less_is_better: false,
        command: loads::BUILD_COMMAND.to_owned(),
        rows: calls.iter().take(15).map(row).collect(),
    })
}

/// Figures 5.1 and 5.2: shares of messages below a size, and of bytes in these.
fn lengths(
    sources: &Sources,
    name: &'static str,
    load: &str,
    limits: &[(u64, [Option<f64>; 2])],
) -> Result<Table> {
    let sizes = &sources.message_sizes()?[load];
    let rows = limits.iter().flat_map(|(limit, paper)| {
        let ours = loads::below(sizes, *limit);
        let row = |what: &str, paper: Option<f64>, ours: Option<f64>| Row {
            what: format!("{what} below {limit} bytes"),
            paper,
            ours: ours.map(Value::of),
            peer: None,
        };
        [
            row("messages", paper[0], ours.map(|of| of.0)),
            row("bytes in messages", paper[1], ours.map(|of| of.1)),
        ]
    });
    let (about, note) = match load {
        "with" => (
            "Shares of messages, and of all bytes, by size, with a client that moves much",
            "The paper's is a network switch of DROPS; here PostgreSQL answers `pgbench`, and a client that fetches whole tables.",
        ),
        _ => (
            "Shares of messages, and of all bytes, by size, without a client that moves much",
            "The paper leaves its network switch out; here PostgreSQL answers `pgbench` alone. Statements are longer than what DROPS' \
             interfaces send.",
        ),
    };
    Ok(Table {
        name,
        about,
        note,
        less_is_better: false,
        command: loads::MESSAGES_COMMAND.to_owned(),
        rows: rows.collect(),
    })
}

/// Section 5.2.4: whether semaphores are waited for.
fn semaphores(sources: &Sources) -> Result<Table> {
    let row = |what: String, ours: f64| Row {
        what,
        paper: None,
        ours: Some(Value::of(ours)),
        peer: None,
    };
    let rows = loads::locks(&sources.fettle, &sources.place)?.into_iter().flat_map(|locks| {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let loads::Locks { name, acquired, waited, times_ns: (waited_ns, held_ns), queue } = locks;
        let mut rows =
            vec![row(format!("{name}, share without a wait"), share(acquired - waited, acquired))];
        if waited > 0 {
            rows.push(row(
                format!("{name}, microseconds of a wait"),
                share(waited_ns, waited) / 1e3,
            ));
        }
        rows.push(row(format!("{name}, microseconds held"), share(held_ns, acquired) / 1e3));
        rows.push(row(format!("{name}, most that waited before another"), queue as f64));
        rows
    });
    Ok(Table {
        name: "Section 5.2.4",
        about: "How often locks are free, how long threads wait for them, and how long they have them",
        note: "The paper says without a number that the vast majority of uses of semaphores in DROPS has no need to wait; here are \
               programs with two working threads.",
        less_is_better: false,
        command: loads::LOCKS_COMMAND.to_owned(),
        rows: rows.collect(),
    })
}
