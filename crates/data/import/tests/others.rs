//! Other readers of the same files say the same. Each is skipped where its program is not installed.

mod common;

use std::process::Command;
use std::rc::Rc;

use common::golden;
use fettle_import::ctf::{Trace, show};
use fettle_import::{Value, tracedat};

fn output(program: &str, arguments: &[&std::ffi::OsStr]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            println!("skipped: {program} is not installed");
            None
        }
    }
}

#[test]
fn babeltrace_reads_the_same_values() {
    let folder = golden("ctf");
    let Some(text) = output("babeltrace2", &[folder.as_os_str()]) else { return };
    let trace = Rc::new(Trace::open(&folder).unwrap());
    let mut ours = Vec::new();
    for file in trace.files() {
        let mut stream = trace.stream(file).unwrap();
        while let Some(event) = stream.next().unwrap() {
            let mut fields = Vec::new();
            let mut scratch = String::new();
            for (n, column) in event.plan.columns.iter().enumerate().filter(|(_, it)| !it.hidden) {
                let value = match show(&event, column, n, &mut scratch) {
                    Value::Text(text) => format!("\"{text}\""),
                    value => value.to_string(),
                };
                fields.push(format!("{} = {value}", column.name));
            }
            ours.push((event.time_ns, event.plan.name.clone(), fields));
        }
    }
    ours.sort();
    let theirs: Vec<&str> = text.lines().collect();
    assert_eq!(ours.len(), theirs.len());
    for ((_, name, fields), line) in ours.iter().zip(theirs) {
        assert!(line.contains(&format!(" {name}: ")), "{name}: {line}");
        for field in fields {
            assert!(line.contains(field.as_str()), "{field}: {line}");
        }
    }
}

#[test]
fn trace_cmd_reads_as_many_records() {
    let path = golden("net.dat");
    let dash = std::ffi::OsStr::new("-i");
    let Some(text) = output("trace-cmd", &["report".as_ref(), dash, path.as_os_str()]) else {
        return;
    };
    let records = text.lines().filter(|line| line.contains("] ") && line.contains(": ")).count();
    let ours = tracedat::count(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(ours, records as u64);
}
