//! A chain of servers in five languages. Each call of the first makes a random number of calls of the second, and
//! so on; the trees that the stubs report have to be those that were made.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::language::{Language, Programs};
use super::matrix::{self, Report};
use crate::proc;

/// The servers, the first in front. The client is in Go.
const CHAIN: [Language; 5] =
    [Language::Go, Language::Cpp, Language::Python, Language::Java, Language::Rust];

/// Runs a chain with so many calls of its first server. Gives how many trees are right, and how many there are.
pub fn run(
    build: &dyn Fn(Language) -> Result<Programs>,
    fettle: &Path,
    roots: u32,
) -> Result<(usize, usize)> {
    let programs: Vec<Programs> =
        CHAIN.iter().map(|language| build(*language)).collect::<Result<_>>()?;
    let sensors = matrix::sensor_folder()?;
    let mut servers = Vec::new();
    let plans = serve(&programs, &sensors, roots, &mut servers);
    for server in &mut servers {
        // By the end of its input it ends, and its calls are over.
        drop(server.stdin.take());
        end_of(server);
    }
    let reports = matrix::reports(fettle, &sensors);
    let _ = std::fs::remove_dir_all(&sensors);
    let (plans, reports) = (plans?, reports?);
    let right = plans.iter().filter(|(tag, plan)| is_right(tag, plan, &reports)).count();
    println!(
        "chain of {} servers: {} calls reported, {right} of {} trees are as they were made",
        CHAIN.len(),
        reports.iter().filter(|report| !report.server).count(),
        plans.len()
    );
    Ok((right, plans.len()))
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

/// Starts the servers, the last first, and makes the calls; gives what each was to make.
fn serve(
    programs: &[Programs],
    sensors: &Path,
    roots: u32,
    servers: &mut Vec<Child>,
) -> Result<Vec<(String, String)>> {
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
    let text = proc::output_of(&mut client)?;
    let plans: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(tag, plan)| (tag.to_owned(), plan.to_owned()))
        .collect();
    if plans.len() != roots as usize {
        bail!("{} of {roots} calls came to their end", plans.len());
    }
    Ok(plans)
}

/// Whether what was reported under a tag is the tree that its plan says.
fn is_right(tag: &str, plan: &str, reports: &[Report]) -> bool {
    let of: Vec<&Report> = reports.iter().filter(|report| report.tag == tag).collect();
    let mut children: BTreeMap<u64, Vec<&Report>> = BTreeMap::new();
    of.iter().for_each(|report| children.entry(report.parent).or_default().push(report));
    // Calls of each server, from the first on.
    let mut expected = 1;
    let mut all = 2;
    let Some([root]) = children.get(&0).map(Vec::as_slice) else { return false };
    let mut level = vec![*root];
    for digit in plan.bytes().map(|byte| usize::from(byte - b'0')).chain([0]) {
        let mut below = Vec::new();
        for client in &level {
            // One server for each client, which makes as many calls as the plan says.
            let Some([server]) = children.get(&client.span).map(Vec::as_slice) else {
                return false;
            };
            let made = children.get(&server.span).map(Vec::as_slice).unwrap_or_default();
            let sides = !client.server && server.server && made.iter().all(|made| !made.server);
            if !sides || client.status != 0 || server.status != 0 || made.len() != digit {
                return false;
            }
            below.extend(made);
        }
        expected *= digit;
        all += 2 * expected;
        level = below;
    }
    of.len() == all
}
