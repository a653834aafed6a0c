//! The decoder against GNU's, over every instruction of the C library and of libstdc++.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fettle_mips::Insn;

fn compare(objdump: &str, archive: &str) {
    if !Path::new(archive).exists() {
        eprintln!("skipped: no {archive} (packages libc6-dev-mipsel-cross, libc6-dev-mips-cross)");
        return;
    }
    let output = Command::new(objdump)
        .args(["-d", "-M", "no-aliases", archive])
        .output()
        .expect("objdump starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut compared, mut wrong) = (0, BTreeMap::new());
    for line in text.lines() {
        let mut columns = line.split('\t');
        let (Some(pc), Some(word), Some(name)) = (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let Ok(pc) = u32::from_str_radix(pc.trim().trim_end_matches(':'), 16) else { continue };
        let Ok(word) = u32::from_str_radix(word.trim(), 16) else { continue };
        let operands = columns.next().unwrap_or("").split(" <").next().unwrap_or("");
        let want = format!("{name} {operands}").trim().to_owned();
        let got = Insn::decode(word).map_or_else(|| "none".into(), |insn| insn.text(pc));
        compared += 1;
        if got != want {
            wrong.entry(name.to_owned()).or_insert(format!("{word:08x}: {want:?}, not {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 10_000, "only {compared} instructions in {archive}");
}

#[test]
fn the_c_library_little_endian() {
    compare("mipsel-linux-gnu-objdump", "/usr/mipsel-linux-gnu/lib/libc.a");
}

#[test]
fn the_mathematics_library_big_endian() {
    compare("mips-linux-gnu-objdump", "/usr/mips-linux-gnu/lib/libm.a");
}

#[test]
fn the_cpp_library() {
    compare("mipsel-linux-gnu-objdump", "/usr/lib/gcc-cross/mipsel-linux-gnu/12/libstdc++.a");
}

#[test]
fn each_word_is_at_most_one_instruction_and_texts_do_not_panic() {
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..2_000_000 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if let Some(insn) = Insn::decode(state) {
            assert!(!insn.text(0x40_0000).is_empty());
        }
    }
}
