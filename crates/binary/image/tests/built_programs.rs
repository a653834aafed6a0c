//! Tiny programs, built in every way that changes what a file looks like.

mod common;

use std::process::Command;

use common::{Built, addr_of, exercise, without_sections};
use fettle_image::{
    ArgType, IFUNC_TARGET, Image, Kind, Language, PltEntry, Reloc, RelocKind, SymbolKind,
    SymbolSource, Warning, crc32, debug_file_candidates,
};

#[test]
fn kinds_of_files() {
    let cases: &[(&[&str], Kind)] = &[
        (&["-pie", "-fPIE"], Kind::Pie),
        (&["-no-pie"], Kind::Executable),
        (&["-static"], Kind::Executable),
        (&["-static-pie", "-fPIE"], Kind::Pie),
        (&["-shared", "-fPIC"], Kind::SharedLibrary),
        (&["-c"], Kind::Relocatable),
    ];
    for (arguments, kind) in cases {
        let image = Built::new(arguments).image();
        assert_eq!(image.kind(), *kind, "{arguments:?}");
        assert_eq!(image.warnings(), [], "{arguments:?}");
        assert_eq!(image.language(), Language::C, "{arguments:?}");
        exercise(&image);
        for name in ["work", "computed", "main"] {
            let function = image.functions().into_iter().find(|f| f.name.as_deref() == Some(name));
            let function = function.unwrap_or_else(|| panic!("{name} with {arguments:?}"));
            assert!(function.evidence.symbol && function.evidence.unwind);
            assert!(!function.evidence.size_guessed);
            assert_eq!(image.name_at(function.end - 1), Some(name));
            assert!(image.is_code(function.start) && !image.is_writable(function.start));
            assert!(image.read(function.start, function.size() as usize).is_some());
            assert!(!image.fde_at(function.start).expect("an unwind entry").starts_mid_frame);
        }
    }
}

/// Linkers differ most in their PLT and in how they lay out segments.
fn linkers() -> Vec<&'static str> {
    let there = |name: &&str| {
        let program = format!("ld.{}", name.trim_start_matches("-fuse-ld="));
        let found = Command::new(&program).arg("--version").output().is_ok();
        if !found {
            eprintln!("skipped: no {program} on this machine");
        }
        found
    };
    ["-fuse-ld=bfd", "-fuse-ld=gold", "-fuse-ld=lld", "-fuse-ld=mold"]
        .into_iter()
        .filter(there)
        .collect()
}

#[test]
fn plt_entries_have_targets() {
    let cases: &[&[&str]] = &[
        &["-pie", "-fPIE"],
        &["-no-pie"],
        &["-fcf-protection=full"],
        &["-Wl,-z,now"],
        &["-shared", "-fPIC"],
    ];
    for linker in linkers() {
        for arguments in cases {
            let arguments = [*arguments, &[linker]].concat();
            let image = Built::new(&arguments).image();
            exercise(&image);
            let targets: Vec<&str> = image.plt().iter().map(|entry| &*entry.target).collect();
            for name in ["puts", "snprintf", "abort"] {
                assert!(targets.contains(&name), "{name} in {targets:?} with {arguments:?}");
            }
            let slots = image.relocs().iter().filter(|r| r.kind == RelocKind::JumpSlot).count();
            assert!(targets.len() >= slots, "{} of {slots} with {arguments:?}", targets.len());
            check_plt(&image);
            // Those of mold say which slot it is, before they jump.
            let plain = image.plt().iter().all(|entry| entry.slot.is_some());
            assert!(plain || linker.ends_with("mold"), "{arguments:?}: {:?}", image.plt());
        }
    }
}

