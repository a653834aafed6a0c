//! Files whose code lies in any other order do what they did: the torture program, linked in four
//! ways, and programs that are there. Before and after `strip`, and without Fettle.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fettle_instrument::{InstrumentError, LaidOut, Order, lay_out};
use fettle_lift::Placement;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Every function's blocks in any order, in the middle of those of others.
fn shuffle(input: &Path, output: &Path, seed: u64) -> Result<LaidOut, InstrumentError> {
    lay_out(input, Some(output), |_, functions| {
        let entries: HashSet<_> = functions.iter().map(|f| f.entry).collect();
        Ok(Order {
            placement: Placement::shuffled(functions, seed),
            entries,
            promoted: HashMap::new(),
        })
    })
}

/// Runs `FOLDER/run`; what it starts by the name that it has is itself.
fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(folder.join("run"));
    std::os::unix::process::CommandExt::arg0(&mut command, args[0]);
    command.args(&args[1..]).current_dir(folder).env("LC_ALL", "C").output().unwrap()
}

/// Copies a program without having the copy open for writing in this process: another test that
/// forks at the same time would inherit the descriptor, and a file that is open for writing cannot
/// be executed. So another process writes it.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// Runs a program plain, laid out, and laid out and stripped.
fn same_as_before(program: &Path, args: &[&str], folder: &Path, seed: u64) -> LaidOut {
    let [plain, new] = ["plain", "new"].map(|name| folder.join(name));
    for folder in [&plain, &new] {
        std::fs::create_dir_all(folder).unwrap();
    }
    copy(program, &plain.join("run"));
    let before = run(&plain, args);
    let made = shuffle(program, &new.join("made"), seed).unwrap();
    let laid_out = new.join("run");
    copy(&new.join("made"), &laid_out);
    assert_eq!(run(&new, args), before, "{}", program.display());
    if made.strippable {
        let stripped = Command::new("strip").arg(&laid_out).output().unwrap();
        assert!(stripped.status.success() && stripped.stderr.is_empty(), "{stripped:?}");
        assert_eq!(run(&new, args), before, "{} stripped", program.display());
    }
    made
}

#[test]
fn torture_in_any_order() {
    let folder = folder("laid-out-torture");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/torture");
    let compile = |name: &str| {
        let mut gcc = Command::new("g++");
        gcc.args(["-O2", "-fPIE", "-std=c++17", "-c"]).arg(sources.join(name).with_extension("cc"));
        gcc.arg("-o").arg(folder.join(name).with_extension("o")).spawn().unwrap()
    };
    let names = [
        "main",
        "control_flow",
        "exceptions",
        "jumps",
        "stacks",
        "signals",
        "threads",
        "processes",
        "plugins",
    ];
    for pair in names.chunks(2) {
        let running: Vec<_> = pair.iter().map(|name| compile(name)).collect();
        for mut compiler in running {
            assert!(compiler.wait().unwrap().success());
        }
    }
    for (flags, seed) in [("-pie", 1), ("-no-pie", 2), ("-static", 3), ("-static-pie", 4)] {
        let program = folder.join("torture");
        let mut gcc = Command::new("g++");
        gcc.arg(flags).args(names.map(|name| folder.join(name).with_extension("o")));
        gcc.args(["-pthread", "-ldl", "-o"]).arg(&program);
        assert!(gcc.output().unwrap().status.success(), "{flags}");
        let made = same_as_before(&program, &["./run"], &folder, seed);
        assert!(made.functions > 50 && made.calls > 50, "{flags}: {made:?}");
    }
    let again = shuffle(&folder.join("new/run"), &folder.join("again"), 5).unwrap_err();
    assert!(again.to_string().contains("--layout"), "{again}");
}

#[test]
fn programs_in_any_order() {
    let folder = folder("laid-out-programs");
    let script = "declare -A m; f() { case $1 in *3) m[$1]=${1//3/x};; *) echo \"$1\";; esac; }; \
                  for ((i = 0; i < 300; i++)); do f $i; done; echo ${m[13]} $(echo sub | tr b d)";
    let python = "import json, re\ntry:\n  {}['x']\nexcept KeyError as e:\n  print(repr(e))\n\
                  print(json.dumps(sorted(re.findall(r'\\d+', str(list(range(500)))))))";
    let lua = "print(pcall(error, 'x')) for w in ('a b c'):gmatch('%a') do print(w:rep(3)) end";
    let sql = "select group_concat(n, ',') from (with recursive r(n) as (select 1 union all \
               select n + 1 from r where n < 99) select n * 7 % 13 as n from r order by 1)";
    let programs: [(&str, &[&str]); 4] = [
        ("/bin/bash", &["bash", "-c", script]),
        ("/usr/bin/python3", &["/usr/bin/python3", "-S", "-c", python]),
        ("/usr/bin/lua5.4", &["lua", "-e", lua]),
        ("/usr/bin/sqlite3", &["sqlite3", ":memory:", sql]),
    ];
    for ((program, args), seed) in programs.into_iter().zip(11..) {
        if !Path::new(program).exists() {
            eprintln!("left out: there is no {program}");
            continue;
        }
        let program = std::fs::canonicalize(program).unwrap();
        let made = same_as_before(&program, args, &folder, seed);
        assert!(made.functions > 100, "{}: {made:?}", program.display());
    }
}

#[test]
fn what_has_no_layout_is_refused() {
    let folder = folder("laid-out-refused");
    let output = folder.join("new");
    let none = |_: &fettle_image::Image, _: &[fettle_lift::Function]| {
        Ok(Order {
            placement: Placement::new(Vec::new()),
            entries: HashSet::new(),
            promoted: HashMap::new(),
        })
    };
    let error = lay_out(Path::new("/bin/true"), Some(&output), none).unwrap_err();
    assert!(error.to_string().contains("none of the functions"), "{error}");
    let why = |_: &fettle_image::Image, _: &[fettle_lift::Function]| Err("because".to_owned());
    let error = lay_out(Path::new("/bin/true"), Some(&output), why).unwrap_err();
    assert!(error.to_string().ends_with("true: because"), "{error}");
    let text = folder.join("text");
    std::fs::write(&text, "no program").unwrap();
    assert!(shuffle(&text, &output, 1).is_err());
    assert!(!output.exists(), "nothing was written");
}
