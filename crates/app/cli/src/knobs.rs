//! `fettle sensors set`: sets knobs, the numbers that programs read and others change.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use fettle_sensor::{Directory, Holder, Kind, Sensor};
use fettle_types::{Pid, parse_time};

/// Set a knob of running programs
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Name of the knobs
    name: String,
    /// Their new value, or `default`
    #[arg(value_parser = parse_value, allow_negative_numbers = true)]
    value: Value,
    /// Only those of this process
    #[arg(long, short, value_name = "PID")]
    pid: Option<Pid>,
    /// Only for so long, such as 10s: then, or when this command ends, they are what they were. Otherwise the
    /// value stays until the program ends
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    hold: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Default,
    Number(i64),
}

fn parse_value(text: &str) -> Result<Value, String> {
    match (text, text.parse()) {
        ("default", _) => Ok(Value::Default),
        (_, Ok(number)) => Ok(Value::Number(number)),
        _ => Err("it is neither a whole number nor `default`".to_owned()),
    }
}

impl Value {
    fn of(self, sensor: &Sensor) -> Result<i64, fettle_sensor::Error> {
        Ok(match self {
            Value::Default => sensor.knob()?.default,
            Value::Number(number) => number,
        })
    }
}

/// Sets the knobs. Gives whether there was one.
pub fn set(directory: &Directory, args: &SetArgs, out: &mut impl Write) -> anyhow::Result<bool> {
    let is_meant = |pid: u32| args.pid.is_none_or(|meant| meant.unsigned() == pid);
    let mut knobs = Vec::new();
    for path in directory.files_of(|name, pid| name == args.name && is_meant(pid))? {
        let sensor = Sensor::open(&path)?;
        if !sensor.is_alive() {
            continue;
        }
        if sensor.description().shape.kind() != Kind::Knob {
            let kind = format!("{:?}", sensor.description().shape.kind()).to_lowercase();
            bail!("{} is a {kind}, which only its program writes to; knobs can be set", args.name);
        }
        knobs.push((path, args.value.of(&sensor)?, sensor));
    }
    if knobs.is_empty() {
        let whose = args.pid.map_or("a running program".to_owned(), |pid| format!("process {pid}"));
        say!("no knob {} of {whose} in {}", args.name, directory.path().display());
        return Ok(false);
    }
    match args.hold {
        None => for_good(knobs, out)?,
        Some(time) => for_some_time(knobs, time, out)?,
    }
    Ok(true)
}

fn for_good(knobs: Vec<(PathBuf, i64, Sensor)>, out: &mut impl Write) -> anyhow::Result<()> {
    for (_, value, sensor) in knobs {
        let (pid, name) = (sensor.description().producer.pid, sensor.description().name.clone());
        sensor.into_knob()?.set_for_good(value)?;
        writeln!(out, "{name} of process {pid} is {value}")?;
    }
    Ok(out.flush()?)
}

fn for_some_time(
    knobs: Vec<(PathBuf, i64, Sensor)>,
    time: Duration,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let stop = fettle_live::catch_signals()?;
    let mut holder = Holder::new(crate::own::program());
    for (path, value, sensor) in knobs {
        let (pid, name) = (sensor.description().producer.pid, sensor.description().name.clone());
        holder.set(&path, value, None)?;
        writeln!(out, "{name} of process {pid} is {value} for {time:?}")?;
    }
    out.flush()?;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) && begun.elapsed() < time && !holder.is_empty() {
        holder.look_after();
        std::thread::sleep(Duration::from_millis(20).min(time.saturating_sub(begun.elapsed())));
    }
    Ok(())
}

/// Runs `fettle sensors guard`.
pub fn guard() -> anyhow::Result<ExitCode> {
    fettle_sensor::guard(&mut std::io::stdin().lock());
    Ok(ExitCode::SUCCESS)
}