/// Entries are whole parts of their section, one after another.
fn check_plt(image: &Image) {
    for entry in image.plt() {
        assert_eq!(image.plt_at(entry.start + entry.size - 1), Some(entry));
        let section = image.section_at(entry.start).expect("a section");
        assert!(section.name.starts_with(".plt") || section.name == ".iplt", "{}", section.name);
        assert_eq!((entry.start - section.start) % entry.size, 0);
        assert!(entry.start + entry.size <= section.end());
        let of_slot = |r: &&Reloc| Some(r.addr) == entry.slot;
        let mut names = image.relocs().iter().filter(of_slot).map(|r| r.symbol.as_deref());
        let is_target = |name: Option<&str>| name.unwrap_or(IFUNC_TARGET) == entry.target;
        assert!(entry.slot.is_none() || names.any(is_target), "{entry:?}");
    }
    assert!(image.plt().windows(2).all(|pair| pair[0].start + pair[0].size <= pair[1].start));
}

#[test]
fn static_programs_call_through_resolvers() {
    let image = Built::new(&["-static"]).image();
    assert!(image.relocs().iter().any(|reloc| reloc.kind == RelocKind::Irelative));
    assert!(image.plt().iter().all(|entry| entry.target == fettle_image::IFUNC_TARGET));
    let resolvers = image.relocs().iter().filter(|reloc| reloc.kind == RelocKind::Irelative);
    assert_eq!(image.plt().len(), resolvers.count());
    check_plt(&image);
    assert!(image.symbols().iter().any(|symbol| symbol.kind == SymbolKind::Ifunc));
    assert!(image.needed().is_empty() && image.interpreter().is_none());
    assert!(image.tls().is_some());
}

#[test]
fn labels_in_data_are_inside_their_function() {
    let image = Built::new(&["-pie", "-fPIE"]).image();
    let computed = image.function_at(addr_of(&image, "computed")).expect("a function");
    assert_eq!(computed.address_taken.len(), 3, "{computed:?}");
    let work = image.function_at(addr_of(&image, "work")).expect("a function");
    assert!(work.evidence.reloc_target);
    let start = image.function_at(addr_of(&image, "at_start")).expect("a function");
    assert!(start.evidence.init_array);
    assert!(image.function_at(image.entry()).expect("a function").evidence.entry);
}

#[test]
fn packed_relocations_equal_plain_ones() {
    let relative = |arguments: &[&str]| -> Vec<(String, i64)> {
        let image = Built::new(arguments).image();
        let relocs = image.relocs().iter().filter(|reloc| reloc.kind == RelocKind::Relative);
        // What the places are called does not move, unlike the places themselves.
        let place = |addr| image.section_at(addr).map(|section| section.name.clone());
        relocs.map(|reloc| (place(reloc.addr).unwrap_or_default(), reloc.addend)).collect()
    };
    let plain = relative(&["-pie", "-fPIE"]);
    let packed = relative(&["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"]);
    assert!(plain.len() >= 6, "{plain:?}");
    assert_eq!(plain.len(), packed.len());
    let names = |list: &[(String, i64)]| list.iter().map(|r| r.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plain), names(&packed));
    assert!(packed.iter().all(|(_, addend)| *addend > 0));
}

#[test]
fn cold_parts_start_mid_frame() {
    let image = Built::new(&["-no-pie"]).image();
    let cold = image.fde_at(addr_of(&image, "with_cold_part.cold")).expect("an unwind entry");
    assert!(cold.starts_mid_frame, "{cold:?}");
    assert_eq!(image.name_at(cold.start), Some("with_cold_part.cold"));
}

