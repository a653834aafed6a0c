//! PostgreSQL with all its processes: each round rewrites every function of all of them, with its
//! blocks in any order, while clients come and go, and reverts it. Answers are checked by sums that
//! transactions keep (balances of accounts, tellers and branches), bytes by the file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::options::Options;
use super::rounds::{Rounds, differing};
use crate::postgres::Cluster;

pub fn torture(options: &Options, binary: &Path, folder: &Path) -> Result<Rounds> {
    let cluster = Cluster::start(&folder.join("postgres"))?;
    let fill = cluster.pgbench(&["-i", "-s", "1", "-q"]).output()?;
    ensure!(fill.status.success(), "{}", String::from_utf8_lossy(&fill.stderr));
    let seconds = (options.seconds + 600).to_string();
    // Clients that stay, and clients that connect anew for each transaction.
    let mut loads = Vec::new();
    for arguments in [&["-c", "2"][..], &["-C", "-c", "2"]] {
        let mut load = cluster.pgbench(&["-T", &seconds]);
        load.args(arguments).stdin(Stdio::piped());
        let log = std::fs::File::create(cluster.folder().join(arguments.concat()))?;
        loads.push(load.stdout(Stdio::null()).stderr(log).spawn()?);
    }
    let rounds = again_and_again(&cluster, options, binary, folder);
    let mut alive = true;
    for load in &mut loads {
        // pgbench ends by itself when an answer is an error.
        alive &= load.try_wait()?.is_none();
        let _ = load.kill();
        let _ = load.wait();
    }
    let rounds = rounds?;
    ensure!(alive, "a client has ended: see {}", cluster.folder().display());
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from \
                pgbench_history) and (select sum(tbalance) from pgbench_tellers) = (select \
                sum(bbalance) from pgbench_branches) and (select count(*) from pgbench_history) > 10";
    let answer = cluster.query(sums)?;
    ensure!(answer == "t", "balances do not add up");
    Ok(rounds)
}

fn again_and_again(
    cluster: &Cluster,
    options: &Options,
    binary: &Path,
    folder: &Path,
) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    let postmaster = cluster.postmaster()?.to_string();
    let cache = folder.join("cache");
    let fettle = |arguments: &[&str]| -> Result<Vec<Value>> {
        let mut command = Command::new(binary);
        command.args(arguments).arg("--json").env("XDG_CACHE_HOME", &cache);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code().is_some_and(|code| code < 2), "{arguments:?}: {said}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut seed = options.seed;
    while Instant::now() < end && rounds.count < options.rounds {
        let number = seed.to_string();
        let mut arguments = vec!["tune", "-p", &postmaster, "--shuffle", &number];
        arguments.extend(options.only.iter().flat_map(|only| ["--only", only]));
        if seed.is_multiple_of(2) && options.only.is_empty() {
            arguments.extend(["--lib", "libc.so*"]);
        }
        let tuned = fettle(&arguments)?;
        std::thread::sleep(Duration::from_millis(100 + seed * 37 % 400));
        let undone = fettle(&["undo", "--group", &postmaster, "--wait", "20"])?;
        for value in tuned.iter().chain(&undone) {
            let stops = value["stops_ms"].as_array().into_iter().flatten();
            rounds.stops_ms.extend(stops.filter_map(Value::as_f64));
            rounds.kept += usize::from(value["kept"].is_number());
        }
        for value in &tuned {
            rounds.install_ms.extend(value["install_ms"].as_f64());
            rounds.jumps = rounds.jumps.max(value["jumps"].as_u64().unwrap_or(0));
        }
        rounds.count += 1;
        seed += 1;
        let list =
            std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
        for pid in list.split_whitespace().chain([postmaster.as_str()]) {
            // Clients come and go.
            match differing(pid) {
                Ok(Some(place)) => {
                    anyhow::bail!("round {}: {pid}: {place} is not what it was", rounds.count)
                }
                Ok(None) => {}
                Err(error) => ensure!(pid != postmaster, "{error:#}"),
            }
        }
    }
    Ok(rounds)
}
