//! Makes a list of the module's source files, which are part of this crate.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let folder = here.join("../../../runtime/appkernel").canonicalize().expect("it is there");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    find(&folder, &mut files);
    files.sort();
    let mut text = String::from("[\n");
    for file in &files {
        let name = file.strip_prefix(&folder).expect("found below it");
        let name = name.to_str().expect("names of source files are plain");
        writeln!(text, "({name:?}, include_str!({file:?})),").expect("writing to a string");
    }
    text.push(']');
    std::fs::write(out.join("files.rs"), text).expect("the build folder is writable");
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            find(&path, files);
        } else {
            files.push(path);
        }
    }
}