#[test]
fn exceptions_leave_their_tables() {
    let source = r#"
        #include <stdexcept>
        #include <string>
        struct Shape { virtual ~Shape() {} virtual int area(int) const { return 1; } };
        __attribute__((noinline)) int thrower(int n) { if (n > 3) throw std::runtime_error("n"); return n; }
        __attribute__((noinline)) int plain(int n) { return n * 3; }
        int main(int argc, char **) {
            std::string text("a");
            try { return thrower(argc); } catch (std::exception &e) { return Shape().area(plain(argc)); }
        }
    "#;
    let image = Built::from_source(source, "cc", &["-g"]).image();
    assert_eq!(image.language(), Language::Cpp);
    exercise(&image);
    let main = image.fde_at(addr_of(&image, "main")).expect("an unwind entry");
    assert!(image.is_mapped(main.lsda.expect("an exception table")));
    assert!(main.personality.is_some());
    let thrower = addr_of(&image, "_Z7throweri");
    let plain = addr_of(&image, "_Z5plaini");
    assert_eq!(image.fde_at(plain).expect("an unwind entry").lsda, None);
    assert_eq!(fettle_demangle::demangle(image.name_at(thrower).expect("a name")), "thrower(int)");
}

/// Function ranges as far as unwind entries know them.
fn unwind_ranges(image: &Image) -> Vec<(u64, u64)> {
    let functions = image.functions();
    functions.iter().filter(|f| f.evidence.unwind).map(|f| (f.start.0, f.end.0)).collect()
}

#[test]
fn stripping_changes_no_range() {
    let with_landing_pads = &["-fcf-protection=full", "-Wl,-z,ibtplt"];
    for arguments in [&["-pie", "-fPIE"][..], &["-no-pie"], with_landing_pads] {
        let built = Built::new(arguments);
        let full = built.image();
        let stripped = built.after("objcopy", &["--strip-all"], "stripped");
        assert_eq!(unwind_ranges(&full), unwind_ranges(&stripped));
        let file = std::fs::read(built.beside("stripped")).expect("the file");
        let bare = Image::parse(without_sections(file)).expect("an image");
        assert!(bare.sections().is_empty());
        assert_eq!(unwind_ranges(&full), unwind_ranges(&bare), "{arguments:?}");
        assert_eq!(bare.build_id(), full.build_id());
        assert_eq!(bare.kind(), full.kind());
        let sectioned = full.eh_frame().expect("unwind entries");
        let found = bare.eh_frame().expect("unwind entries");
        assert_eq!((sectioned.0, sectioned.1.len()), (found.0, found.1.len()));
        assert_eq!(bare.eh_frame_hdr(), stripped.eh_frame_hdr());
        assert_eq!(bare.relocs(), stripped.relocs());
        // Where no section says so, `.plt.got` cannot be told from ordinary tail calls.
        let in_plt_got = |entry: &&PltEntry| {
            full.section_at(entry.start).is_some_and(|section| section.name == ".plt.got")
        };
        let wanted: Vec<_> = full.plt().iter().filter(|entry| !in_plt_got(entry)).collect();
        let found: Vec<_> = bare.plt().iter().collect();
        assert_eq!(found, wanted, "{arguments:?}");
        exercise(&bare);
    }
}

#[test]
fn dynamic_symbols_are_counted_without_sections() {
    for style in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let built = Built::new(&["-shared", "-fPIC", style, "-Wl,-soname,libtiny.so.1"]);
        let stripped = built.after("objcopy", &["--strip-all"], "stripped");
        let file = std::fs::read(built.beside("stripped")).expect("the file");
        let bare = Image::parse(without_sections(file)).expect("an image");
        assert!(stripped.symbols().len() >= 6, "{style}");
        assert_eq!(bare.symbols(), stripped.symbols(), "{style}");
        assert_eq!(bare.soname(), Some("libtiny.so.1"));
        assert_eq!(bare.needed(), ["libc.so.6"]);
    }
}

