//! The programs of `tests/programs`, built for a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds one as `output` in `folder`; `None` if the compiler cannot.
pub fn try_build(folder: &Path, source: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let compiler = if source.extension().is_some_and(|e| e == "c") { "gcc" } else { "g++" };
    let output = folder.join(output);
    let mut command = Command::new(compiler);
    command.arg("-O2").args(flags).arg(&source).arg("-o").arg(&output);
    let built = command.args(["-ldl", "-pthread"]).stderr(Stdio::null()).status().unwrap();
    built.success().then_some(output)
}

/// The same; all compilers can.
#[allow(dead_code)]
pub fn build(folder: &Path, source: &str, output: &str, flags: &[&str]) -> String {
    let built = try_build(folder, source, output, flags);
    built.unwrap_or_else(|| panic!("{source} is built")).display().to_string()
}
