//! For one second, damages a C++ program in the headers, tables and code that the translator reads,
//! and translates it: whatever the file says, that ends with a jar or an error. `FETTLE_SEED` repeats
//! a run; the target `jar` in `fuzz/fuzz_targets` does the same for longer.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fettle_jar::{Image, Interface, Options, translate};
use object::{Object as _, ObjectSection as _};

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A small program without a library, whose tables are as those of large ones.
const SOURCE: &str = "
extern \"C\" int jumps(int n) { switch (n) { case 1: return 4; case 2: return 9; case 3: return 2;
    case 4: return 77; case 5: return 8; case 6: return 1; default: return n; } }
extern \"C\" void *malloc(unsigned) { return 0; }
extern \"C\" void free(void *) {}
struct Cleans { ~Cleans() { asm volatile(\"\"); } };
int (*volatile pointer)(int) = jumps;
int calls(int n) { Cleans here; return pointer(n); }
extern \"C\" int __gxx_personality_v0() { return 8; }
extern \"C\" void _Unwind_Resume(void *) { for (;;) { } }
extern \"C\" void __start() { calls(3); for (;;) { } }
";

#[test]
fn damaged_programs_for_a_second() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("small.cpp"), folder.path().join("small"));
    std::fs::write(&source, SOURCE).expect("the folder is writable");
    if !compile(&source, &program) {
        eprintln!("skipped: no mipsel-linux-gnu-g++");
        return;
    }
    let file = std::fs::read(&program).expect("the compiler wrote it");
    let interface = Some(Interface { name: "org.acme.Jumps".into(), outputs: Vec::new() });
    let options = Options { exports: vec!["jumps".into()], interface, ..Options::default() };
    damage(&file, &options);
}

#[test]
fn damaged_programs_of_risc_v_for_a_second() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("small.c"), folder.path().join("small"));
    let text = "int jumps(int n) { switch (n) { case 1: return 7; case 2: return n * 3; case 3: \
        return n / 5; case 4: return -n; case 5: return n << 3; } return (int)(n * 2.5f); }\n\
        void _start(void) { int (*volatile f)(int) = jumps; f(f(3)); for (;;) ; }\n";
    std::fs::write(&source, text).expect("the folder is writable");
    let compiled = Command::new("riscv64-unknown-elf-gcc")
        .args(["-O1", "-march=rv32imafdc", "-mabi=ilp32d", "-static", "-nostdlib", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no riscv64-unknown-elf-gcc");
        return;
    }
    let file = std::fs::read(&program).expect("the compiler wrote it");
    damage(&file, &Options::default());
}

/// Translates a program again and again, each time with other damage.
fn damage(file: &[u8], options: &Options) {
    let seed = std::env::var("FETTLE_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let mut state = seed.unwrap_or(now);
    eprintln!("FETTLE_SEED={state}");
    let places = places(file);
    translate(&Image::parse(file).expect("it is whole"), options).expect("and can be translated");
    let end = Instant::now() + Duration::from_secs(1);
    let mut rounds = 0;
    while Instant::now() < end || rounds == 0 {
        let mut damaged = file.to_vec();
        for _ in 0..=(random(&mut state) % 6) {
            let place = &places[(random(&mut state) % places.len() as u64) as usize];
            let at = place.start + (random(&mut state) % place.len() as u64) as usize;
            damaged[at] = random(&mut state) as u8;
        }
        if random(&mut state).is_multiple_of(8) {
            damaged.truncate((random(&mut state) % file.len() as u64) as usize);
        }
        if let Ok(image) = Image::parse(&damaged) {
            let _ = translate(&image, options);
        }
        rounds += 1;
    }
    eprintln!("{rounds} rounds");
}

fn compile(source: &Path, program: &Path) -> bool {
    let status = Command::new("mipsel-linux-gnu-g++")
        .args(["-O1", "-g", "-static", "-nostdlib", "-o"])
        .arg(program)
        .arg(source)
        .status();
    status.is_ok_and(|status| status.success())
}

/// Parts of the file, each as likely as the others to be damaged.
fn places(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let elf = object::File::parse(file).expect("an ELF file");
    let mut places = vec![0..52, 52..52 + 32 * 4];
    let names = [
        ".eh_frame",
        ".gcc_except_table",
        ".text",
        ".rodata",
        ".got",
        ".pdr",
        ".symtab",
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
    ];
    for section in names.iter().filter_map(|name| elf.section_by_name(name)) {
        if let Some((offset, size)) = section.file_range()
            && size > 0
        {
            places.push(offset as usize..(offset + size) as usize);
        }
    }
    let headers = file.len() - file.len().min(600);
    places.push(headers..file.len());
    places
}
