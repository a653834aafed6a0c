//! Programs of `tests/programs` that run until they are asked to end, and what is seen of them from
//! outside.

#[path = "children.rs"]
mod children;

pub use children::children;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Builds a program of `tests/programs`.
pub fn build(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let name = source.split('.').next().unwrap();
    let output = folder.join(format!("{name}{}", flags.concat()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let compiler = if source.extension().unwrap() == "c" { "gcc" } else { "g++" };
    let mut command = Command::new(compiler);
    command.arg("-O2").args(flags).arg(&source).arg("-o").arg(&output).arg("-pthread");
    assert!(command.status().unwrap().success(), "{compiler} {}", source.display());
    output
}

/// A program that runs until it is asked to end.
pub struct Running {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it; it is ready when it says so.
    pub fn start(program: &Path, arguments: &[PathBuf]) -> Running {
        let mut command = Command::new(program);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running { child, out }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends it, and gives what it had to say.
    pub fn end(mut self) -> String {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        format!("{said}{status}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Places of a process's code, from files, that are not what the files say.
pub fn differing(pid: i32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = fields[..] else { continue };
        let Ok(file) = File::open(path) else { continue };
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let len = (hex(end) - hex(start)) as usize;
        let mut now = vec![0; len];
        let mut then = vec![0; len];
        memory.read_exact_at(&mut now, hex(start)).unwrap();
        let mut read = 0;
        while read < len {
            match file.read_at(&mut then[read..], hex(offset) + read as u64).unwrap() {
                0 => break,
                count => read += count,
            }
        }
        let first = (0..read).find(|i| now[*i] != then[*i]);
        all.extend(first.map(|i| format!("{path} at offset {:#x}", hex(offset) + i as u64)));
    }
    all
}

/// Memory that only Fettle makes in these programs: executable, of no file.
pub fn leftovers(pid: i32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let anonymous = |line: &&str| line.contains("r-xp") && line.split_whitespace().count() == 5;
    maps.lines().filter(anonymous).map(str::to_owned).collect()
}