#[test]
fn a_debug_file_gives_names_and_lines_back() {
    let built = Built::new(&["-g"]);
    let full = built.image();
    let debug = built.after("objcopy", &["--only-keep-debug"], "program.debug");
    exercise(&debug);
    let link = format!("--add-gnu-debuglink={}", built.beside("program.debug").display());
    let stripped = built.after("objcopy", &["--strip-all", &link], "stripped");

    let (name, crc) = stripped.debug_link().expect("a debug link");
    assert_eq!((name.as_str(), crc), ("program.debug", crc32(debug.bytes())));
    let candidates = debug_file_candidates(&built.beside("stripped"), &stripped);
    assert!(candidates.contains(&built.beside("program.debug")), "{candidates:?}");
    assert!(candidates[0].starts_with("/usr/lib/debug/.build-id"), "{candidates:?}");

    let work = addr_of(&full, "work");
    assert_eq!(stripped.name_at(work), None);
    assert!(!stripped.has_debug_info() && stripped.signature(work).is_none());
    let merged = stripped.clone().with_debug(&debug);
    assert_eq!(merged.name_at(work), Some("work"));
    assert_eq!(merged.symbols_at(work)[0].source, SymbolSource::DebugFile);
    assert_eq!(merged.functions(), full.functions());
    assert_eq!(merged.lines().line(work), full.lines().line(work));
    assert_eq!(merged.signature(work), full.signature(work));
    assert!(merged.signature(work).is_some());

    // One of another build is refused.
    let other = Built::new(&["-g", "-O1"]).image();
    let refused = stripped.with_debug(&other);
    assert_eq!(refused.name_at(work), None);
    assert!(matches!(refused.warnings(), [Warning::DebugFile(_)]), "{:?}", refused.warnings());
}

#[test]
fn embedded_symbols_are_merged() {
    let built = Built::new(&[]);
    let full = built.image();
    let Some(mut file) = built.with_embedded_symbols() else { return };
    let image = Image::parse(file.clone()).expect("an image");
    assert_eq!(image.warnings(), []);
    assert_eq!(image.name_at(addr_of(&full, "work")), Some("work"));
    assert_eq!(addr_of(&image, "at_start"), addr_of(&full, "at_start"));
    let symbol = image.symbols().iter().find(|symbol| symbol.name == "at_start");
    assert_eq!(symbol.map(|symbol| symbol.source), Some(SymbolSource::MiniDebugInfo));
    let inner = Image::parse(image.gnu_debugdata().expect("data")).expect("an image");
    assert!(inner.symbols().len() >= 2);

    // Damage costs the symbols, not the image.
    let at = image.section(".gnu_debugdata").expect("the section").file_offset as usize;
    file[at + 60..at + 100].fill(0xff);
    let damaged = Image::parse(file).expect("an image");
    assert!(matches!(damaged.warnings(), [Warning::DebugData(_)]), "{:?}", damaged.warnings());
}

