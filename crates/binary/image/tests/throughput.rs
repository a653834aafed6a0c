//! Parsing has to be quick, for a recording starts with it. Prints times; run with
//! `cargo test --release -p fettle-image --test throughput -- --nocapture` for ones to quote.

use std::process::Command;
use std::time::{Duration, Instant};

use fettle_image::{Bytes, Image};

#[test]
fn large_programs_parse_quickly() {
    let output = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut paths: Vec<String> = ["/bin/bash", "/usr/bin/python3"].map(str::to_owned).to_vec();
    paths.push("/usr/lib/x86_64-linux-gnu/libstdc++.so.6".to_owned());
    paths.extend(output("gcc", "-print-prog-name=cc1"));
    let sysroot = output("rustc", "--print=sysroot").unwrap_or_default();
    if let Ok(folder) = std::fs::read_dir(format!("{sysroot}/lib")) {
        let libraries = folder.flatten().map(|entry| entry.path().display().to_string());
        paths.extend(libraries.filter(|path| path.contains("librustc_driver")));
    }
    for path in paths {
        let Ok(file) = std::fs::read(&path) else { continue };
        let size = file.len();
        let bytes = Bytes::new(file);
        let (mut parse, mut functions) = (Duration::MAX, Duration::MAX);
        let mut count = 0;
        for _ in 0..5 {
            let started = Instant::now();
            let image = Image::parse(bytes.clone()).unwrap_or_else(|e| panic!("{path}: {e}"));
            parse = parse.min(started.elapsed());
            let started = Instant::now();
            count = image.functions().len();
            functions = functions.min(started.elapsed());
        }
        let size_mb = size as f64 / 1e6;
        println!("{path}: {size_mb:.1} MB, {count} functions: {parse:?}, functions {functions:?}");
        // Without optimisation and on a busy machine it is still far from a second.
        assert!(parse < Duration::from_secs(5), "{path} took {parse:?}");
    }
}
