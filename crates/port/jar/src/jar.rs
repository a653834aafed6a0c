//! The jar: translated classes, the runtime's classes, the program's image.

use std::io::{Cursor, Write as _};

use object::read::elf::{ElfFile32, ProgramHeader as _};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::error::Error;
use crate::image::Image;
use crate::program::Translated;

/// The runtime, compiled when fettle was built; empty if there was no JDK.
static RUNTIME: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/runtime.rs"));

/// Whether this fettle has the Java runtime that every jar needs.
pub fn has_runtime() -> bool {
    !RUNTIME.is_empty()
}

/// The jar of a program. The same program always gives the same bytes.
pub fn write(image: &Image, translated: &Translated) -> Result<Vec<u8>, Error> {
    if !has_runtime() {
        return Err(Error::NoRuntime);
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let mut add = |name: &str, bytes: &[u8]| -> Result<(), Error> {
        zip.start_file(name, options).map_err(|e| Error::Jar(e.to_string()))?;
        zip.write_all(bytes).map_err(|e| Error::Jar(e.to_string()))
    };
    // The manifest is first, as tools that read jars as streams want it.
    add("META-INF/MANIFEST.MF", manifest(translated).as_bytes())?;
    add(&format!("{}image.elf", translated.folder), &loaded(image.file())?)?;
    for (name, bytes) in &translated.classes {
        add(name, bytes)?;
    }
    for (name, bytes) in RUNTIME {
        add(name, bytes)?;
    }
    let bytes = zip.finish().map_err(|e| Error::Jar(e.to_string()))?;
    Ok(bytes.into_inner())
}

/// Since Java 25 only the inner Unsafe can compare and set elements of a byte array.
const EXPORTS: &str = "Add-Exports: java.base/jdk.internal.misc\r\n";

fn manifest(translated: &Translated) -> String {
    let package = translated.folder.trim_end_matches('/').replace('/', ".");
    let main = match translated.library {
        true => format!("Automatic-Module-Name: {package}\r\n"),
        false => format!("Main-Class: {package}.Main\r\n"),
    };
    // A line has at most 72 bytes; what is longer goes on behind a space.
    let mut text = String::from("Manifest-Version: 1.0\r\n");
    let mut rest = main.as_str();
    while rest.len() > 72 {
        let (line, more) = rest.split_at(if text.ends_with(' ') { 69 } else { 70 });
        text += line;
        text += "\r\n ";
        rest = more;
    }
    text + rest + EXPORTS + "\r\n"
}

/// The part of the file that is loaded: its sections and symbols are left out.
fn loaded(file: &[u8]) -> Result<Vec<u8>, Error> {
    let elf =
        ElfFile32::<object::Endianness>::parse(file).map_err(|e| Error::Damaged(e.to_string()))?;
    let endian = elf.endian();
    let headers = 52 + 32 * elf.elf_program_headers().len();
    let end = elf.elf_program_headers().iter().map(|header| {
        let (offset, size) = header.file_range(endian);
        (offset + size) as usize
    });
    let end = end.max().unwrap_or(0).max(headers).min(file.len());
    let mut bytes = file[..end].to_vec();
    // Offset, number and names of section headers.
    bytes[32..36].fill(0);
    bytes[48..52].fill(0);
    Ok(bytes)
}
