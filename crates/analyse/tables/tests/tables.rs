//! Tables of a trace whose requests are known, as files and in Python.

#[path = "../../follow/tests/shop/mod.rs"]
mod shop;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use fettle_follow::{Session, choose};
use fettle_requests::shipped;
use fettle_tables::{Table, python, render, write_parquet};
use fettle_trace::Trace;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn with_shop(requests: usize, with: impl FnOnce(&Session<'_>, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 8, requests as _);
    let trace = Trace::open(&folder).unwrap();
    let session = Session::open(&trace, &choose(&trace).unwrap().sources, &shipped).unwrap();
    with(&session, dir.path());
}

#[test]
fn files_hold_what_the_list_holds() {
    with_shop(300, |session, dir| {
        let written = write_parquet(session, &dir.join("a/b")).unwrap();
        assert_eq!(written.len(), Table::ALL.len());
        let rows = session.list().unwrap();
        let events: u64 = rows.iter().map(|row| row.events).sum();
        for file in &written {
            let reader = std::fs::File::open(&file.path).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(reader).unwrap();
            let name = file.path.file_stem().unwrap().to_str().unwrap();
            let table = Table::from_name(name).unwrap();
            assert_eq!(reader.schema().fields(), table.schema().fields());
            let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
            let found: usize = batches.iter().map(arrow_array::RecordBatch::num_rows).sum();
            assert_eq!(found as u64, file.rows);
            match table {
                Table::Requests => {
                    assert_eq!(found, rows.len());
                    let walls = batches.iter().flat_map(|batch| {
                        let column = batch.column_by_name("wall_ns").unwrap();
                        column.as_primitive::<Int64Type>().values().to_vec()
                    });
                    let mut walls: Vec<u64> = walls.map(|ns| ns as u64).collect();
                    let mut listed: Vec<u64> = rows.iter().map(|row| row.wall_ns).collect();
                    walls.sort_unstable();
                    listed.sort_unstable();
                    assert_eq!(walls, listed);
                }
                Table::RequestEvents => assert_eq!(found as u64, events),
                _ => assert!(found > rows.len(), "{name}: {found}"),
            }
        }
        // Nothing half written is left.
        let left = std::fs::read_dir(dir.join("a/b")).unwrap().count();
        assert_eq!(left, written.len());
    });
}

/// An interpreter with pyarrow, in a virtual environment that later runs find again.
fn interpreter() -> Result<PathBuf, String> {
    let ok = |command: &mut Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyarrow");
    let python = folder.join("bin/python3");
    let has = |python: &Path| ok(Command::new(python).args(["-c", "import pyarrow"]));
    if has(Path::new("python3")) {
        return Ok("python3".into());
    }
    if !has(&python) {
        if !ok(Command::new("python3").args(["-m", "venv"]).arg(&folder)) {
            return Err("python3 -m venv does not work".into());
        }
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--timeout",
            "20",
            "pyarrow",
        ];
        if !ok(Command::new(&python).args(pip)) || !has(&python) {
            return Err("pip cannot install pyarrow".into());
        }
    }
    Ok(python)
}

const ANALYSIS: &str = "
import sys
import pyarrow.compute as pc

state = {}

def init(args):
    assert sys.stdin.read() == ''
    state.update(limit=int(args[0]), slow=0, seen=0, sent=0, bytes=0, order=['init'])

def on_requests(batch):
    state['seen'] += batch.num_rows
    state['slow'] += pc.sum(pc.greater(batch['disk_ns'], state['limit'])).as_py() or 0
    assert 'redis-server' in batch['path'][0].as_py()

def on_sent(batch):
    state['sent'] += batch.num_rows
    state['bytes'] += pc.sum(batch['bytes']).as_py()
    assert batch['kind'][0].as_py() == 'sent'

def dispose():
    return {'found': [{k: state[k] for k in ('seen', 'slow', 'sent', 'bytes')}], 'none': []}
";

#[test]
fn an_analysis_in_python_sees_every_request_and_every_event() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    with_shop(400, |session, dir| {
        let file = dir.join("slow.py");
        std::fs::write(&file, ANALYSIS).unwrap();
        let outcome = python::run(session, &python, &file, &["20000000".into()]).unwrap();
        assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
        let rows = session.list().unwrap();
        let slow = rows.iter().filter(|row| row.times_ns.disk > 20_000_000).count();
        let [found, none] = outcome.tables.as_slice() else { panic!("{:?}", outcome.tables) };
        assert_eq!((found.title.as_str(), none.title.as_str()), ("found", "none"));
        let schema = found.batches[0].schema();
        let json = render::json(&schema, &found.batches).unwrap();
        assert_eq!(json[0]["seen"], rows.len());
        assert_eq!(json[0]["slow"], slow);
        // Each request is five messages of 200 bytes.
        assert_eq!(json[0]["sent"], rows.len() * 5);
        assert_eq!(json[0]["bytes"], rows.len() * 1000);
    });
}

#[test]
fn an_analysis_that_does_not_work_says_so() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    with_shop(20, |session, dir| {
        let file = dir.join("wrong.py");
        let run = |text: &str| {
            std::fs::write(&file, text).unwrap();
            python::run(session, &python, &file, &[]).unwrap_err().to_string()
        };
        let error = run("def on_nobody(batch): pass");
        assert!(error.contains("on_nobody") && error.contains("request_events"), "{error}");
        let error = run("def init(args): pass");
        assert!(error.contains("has no handler"), "{error}");
        let error = run("def on_requests(batch): raise ValueError(7)");
        assert!(error.contains("failed"), "{error}");
        // It does not matter whether batches were still to be sent.
        let error =
            run("def on_requests(batch):\n  import os\n  os.close(0)\n  raise ValueError(7)");
        assert!(error.contains("failed") && !error.contains("exchange"), "{error}");
        let error = run("def on_requests(batch): pass\ndef dispose(): return 7");
        assert!(error.contains("failed"), "{error}");
        let error = run("import os\nos._exit(3)");
        assert!(error.contains("exit status: 3"), "{error}");
        let missing = python::run(session, &python, &dir.join("no.py"), &[]).unwrap_err();
        assert!(missing.to_string().contains("no.py"), "{missing}");
        let nobody = python::run(session, Path::new("/no/python"), &file, &[]).unwrap_err();
        assert!(nobody.to_string().contains("pip install pyarrow"), "{nobody}");
    });
}
