//! Compiles the Java runtime, whose classes are part of this crate.
//!
//! Without a JDK the crate is built all the same; it then says so when it is asked for a jar.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let sources = here.join("../../../runtime/jvm/src/main/java");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-env-changed=JAVA_HOME");
    let mut files = Vec::new();
    find(&sources, "java", &mut files);
    let classes = out.join("classes");
    let _ = std::fs::remove_dir_all(&classes);
    std::fs::create_dir_all(&classes).expect("the build folder is writable");
    let javac = std::env::var_os("JAVA_HOME")
        .map(|home| PathBuf::from(home).join("bin/javac"))
        .filter(|javac| javac.exists())
        .unwrap_or_else(|| "javac".into());
    let compiled = Command::new(javac)
        .args(["--release", "17", "-proc:none", "-g:source,lines", "-nowarn", "-Xlint:none", "-d"])
        .arg(&classes)
        .args(&files)
        .output();
    let mut found = Vec::new();
    match compiled {
        Ok(output) if output.status.success() => find(&classes, "class", &mut found),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            for line in text.lines().take(10) {
                println!("cargo::warning={line}");
            }
            println!("cargo::warning=the Java runtime was not compiled: no `fettle jar`");
        }
        Err(error) => {
            println!("cargo::warning=no javac ({error}): `fettle jar` will not write jars");
        }
    }
    found.sort();
    let mut list = String::from("&[\n");
    for file in &found {
        let name = file.strip_prefix(&classes).expect("found there").to_string_lossy();
        list += &format!("({name:?}, include_bytes!({:?})),\n", file.display().to_string());
    }
    list.push(']');
    std::fs::write(out.join("runtime.rs"), list).expect("the build folder is writable");
}

fn find(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}
