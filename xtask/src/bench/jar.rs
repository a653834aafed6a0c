//! Programs as jars, next to the same programs natively, under QEMU, and as a Java programmer would
//! write them. CPU time of whole processes, which other programs of the machine disturb least;
//! all variants run in turns.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;

use super::peers::Peers;
use super::{machine, measure};
use crate::jar::projects::{CROSS, Compiler, NATIVE, Project};
use crate::proc::{self, Ending};
use crate::{fettle, repo};

/// What to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only programs whose name contains this
    #[arg(long, default_value = "")]
    pub filter: String,
    /// Rounds in which every variant runs once; the JVMs stay between them
    #[arg(long, default_value_t = 15)]
    pub rounds: usize,
    /// Runs of fresh JVMs
    #[arg(long, default_value_t = 3)]
    pub cold: usize,
    /// JVMs
    #[arg(long, value_delimiter = ',', default_value = "java")]
    pub jvm: Vec<PathBuf>,
    /// Options for the JVMs
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub java: Vec<String>,
    /// Also the programs as WebAssembly, by Chicory and GraalWasm, which come by Maven
    #[arg(long)]
    pub peers: bool,
    /// Seconds in which a peer must end a round
    #[arg(long, default_value_t = 300)]
    pub peer_limit: u64,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

impl Options {
    /// Programs whose name contains a text, on the machine's own JVM.
    pub fn some(filter: &str, rounds: usize, fettle: &Path) -> Options {
        Options {
            filter: filter.to_owned(),
            rounds,
            cold: 1,
            jvm: vec!["java".into()],
            java: Vec::new(),
            peers: false,
            peer_limit: 0,
            fettle: Some(fettle.to_path_buf()),
        }
    }
}

/// A program with what it is given to do.
struct Subject {
    name: &'static str,
    source: Source,
    arguments: &'static [&'static str],
    /// What does the same in Java.
    plain: Option<Plain>,
}

