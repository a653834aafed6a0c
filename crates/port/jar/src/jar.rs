//! The jar: translated classes, the runtime's classes, the program's image.

use std::borrow::Cow;
use std::io::{Cursor, Write as _};

use object::read::elf::{ElfFile32, ProgramHeader as _};
use rayon::prelude::*;
use zip::result::ZipResult;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use crate::classfile::preverify;
use crate::coordinates::Coordinates;
use crate::error::Error;
use crate::image::Image;
use crate::program::Translated;
use crate::target::Target;

/// The runtimes, compiled when fettle was built; empty if there was no JDK.
mod runtimes {
    include!(concat!(env!("OUT_DIR"), "/runtime.rs"));

    /// The classes of a target's runtime.
    pub(super) fn of(target: crate::target::Target) -> &'static [(&'static str, &'static [u8])] {
        match target {
            crate::target::Target::Java => JAVA,
            crate::target::Target::Android => ANDROID,
            crate::target::Target::Cldc => CLDC,
        }
    }
}

/// Whether this fettle has the Java runtime that every jar needs.
pub fn has_runtime() -> bool {
    !runtimes::of(Target::Java).is_empty()
}

/// The jar of a program. The same program always gives the same bytes.
pub fn write(image: &Image, translated: &Translated) -> Result<Vec<u8>, Error> {
    let runtime = runtimes::of(translated.target);
    if runtime.is_empty() {
        return Err(Error::NoRuntime);
    }
    // The manifest is first, as tools that read jars as streams want it.
    let manifest = manifest(translated);
    let coordinates: Vec<(String, String)> =
        translated.coordinates.iter().flat_map(Coordinates::files).collect();
    let loaded = loaded(image.file())?;
    let mut files: Vec<(&str, Cow<'_, [u8]>)> =
        vec![("META-INF/MANIFEST.MF", manifest.as_bytes().into())];
    files.extend(coordinates.iter().map(|(name, text)| (name.as_str(), text.as_bytes().into())));
    let name = format!("{}image.elf", translated.folder);
    files.push((&name, loaded.into()));
    files.extend(translated.classes.iter().map(|(name, bytes)| (name.as_str(), bytes.into())));
    for (name, bytes) in runtime {
        let bytes = match translated.target {
            Target::Cldc => preverify(bytes)
                .ok_or_else(|| Error::Jar(format!("{name} cannot be preverified")))?
                .into(),
            _ => Cow::Borrowed(*bytes),
        };
        files.push((name, bytes));
    }
    pack(&files).map_err(|e| Error::Jar(e.to_string()))
}

/// An archive of files in this order. Each is compressed by itself, so that processors share the work.
fn pack(files: &[(&str, Cow<'_, [u8]>)]) -> ZipResult<Vec<u8>> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let compressed: Vec<ZipResult<Cursor<Vec<u8>>>> = files
        .par_iter()
        .map(|(name, bytes)| {
            let mut one = ZipWriter::new(Cursor::new(Vec::new()));
            one.start_file(*name, options)?;
            one.write_all(bytes)?;
            one.finish()
        })
        .collect();
    let mut all = ZipWriter::new(Cursor::new(Vec::new()));
    for one in compressed {
        all.merge_archive(ZipArchive::new(one?)?)?;
    }
    Ok(all.finish()?.into_inner())
}

/// Since Java 25 only the inner Unsafe can compare and set elements of a byte array.
const EXPORTS: &str = "Add-Exports: java.base/jdk.internal.misc\r\n";

fn manifest(translated: &Translated) -> String {
    let package = translated.folder.trim_end_matches('/').replace('/', ".");
    let mut text = String::from("Manifest-Version: 1.0\r\n");
    match translated.library {
        // What describes itself, or cannot be a module, has no use for a name.
        true if translated.target == Target::Java => {}
        true => add_line(&mut text, &format!("Automatic-Module-Name: {package}\r\n")),
        false => add_line(&mut text, &format!("Main-Class: {package}.Main\r\n")),
    }
    match translated.target {
        Target::Java => text += EXPORTS,
        Target::Android => {}
        Target::Cldc => {
            let name = package.rsplit('.').next().unwrap_or(&package);
            add_line(&mut text, &format!("MIDlet-1: {name},,{package}.Midlet\r\n"));
            add_line(&mut text, &format!("MIDlet-Name: {name}\r\n"));
            text += MIDLET_ATTRIBUTES;
        }
    }
    text + "\r\n"
}

/// What devices want to know of a MIDlet besides.
const MIDLET_ATTRIBUTES: &str = "MIDlet-Version: 1.0\r\nMIDlet-Vendor: unknown\r\n\
    MicroEdition-Configuration: CLDC-1.1\r\nMicroEdition-Profile: MIDP-2.0\r\n";

/// Adds an attribute. A line has at most 72 bytes; what is longer goes on behind a space.
fn add_line(text: &mut String, line: &str) {
    let mut rest = line;
    while rest.len() > 72 {
        let (line, more) = rest.split_at(if text.ends_with(' ') { 69 } else { 70 });
        *text += line;
        *text += "\r\n ";
        rest = more;
    }
    *text += rest;
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
