//! The decoder against GNU's assembler, over every instruction of picolibc: the text of what was decoded
//! is assembled to the same bytes again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use fettle_riscv::{Insn, Kind, Op};

const PROGRAM: &[u8] = b"#include <stdio.h>\n#include <math.h>\n#include <stdlib.h>\n\
    int main(int c, char **v) { printf(\"%f %f\", pow(c, 3.5), strtod(v[1], 0)); }";

const FOLDER: &str = "/usr/lib/picolibc/riscv64-unknown-elf/lib/rv32imafdc/ilp32d";

/// Bits of ordering, which are not decoded.
const ORDER: u32 = 0x0600_0000;

fn words(archive: &str) -> BTreeSet<(u32, usize)> {
    let output = Command::new("riscv64-unknown-elf-objdump")
        .args(["-d", archive])
        .output()
        .expect("objdump starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let columns = text.lines().filter_map(|line| line.split('\t').nth(1));
    let word = |text: &str| {
        let text = text.trim();
        u32::from_str_radix(text, 16).ok().map(|word| (word, text.len() / 2))
    };
    columns.filter_map(word).filter(|(word, _)| *word != 0).collect()
}

#[test]
fn what_is_decoded_assembles_to_the_same() {
    let archives = ["libc.a", "libm.a"].map(|name| format!("{FOLDER}/{name}"));
    if archives.iter().any(|archive| !Path::new(archive).exists()) {
        eprintln!("skipped: no picolibc (package picolibc-riscv64-unknown-elf)");
        return;
    }
    let all: BTreeSet<(u32, usize)> = archives.iter().flat_map(|archive| words(archive)).collect();
    let (mut source, mut expected) = (String::new(), Vec::new());
    for (word, size) in all {
        let insn = Insn::decode(word).unwrap_or_else(|| panic!("{word:08x} is not decoded"));
        assert_eq!(usize::from(insn.size), size, "{word:08x}");
        // Where branches lead is compared below.
        if insn.op == Op::Fence || !matches!(insn.kind(), Kind::Plain | Kind::JumpRegister) {
            continue;
        }
        let option = if size == 2 { "rvc" } else { "norvc" };
        source += &format!(".option {option}\n{}\n", insn.text());
        let known = if word & 0x7f == 0x2f { word & !ORDER } else { word };
        expected.extend(&known.to_le_bytes()[..size]);
    }
    let folder = std::env::temp_dir().join(format!("fettle-riscv-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = |name: &str| folder.join(name);
    std::fs::write(file("all.s"), source).expect("the folder is writable");
    let run = |tool: &str, arguments: &[&std::ffi::OsStr]| {
        let output = Command::new(format!("riscv64-unknown-elf-{tool}"))
            .args(arguments)
            .output()
            .expect("binutils start");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (s, o, b) = (file("all.s"), file("all.o"), file("all.bin"));
    let march = "-march=rv32imafdc_zicsr";
    run("as", &[march.as_ref(), "-mabi=ilp32d".as_ref(), "-o".as_ref(), o.as_ref(), s.as_ref()]);
    run("objcopy", &["-O".as_ref(), "binary".as_ref(), o.as_ref(), b.as_ref()]);
    let got = std::fs::read(b).expect("objcopy wrote it");
    let _ = std::fs::remove_dir_all(&folder);
    let different = got.iter().zip(&expected).position(|(a, b)| a != b);
    let around = different.map(|at| (&got[at..at + 8], &expected[at..at + 8]));
    assert_eq!(around, None, "of {} and {} bytes", got.len(), expected.len());
    assert_eq!(got.len(), expected.len());
    assert!(got.len() > 10_000, "only {} bytes", got.len());
}

#[test]
fn branches_lead_where_the_disassembler_says() {
    if !Path::new(FOLDER).exists() {
        eprintln!("skipped: no picolibc (package picolibc-riscv64-unknown-elf)");
        return;
    }
    let program = std::env::temp_dir().join(format!("fettle-riscv-{}.elf", std::process::id()));
    let linked = Command::new("riscv64-unknown-elf-gcc")
        .args(["--specs=picolibc.specs", "--oslib=semihost", "-march=rv32imafdc", "-mabi=ilp32d"])
        .args(["-Wl,--defsym=__flash_size=0x200000", "-O2", "-o"])
        .arg(&program)
        .args(["-x", "c", "-", "-lm"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            child.stdin.take().expect("piped").write_all(PROGRAM)?;
            child.wait()
        })
        .expect("gcc starts");
    assert!(linked.success());
    let output = Command::new("riscv64-unknown-elf-objdump")
        .args(["-d", "-M", "no-aliases"])
        .arg(&program)
        .output()
        .expect("objdump starts");
    let _ = std::fs::remove_file(&program);
    let mut compared = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [pc, word, _, operands] = columns[..] else { continue };
        let hex = |text: &str| u32::from_str_radix(text.trim().trim_end_matches(':'), 16).ok();
        let (Some(pc), Some(word)) = (hex(pc), hex(word)) else { continue };
        let Some(insn) = Insn::decode(word) else { continue };
        if !matches!(insn.kind(), Kind::Branch | Kind::Jump) {
            continue;
        }
        let operands = operands.split(" <").next().unwrap_or_default();
        let target = operands.rsplit(',').next().and_then(hex);
        assert_eq!(Some(insn.target(pc)), target, "{line}");
        compared += 1;
    }
    assert!(compared > 500, "only {compared} branches");
}

#[test]
fn no_word_makes_decoding_or_text_panic() {
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..2_000_000 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if let Some(insn) = Insn::decode(state) {
            assert!(!insn.text().is_empty());
        }
    }
}
