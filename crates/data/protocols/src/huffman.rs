//! The code of HPACK's texts (RFC 7541, appendix B): short for characters that heads are made of.
//!
//! The code is canonical: of one length, codes count upwards with the characters, and the first of
//! a length follows the last of the length before. So the lengths say all.
#![expect(
    clippy::indexing_slicing,
    reason = "into tables of fixed sizes, by numbers of bits that are bounded"
)]

/// Bits of each character's code; the last is the end's.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const BITS_MAX: usize = 30;
/// Unpacked texts are not longer.
const TEXT_MAX: usize = 64 << 10;

/// The code, sorted by length.
struct Code {
    /// Characters in the order of their codes.
    characters: [u16; 257],
    /// By length: the first code, and where its character stands.
    first: [(u32, usize); BITS_MAX + 2],
}

const CODE: Code = {
    let mut code = Code { characters: [0; 257], first: [(0, 0); BITS_MAX + 2] };
    let (mut at, mut next, mut bits) = (0, 0, 1);
    while bits <= BITS_MAX {
        next <<= 1;
        code.first[bits] = (next, at);
        let mut character = 0;
        while character < 257 {
            if LENGTHS[character] as usize == bits {
                code.characters[at] = character as u16;
                at += 1;
                next += 1;
            }
            character += 1;
        }
        bits += 1;
    }
    code.first[BITS_MAX + 1] = (next << 1, at);
    code
};

/// Unpacks a text; `None` if it is none.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    const END: u16 = 256;
    let mut text = Vec::new();
    let (mut code, mut bits) = (0_u32, 0_usize);
    for byte in packed {
        for n in (0..8).rev() {
            code = code << 1 | u32::from(byte >> n & 1);
            bits += 1;
            let (first, at) = CODE.first[bits];
            let place = at + (code.checked_sub(first)? as usize);
            if place < CODE.first[bits + 1].1 {
                let character = CODE.characters[place];
                if character == END || text.len() >= TEXT_MAX {
                    return None;
                }
                text.push(character as u8);
                (code, bits) = (0, 0);
            } else if bits == BITS_MAX {
                return None;
            }
        }
    }
    // The rest is the beginning of the end's code, which is ones.
    (bits < 8 && code == (1 << bits) - 1).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        let packed = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(unpack(&packed).unwrap(), b"www.example.com");
        assert_eq!(unpack(&[0x64, 0x02]).unwrap(), b"302");
        assert_eq!(unpack(&[]).unwrap(), b"");
        // Padding of zeros, and more than seven bits of it.
        assert_eq!(unpack(&[0x64, 0x02, 0x00]), None);
        assert_eq!(unpack(&[0xff]), None);
        assert_eq!(unpack(&[0xff; 4]), None);
    }
}
