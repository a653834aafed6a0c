//! Object files and programs that are damaged: an error or a file, never a panic.

use std::path::Path;
use std::process::Command;

use fettle_code::Mode;
use fettle_instrument::{Options, instrument};
use fettle_record::Selection;

const SOURCE: &str = r#"
#include <stdexcept>
#include <string>
template <typename T> T twice(T x) { return x + x; }
int jump(int x) { switch (x) { case 0: return 4; case 1: return twice(x); case 2: return 9; case 3: return x * 3; case 4: return x - 7; case 5: return twice(3); } return 0; }
std::string guarded(int x) { std::string s = "a"; try { if (x) throw std::runtime_error("b"); } catch (std::exception &e) { s += e.what(); } return twice(s); }
"#;

#[test]
fn damaged_object_files_cause_no_panic() {
    damage("object", &["-c"], 600);
}

#[test]
fn damaged_programs_cause_no_panic() {
    damage("program", &["-shared", "-fPIC"], 200);
}

fn damage(name: &str, flags: &[&str], rounds: usize) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, object) = (folder.join("a.cc"), folder.join("a.o"));
    std::fs::write(&source, SOURCE).expect("written");
    let compiled =
        Command::new("g++").arg("-O2").args(flags).arg(&source).arg("-o").arg(&object).status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("left out: there is no g++");
        return;
    }
    let whole = std::fs::read(&object).expect("object");
    let input = folder.join("damaged.o");
    let mut options = Options {
        input: object,
        output: folder.join("out.o"),
        mode: Mode::Events,
        selection: Selection::default(),
        dry_run: true,
    };
    assert!(instrument(&options).expect("undamaged").functions > 1);
    options.input = input.clone();
    // Places that say where things are: headers, relocations, symbols; and any others.
    let table = u64::from_le_bytes(whole[40..48].try_into().expect("eight bytes")) as usize;
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let (mut refused, mut made) = (0, 0);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..=(round % 3) {
            let at = match round % 4 {
                0 => table + random(whole.len() - table),
                // Program headers and what lies behind them, too.
                1 => random(if name == "object" { 64 } else { 1024 }),
                _ => random(whole.len()),
            };
            bytes[at] = [0, 0xff, 0x80, 1, random(256) as u8][random(5)];
        }
        if round % 50 == 7 {
            bytes.truncate(random(whole.len()));
        }
        std::fs::write(&input, &bytes).expect("written");
        match instrument(&options) {
            Ok(_) => made += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > rounds / 30 && made > rounds / 30, "{refused} refused, {made} made");
}
