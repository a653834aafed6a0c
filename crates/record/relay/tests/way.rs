//! From recorders to a collector, over real sockets: whole, once, and with what was lost counted.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fettle_relay::{Blob, Content, Limits, Log, Stream, To};
use support::{Plain, Proxy, Running, calls, log, places, records, send};

const PATIENCE: Duration = Duration::from_secs(60);

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

#[test]
fn what_is_recorded_arrives_of_many_recorders() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let names = ["one", "two", "three", "one"];
    let recorders: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let folder = root.path().join(format!("r{n}"));
            fs::create_dir(&folder).unwrap();
            let log = log(&folder, name, 64 << 20);
            let sender = send(collector.to(), &log);
            (log, sender)
        })
        .collect();
    for round in 0..20 {
        for (log, _) in &recorders {
            log.append(calls(0), &records(round * 5000, 5000)).unwrap();
            log.append(calls(7), &records(round, 1)).unwrap();
            log.append_kernel(2, b"two events").unwrap();
        }
    }
    for (log, _) in &recorders {
        log.append_blob(Blob::Checkpoint, b"names").unwrap();
        log.append_blob(Blob::Ending, &vec![9; 5 << 20]).unwrap();
    }
    for (log, sender) in recorders {
        let delivery = sender.finish(PATIENCE, &never(), || {}).unwrap();
        assert_eq!(delivery.reported, b"dropped 0");
        log.remove().unwrap();
        assert!(!log.folder().exists());
    }
    for name in ["one", "two", "three", "one-2"] {
        let trace = collector.folder.join(format!("{name}.fettle"));
        let (zero, seven) = (trace.join("spool/0-Calls"), trace.join("spool/7-Calls"));
        assert_eq!(places(&zero), (0..100_000).collect::<Vec<_>>());
        assert_eq!(places(&seven), (0..20).collect::<Vec<_>>());
        assert_eq!(fs::read(trace.join("spool/0-Kernel")).unwrap(), b"two events".repeat(20));
        assert_eq!(fs::read(trace.join("ending")).unwrap(), vec![9; 5 << 20]);
        assert_eq!(fs::read(trace.join("begin")).unwrap(), b"the beginning");
        assert_eq!(fs::read(trace.join("checkpoint")).unwrap(), b"names");
    }
}

