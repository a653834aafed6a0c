//! Whatever stands in a sensor's file, the consumer neither crashes nor hangs.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use common::{Bench, Language, Plan, Random};
use fettle_sensor::{Error, Policy, Sensor};

/// Reads all that can be read.
fn read_all(path: &Path) {
    let Ok(sensor) = Sensor::open(path) else { return };
    let _ = sensor.scalar();
    let _ = sensor.histogram().map(|h| (h.sum(), h.quantile(0.5), h.buckets().count()));
    let _ = sensor.account();
    let _ = sensor.last_events(u64::MAX, |_| ());
    let _ = sensor.knob();
    if let Ok(mut knob) = Sensor::open(path).and_then(Sensor::into_knob) {
        let _ = knob.set(0);
    }
    let _ = (sensor.is_alive(), sensor.clock().monotonic_ns(1));
    if let Ok(mut list) = sensor.into_list() {
        for _ in 0..2 {
            let _ = list.drain(|event| assert!(event.words.len() <= 30));
        }
    }
}

/// A number that is likely to hurt.
fn nasty(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => u64::MAX - random.below(64),
        2 => random.below(300),
        3 => 1 << random.below(64),
        4 => random.next() >> random.below(64),
        _ => random.next(),
    }
}

/// Sensors of all kinds, as files.
fn templates(bench: &Bench) -> Vec<Vec<u8>> {
    let plan = Plan { policy: Policy::Drop, slots: 3, ring_log2: 12, threads: 2, events: 500 };
    for policy in [Policy::Drop, Policy::Overwrite] {
        let mut producer = bench.produce(Language::C, Plan { policy, ..plan });
        producer.child.wait().unwrap();
    }
    let life = common::compile("life");
    assert!(bench.command(&life).arg("numbers").status().unwrap().success());
    let mut knob = bench.command(&common::compile("knob"));
    assert!(knob.stdin(std::process::Stdio::null()).status().unwrap().success());
    let found = bench.directory.sensors().unwrap();
    assert_eq!((found.sensors.len(), found.skipped.len()), (6, 0));
    let bytes = found.sensors.iter().map(|sensor| fs::read(sensor.path()).unwrap()).collect();
    found.sensors.iter().for_each(|sensor| sensor.remove().unwrap());
    bytes
}

fn write_private(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn one_second_of_garbage() {
    let bench = Bench::new();
    let templates = templates(&bench);
    let mut random = Random::new();
    let path = bench.directory.path().join("hostile");
    let start = Instant::now();
    let mut turns = 0;
    while start.elapsed() < Duration::from_secs(1) {
        let mut bytes = templates[random.below(6) as usize].clone();
        let whole = random.below(8) == 0;
        for _ in 0..=random.below(40) {
            // Mostly where the cursors and sizes are.
            let words = if whole { bytes.len() as u64 / 8 } else { 600 };
            let at = 8 * random.below(words) as usize;
            let keep_magic = at == 0 && random.below(10) != 0;
            if !keep_magic {
                let half = random.below(2) as usize * 4;
                bytes[at + half..at + 8].copy_from_slice(&nasty(&mut random).to_le_bytes()[half..]);
            }
        }
        if random.below(10) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        if random.below(50) == 0 {
            bytes.iter_mut().skip(8).for_each(|b| *b = random.next() as u8);
        }
        write_private(&path, &bytes);
        read_all(&path);
        turns += 1;
    }
    println!("{turns} turns");
    assert!(turns > 0);
}

#[test]
fn memory_that_changes_under_the_reader() {
    let bench = Bench::new();
    let templates = templates(&bench);
    let path = bench.directory.path().join("hostile");
    let mut random = Random::new();
    for template in &templates {
        write_private(&path, template);
        let file = File::options().write(true).open(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // Past the head's sizes, which are read once.
                    let at = 192 / 8 + random.below(template.len() as u64 / 8 - 192 / 8);
                    file.write_at(&nasty(&mut random).to_le_bytes(), 8 * at).unwrap();
                }
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(100) {
                read_all(&path);
            }
            stop.store(true, Relaxed);
        });
    }
}

#[test]
fn a_file_that_shrinks_under_the_reader() {
    let bench = Bench::new();
    let plan = Plan { policy: Policy::Drop, slots: 3, ring_log2: 12, threads: 2, events: 500 };
    bench.produce(Language::C, plan).child.wait().unwrap();
    let sensor = bench.wait_for("test.events");
    let file = File::options().write(true).open(sensor.path()).unwrap();
    let mut list = sensor.into_list().unwrap();
    file.set_len(100).unwrap();
    assert!(matches!(list.drain(|_| ()), Err(Error::Truncated { .. })));
    // So is one that was cut before we came.
    assert!(Sensor::open(list.sensor().path()).is_err());
}

#[test]
fn strangers_are_not_trusted() {
    let bench = Bench::new();
    let template = &templates(&bench)[0];
    let folder = bench.directory.path();
    let sensor = folder.join("sensor");
    write_private(&sensor, template);
    assert!(Sensor::open(&sensor).is_ok());

    fs::set_permissions(&sensor, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(matches!(Sensor::open(&sensor), Err(Error::NotTrusted { .. })));
    fs::set_permissions(&sensor, PermissionsExt::from_mode(0o600)).unwrap();
    symlink(&sensor, folder.join("link")).unwrap();
    assert!(Sensor::open(&folder.join("link")).is_err());
    fs::create_dir(folder.join("folder")).unwrap();
    write_private(&folder.join("empty"), b"");
    assert_eq!(bench.directory.sensors().unwrap().sensors.len(), 1);
    assert_eq!(bench.directory.sensors().unwrap().skipped.len(), 3);

    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&sensor, Some(1), None).unwrap();
        assert!(matches!(Sensor::open(&sensor), Err(Error::NotTrusted { .. })));
    }
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let open = fettle_sensor::Directory::open(folder);
    assert!(matches!(open, Err(Error::NotTrusted { .. })));
}
