//! A chain of servers in five languages. Each call of the first makes a random number of calls of the second, and
//! so on; the trees that the stubs report have to be those that were made.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::blind;
use super::language::{Language, Programs};
use super::matrix;
use super::trees::{self, Plan};
use crate::{proc, repo};

/// The servers, the first in front. The client is in Go.
const CHAIN: [Language; 5] =
    [Language::Go, Language::Cpp, Language::Python, Language::Java, Language::Rust];

/// What calls are put together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The header `traceparent`.
    Sent,
    /// What they say of themselves.
    None,
    /// That, and what the kernel saw of them.
    Kernel,
}

/// Runs a chain with so many calls of its first server. Gives how many trees are right, and how many there are.
pub fn run(
    build: &dyn Fn(Language) -> Result<Programs>,
    fettle: &Path,
    roots: u32,
    ids: Ids,
) -> Result<(usize, usize)> {
    let programs: Vec<Programs> =
        CHAIN.iter().map(|language| build(*language)).collect::<Result<_>>()?;
    let sensors = matrix::sensor_folder()?;
    let mut servers = Vec::new();
    let trace = repo::target_folder("rpc/blind")?.join("kernel.fettle");
    let trace = (ids == Ids::Kernel).then_some(trace.as_path());
    let plans = serve(&programs, &sensors, roots, &mut servers, trace.map(|trace| (fettle, trace)));
    for server in &mut servers {
        // By the end of its input it ends, and its calls are over.
        drop(server.stdin.take());
        end_of(server);
    }
    let events = matrix::events(fettle, &sensors);
    let _ = std::fs::remove_dir_all(&sensors);
    let (plans, events) = (plans?, events?);
    let reports = matrix::reports_of(&events)?;
    println!(
        "chain of {} servers: {} calls reported",
        CHAIN.len(),
        reports.iter().filter(|report| !report.server).count()
    );
    if ids != Ids::Sent {
        return blind::run(fettle, &programs[0].names(), &events, trace, &plans);
    }
    let right = trees::right(&plans, &reports);
    println!("{right} of {} trees are as they were made", plans.len());
    Ok((right, plans.len()))
}

/// What a client prints, while it and other processes are recorded.
fn recorded(client: &Command, pids: &[u32], fettle: &Path, trace: &Path) -> Result<String> {
    let _ = std::fs::remove_dir_all(trace);
    // The process is there before it begins: connections have to be seen from their beginning.
    let mut held = Command::new("sh");
    held.args(["-c", "read go && exec \"$@\"", "sh"]).arg(client.get_program());
    held.args(client.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
    for (name, value) in client.get_envs() {
        held.env(name, value.unwrap_or_default());
    }
    held.current_dir(client.get_current_dir().unwrap_or(Path::new(".")));
    let mut held = held.spawn().context("starting the client")?;
    let mut record = Command::new(fettle);
    let pids: Vec<String> = pids.iter().chain([&held.id()]).map(u32::to_string).collect();
    record.args(["record", "--payload", "16000", "-p", &pids.join(","), "-o"]).arg(trace);
    let mut record = record.stderr(Stdio::piped()).spawn().context("starting fettle record")?;
    let said = BufReader::new(record.stderr.take().context("it has no standard error")?);
    let mut lines = said.lines().map_while(Result::ok);
    let has_begun = lines.any(|line| line.contains("recording until"));
    let go = held.stdin.take().context("the client has no input")?;
    if has_begun {
        writeln!(&go, "go")?;
    }
    drop(go);
    let output = held.wait_with_output()?;
    signal::kill(Pid::from_raw(record.id().cast_signed()), Signal::SIGINT)?;
    lines.for_each(|line| println!("  {line}"));
    let status = record.wait()?;
    if !has_begun || !output.status.success() {
        bail!("the client ended with {}, the recording with {status}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for a server's end, and brings it about if it does not come.
fn end_of(server: &mut Child) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if !matches!(server.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // What it reported lies in memory that outlives it.
    let _ = server.kill();
    let _ = server.wait();
}

/// Starts the servers, the last first, and makes the calls; gives what each was to make. `kernel` is what records the
/// kernel's events meanwhile, and where to.
fn serve(
    programs: &[Programs],
    sensors: &Path,
    roots: u32,
    servers: &mut Vec<Child>,
    kernel: Option<(&Path, &Path)>,
) -> Result<Vec<Plan>> {
    let mut next: Option<String> = None;
    for programs in programs.iter().rev() {
        let mut command = programs.server();
        command.env("FETTLE_SENSORS", sensors).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(port) = &next {
            command.env("FETTLE_NEXT", port);
        }
        let mut server = command.spawn().context("starting a server")?;
        let mut line = String::new();
        let output = server.stdout.as_mut().context("a server has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        servers.push(server);
        next = Some(line.trim().to_owned());
    }
    let first = next.context("there is no server")?;
    let mut client = programs[0].chain();
    client.args([first, roots.to_string()]).env("FETTLE_SENSORS", sensors);
    let text = match kernel {
        None => proc::output_of(&mut client)?,
        Some((fettle, trace)) => {
            let pids: Vec<u32> = servers.iter().map(Child::id).collect();
            recorded(&client, &pids, fettle, trace)?
        }
    };
    let plans: Vec<Plan> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(tag, plan)| (tag.to_owned(), plan.to_owned()))
        .collect();
    if plans.len() != roots as usize {
        bail!("{} of {roots} calls came to their end", plans.len());
    }
    Ok(plans)
}
