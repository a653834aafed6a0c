//! A disk that fills up in the middle. A limit on file sizes stands in for the disk: the test
//! runs itself once more under `ulimit -f`, with the limit's signal ignored.

mod drawing;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use fettle_trace::{Error, Trace, TraceWriter, open_or_recover};

const FOLDER: &str = "FETTLE_TEST_DISK_FULL";

/// Runs one of the ignored tests below with files of at most `blocks` half-kilobytes.
fn limited(test: &str, folder: &Path, blocks: u32) {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact {test} --ignored");
    let status = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder)
        .status()
        .unwrap();
    assert!(status.success(), "{test}: {status}, signal {:?}", status.signal());
}

#[test]
fn records_stored_before_the_disk_was_full_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    // 200,000 bytes are no multiple of a record, nor of any buffer.
    limited("child_records_until_full", &folder, 391);
    let spool = std::fs::metadata(folder.join("spool/0.calls")).unwrap().len();
    assert!(spool > 100_000 && spool.is_multiple_of(16), "{spool} bytes");
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    assert_eq!(trace.manifest().recovery.unwrap().torn_records, 0);
    assert_eq!(trace.manifest().totals.records, spool / 16);
}

#[test]
fn a_disk_full_at_the_end_leaves_the_spools() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    let mut writer = TraceWriter::create(&folder, &drawing::manifest()).unwrap();
    writer.spool_append(0, &noise(1 << 20)).unwrap();
    writer.flush().unwrap();
    drop(writer);
    limited("child_recovers_until_full", &folder, 100);
    assert!(!folder.join("calls").exists());
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    assert_eq!(trace.manifest().totals.records, (1 << 20) / 16);
}

/// Records that do not pack well.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut noise = Vec::new();
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The lowest bit keeps the function valid.
        noise.extend((state | 1).to_le_bytes());
    }
    noise
}

#[test]
#[ignore = "run by the others, under a limit"]
fn child_records_until_full() {
    let folder = std::env::var(FOLDER).unwrap();
    let mut writer = TraceWriter::create(Path::new(&folder), &drawing::manifest()).unwrap();
    let records = noise(48 * 100);
    for _ in 0..100 {
        if let Err(error) = writer.spool_append(0, &records) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            assert!(error.to_string().contains("ulimit -f"), "{error}");
            return;
        }
    }
    panic!("the limit did not hold");
}

#[test]
#[ignore = "run by the others, under a limit"]
fn child_recovers_until_full() {
    let folder = std::env::var(FOLDER).unwrap();
    let error = open_or_recover(Path::new(&folder), &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(matches!(Trace::open(Path::new(&folder)), Err(Error::CutOff { .. })));
}
