//! A program of `crates/app/cli/tests/programs` that runs until it gets the signal to end, and then
//! says whether all of its work was right.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use fettle_types::Pid;

/// Ended, with its folder, when this is dropped.
pub struct Running {
    pub folder: PathBuf,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Compiles and starts `program`, in a folder by this name, and waits until it is at work.
    pub fn start(program: &str, name: &str, flags: &[&str]) -> Running {
        let folder = std::env::temp_dir().join(format!("fettle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../app/cli/tests/programs");
        let (source, program) = (sources.join(format!("{program}.c")), folder.join(program));
        let mut gcc = Command::new("gcc");
        gcc.arg("-O2").args(flags).arg(source).arg("-o").arg(&program);
        assert!(gcc.status().unwrap().success());
        let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running { folder, child, out }
    }

    pub fn pid(&self) -> Pid {
        Pid::of_child(&self.child)
    }

    /// Where undo logs go.
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// Has it end, and looks at what it says.
    pub fn end(mut self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        assert_eq!(said, "right after many rounds\n");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
