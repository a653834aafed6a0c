//! Compiles the Java runtimes, whose classes are part of this crate.
//!
//! Without a JDK the crate is built all the same; it then says so when it is asked for a jar.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A runtime: its name in this crate, the Java that its sources are written for, its folders of sources,
/// the files of another runtime that it has as well, and the folder of what it is compiled against and
/// does not contain. A later folder's file stands for that of an earlier one with the same name.
struct Runtime {
    name: &'static str,
    release: &'static str,
    sources: &'static [&'static str],
    shared: &'static [&'static str],
    beside: Option<&'static str>,
}

const RUNTIMES: [Runtime; 3] = [
    Runtime {
        name: "JAVA",
        release: "17",
        sources: &["jvm/src/main/java"],
        shared: &[],
        beside: None,
    },
    Runtime {
        name: "ANDROID",
        release: "17",
        sources: &["jvm/src/main/java", "jvm/src/android/java"],
        shared: &[],
        beside: None,
    },
    Runtime {
        name: "CLDC",
        release: "8",
        sources: &["cldc/src/main/java"],
        shared: &SHARED,
        beside: Some("cldc/src/midp/java"),
    },
];

/// Files in which nothing is needed that CLDC does not have.
const SHARED: [&str; 6] = [
    "ForcedUnwind.java",
    "Handler.java",
    "Instructions.java",
    "Region.java",
    "Registers.java",
    "Unwinder.java",
];

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let folder = here.join("../../../runtime");
    println!("cargo::rerun-if-env-changed=JAVA_HOME");
    let mut text = String::new();
    for runtime in RUNTIMES {
        text += &compile(&runtime, &folder, &out);
    }
    std::fs::write(out.join("runtime.rs"), text).expect("the build folder is writable");
}

/// Compiles one; the declaration of its classes.
fn compile(runtime: &Runtime, folder: &Path, out: &Path) -> String {
    let mut files: Vec<PathBuf> = Vec::new();
    for sources in runtime.sources.iter().chain(&runtime.beside) {
        let sources = folder.join(sources);
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut own = Vec::new();
        find(&sources, "java", &mut own);
        files.retain(|file| !own.iter().any(|other| other.file_name() == file.file_name()));
        files.extend(own);
    }
    let shared = folder.join("jvm/src/main/java/io/github/fettle/jvm");
    for file in runtime.shared.iter().map(|name| shared.join(name)) {
        println!("cargo::rerun-if-changed={}", file.display());
        files.push(file);
    }
    let classes = out.join(runtime.name);
    let _ = std::fs::remove_dir_all(&classes);
    std::fs::create_dir_all(&classes).expect("the build folder is writable");
    let javac = std::env::var_os("JAVA_HOME")
        .map(|home| PathBuf::from(home).join("bin/javac"))
        .filter(|javac| javac.exists())
        .unwrap_or_else(|| "javac".into());
    let compiled = Command::new(javac)
        .args(["--release", runtime.release, "-proc:none", "-g:source,lines", "-nowarn"])
        // Texts that are put together by `invokedynamic` take longer than a short program.
        .args(["-XDstringConcat=inline", "-Xlint:none", "-d"])
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
            println!("cargo::warning=a Java runtime was not compiled: no `fettle jar`");
        }
        Err(error) => {
            println!("cargo::warning=no javac ({error}): `fettle jar` will not write jars");
        }
    }
    if runtime.beside.is_some() {
        found.retain(|file| !file.starts_with(classes.join("javax")));
    }
    found.sort();
    let mut list = format!("static {}: &[(&str, &[u8])] = &[\n", runtime.name);
    for file in &found {
        let name = file.strip_prefix(&classes).expect("found there").to_string_lossy();
        list += &format!("({name:?}, include_bytes!({:?})),\n", file.display().to_string());
    }
    list + "];\n"
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