#[test]
fn cut_again_and_again_it_goes_on_at_the_exact_byte() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    // In the middle of frames, of TLS records, of acknowledgements.
    let proxy = Proxy::start(collector.address, 777_777);
    let log = log(root.path(), "cut", 64 << 20);
    let to = To { address: proxy.address.to_string(), key: collector.key.clone() };
    let sender = send(to, &log);
    for round in 0..60 {
        log.append(calls(round as u32 % 3), &records(round / 3 * 5000, 5000)).unwrap();
        proxy.cut_after.fetch_add(1013, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
    log.append_blob(Blob::Ending, &vec![9; 300_000]).unwrap();
    let delivery = sender.finish(PATIENCE, &never(), || {}).unwrap();
    assert_eq!(delivery.dropped.sum(), 0);
    assert!(proxy.cuts.load(Ordering::Relaxed) > 2, "nothing was cut");
    let trace = collector.folder.join("cut.fettle");
    for thread in 0..3 {
        let path = trace.join(format!("spool/{thread}-Calls"));
        assert_eq!(places(&path), (0..100_000).collect::<Vec<_>>());
    }
    assert_eq!(fs::read(trace.join("ending")).unwrap(), vec![9; 300_000]);
    assert!(collector.said().contains("goes on"), "{}", collector.said());
}

#[test]
fn a_new_collector_goes_on_where_the_old_one_was() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let proxy = Proxy::start(collector.address, u64::MAX);
    let log = log(root.path(), "again", 64 << 20);
    let to = To { address: proxy.address.to_string(), key: collector.key.clone() };
    let sender = send(to, &log);
    log.append(calls(0), &records(0, 5000)).unwrap();
    while log.standing().waiting_bytes > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    collector.stop();
    log.append(calls(0), &records(5000, 5000)).unwrap();
    // What a collector that was killed had written and not made certain.
    let trace = root.path().join("traces/again.fettle");
    let spool = trace.join("spool/0-Calls");
    let torn = [fs::read(&spool).unwrap(), records(5000, 17), vec![1, 2, 3]].concat();
    fs::write(&spool, torn).unwrap();
    let collector = Running::start(root.path(), Limits::default());
    proxy.lead_to(collector.address);
    log.append_blob(Blob::Ending, b"end").unwrap();
    sender.finish(PATIENCE, &never(), || {}).unwrap();
    assert_eq!(places(&spool), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn while_the_collector_is_away_the_oldest_is_dropped_and_counted_on_both_sides() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let proxy = Proxy::start(collector.address, u64::MAX);
    let log = log(root.path(), "away", 2 << 20);
    let to = To { address: proxy.address.to_string(), key: collector.key.clone() };
    let sender = send(to, &log);
    log.append(calls(0), &records(0, 1000)).unwrap();
    while log.standing().waiting_bytes > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    proxy.shut();
    for round in 1..1000 {
        log.append(calls(0), &records(round * 1000, 1000)).unwrap();
    }
    assert!(log.standing().dropped.sum() > 500_000, "{:?}", log.standing());
    log.append_blob(Blob::Ending, b"end").unwrap();
    proxy.open();
    let delivery = sender.finish(PATIENCE, &never(), || {}).unwrap();
    let dropped = delivery.dropped.sum();
    assert_eq!(delivery.reported, format!("dropped {dropped}").into_bytes());
    let arrived = places(&collector.folder.join("away.fettle/spool/0-Calls"));
    assert_eq!(arrived.len() as u64 + dropped, 1_000_000);
    assert!(arrived.is_sorted_by(|a, b| a < b), "in order, none twice");
    assert_eq!((arrived[0], arrived.last()), (0, Some(&999_999)));
    assert!(collector.said().contains(&format!("{dropped} records of calls never arrived")));
}

#[test]
fn what_could_not_be_sent_is_sent_later() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let proxy = Proxy::start(collector.address, u64::MAX);
    let log = log(root.path(), "later", 64 << 20);
    let to = To { address: proxy.address.to_string(), key: collector.key.clone() };
    let sender = send(to.clone(), &log);
    log.append(calls(0), &records(0, 1000)).unwrap();
    while log.standing().waiting_bytes > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    proxy.shut();
    log.append(calls(0), &records(1000, 1000)).unwrap();
    log.append_blob(Blob::Ending, b"end").unwrap();
    let stop = AtomicBool::new(true);
    assert!(sender.finish(PATIENCE, &stop, || {}).is_err());
    let folder = log.folder().to_owned();
    assert!(Log::open(&folder).is_err(), "somebody may still be sending it");
    // The sender's thread sees that it was stopped, and closes.
    drop(log);
    proxy.open();
    let rest = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Log::open(&folder).ok()
    });
    let rest = std::sync::Arc::new(rest.expect("the log is free"));
    let delivery = send(to, &rest).finish(PATIENCE, &never(), || {}).unwrap();
    assert_eq!(delivery.reported, b"dropped 0");
    let arrived = places(&collector.folder.join("later.fettle/spool/0-Calls"));
    assert_eq!(arrived, (0..2000).collect::<Vec<_>>());
}

/// A disk that is full, for one stream.
struct Full;

impl fettle_relay::Arrivals for Full {
    fn begin(
        &self,
        folder: &Path,
        begin: &[u8],
    ) -> Result<Box<dyn fettle_relay::Arriving>, String> {
        let arriving = Plain.begin(folder, begin)?;
        symlink("/dev/full", folder.join("spool/0-Calls")).map_err(|e| e.to_string())?;
        Ok(arriving)
    }

    fn reopen(&self, folder: &Path) -> Result<Box<dyn fettle_relay::Arriving>, String> {
        Plain.reopen(folder)
    }

    fn file_of(&self, stream: Stream) -> String {
        Plain.file_of(stream)
    }
}

#[test]
fn when_the_collectors_disk_is_full_the_recorder_keeps_everything_until_there_is_room() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start_with(root.path(), Limits::default(), Box::new(Full));
    let log = log(root.path(), "full", 64 << 20);
    let sender = send(collector.to(), &log);
    let stream = Stream { content: Content::Calls, thread: 0 };
    log.append(stream, &records(0, 1000)).unwrap();
    log.append_blob(Blob::Ending, b"end").unwrap();
    collector.until_said("No space left");
    assert!(log.standing().waiting_bytes >= 16_000);
    fs::remove_file(collector.folder.join("full.fettle/spool/0-Calls")).unwrap();
    sender.finish(PATIENCE, &never(), || {}).unwrap();
    let arrived = places(&collector.folder.join("full.fettle/spool/0-Calls"));
    assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
}
