//! Builds the program that measures a system from inside (`runtime/bench`), which is part of this crate.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/bench");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("it is there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let compile = |link: &[&str]| {
        let mut command = cc::Build::new().get_compiler().to_command();
        command
            .args(["-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-pthread", "-s"])
            .args(link)
            .args(&sources)
            .arg("-o")
            .arg(out.join("fettle-bench"));
        let status = command.status();
        (status.is_ok_and(|status| status.success()), command)
    };
    // All systems see the same root, so that without a static C library it works as well; only what
    // exec costs is then the loader's time, too.
    if !compile(&["-static"]).0 {
        println!(
            "cargo::warning=no static C library: `fettle compare` measures by a dynamic program"
        );
        let (done, command) = compile(&[]);
        assert!(done, "{command:?}");
    }
}
