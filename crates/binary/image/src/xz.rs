//! The xz container around an LZMA2 stream, read with a bound on what comes out.
//!
//! LZMA2 data is a row of chunks, each of which states its sizes, compressed and not. Adding
//! them up costs nothing and tells how much the decoder will write before it writes any of it.

use crate::raw;

const MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const STREAM_HEADER_SIZE: usize = 12;
const FILTER_LZMA2: u64 = 0x21;

/// Decompresses a whole `.xz` file, all of its blocks, unless more than `limit` bytes come out.
pub(crate) fn decompress(data: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    if !data.starts_with(MAGIC) {
        return Err("not xz data");
    }
    let check_size = match data.get(7).ok_or("xz header cut off")? & 0xf {
        0 => 0,
        1..=3 => 4,
        4..=6 => 8,
        7..=9 => 16,
        10..=12 => 32,
        _ => 64,
    };
    let mut output = Vec::new();
    let mut at = STREAM_HEADER_SIZE;
    loop {
        let size_byte = *data.get(at).ok_or("xz block header cut off")?;
        // A block header of no size is the index, behind the last block.
        if size_byte == 0 {
            return Ok(output);
        }
        let header_size = (usize::from(size_byte) + 1) * 4;
        let header = data.get(at..at + header_size).ok_or("xz block header cut off")?;
        check_block_header(header)?;
        at += header_size;
        let chunks = data.get(at..).ok_or("xz block cut off")?;
        let (packed, unpacked) = measure(chunks, limit - output.len())?;
        let mut of_block = chunks.get(..packed).ok_or("xz block cut off")?;
        let mut block = Vec::with_capacity(unpacked);
        lzma_rs::lzma2_decompress(&mut of_block, &mut block).map_err(|_| "damaged LZMA2 data")?;
        if output.len() + block.len() > limit {
            return Err("more data than expected");
        }
        output.append(&mut block);
        at = (at + packed).next_multiple_of(4) + check_size;
    }
}

/// Accepts only a block with LZMA2 as its one filter, which is what debug data is packed with.
fn check_block_header(header: &[u8]) -> Result<(), &'static str> {
    let flags = *header.get(1).ok_or("xz block header cut off")?;
    if flags & 0x3f != 0 {
        return Err("xz filters other than LZMA2");
    }
    let mut at = 2;
    for present in [0x40, 0x80] {
        if flags & present != 0 {
            varint(header, &mut at).ok_or("damaged xz block header")?;
        }
    }
    match varint(header, &mut at) {
        Some(FILTER_LZMA2) => Ok(()),
        Some(_) => Err("xz filters other than LZMA2"),
        None => Err("damaged xz block header"),
    }
}

fn varint(data: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *data.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Compressed and uncompressed size of a row of LZMA2 chunks.
fn measure(chunks: &[u8], limit: usize) -> Result<(usize, usize), &'static str> {
    const CUT_OFF: &str = "LZMA2 data cut off";
    let word = |at: usize| {
        let bytes = raw::u16(chunks, at).ok_or(CUT_OFF)?;
        Ok::<usize, &'static str>(usize::from(bytes.swap_bytes()))
    };
    let (mut at, mut unpacked) = (0usize, 0usize);
    loop {
        let control = *chunks.get(at).ok_or(CUT_OFF)?;
        match control {
            0 => return Ok((at + 1, unpacked)),
            1 | 2 => {
                let size = word(at + 1)? + 1;
                unpacked += size;
                at += 3 + size;
            }
            0x80.. => {
                unpacked += (usize::from(control & 0x1f) << 16) + word(at + 1)? + 1;
                let has_properties = control >= 0xc0;
                at += 5 + usize::from(has_properties) + word(at + 3)? + 1;
            }
            _ => return Err("damaged LZMA2 data"),
        }
        if unpacked > limit {
            return Err("more data than expected");
        }
        if at > chunks.len() {
            return Err(CUT_OFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of an xz file, and nothing behind it.
    const HEADER: &[u8] = &[0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36];

    #[test]
    fn limits_and_damage() {
        assert_eq!(decompress(b"", 10), Err("not xz data"));
        assert_eq!(decompress(HEADER, 10), Err("xz block header cut off"));
        // A stored chunk of three bytes, then the end.
        let chunks = [1, 0, 2, b'a', b'b', b'c', 0];
        assert_eq!(measure(&chunks, 3), Ok((7, 3)));
        assert_eq!(measure(&chunks, 2), Err("more data than expected"));
        assert_eq!(measure(&chunks[..5], 3), Err("LZMA2 data cut off"));
        // A chunk that claims two megabytes is refused before any of it is made.
        assert_eq!(
            measure(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0], 1000),
            Err("more data than expected")
        );
    }
}
