//! Profiles: of traces, put together, and used on another build of a program.

use std::path::Path;
use std::process::{Command, Output, Stdio};

#[allow(dead_code)]
mod common;

const WORK: &str = r#"
__attribute__((noinline)) int work(int x) { return x % 7 ? x * 3 : x / 2; }
__attribute__((noinline)) int other(int x) { return work(x) + (x & 1 ? work(x + 1) : 2); }
int main(int argc, char **argv)
{
    long sum = 0;
    for (int i = 0; argc > 1 || i < 200000; i++) {
        sum += other(i);
        if (i % 1000 == 0) { printf("%ld\n", sum); fflush(stdout); }
    }
    return 0;
}
"#;

fn compile(program: &Path, before: &str) {
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    let source = program.with_extension("c");
    std::fs::write(&source, format!("#include <stdio.h>\n{before}{WORK}")).unwrap();
    let mut gcc = Command::new("gcc");
    assert!(gcc.args(["-O1", "-o"]).args([program, &source]).status().unwrap().success());
}

fn fettle(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.args(arguments).env("XDG_CACHE_HOME", folder.join("cache")).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn runs_make_a_profile_that_an_upgraded_program_can_use() {
    let folder = common::folder("profiles");
    let (old, new) = (folder.join("old/program"), folder.join("new/program"));
    compile(&old, "");
    compile(&new, "__attribute__((noinline,used)) int added(int x) { return x * x + 17; }\n");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for run in ["1.fettle", "2.fettle"] {
        let record = ["record", "-q", "--mode", "edges", "-o", &path(run), "--"];
        let record = fettle(&folder, &[&record[..], &[common::text(&old)]].concat());
        assert!(record.status.success(), "{}", String::from_utf8_lossy(&record.stderr));
    }
    let profile = path("runs.profile");
    let made = ["profile", "of", &path("1.fettle"), &path("2.fettle"), "-o", &profile, "--json"];
    let made = json(&fettle(&folder, &made));
    assert!(made["functions"].as_u64() >= Some(3), "{made}");
    let passages = |profile: &str, name: &str| {
        let shown = json(&fettle(&folder, &["profile", "show", profile, "--json"]));
        let functions = shown["modules"][0]["functions"].as_array().unwrap().clone();
        let found = functions.iter().find(|f| f["name"] == name);
        found.map(|f| f["block_passages"].as_u64().unwrap())
    };
    let two = passages(&profile, "work").unwrap();
    // Five times the first, once the second: as much as three times both.
    let merged = path("merged.profile");
    let merge = ["profile", "merge", &profile, &profile, "--weight", "5", "--weight", "1"];
    let merge = fettle(&folder, &[&merge[..], &["-o", &merged]].concat());
    assert!(merge.status.success(), "{}", String::from_utf8_lossy(&merge.stderr));
    assert_eq!(passages(&merged, "work"), Some(two * 6));

    let mut server = Command::new(&new).arg("for-ever").stdout(Stdio::null()).spawn().unwrap();
    let pid = server.id().to_string();
    let tune =
        ["tune", "-p", &pid, "--profile", &profile, "--dry-run", "--threshold", "0", "--json"];
    let tuned = fettle(&folder, &tune);
    server.kill().unwrap();
    server.wait().unwrap();
    let tuned = json(&tuned);
    assert!(tuned["profile"]["moved"].as_u64() >= Some(2), "{tuned}");
    let functions = tuned["modules"][0]["functions"].as_array().unwrap();
    assert!(functions.iter().any(|f| f["name"] == "work"), "{tuned}");
}

#[test]
fn what_cannot_be_put_together_is_refused() {
    let folder = common::folder("profiles-wrong");
    let file = folder.join("no.profile");
    std::fs::write(&file, "{}").unwrap();
    let (file, out) = (common::text(&file), folder.join("out"));
    let out = common::text(&out);
    let refused = |arguments: &[&str], words: &str| {
        let output = fettle(&folder, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
    };
    refused(&["profile", "merge", file, "-o", out], "no whole profile");
    refused(
        &["profile", "merge", file, "-o", out, "--weight", "1", "--weight", "2"],
        "one for each",
    );
    refused(&["profile", "merge", file, "-o", out, "--weight", "0"], "above 0");
    refused(&["profile", "of", "/nonexistent", "-o", out], "/nonexistent");
    assert!(!Path::new(out).exists());
}