#[test]
fn lines_of_all_dwarf_versions() {
    let wanted = common::PROGRAM.lines().position(|line| line.contains("int work(")).expect("work");
    for arguments in [
        &["-gdwarf-5"][..],
        &["-gdwarf-4"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-4", "-gz=zlib"],
        &["-gdwarf-5", "-no-pie", "-ffunction-sections"],
    ] {
        let image = Built::new(arguments).image();
        let line = image.lines().line(addr_of(&image, "work"));
        let line = line.unwrap_or_else(|| panic!("no line with {arguments:?}"));
        assert!(line.file.ends_with("program.c"), "{line:?}");
        // The signature takes two lines of the source; compilers disagree which one counts.
        let wanted = wanted as u32 + 1;
        assert!((wanted..=wanted + 2).contains(&line.line), "{line:?}, not {wanted}");
        assert!(image.signature(addr_of(&image, "work")).is_some(), "{arguments:?}");
    }
}

#[test]
fn signatures() {
    let image = Built::new(&["-g"]).image();
    let work = image.signature(addr_of(&image, "work")).expect("a signature");
    let params: Vec<_> = work.params.iter().map(|param| (param.name.as_str(), param.ty)).collect();
    let wanted = [
        ("text", ArgType::CString),
        ("count", ArgType::Int { bytes: 4, signed: true }),
        ("ratio", ArgType::Float { bytes: 8 }),
        ("byte", ArgType::Int { bytes: 1, signed: false }),
        ("where", ArgType::Pointer),
    ];
    assert_eq!(params, wanted);
    assert_eq!(work.ret, ArgType::Int { bytes: 4, signed: true });
    assert!(!work.variadic && !work.ret_in_memory);

    let make_big = image.signature(addr_of(&image, "make_big")).expect("a signature");
    assert!(make_big.ret_in_memory);
    let by_value = image.signature(addr_of(&image, "by_value")).expect("a signature");
    assert_eq!(by_value.ret, ArgType::Void);
    assert_eq!(by_value.params[0].ty, ArgType::Other);
    assert_eq!(image.signature(addr_of(&image, "work") + 1), None);
}

#[test]
fn signatures_of_cpp() {
    let source = r#"
        #include <string>
        #include <cstdio>
        enum class Colour : unsigned char { Red };
        struct Shape {
            int scale(const double &by, Colour colour) const;
            std::string name(char letter);
            long size = 1;
        };
        __attribute__((noinline)) int Shape::scale(const double &by, Colour colour) const {
            return by * size + (int)colour;
        }
        __attribute__((noinline)) std::string Shape::name(char letter) {
            return std::string(size, letter);
        }
        extern "C" __attribute__((noinline)) int variadic(const char *format, ...) {
            return std::puts(format);
        }
        int main(int argc, char **argv) {
            Shape shape;
            return variadic(shape.name('a').c_str()) + shape.scale(argc, Colour::Red);
        }
    "#;
    let image = Built::from_source(source, "cc", &["-g"]).image();
    let scale = image.signature(addr_of(&image, "_ZNK5Shape5scaleERKd6Colour")).expect("scale");
    let params: Vec<_> = scale.params.iter().map(|param| (param.name.as_str(), param.ty)).collect();
    let colour = ArgType::Int { bytes: 1, signed: false };
    assert_eq!(params, [("this", ArgType::Pointer), ("by", ArgType::Pointer), ("colour", colour)]);
    let name = image.symbols().iter().find(|symbol| symbol.name.starts_with("_ZN5Shape4name"));
    let name = image.signature(name.expect("a symbol").addr).expect("name");
    assert!(name.ret_in_memory && name.ret == ArgType::Other, "{name:?}");
    assert_eq!(name.params[0].name, "this");
    assert!(image.signature(addr_of(&image, "variadic")).expect("variadic").variadic);
}

#[test]
fn the_system_s_own_programs() {
    let mut seen = 0;
    let gcc = |name: &str| {
        let output = Command::new("gcc").arg(format!("-print-prog-name={name}")).output();
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
    };
    for path in [
        "/bin/bash",
        "/bin/ls",
        "/usr/bin/python3",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        &gcc("cc1"),
    ] {
        let Ok(bytes) = std::fs::read(path) else { continue };
        seen += 1;
        let image = Image::parse(bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(image.warnings(), [], "{path}");
        exercise(&image);
        let functions = image.functions();
        assert!(functions.len() > 50, "{path}");
        let guessed = functions.iter().filter(|f| f.evidence.size_guessed).count();
        assert!(guessed * 50 < functions.len(), "{path}: {guessed} of {}", functions.len());
    }
    assert!(seen > 0, "no program found");
    // libc has an interpreter and an entry point, and is still a library.
    if let Ok(bytes) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") {
        let libc = Image::parse(bytes).expect("libc");
        assert_eq!(libc.kind(), Kind::SharedLibrary);
        assert_eq!(libc.soname(), Some("libc.so.6"));
    }
    // This very test is Rust; its bytes come in another container.
    let own = std::fs::read(std::env::current_exe().expect("this test")).expect("readable");
    let own = Image::parse(std::sync::Arc::<[u8]>::from(own)).expect("an image");
    assert_eq!(own.language(), Language::Rust);
    let here = own.symbols().iter().find(|symbol| symbol.name.contains("s_own_programs"));
    assert!(own.name_at(here.expect("this test").addr).is_some());
    exercise(&own);
}
