//! Every function is lifted, or left unmodified with a reason, and none is both: in programs that have all
//! the ways in which one got lost, and in files that were not made here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fettle_image::{Image, LinkAddr};
use fettle_lift::{Lifted, SkipReason};

fn built(name: &str, source: &str, flags: &[&str]) -> Image {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join(name), folder.path().join("out"));
    std::fs::write(&file, source).unwrap();
    let made = Command::new("cc").args(flags).arg("-o").arg(&out).arg(&file).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Image::parse(std::fs::read(&out).unwrap()).unwrap()
}

/// What is the matter with one image's list: nothing if it is whole.
fn faults(image: &Image, lifted: &Lifted) -> Vec<String> {
    let mut listed: BTreeMap<LinkAddr, u32> = BTreeMap::new();
    let entries = lifted.functions.iter().map(|f| f.entry);
    for entry in entries.chain(lifted.skipped.iter().map(|s| s.entry)) {
        *listed.entry(entry).or_default() += 1;
    }
    let twice = listed.iter().filter(|(_, times)| **times != 1);
    let mut faults: Vec<String> = twice.map(|(at, _)| format!("{at} is listed twice")).collect();
    let parts: Vec<LinkAddr> =
        lifted.functions.iter().flat_map(|f| f.ranges.iter().map(|r| r.start)).collect();
    for symbol in image.symbols().iter().filter(|s| s.is_function() && image.is_code(s.addr)) {
        let others = image.symbols_at(symbol.addr).iter();
        let cold = others.clone().any(|other| other.name.contains(".cold"));
        if !listed.contains_key(&symbol.addr) && !cold {
            faults.push(format!("{} at {} is not listed", symbol.name, symbol.addr));
        }
    }
    // What has no name may be a function's cold part, but few are.
    let mut parts_of_others = 0;
    let ranges = image.functions();
    for range in &ranges {
        let name = range.name.as_deref().unwrap_or_default();
        let e = range.evidence;
        let mid_frame = image.fde_at(range.start).is_some_and(|fde| fde.starts_mid_frame);
        let part = parts.contains(&range.start) || mid_frame || name.contains(".cold");
        match listed.contains_key(&range.start) || part {
            false if e.symbol || e.entry || e.init_array || e.reloc_target => {
                faults.push(format!("{name:?} at {} is not listed", range.start));
            }
            listed => parts_of_others += usize::from(!listed),
        }
    }
    if parts_of_others > ranges.len() / 100 {
        faults.push(format!("{parts_of_others} of {} ranges are not listed", ranges.len()));
    }
    faults
}

fn assert_whole(image: &Image, lifted: &Lifted) {
    let faults = faults(image, lifted);
    assert!(faults.is_empty(), "{faults:#?}");
}

fn reason_of(lifted: &Lifted, name: &str) -> Option<SkipReason> {
    lifted.skipped.iter().find(|s| s.name.as_deref() == Some(name)).map(|s| s.reason)
}

#[test]
fn entries_in_the_middle_of_others_are_listed() {
    let source = r#"
        .globl outer, inner, last
        .type outer, @function
        .type inner, @function
        .type last, @function
        outer: .cfi_startproc
            xor %eax, %eax
            add $1, %eax
        inner:
            add $2, %eax
            ret
            .cfi_endproc
        .size outer, . - outer
        .size inner, . - inner
        # Without an unwind entry, as symbols alone have it.
        bare: mov $7, %eax
        bare_inner: add $1, %eax
            ret
        .type bare, @function
        .type bare_inner, @function
        .size bare, . - bare
        last: mov $3, %eax
            ret
    "#;
    let image = built("inner.s", source, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    assert_whole(&image, &lifted);
    assert_eq!(reason_of(&lifted, "inner"), Some(SkipReason::InsideAnother));
    assert_eq!(reason_of(&lifted, "bare_inner"), Some(SkipReason::InsideAnother));
    // The linker made the last two, of the pieces of `crti.o` and `crtn.o`.
    for name in ["outer", "bare", "last", "_init", "_fini"] {
        assert!(lifted.functions.iter().any(|f| f.name.as_deref() == Some(name)), "{name}");
    }
    let stripped = built("inner.s", source, &["-shared", "-s"]);
    let lifted = fettle_lift::lift(&stripped);
    assert_whole(&stripped, &lifted);
    for start in stripped.initializers() {
        assert!(lifted.functions.iter().any(|f| f.entry == start), "{start}");
    }
    assert_eq!(stripped.initializers().count(), 2);
}

#[test]
fn all_that_share_code_are_listed() {
    let source = r#"
        .globl first, second, third
        .type first, @function
        .type second, @function
        .type third, @function
        first: .cfi_startproc
            test %edi, %edi
            je middle
            ret
            .cfi_endproc
        second: .cfi_startproc
            mov $2, %eax
        middle:
            add $2, %eax
            ret
            .cfi_endproc
        third: .cfi_startproc
            jmp middle
            .cfi_endproc
    "#;
    let image = built("shared.s", source, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    assert_whole(&image, &lifted);
    for name in ["first", "second", "third"] {
        assert_eq!(reason_of(&lifted, name), Some(SkipReason::SharedCode), "{name}");
    }
}

#[test]
fn parts_that_nothing_leads_to_are_listed() {
    let source = r#"
        .globl whole
        .type whole, @function
        whole: .cfi_startproc
            mov $1, %eax
            ret
            .cfi_endproc
        .type whole.cold, @function
        whole.cold: .cfi_startproc
            .cfi_def_cfa_offset 16
            ud2
            .cfi_endproc
    "#;
    let image = built("cold.s", source, &["-shared"]);
    let lifted = fettle_lift::lift(&image);
    assert_whole(&image, &lifted);
    assert_eq!(reason_of(&lifted, "whole.cold"), Some(SkipReason::NothingLeads));
}

#[test]
fn files_of_others_are_listed_whole() {
    let libraries = Path::new("/usr/lib/x86_64-linux-gnu");
    let mut files: Vec<PathBuf> = ["bash", "git", "perl", "python3", "sqlite3", "lua5.4", "gdb"]
        .map(|name| Path::new("/usr/bin").join(name))
        .to_vec();
    files.extend(
        ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3", "libgcc_s.so.1"]
            .map(|name| libraries.join(name)),
    );
    files.push("/lib64/ld-linux-x86-64.so.2".into());
    let mut seen = 0;
    for file in files {
        let Ok(bytes) = std::fs::read(&file) else {
            eprintln!("skipped: there is no {}", file.display());
            continue;
        };
        let image = Image::parse(bytes).unwrap();
        let lifted = fettle_lift::lift(&image);
        let faults = faults(&image, &lifted);
        let some = &faults[..faults.len().min(10)];
        assert!(faults.is_empty(), "{}: {} faults: {some:#?}", file.display(), faults.len());
        seen += 1;
    }
    assert!(seen >= 4, "{seen} of the files are there");
}
