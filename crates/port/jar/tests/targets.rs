//! Jars for Android and for small devices do what the same files do under QEMU, on Java here.

mod common;

use std::collections::BTreeSet;
use std::io::{Cursor, Read as _};
use std::path::Path;
use std::process::Command;

use common::{BIG, LITTLE, MISSING, Machine, compile, output};
use fettle_jar::{Image, METHOD_MAX, Options, Target, translate, write};

fn jar(program: &Path, target: Target) -> Vec<u8> {
    let bytes = std::fs::read(program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let options = Options { target, ..Options::default() };
    let translated = translate(&image, &options).expect("every function can be translated");
    assert!(translated.summary.largest_method <= METHOD_MAX);
    write(&image, &translated).expect("there is a runtime")
}

fn same(target: Target, machine: &Machine, file: &str) {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let low = ["-O2", "-Wl,-Ttext-segment=0x20000"];
    let program = compile(machine, file, &low, folder.path());
    let path = folder.path().join("program.jar");
    std::fs::write(&path, jar(&program, target)).expect("the folder is writable");
    let expected = output(Command::new(machine.emulator).arg(&program));
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xverify:all", "-jar"]);
    let got = output(java.arg(&path));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&got.stdout), text(&expected.stdout), "{file}: {}", text(&got.stderr));
    assert_eq!(got.status.code(), expected.status.code(), "{file}: {}", text(&got.stderr));
}

#[test]
fn arithmetic_on_a_device() {
    same(Target::Cldc, &LITTLE, "arithmetic.c");
    same(Target::Cldc, &BIG, "arithmetic.c");
}

#[test]
fn control_flow_on_a_device() {
    same(Target::Cldc, &LITTLE, "control.c");
    same(Target::Cldc, &LITTLE, "large_setjmp.c");
    same(Target::Cldc, &BIG, "nested.c");
    same(Target::Cldc, &LITTLE, "landings.c");
}

#[test]
fn exceptions_on_a_device() {
    same(Target::Cldc, &LITTLE, "handlers.cpp");
}

#[test]
fn exceptions_and_threads_on_android() {
    same(Target::Android, &LITTLE, "exceptions.cpp");
    same(Target::Android, &BIG, "thread_ends.c");
}

/// The methods and fields of other classes that the classes of a jar name, and their versions.
fn asked(jar: &[u8], home: &[&str]) -> (BTreeSet<String>, BTreeSet<u16>) {
    let mut zip = zip::ZipArchive::new(Cursor::new(jar)).expect("a jar is an archive");
    let (mut members, mut versions) = (BTreeSet::new(), BTreeSet::new());
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).expect("an entry");
        if !entry.name().is_ok_and(|name| name.ends_with(".class")) {
            continue;
        }
        let mut class = Vec::new();
        entry.read_to_end(&mut class).expect("it can be unpacked");
        let half = |at: usize| u16::from_be_bytes([class[at], class[at + 1]]);
        versions.insert(half(6));
        let (mut at, mut number) = (10, 1);
        let mut constants = vec![(0, 0); usize::from(half(8))];
        while number < constants.len() {
            let tag = class[at];
            constants[number] = (tag, at + 1);
            number += if matches!(tag, 5 | 6) { 2 } else { 1 };
            at += match tag {
                1 => 3 + usize::from(half(at + 1)),
                5 | 6 => 9,
                7 | 8 => 3,
                3 | 4 | 9..=12 => 5,
                _ => panic!("a constant of kind {tag}"),
            };
        }
        let text = |number: u16| {
            let (_, at) = constants[usize::from(number)];
            let length = usize::from(half(at));
            String::from_utf8_lossy(&class[at + 2..at + 2 + length]).into_owned()
        };
        for &(_, at) in constants.iter().filter(|(tag, _)| matches!(tag, 9..=11)) {
            let owner = text(half(constants[usize::from(half(at))].1));
            let (_, member) = constants[usize::from(half(at + 2))];
            if !home.iter().any(|home| owner.starts_with(home)) {
                members.insert(format!("{owner}.{}{}", text(half(member)), text(half(member + 2))));
            }
        }
    }
    (members, versions)
}

/// `cldc-api.txt` was compared with the classes of CLDC 1.1 and MIDP 2.0.
#[test]
fn a_device_has_all_that_a_jar_asks_for() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, "handlers.cpp", &["-O2"], folder.path());
    let jar = jar(&program, Target::Cldc);
    let (members, versions) = asked(&jar, &["io/github/fettle/", "fettle/program/"]);
    assert_eq!(versions, BTreeSet::from([48]));
    let known: BTreeSet<String> = include_str!("cldc-api.txt").lines().map(str::to_owned).collect();
    let unknown: Vec<&String> = members.difference(&known).collect();
    assert!(unknown.is_empty(), "not in the list: {unknown:#?}");
}
