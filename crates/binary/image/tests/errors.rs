//! What people see when a file is not what they thought: one clear line.

mod common;

use common::exercise;
use fettle_image::{Error, Image};

fn error(bytes: &[u8]) -> String {
    let error = Image::parse(bytes.to_vec()).expect_err("not an image");
    let text = error.to_string();
    assert!(!text.contains('\n'));
    text
}

/// An ELF header with the given class, byte order and machine.
fn header(class: u8, order: u8, machine: u16) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order, 1]);
    let put = |value: u16| if order == 2 { value.to_be_bytes() } else { value.to_le_bytes() };
    header[16..18].copy_from_slice(&put(2));
    header[18..20].copy_from_slice(&put(machine));
    header[54..56].copy_from_slice(&put(56));
    header[58..60].copy_from_slice(&put(64));
    header
}

#[test]
fn other_files_are_named() {
    assert_eq!(error(b""), "not an ELF file: the file is empty");
    assert_eq!(error(b"#!/bin/sh\n"), "not an ELF file: it is a script");
    assert_eq!(error(b"hello"), "not an ELF file: it does not start with the ELF magic");
    assert_eq!(error(b"!<arch>\n"), "not an ELF file: it is an archive (.a)");
    assert_eq!(error(&header(1, 1, 3)), "32-bit ELF file (i386): only 64-bit x86-64 is supported");
    assert_eq!(error(&header(2, 1, 183)), "built for AArch64: only x86-64 is supported");
    assert_eq!(
        error(&header(2, 2, 21)),
        "big-endian ELF file (PowerPC64): only little-endian x86-64 is supported"
    );
    let mut core = header(2, 1, 62);
    core[16] = 4;
    assert_eq!(error(&core), "not a program, library or object file: a core dump");
}

#[test]
fn truncation_says_what_and_where() {
    let whole = header(2, 1, 62);
    assert!(Image::parse(whole.clone()).is_ok());
    assert_eq!(
        error(&whole[..40]),
        "truncated: the ELF header needs bytes up to 0x40, but the file ends at 0x28"
    );
    let mut promising = whole;
    promising[32] = 64;
    promising[56] = 3;
    assert_eq!(
        error(&promising),
        "truncated: the program header table needs bytes up to 0xe8, but the file ends at 0x40"
    );
    let bash = std::fs::read("/bin/bash").expect("bash");
    let cut = Image::parse(bash[..bash.len() / 2].to_vec()).expect_err("not an image");
    assert!(matches!(cut, Error::Truncated { .. }), "{cut}");
    assert!(cut.to_string().starts_with("truncated: segment "), "{cut}");
}

/// Every prefix of a real file gives an image or an error.
#[test]
fn no_prefix_of_a_file_stops_us() {
    let built = common::Built::new(&["-g"]);
    let object = common::Built::new(&["-g", "-c"]);
    for path in [&built.path, &object.path] {
        let file = std::fs::read(path).expect("the file");
        let ends = (0..file.len().min(2048)).chain((0..file.len()).step_by(97));
        for end in ends {
            if let Ok(image) = Image::parse(file[..end].to_vec()) {
                exercise(&image);
            }
        }
    }
}

/// A prefix that still has all segments runs, so it is an image; what is lost is the sections.
#[test]
fn a_lost_section_table_is_a_warning() {
    let built = common::Built::new(&["-g"]);
    let file = std::fs::read(&built.path).expect("the file");
    let image = Image::parse(file[..file.len() - 1].to_vec()).expect("an image");
    let warnings: Vec<String> = image.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("section headers ignored: truncated: the section header table")
    );
    assert!(!image.functions().is_empty());
}