enum Source {
    /// A file of `benches/jar`, and options with which the jar's is compiled besides.
    Own(&'static str, &'static [&'static str]),
    /// One that people use.
    Real(Project),
}

/// A class of `benches/jar`, or one that is made of it.
#[derive(Clone, Copy)]
struct Plain {
    source: &'static str,
    class: &'static str,
    /// The type of its numbers; `int` in the source.
    number: &'static str,
    /// The largest of them, which is what the bytes 0x7f make in C.
    far: &'static str,
}

impl Plain {
    const fn of(class: &'static str) -> Plain {
        Plain { source: class, class, number: "int", far: "0x7f7f7f7f" }
    }

    const fn astar(class: &'static str, number: &'static str, far: &'static str) -> Plain {
        Plain { source: "Astar", class, number, far }
    }

    /// Its source: costs and sums of them get their type.
    fn text(self) -> Result<String> {
        let path = benches().join(format!("{}.java", self.source));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if self.number == "int" {
            return Ok(text);
        }
        let (number, far) = (self.number, self.far);
        let line = |line: &str| {
            let is_array =
                ["cost", "best", "key"].iter().any(|of| line.contains(&format!("int[] {of}")));
            if is_array {
                return line.replace("int[", &format!("{number}["));
            }
            line.replace("int value", &format!("{number} value"))
                .replace("(int) (", &format!("({number}) ("))
                .replace("int FAR = 0x7f7f7f7f", &format!("{number} FAR = {far}"))
        };
        let text: Vec<String> = text.lines().map(line).collect();
        Ok(text.join("\n").replace(self.source, self.class))
    }
}

fn subjects() -> Vec<Subject> {
    let own =
        |name, arguments, plain| Subject { name, source: Source::Own(name, &[]), arguments, plain };
    let real = |project: Project, arguments| Subject {
        name: project.name(),
        source: Source::Real(project),
        arguments,
        plain: None,
    };
    vec![
        own("kernel", &["8000"], None),
        // One function is then so large that C2 would stop inlining in it.
        Subject {
            name: "kernel_unrolled",
            source: Source::Own("kernel", &["-O3", "-funroll-loops"]),
            arguments: &["8000"],
            plain: None,
        },
        own("astar", &["60"], Some(Plain::of("Astar"))),
        own("astar_short", &["60"], Some(Plain::astar("AstarShort", "short", "0x7f7f"))),
        own("astar_float", &["60"], Some(Plain::astar("AstarFloat", "float", "3e38f"))),
        own("astar_double", &["60"], Some(Plain::astar("AstarDouble", "double", "1e306"))),
        own("life", &["1000"], Some(Plain::of("Life"))),
        own("nbody", &["2000000"], Some(Plain::of("Nbody"))),
        real(Project::Lua, &["load.lua", "5"]),
        real(Project::Bzip2, &["-c", "-k", "text"]),
        real(Project::Minigzip, &["-c", "text"]),
        real(Project::Speedtest, &["--memdb", "--size", "5"]),
    ]
}

/// One way to run a program: what each round took, in seconds.
struct Variant {
    name: String,
    runner: Runner,
    seconds: Vec<f64>,
    /// A peer may be too slow: what it took is then all that is known.
    peer: bool,
    cut: bool,
}

impl Variant {
    fn new(name: String, runner: Runner) -> Self {
        Self { name, runner, seconds: Vec::new(), peer: false, cut: false }
    }

    /// What is typical of it: a JVM that stays has warmed up after half of its rounds.
    fn typical(&self) -> f64 {
        let from = if self.stays() { self.seconds.len() / 2 } else { 0 };
        fettle_stats::median(&self.seconds[from..])
    }

    fn stays(&self) -> bool {
        matches!(self.runner, Runner::Stays(_))
    }
}

enum Runner {
    /// A fresh process each time.
    Fresh(Vec<String>),
    /// A JVM that stays.
    Stays(Box<Warm>),
}

/// A JVM that runs the program whenever it is asked.
struct Warm {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Warm {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().context("starting java")?;
        let (ask, answers) = (child.stdin.take(), child.stdout.take());
        let (ask, answers) = ask.zip(answers).ok_or_else(|| anyhow!("a JVM without pipes"))?;
        Ok(Self { child, ask, answers: BufReader::new(answers) })
    }

    /// None where the time was not enough; the JVM is then no more.
    fn round(&mut self, limit: Duration) -> Result<Option<(f64, Vec<u8>)>> {
        writeln!(self.ask).context("asking the JVM")?;
        let mut line = String::new();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let late = std::thread::scope(|scope| -> Result<bool> {
            let child = &mut self.child;
            let guard = scope.spawn(move || {
                let late = is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
                if late {
                    // Its end is what the reader below waits for.
                    let _ = child.kill();
                }
                late
            });
            let read = self.answers.read_line(&mut line);
            drop(done);
            let late = guard.join().map_err(|_| anyhow!("the guard panicked"))?;
            read?;
            Ok(late)
        })?;
        if late {
            return Ok(None);
        }
        let (nanos, length) = line.trim_end().split_once('\t').context("the JVM ended")?;
        let mut stdout = vec![0; length.parse()?];
        self.answers.read_exact(&mut stdout)?;
        Ok(Some((nanos.parse::<f64>()? / 1e9, stdout)))
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        // Nothing that it could still say is of interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures and prints a table. Whether everything could be measured.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let place = repo::target_folder("bench/jar")?;
    std::fs::write(place.join("Warm.java"), include_str!("Warm.java"))?;
    let peers = options.peers.then(|| Peers::prepare(&place, &options.jvm)).transpose()?;
    let mut results = Vec::new();
    println!("CPU time, times native -O2; jars warm: the second half of {} rounds", options.rounds);
    for subject in subjects().iter().filter(|s| s.name.contains(&options.filter)) {
        results.push(measure(subject, options, &binary, &place, peers.as_ref())?);
    }
    let all: Vec<f64> = results.iter().map(|(ratio, _)| *ratio).collect();
    if let [_, _, ..] = all[..] {
        let mean = fettle_stats::geometric_mean(&all);
        println!("geometric mean {:.2} ({:.2} to {:.2})", mean.value, mean.low, mean.high);
    }
    let programs: Vec<_> = results.into_iter().map(|(_, value)| value).collect();
    let raw = json!({"version": 1, "machine": machine::describe(), "programs": programs});
    let path = place.join("jar.json");
    std::fs::write(&path, serde_json::to_string_pretty(&raw)?)?;
    println!("every round is in {}", path.display());
    Ok(true)
}

fn measure(
    subject: &Subject,
    options: &Options,
    binary: &Path,
    place: &Path,
    peers: Option<&Peers>,
) -> Result<(f64, serde_json::Value)> {
    let folder = place.join(subject.name);
    std::fs::create_dir_all(&folder)?;
    let native = build(subject, NATIVE, &folder)?;
    let cross = build(subject, CROSS, &folder)?;
    let jar = folder.join("program.jar");
    let translation = translate(binary, &cross, &jar)?;
    inputs(&folder)?;
    let mut variants = variants(subject, options, place, &folder, [&native, &cross, &jar])?;
    if let Some(peers) = peers {
        variants.extend(wasm(subject, options, &folder, peers)?);
    }
    rounds(subject, options, &folder, &mut variants)?;
    let of_jar = print(subject, &variants);
    let cold = cold(subject, options, &jar, &folder)?;
    let rounds: serde_json::Map<String, serde_json::Value> =
        variants.iter().map(|v| (v.name.clone(), json!(v.seconds))).collect();
    let value = json!({
        "name": subject.name,
        "arguments": subject.arguments,
        "translation": translation,
        "cpu_s": rounds,
        "cold": cold,
    });
    Ok((of_jar, value))
}

/// Runs every variant once in each round, and compares what they print.
fn rounds(
    subject: &Subject,
    options: &Options,
    folder: &Path,
    variants: &mut [Variant],
) -> Result<()> {
    let mut expected: Option<Vec<u8>> = None;
    for round in 0..options.rounds {
        // There and back, so that what a neighbour disturbs is not always the same variant.
        let count = variants.len();
        for index in 0..count {
            let index = if round % 2 == 0 { index } else { count - 1 - index };
            let variant = &mut variants[index];
            if variant.cut {
                continue;
            }
            let limit = if variant.peer { Duration::from_secs(options.peer_limit) } else { LIMIT };
            let Some((seconds, stdout)) = once(&mut variant.runner, folder, limit)
                .with_context(|| format!("{} {}", subject.name, variant.name))?
            else {
                ensure!(variant.peer, "{} {}: too slow", subject.name, variant.name);
                variant.cut = true;
                continue;
            };
            variant.seconds.push(seconds);
            let stdout = comparable(subject, stdout);
            let expected = expected.get_or_insert_with(|| stdout.clone());
            ensure!(*expected == stdout, "{} {}: another output", subject.name, variant.name);
        }
    }
    Ok(())
}

/// Prints all over native; that of the first jar.
fn print(subject: &Subject, variants: &[Variant]) -> f64 {
    let base = variants[0].typical();
    print!("{:12} native {base:6.3} s", subject.name);
    let mut of_jar = f64::NAN;
    for variant in &variants[1..] {
        if variant.seconds.is_empty() {
            print!("  {} cut in its first round", variant.name);
            continue;
        }
        let ratio = variant.typical() / base;
        print!("  {} {ratio:.2}", variant.name);
        let is_jar = variant.name.starts_with("jar");
        if is_jar && of_jar.is_nan() {
            of_jar = ratio;
        }
        if variant.stays() && (is_jar || variant.peer) {
            print!(" (round 1 {:.1}", variant.seconds[0] / base);
            if let Some(fifth) = variant.seconds.get(4) {
                print!(", 5 {:.2}", fifth / base);
            }
            print!("{})", if variant.cut { ", then cut" } else { "" });
        }
    }
    of_jar
}

/// Makes a jar. What that took, and how large the jar is next to the machine code that is in it.
fn translate(binary: &Path, program: &Path, jar: &Path) -> Result<serde_json::Value> {
    let mut fettle = Command::new(binary);
    fettle.args(["jar", "--json", "-o"]).arg(jar).arg(program);
    let folder = jar.parent().context("a jar in a folder")?;
    let (outcome, used) = measure::timed(fettle, folder, LIMIT)?;
    ensure!(outcome.ending == Ending::Exit(0), "translation: {}", outcome.ending);
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
    let code = report["machine_code_bytes"].as_u64().context("no size of the code")?;
    let size = std::fs::metadata(jar)?.len();
    println!(
        "{}: translated in {:.2} s, {used:.2} s of CPU time; {size} bytes, {:.1} times the {code} of code",
        program.display(),
        outcome.wall.as_secs_f64(),
        size as f64 / code as f64
    );
    Ok(json!({"cpu_s": used, "elapsed_s": outcome.wall.as_secs_f64(), "jar": size, "code": code}))
}

/// Runs of fresh JVMs.
fn cold(
    subject: &Subject,
    options: &Options,
    jar: &Path,
    folder: &Path,
) -> Result<Vec<serde_json::Value>> {
    let mut cold = Vec::new();
    for jvm in &options.jvm {
        let mut seconds = Vec::new();
        for _ in 0..options.cold {
            let mut command = Command::new(jvm);
            command.args(&options.java).arg("-jar").arg(jar).args(subject.arguments);
            command.current_dir(folder);
            let (outcome, used) = measure::timed(command, folder, LIMIT)?;
            ensure!(outcome.ending == Ending::Exit(0), "{}: {}", subject.name, outcome.ending);
            seconds.push((used, outcome.wall.as_secs_f64()));
        }
        let used: Vec<f64> = seconds.iter().map(|(used, _)| *used).collect();
        let wall: Vec<f64> = seconds.iter().map(|(_, wall)| *wall).collect();
        print!(
            "  cold {:.2} s, elapsed {:.2} s",
            fettle_stats::median(&used),
            fettle_stats::median(&wall)
        );
        cold.push(json!({"jvm": jvm.display().to_string(), "cpu_s": used, "elapsed_s": wall}));
    }
    println!();
    Ok(cold)
}

const LIMIT: Duration = Duration::from_secs(600);

/// What its outputs are compared by: speedtest1 prints times.
fn comparable(subject: &Subject, stdout: Vec<u8>) -> Vec<u8> {
    match subject.source {
        Source::Real(Project::Speedtest) => {
            stdout.split(|&b| b == b'\n').count().to_string().into_bytes()
        }
        _ => stdout,
    }
}

fn variants(
    subject: &Subject,
    options: &Options,
    place: &Path,
    folder: &Path,
    [native, cross, jar]: [&Path; 3],
) -> Result<Vec<Variant>> {
    let line = |words: &[&str]| -> Vec<String> {
        words.iter().chain(subject.arguments).map(|word| (*word).to_owned()).collect()
    };
    let [native, cross] = [native, cross].map(|path| path.display().to_string());
    let fresh = |name: &str, line| Variant::new(name.into(), Runner::Fresh(line));
    let mut variants = vec![
        fresh("native", line(&[&native])),
        fresh("qemu", line(&["qemu-mipsel-static", &cross])),
    ];
    for (number, jvm) in options.jvm.iter().enumerate() {
        let names = [Some("-"), subject.plain.map(|plain| plain.class)];
        for name in names.into_iter().flatten() {
            let mut command = Command::new(jvm);
            let classes = classes(place, subject, jar)?;
            command
                .args(&options.java)
                .arg("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED");
            command.arg("-cp").arg(format!("{}:{}", jar.display(), classes.display()));
            command.args(["Warm", name]).args(subject.arguments).current_dir(folder);
            let kind = if name == "-" { "jar" } else { "plain Java" };
            let number = if number == 0 { String::new() } else { format!(" {}", number + 1) };
            let runner = Runner::Stays(Box::new(Warm::start(command)?));
            variants.push(Variant::new(format!("{kind}{number}"), runner));
        }
    }
    Ok(variants)
}

/// The same program as WebAssembly.
fn wasm(
    subject: &Subject,
    options: &Options,
    folder: &Path,
    peers: &Peers,
) -> Result<Vec<Variant>> {
    let program = match subject.source {
        // What unrolling does to our own compiler is the question there.
        Source::Own(_, [_, ..]) => return Ok(Vec::new()),
        Source::Own(name, []) => peers.build(&benches().join(format!("{name}.c")), folder)?,
        Source::Real(project) => peers.build_project(project)?,
    };
    let mut variants = Vec::new();
    for (number, jvm) in options.jvm.iter().enumerate() {
        let number = if number == 0 { String::new() } else { format!(" {}", number + 1) };
        for (peer, name, mut command) in peers.commands(jvm, &program, subject.arguments) {
            let obstacle = match subject.source {
                Source::Real(project) => peer.obstacle(project),
                Source::Own(..) => None,
            };
            if let Some(obstacle) = obstacle {
                println!("{name}, {}: {obstacle}", subject.name);
                continue;
            }
            command.current_dir(folder);
            let runner = Runner::Stays(Box::new(Warm::start(command)?));
            variants
                .push(Variant { peer: true, ..Variant::new(format!("{name}{number}"), runner) });
        }
    }
    Ok(variants)
}

/// Compiles what runs in the JVMs.
fn classes(place: &Path, subject: &Subject, jar: &Path) -> Result<PathBuf> {
    let out = place.join("classes");
    let mut javac = Command::new("javac");
    javac.args(["--release", "17", "-nowarn", "-d"]).arg(&out).arg("-cp").arg(jar);
    javac.arg(place.join("Warm.java"));
    if let Some(plain) = subject.plain {
        let source = place.join(format!("{}.java", plain.class));
        std::fs::write(&source, plain.text()?)?;
        javac.arg(source);
    }
    proc::output_of(&mut javac)?;
    Ok(out)
}

fn benches() -> PathBuf {
    repo::root().join("benches/jar")
}

fn build(subject: &Subject, compiler: Compiler, folder: &Path) -> Result<PathBuf> {
    let (name, more) = match subject.source {
        Source::Real(project) => return project.build(compiler),
        Source::Own(name, more) => (name, more),
    };
    let program = folder.join(compiler.name);
    let mut gcc = Command::new(compiler.name);
    gcc.args(compiler.options).arg(benches().join(format!("{name}.c")));
    if compiler.name == CROSS.name {
        gcc.args(more);
    }
    proc::output_of(gcc.arg("-o").arg(&program).arg("-lm"))?;
    Ok(program)
}

/// Puts what the programs read where they run.
fn inputs(folder: &Path) -> Result<()> {
    std::fs::copy(super::programs::benches().join("load.lua"), folder.join("load.lua"))?;
    let mut text = std::fs::read(Project::Speedtest.source()?.join("src/vdbe.c"))?;
    text.extend(std::fs::read(Project::Speedtest.source()?.join("src/btree.c"))?);
    let text = text.repeat(4);
    std::fs::write(folder.join("text"), text)?;
    Ok(())
}

/// None where the time was not enough.
fn once(runner: &mut Runner, folder: &Path, limit: Duration) -> Result<Option<(f64, Vec<u8>)>> {
    match runner {
        Runner::Stays(warm) => warm.round(limit),
        Runner::Fresh(line) => {
            let mut command = Command::new(&line[0]);
            command.args(&line[1..]).current_dir(folder);
            let (outcome, used) = measure::timed(command, folder, limit)?;
            ensure!(outcome.ending == Ending::Exit(0), "{}", outcome.ending);
            Ok(Some((used, outcome.stdout)))
        }
    }
}
