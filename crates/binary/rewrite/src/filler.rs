//! What lies behind a function and may be written over: the bytes that assemblers and linkers fill up
//! with before the next function. Code without a symbol or an unwind entry lies between functions,
//! too, and is not listed anywhere: what is not seen to be filler stays.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// Whether the first `wanted` of some bytes are filler: no-operations, breakpoints (which are never
/// passed) and zeros.
pub(crate) fn is_filler(bytes: &[u8], wanted: usize) -> bool {
    let mut at = 0;
    while at < wanted {
        match bytes.get(at) {
            Some(0 | 0x90 | 0xcc) => at += 1,
            Some(_) => {
                let insn = Decoder::new(64, &bytes[at..], DecoderOptions::NONE).decode();
                if insn.mnemonic() != Mnemonic::Nop {
                    return false;
                }
                at += insn.len();
            }
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_assemblers_fill_with() {
        assert!(is_filler(&[0x90, 0x66, 0x0f, 0x1f, 0x44, 0, 0], 5));
        assert!(is_filler(&[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 4));
        assert!(is_filler(&[0xcc, 0xcc, 0, 0, 0], 5));
        assert!(is_filler(&[0x48], 0));
    }

    #[test]
    fn code_is_none() {
        // nop; mov rax, [rdi + 0x38]: a function without a symbol, aligned to four bytes.
        let code = [0x90, 0x48, 0x8b, 0x47, 0x38];
        assert!(is_filler(&code, 1));
        assert!(!is_filler(&code, 2));
        assert!(!is_filler(&[0xc3], 1));
        // It cannot be seen what follows.
        assert!(!is_filler(&[0x90], 2));
        assert!(!is_filler(&[0x66, 0x0f], 2));
    }
}
