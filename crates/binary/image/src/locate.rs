//! Where a program's separate debug file may be. This crate opens no files: it says where to
//! look and how to tell the right one.

use std::path::{Path, PathBuf};

use crate::Image;

const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Paths to try in turn for the debug file of the image at `image_path`, the surest first. A file
/// found by name instead of build ID should also pass [`crc32`] against [`Image::debug_link`].
pub fn debug_file_candidates(image_path: &Path, image: &Image) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Some([first, rest @ ..]) = image.build_id()
        && !rest.is_empty()
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        paths.push(Path::new(DEBUG_ROOT).join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    if let Some((name, _)) = image.debug_link()
        && is_plain_name(&name)
        && let Some(folder) = image_path.parent()
    {
        // A debug file may link to itself; the image is never its own debug file.
        paths.push(folder.join(&name));
        paths.push(folder.join(".debug").join(&name));
        let below_root = folder.strip_prefix("/").unwrap_or(folder);
        paths.push(Path::new(DEBUG_ROOT).join(below_root).join(&name));
    }
    paths.retain(|path| path != image_path);
    paths
}

/// A link is a file name: one with folders in it could lead anywhere.
fn is_plain_name(name: &str) -> bool {
    !name.contains('/') && name != "." && name != ".."
}

/// CRC-32 as `.gnu_debuglink` uses it: the polynomial of zlib and Ethernet.
#[expect(
    clippy::indexing_slicing,
    reason = "each index is one byte, and each table has 256 entries"
)]
pub fn crc32(bytes: &[u8]) -> u32 {
    // Eight tables let eight bytes at a time be looked up; debug files are large.
    const TABLES: [[u32; 256]; 8] = tables();
    let mut crc = u32::MAX;
    let (chunks, remainder) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in chunks {
        let low = crc ^ u32::from_le_bytes([a, b, c, d]);
        crc = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][e as usize]
            ^ TABLES[2][f as usize]
            ^ TABLES[1][g as usize]
            ^ TABLES[0][h as usize];
    }
    for &byte in remainder {
        crc = TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8);
    }
    !crc
}

#[expect(clippy::indexing_slicing, reason = "a constant, so that a wrong index does not compile")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][i] = value;
        i += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut i = 0;
        while i < 256 {
            let before: u32 = tables[table - 1][i];
            tables[table][i] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            i += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_of_the_check_string() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn links_with_folders_are_refused() {
        assert!(is_plain_name("a.debug"));
        assert!(!is_plain_name("../../etc/passwd"));
        assert!(!is_plain_name(".."));
    }
}
