//! What several tests share: tiny programs, and a call of everything an image offers.
#![allow(dead_code)] // Each test file uses its own part.

use std::path::{Path, PathBuf};
use std::process::Command;

use fettle_demangle::demangle;
use fettle_image::{Image, LinkAddr, debug_file_candidates};

/// A program with a bit of everything: a constructor, a function pointer in data, a computed
/// goto, a part that GCC splits off as cold, a variadic call.
pub const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair { long a, b; };
struct big { long a[8]; };

__attribute__((noinline)) int computed(int x) {
    static void *labels[] = { &&one, &&two, &&three };
    goto *labels[x % 3];
one:
    return puts("one");
two:
    return puts("two");
three:
    return puts("three");
}

__attribute__((noinline)) int work(const char *text, int count, double ratio, unsigned char byte,
                                   void *where) {
    return strlen(text) + count + (int)ratio + byte + (where != 0);
}

__attribute__((noinline)) struct big make_big(long seed) {
    struct big result = { { seed } };
    return result;
}

__attribute__((noinline)) void by_value(struct pair pair, float ratio) {
    printf("%ld %ld %f\n", pair.a, pair.b, ratio);
}

__attribute__((noinline, cold, noreturn)) void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

__attribute__((noinline)) int with_cold_part(int n, char **argv) {
    char buffer[64];
    snprintf(buffer, sizeof buffer, "%d %s", n, argv[0]);
    if (n > 100)
        fail(buffer);
    return puts(buffer);
}

__attribute__((constructor)) static void at_start(void) { puts("start"); }

int (*pointer)(const char *, int, double, unsigned char, void *) = work;

int main(int argc, char **argv) {
    by_value((struct pair){ argc, 2 }, 1.5f);
    return computed(argc) + pointer(argv[0], argc, 1.5, 'a', argv) + with_cold_part(argc, argv)
           + (int)make_big(argc).a[0];
}
"#;

/// A folder with one built program in it.
pub struct Built {
    folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Built {
    /// Compiles [`PROGRAM`].
    pub fn new(arguments: &[&str]) -> Built {
        Built::from_source(PROGRAM, "c", arguments)
    }

    /// Compiles a source text.
    pub fn from_source(source: &str, extension: &str, arguments: &[&str]) -> Built {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source_path = folder.path().join(format!("program.{extension}"));
        std::fs::write(&source_path, source).expect("source is written");
        let path = folder.path().join("program");
        let compiler = if extension == "c" { "cc" } else { "c++" };
        let mut command = Command::new(compiler);
        run(command.arg("-O2").args(arguments).arg("-o").arg(&path).arg(&source_path));
        Built { folder, path }
    }

    /// Path of another file in the folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn image(&self) -> Image {
        open(&self.path)
    }

    /// The image after running a tool with these arguments and an output path.
    pub fn after(&self, tool: &str, arguments: &[&str], name: &str) -> Image {
        let output = self.beside(name);
        run(Command::new(tool).args(arguments).arg(&self.path).arg(&output));
        open(&output)
    }
}

impl Built {
    /// The file stripped, with some symbols embedded as MiniDebugInfo; `None` without xz.
    pub fn with_embedded_symbols(&self) -> Option<Vec<u8>> {
        let data = self.beside("symbols");
        let keep = ["-S", "--keep-symbol=work", "--keep-symbol=at_start"];
        run(Command::new("objcopy").args(keep).arg(&self.path).arg(&data));
        if Command::new("xz").arg("--force").arg(&data).status().is_err() {
            eprintln!("skipped: no xz on this machine");
            return None;
        }
        let section = format!("--add-section=.gnu_debugdata={}.xz", data.display());
        let output = self.beside("packed");
        run(Command::new("objcopy").args(["--strip-all", &section]).arg(&self.path).arg(&output));
        Some(std::fs::read(output).expect("the file"))
    }
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn open(path: &Path) -> Image {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Image::parse(bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Removes the section header table by zeroing its place in the header.
pub fn without_sections(mut file: Vec<u8>) -> Vec<u8> {
    file[40..48].fill(0);
    file[58..64].fill(0);
    file
}

/// Address of a symbol.
pub fn addr_of(image: &Image, name: &str) -> LinkAddr {
    let symbol = image.symbols().iter().find(|symbol| symbol.name == name);
    symbol.unwrap_or_else(|| panic!("no symbol {name}")).addr
}

/// Calls everything once and checks what must hold for any input whatever.
pub fn exercise(image: &Image) {
    let functions = image.functions();
    assert!(functions.windows(2).all(|pair| pair[0].end <= pair[1].start), "functions overlap");
    assert!(functions.iter().all(|function| function.start < function.end), "empty function");
    for function in &functions {
        assert!(function.interior.iter().all(|&addr| function.contains(addr)));
        assert!(image.plt().iter().all(|entry| !function.contains(entry.start)));
    }
    let fdes = image.fdes();
    assert!(fdes.windows(2).all(|pair| pair[0].end <= pair[1].start), "unwind entries overlap");
    assert!(image.symbols().is_sorted_by_key(|symbol| symbol.addr));
    assert!(image.relocs().is_sorted_by_key(|reloc| reloc.addr));
    assert!(image.plt().is_sorted_by_key(|entry| entry.start));

    let lines = image.lines();
    for function in functions.iter().take(20) {
        image.name_at(function.start);
        image.signature(function.start);
        lines.line(function.start);
        image.read(function.start, (function.size() as usize).min(1 << 20));
    }
    for symbol in image.symbols().iter().take(50) {
        demangle(&symbol.name);
    }
    for probe in [0, 1, 0x1000, 0x40_1000, u64::MAX - 1, u64::MAX] {
        let addr = LinkAddr(probe);
        image.is_code(addr);
        image.is_mapped(addr);
        image.is_writable(addr);
        image.name_at(addr);
        image.fde_at(addr);
        image.plt_at(addr);
        image.section_at(addr);
        image.read(addr, usize::MAX);
        image.read(addr, 16);
        image.signature(addr);
        lines.line(addr);
    }
    for section in image.sections() {
        image.section_data(section);
    }
    image.eh_frame();
    image.eh_frame_hdr();
    image.unwind_bases();
    image.phdr_bytes();
    image.tls();
    image.language();
    image.debug_link();
    image.debug_alt();
    image.gnu_debugdata();
    image.soname();
    image.needed();
    image.runpath();
    image.interpreter();
    debug_file_candidates(Path::new("/usr/bin/program"), image);
    for warning in image.warnings() {
        assert!(!warning.to_string().contains('\n'));
    }
}
