//! `fettle sensors`: what programs commit of their own accord.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use fettle_sensor::{
    Clock, Description, Directory, Drained, Event, Found, Histogram, Kind, KnobState, List, Sensor,
};
use serde_json::{Value, json};

use crate::knobs::SetArgs;

/// Version of the JSON that these commands write.
const JSON_VERSION: u32 = 1;

/// Lists that we are the consumer of, each with its clock. One that is dead and was read is done with.
type Lists = BTreeMap<PathBuf, Option<(List, Clock)>>;

/// So many events are written, and then taken from their lists. When we are killed in between, the next
/// reader sees these again.
const SAFE_AT_ONCE: usize = 64;

/// Pause between two looks under `--follow`.
const PAUSE: Duration = Duration::from_millis(20);

/// Read what programs commit of their own accord, and set their knobs
///
/// A program takes part that uses `fettle.h` or the crate `fettle`, and that was started with
/// FETTLE_SENSORS=1 in its environment.
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Folder of the sensors [default: $FETTLE_SENSORS if a path, $XDG_RUNTIME_DIR/fettle, or
    /// /dev/shm/fettle-UID]
    #[arg(long, global = true, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List all sensors, those of dead programs too
    List {
        /// Write JSON with a version field
        #[arg(long)]
        json: bool,
    },
    /// Show what the sensors of a name hold: scalars, histograms, or events by time
    ///
    /// Events are taken: they cannot be read a second time. Losses are reported on standard error.
    #[command(after_help = "Examples:\n  fettle sensors read web.request\n  \
                            fettle sensors read web.request --follow --json | jq .words")]
    Read {
        /// Name of the sensors
        name: String,
        /// Go on until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Write one JSON object to a line
        #[arg(long)]
        json: bool,
    },
    /// Set a knob: a number that programs read and others change
    Set(SetArgs),
    /// Give knobs back when the process at the other end of standard input dies
    #[command(hide = true)]
    Guard,
    /// Delete the sensors of programs that are dead, read or not
    Clean {
        /// Say what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs `fettle sensors`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if matches!(args.command, Command::Guard) {
        return crate::knobs::guard();
    }
    let directory = match &args.directory {
        Some(path) => Directory::open(path)?,
        None => Directory::open_default()?,
    };
    let mut out = crate::output::stdout();
    let done = match args.command {
        Command::List { json } => list(&directory, json, &mut out),
        Command::Read { name, follow, json } => read(&directory, &name, follow, json, &mut out),
        Command::Clean { dry_run } => clean(&directory, dry_run, &mut out),
        Command::Set(args) => crate::knobs::set(&directory, &args, &mut out),
        Command::Guard => Ok(true),
    };
    match done {
        Ok(complete) => Ok(ExitCode::from(u8::from(!complete))),
        // A reader that closes the pipe has seen enough.
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Lists the sensors. Gives whether all files could be read.
fn list(directory: &Directory, as_json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let found = directory.sensors()?;
    if as_json {
        let mut sensors = Vec::new();
        for sensor in &found.sensors {
            let mut value = describe(sensor);
            value["alive"] = sensor.is_alive().into();
            merge(&mut value, contents(sensor)?);
            sensors.push(value);
        }
        let skipped: Vec<Value> = found
            .skipped
            .iter()
            .map(|file| json!({"path": file.path, "reason": file.reason.to_string()}))
            .collect();
        let all = json!({
            "version": JSON_VERSION,
            "directory": directory.path(),
            "sensors": sensors,
            "skipped": skipped,
        });
        serde_json::to_writer_pretty(&mut *out, &all)?;
        writeln!(out)?;
    } else {
        let mut rows = vec![["name", "numbers", "pid", "", "kind", "holds"].map(String::from)];
        for sensor in &found.sensors {
            let Description { name, major, minor, instance, producer, shape } =
                sensor.description();
            rows.push([
                name.clone(),
                format!("{major}.{minor}.{instance}"),
                producer.pid.to_string(),
                if sensor.is_alive() { "alive" } else { "dead" }.to_string(),
                format!("{:?}", shape.kind()).to_lowercase(),
                summary(sensor)?,
            ]);
        }
        let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        for row in &rows {
            for (cell, width) in row.iter().zip(&widths) {
                write!(out, "{cell:width$}  ")?;
            }
            writeln!(out, "{}", row[5])?;
        }
    }
    out.flush()?;
    report_skipped(&found);
    Ok(found.skipped.is_empty())
}

/// Shows the sensors of a name. Gives whether there was one.
fn read(
    directory: &Directory,
    name: &str,
    follow: bool,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    // Lists stay ours from one look to the next; one that is dead and was read is done with.
    let mut lists = Lists::new();
    let mut shown: BTreeMap<PathBuf, Value> = BTreeMap::new();
    let mut any = false;
    let (mut read, mut lost) = (0, 0);
    loop {
        for sensor in directory.find(name)?.sensors {
            any = true;
            let path = sensor.path().to_path_buf();
            if sensor.description().shape.kind() == Kind::List {
                if let std::collections::btree_map::Entry::Vacant(place) = lists.entry(path) {
                    let clock = sensor.clock();
                    place.insert(Some((sensor.into_list()?, clock)));
                }
            } else {
                // Shown once, and again whenever it has changed.
                let value = contents(&sensor)?;
                if shown.get(&path) != Some(&value) {
                    show(&sensor, &value, as_json, out)?;
                    shown.insert(path, value);
                }
            }
        }
        let passed = pass(name, &mut lists, as_json, out)?;
        read += passed.read;
        lost += passed.lost;
        out.flush()?;
        if !follow {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if !any {
        say!("no sensor {name} in {}", directory.path().display());
    }
    if !lists.is_empty() {
        if as_json {
            let end = json!({
                "version": JSON_VERSION, "type": "end", "sensor": name, "read": read, "lost": lost,
            });
            writeln!(out, "{end}")?;
        }
        say!("{name}: {read} events, {lost} lost");
    }
    Ok(any)
}

/// Shows all events that are there, by time. They stay in their lists until they are written: the
/// reader of our output may be slow, and we may be killed meanwhile.
fn pass(
    name: &str,
    lists: &mut Lists,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<Drained> {
    let mut open: Vec<&mut Option<(List, Clock)>> =
        lists.values_mut().filter(|place| place.is_some()).collect();
    let mut dead = Vec::new();
    let mut events = Vec::new();
    for (index, place) in open.iter_mut().enumerate() {
        let Some((list, clock)) = place else { continue };
        dead.push(!list.sensor().is_alive());
        let pid = list.sensor().description().producer.pid;
        list.look(|id, event| {
            let time = clock.realtime_ns(event.timestamp);
            let Event { timestamp: ticks, thread, number, words } = event;
            let words = words.to_vec();
            events.push((Line { time, pid, thread, number, words, ticks }, index, id));
        })?;
    }
    events.sort();
    for events in events.chunks(SAFE_AT_ONCE) {
        for (line, index, _) in events {
            let clock = open[*index].as_ref().map(|(_, clock)| clock.ns_per_tick());
            line.show(name, as_json, clock.unwrap_or_default(), out)?;
        }
        out.flush()?;
        for (_, index, id) in events {
            if let Some((list, _)) = &mut *open[*index] {
                list.safe(*id);
            }
        }
        open.iter_mut().filter_map(|place| place.as_mut()).for_each(|(list, _)| list.make_room());
    }
    let mut all = Drained::default();
    for (place, dead) in open.into_iter().zip(dead) {
        let Some((list, _)) = place else { continue };
        let drained = list.finish()?;
        all.read += drained.read;
        all.lost += drained.lost;
        if drained.lost > 0 {
            let pid = list.sensor().description().producer.pid;
            say!("{name}: {} events of process {pid} lost", drained.lost);
        }
        if dead {
            *place = None;
        }
    }
    Ok(all)
}

/// An event as it is shown; first of all in the order of time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    time: u64,
    pid: u32,
    thread: u32,
    number: u16,
    words: Vec<u64>,
    /// The time by the sensor's own clock, for times in words.
    ticks: u64,
}

impl Line {
    fn show(
        &self,
        name: &str,
        as_json: bool,
        ns_per_tick: f64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Line { time, pid, thread, number, words, ticks } = self;
        if as_json {
            let event = json!({
                "version": JSON_VERSION, "type": "event", "sensor": name, "time_ns": time,
                "pid": pid, "thread": thread, "event": number, "words": words, "ticks": ticks,
                "ns_per_tick": ns_per_tick,
            });
            return writeln!(out, "{event}");
        }
        let (seconds, ns) = (time / 1_000_000_000, time % 1_000_000_000);
        write!(out, "{seconds}.{ns:09}  {pid:>7} {thread:>7}  {number:>5} ")?;
        for word in words {
            write!(out, " {word}")?;
        }
        writeln!(out)
    }
}

/// Deletes what dead programs left.
fn clean(directory: &Directory, dry_run: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let found = directory.sensors()?;
    for sensor in found.sensors.iter().filter(|sensor| !sensor.is_alive()) {
        if !dry_run {
            sensor.remove()?;
        }
        let does = if dry_run { "would delete" } else { "deleted" };
        writeln!(out, "{does} {} ({})", sensor.path().display(), summary(sensor)?)?;
    }
    report_skipped(&found);
    Ok(found.skipped.is_empty())
}

/// Which sensor it is, as JSON.
fn describe(sensor: &Sensor) -> Value {
    let Description { name, major, minor, instance, producer, shape } = sensor.description();
    let mut value = json!({
        "name": name, "major": major, "minor": minor, "instance": instance,
        "pid": producer.pid, "kind": format!("{:?}", shape.kind()).to_lowercase(),
    });
    if shape.kind() == Kind::List {
        value["policy"] = format!("{:?}", shape.policy()).to_lowercase().into();
    }
    value
}

/// What a sensor holds, as JSON. Takes no events.
fn contents(sensor: &Sensor) -> anyhow::Result<Value> {
    Ok(match sensor.description().shape.kind() {
        Kind::Scalar => json!({"value": sensor.scalar()?}),
        Kind::Knob => {
            let KnobState { value, default, least, greatest, resting, is_held } = sensor.knob()?;
            json!({
                "value": value, "default": default, "least": least, "greatest": greatest,
                "resting": resting, "held": is_held,
            })
        }
        Kind::Histogram => {
            let histogram = sensor.histogram()?;
            let bucket = |b: fettle_sensor::Bucket| json!([b.low, b.high, b.count]);
            let buckets: Vec<Value> = histogram.buckets().map(bucket).collect();
            let (low, high) = histogram.sum_bounds();
            let sum = histogram.sum();
            let mut value = json!({"count": histogram.count(), "sum": sum, "buckets": buckets});
            if sum.is_none() {
                // More than JSON's integers hold.
                value["sum_overflow"] = true.into();
                value["sum_bounds"] = json!([low as f64, high as f64]);
            }
            value
        }
        Kind::List => {
            let account = sensor.account()?;
            json!({
                "produced": account.produced, "read": account.read, "lost": account.lost,
                "pending": account.pending,
            })
        }
    })
}

/// What a sensor holds, in a few words.
fn summary(sensor: &Sensor) -> anyhow::Result<String> {
    Ok(match sensor.description().shape.kind() {
        Kind::Scalar => sensor.scalar()?.to_string(),
        Kind::Knob => {
            let KnobState { value, default, least, greatest, is_held, .. } = sensor.knob()?;
            let held = if is_held { ", held" } else { "" };
            format!("{value} ({least} to {greatest}, default {default}{held})")
        }
        Kind::Histogram => quantiles(&sensor.histogram()?),
        Kind::List => {
            let account = sensor.account()?;
            let (pending, read, lost) = (account.pending, account.read, account.lost);
            format!("{pending} events to read, {read} read, {lost} lost")
        }
    })
}

fn quantiles(histogram: &Histogram) -> String {
    let mut text = format!("{} values", histogram.count());
    for (title, share) in [("median", 0.5), ("99 %", 0.99), ("most", 1.0)] {
        if let Some(bucket) = histogram.quantile(share) {
            let (low, high) = (bucket.low, bucket.high);
            text += &match low == high {
                true => format!(", {title} {low}"),
                false => format!(", {title} {low} to {high}"),
            };
        }
    }
    text
}

/// Shows a scalar or a histogram.
fn show(sensor: &Sensor, value: &Value, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    let Description { name, producer, instance, .. } = sensor.description();
    if as_json {
        let mut all = describe(sensor);
        all["version"] = JSON_VERSION.into();
        all["type"] = all["kind"].take();
        merge(&mut all, value.clone());
        return writeln!(out, "{all}");
    }
    write!(out, "{name}.{instance} of process {}: ", producer.pid)?;
    match value["buckets"].as_array() {
        None => writeln!(out, "{}", value["value"]),
        Some(buckets) => {
            match value["sum_bounds"].as_array() {
                Some(bounds) => writeln!(
                    out,
                    "{} values; their sum is more than the sensor holds (64 bits): between {:.2e} and {:.2e}",
                    value["count"],
                    bounds[0].as_f64().unwrap_or(0.0),
                    bounds[1].as_f64().unwrap_or(0.0)
                )?,
                None => writeln!(out, "{} values, sum {}", value["count"], value["sum"])?,
            }
            let most = buckets.iter().filter_map(|b| b[2].as_u64()).max().unwrap_or(1);
            for bucket in buckets {
                let (low, high) = (bucket[0].as_u64(), bucket[1].as_u64());
                let (low, high) = (low.unwrap_or(0), high.unwrap_or(0));
                let count = bucket[2].as_u64().unwrap_or(0);
                let bar = "#".repeat((count as f64 / most as f64 * 40.0).ceil() as usize);
                writeln!(out, "{low:>20} to {high:<20} {count:>12} {bar}")?;
            }
            Ok(())
        }
    }
}

/// Adds an object's fields to another's.
fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn report_skipped(found: &Found) {
    for file in &found.skipped {
        say!("skipped: {}", file.reason);
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    let json = error.downcast_ref::<serde_json::Error>().and_then(|error| error.io_error_kind());
    error.downcast_ref().is_some_and(broken) || json == Some(io::ErrorKind::BrokenPipe)
}
