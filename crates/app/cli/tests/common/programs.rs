//! A folder in which the programs of `tests/programs` are built and recorded. Tests add to what can
//! be done there.

#[path = "children.rs"]
mod children;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The folder; it is removed in the end.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a program; `None` if the compiler cannot.
    pub fn try_build(&self, source: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let compiler = if source.extension().is_some_and(|e| e == "c") { "gcc" } else { "g++" };
        let output = self.path(output);
        let mut command = Command::new(compiler);
        command.arg("-O2").args(flags).arg(&source).arg("-o").arg(&output);
        let built = command.args(["-ldl", "-pthread"]).stderr(Stdio::null()).status().unwrap();
        built.success().then_some(output)
    }

    /// Builds a program that every compiler can.
    pub fn build(&self, source: &str, output: &str, flags: &[&str]) -> String {
        let built = self.try_build(source, output, flags);
        built.unwrap_or_else(|| panic!("{source} is built")).display().to_string()
    }
}

/// The one process that `recorder` has started.
#[allow(dead_code)]
pub fn program_of(recorder: &Child) -> String {
    let children = children::children(recorder.id() as i32);
    assert_eq!(children.len(), 1, "{children:?}");
    children[0].to_string()
}
