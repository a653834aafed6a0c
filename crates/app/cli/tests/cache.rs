//! Rewritten code that is kept: used again, cleared, and never in the way.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn fettle(&self, caches: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.env("XDG_CACHE_HOME", caches);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records a real program; also gives what `--json` says.
    fn record(&self, caches: &Path, flags: &[&str]) -> (Output, serde_json::Value) {
        let trace = self.path("trace");
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = self.fettle(caches);
        record.args(["record", "--json", "--mode", "count", "-o"]).arg(trace).args(flags);
        let output = record.args(["--", "/bin/ls", "/usr"]).output().unwrap();
        assert!(output.status.success());
        let json = serde_json::from_slice(&output.stderr).unwrap();
        (output, json)
    }

    fn cache(&self, caches: &Path, words: &[&str]) -> String {
        let output = self.fettle(caches).arg("cache").args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn entries(&self, caches: &Path) -> u64 {
        let json: serde_json::Value =
            serde_json::from_str(&self.cache(caches, &["--json"])).unwrap();
        assert_eq!(json["version"], 1);
        assert_eq!(json["path"], caches.join("fettle").display().to_string());
        assert_eq!(json["bytes"] == 0, json["entries"] == 0);
        json["entries"].as_u64().unwrap()
    }
}

#[test]
fn the_second_recording_lifts_nothing() {
    let bench = Bench { folder: tempfile::tempdir().unwrap() };
    let caches = bench.path("caches");
    assert_eq!(bench.entries(&caches), 0);
    bench.record(&caches, &["--no-cache"]);
    assert!(!caches.exists());

    let (first, said) = bench.record(&caches, &[]);
    assert_eq!(said["modules_from_cache"], 0);
    assert!(said["lift_bytes"].as_u64() > Some(0));
    assert_eq!(bench.entries(&caches), 1);
    let (second, again) = bench.record(&caches, &[]);
    assert_eq!(again["modules_from_cache"], 1);
    assert_eq!(again["lift_bytes"], 0);
    assert_eq!(second.stdout, first.stdout);
    for number in ["calls", "functions_seen", "functions_lifted", "reasons"] {
        assert_eq!(again[number], said[number], "{number}");
    }
    // Other choices are other entries.
    let (_, other) = bench.record(&caches, &["--min-size", "64"]);
    assert_eq!(other["modules_from_cache"], 0);
    assert_eq!(bench.entries(&caches), 2);
    bench.cache(&caches, &["clear"]);
    assert_eq!(bench.entries(&caches), 0);
}

#[test]
fn where_nothing_can_be_kept_nothing_is_said() {
    let bench = Bench { folder: tempfile::tempdir().unwrap() };
    let file = bench.path("file");
    std::fs::write(&file, "").unwrap();
    for caches in [file.as_path(), Path::new("/proc/self"), Path::new("/dev/full")] {
        let (output, said) = bench.record(caches, &[]);
        assert_eq!(said["modules_from_cache"], 0);
        assert!(!output.stdout.is_empty());
        let trace = bench.path("quiet");
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = bench.fettle(caches);
        record.args(["record", "--quiet", "-o"]).arg(trace).args(["--", "/bin/true"]);
        assert_eq!(String::from_utf8_lossy(&record.output().unwrap().stderr), "");
    }
}
