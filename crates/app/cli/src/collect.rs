//! `fettle collect`, `fettle send`: traces that are recorded on one machine and made on another.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use fettle_record::{Finished, Traces};
use fettle_relay::{
    Collector, CollectorKey, Hub, Limits, Log, RECORDER, RecorderKey, Sender, SenderEvent, To,
};
use serde_json::json;

use crate::output;

/// Arguments of `fettle collect`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  fettle collect -o traces\n  fettle collect --listen 10.0.0.5:7117 -o /srv/traces --max-trace 8G\n\nAt the recording machine, with the key that the first start makes:\n  fettle record --to HOST:7117 -- PROGRAM\n\nRuns until Ctrl-C. Recordings that have not ended by then go on when it is started again."
)]
pub struct CollectArgs {
    /// Address and port to listen to
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7117")]
    listen: SocketAddr,
    /// Folder for the traces, one folder each
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Folder of this collector's keys, made if there are none [default: ~/.config/fettle]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_peers: usize,
    /// Most bytes of one recording as it arrives, such as 500M or 64G
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size)]
    max_trace: u64,
    /// Most bytes per second that are taken of one recorder; faster ones wait
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    max_rate: u64,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print what happens as JSON, a line each, to standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `fettle send`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  fettle send server.fettle --to collector.example:7117\n\n`fettle record --to` leaves a folder when its collector was away at the end. This sends it."
)]
pub struct SendArgs {
    /// What `fettle record --to` has left
    folder: PathBuf,
    /// The collector
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// The recorder's key [default: ~/.config/fettle/recorder.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// A number of bytes such as 256M or 2G; 1M at least.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("units are K, M, G and T".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a number and a unit, as in 256M".to_owned())?;
    let bytes = number.checked_mul(1 << shift).ok_or("that is too large")?;
    if bytes < 1 << 20 { Err("1M is the least".to_owned()) } else { Ok(bytes) }
}

/// Where keys are kept unless an option names another folder.
fn key_folder() -> anyhow::Result<PathBuf> {
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = own("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(own("HOME")?).join(".config")));
    Ok(config.context("neither XDG_CONFIG_HOME nor HOME is set: name the key")?.join("fettle"))
}

/// The collector that a recorder is to send to.
pub fn to(address: &str, key: Option<&Path>) -> anyhow::Result<To> {
    if !address.contains(':') {
        bail!("--to takes a host and a port, as in {address}:7117");
    }
    let path = match key {
        Some(path) => path.to_owned(),
        None => key_folder()?.join(RECORDER),
    };
    Ok(To { address: address.to_owned(), key: RecorderKey::read(&path)? })
}

/// What is said of a collector's coming and going.
pub fn news(news: &SenderEvent) -> String {
    match news {
        SenderEvent::Away { why } => format!("the collector is away ({why}); its share waits here"),
        SenderEvent::Back { .. } => "the collector is back".to_owned(),
        SenderEvent::Waiting { bytes } => format!(
            "waiting for the collector with {} KiB, for a minute or until Ctrl-C",
            bytes >> 10
        ),
        SenderEvent::Refused { why } => format!("{why}; what it has not taken stays here"),
        _ => String::new(),
    }
}

/// Says what was dropped and what has not arrived.
pub fn report_undelivered(finished: &Finished, to: Option<&str>) {
    if finished.dropped.sum() > 0 {
        say!(
            "fettle: {} were dropped: the collector was away for longer than --spool holds",
            finished.dropped
        );
    }
    if let Some(rest) = &finished.undelivered {
        let (folder, to) = (rest.folder.display(), to.unwrap_or("HOST:PORT"));
        say!(
            "fettle: {} KiB have not arrived at the collector: {}\nfettle: they are in {folder}; \
             to send them: fettle send {folder} --to {to}",
            rest.bytes >> 10,
            rest.why
        );
    }
}

/// Runs `fettle collect`.
pub fn run(args: &CollectArgs) -> anyhow::Result<ExitCode> {
    let keys = match &args.keys {
        Some(folder) => folder.clone(),
        None => key_folder()?,
    };
    let (key, _, made) = CollectorKey::open_or_make(&keys)?;
    let limits = Limits {
        connections: args.max_peers.max(1),
        trace_bytes: args.max_trace,
        bytes_per_second: args.max_rate,
        ..Limits::default()
    };
    let (quiet, as_json) = (args.quiet, args.json);
    let notify = Box::new(move |happening: fettle_relay::Happening| {
        if as_json {
            // The reader of this may have closed it, and the traces are still wanted.
            let _ = output::print(&format!("{}\n", json!({ "version": 1, "happened": happening })));
        } else if !quiet {
            say!("fettle: {happening}");
        }
    });
    let stop = fettle_live::catch_signals()?;
    let hub = Hub::open(&args.output, &key, Box::new(Traces), limits, notify)?;
    let collector = Collector::listen(args.listen, &key, hub)?;
    let address = collector.address()?;
    if as_json {
        let listening = json!({ "version": 1, "listening": address.to_string(), "keys": keys });
        output::print(&format!("{listening}\n"))?;
    } else if !quiet {
        let line = keys.canonicalize().unwrap_or_else(|_| keys.clone()).join(RECORDER);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (host, port) = (host.trim(), address.port());
        if made {
            say!("fettle: made keys in {}", keys.display());
        }
        say!("fettle: listening to {address}; traces go to {}", args.output.display());
        say!(
            "fettle: at the recording machine: mkdir -p ~/.config/fettle && scp {host}:{} \
             ~/.config/fettle/ && fettle record --to {host}:{port} -- PROGRAM",
            line.display()
        );
    }
    collector.run(stop);
    Ok(ExitCode::SUCCESS)
}

/// Runs `fettle send`.
pub fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    if !Log::is_one(&args.folder) {
        bail!(
            "{} is nothing that `fettle record --to` has left; a trace can be copied as it is",
            args.folder.display()
        );
    }
    let to = to(&args.to, args.key.as_deref())?;
    let stop = fettle_live::catch_signals()?;
    let log = Arc::new(Log::open(&args.folder)?);
    let say = |reported: SenderEvent| say!("fettle: {}", news(&reported));
    let sender = Sender::start(to, log.clone(), Box::new(say))?;
    let waiting = || say(SenderEvent::Waiting { bytes: log.standing().waiting_bytes });
    let delivery = sender.finish(Duration::from_secs(60), stop, waiting)?;
    if delivery.dropped.sum() > 0 {
        say!("fettle: {} had been dropped while recording", delivery.dropped);
    }
    log.remove()?;
    say!("fettle: everything has arrived; {} is gone", args.folder.display());
    Ok(ExitCode::SUCCESS)
}
